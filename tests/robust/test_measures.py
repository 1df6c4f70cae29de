from dataclasses import astuple, dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask.engine import Block, array_source, thread_engine
from protodask.robust.certified import Certificates
from protodask.robust.measures import CERTIFIED_SUMS, NOTHING, CertifiedSums, certified_sums, merge_sums
from protodask.robust.terms import Floats


def some_certificates() -> tuple[Certificates, NDArray[np.int64]]:
    eps = np.array([0.0, 0.05, 0.1, 0.5, 0.01])
    return Certificates(np.array([1, -1, 1, 1, -1]), np.sqrt(-2 * np.log(eps + 1e-300)), eps), np.array(
        [1, -1, 1, -1, 1]
    )


def test_certified_sums__by_hand() -> None:
    sums = certified_sums(*some_certificates(), eps=0.05)
    assert sums.count == 5
    assert sums.nominal_error == pytest.approx(2 / 5)
    assert sums.expected_certified_error == pytest.approx((0.0 + 0.05 + 0.1 + 1 + 1) / 5)
    assert sums.certified_fraction == pytest.approx(2 / 5)


def test_certified_sums__of_weights_are_those_of_copies() -> None:
    certificates, y = some_certificates()
    copies = np.array([2, 0, 1, 3, 1])
    repeated = Certificates(*(np.repeat(array, copies) for array in vars(certificates).values()))
    weighted = certified_sums(certificates, y, 0.1, copies.astype(float))
    expected = certified_sums(repeated, np.repeat(y, copies), 0.1)
    assert astuple(weighted)[1:] == pytest.approx(astuple(expected)[1:])
    assert (weighted.count, expected.count) == (5, 7)


SUMS = st.builds(CertifiedSums, st.integers(0, 9), *(st.integers(0, 1000).map(float) for _ in range(4)))


@given(SUMS, SUMS, SUMS)
def test_merge_sums__is_a_monoid(left: CertifiedSums, middle: CertifiedSums, right: CertifiedSums) -> None:
    assert merge_sums(merge_sums(left, middle), right) == merge_sums(left, merge_sums(middle, right))
    assert merge_sums(NOTHING, left) == left == merge_sums(left, NOTHING)


@dataclass(frozen=True)
class FromColumns:
    def __call__(self, block: Block) -> tuple[Certificates, NDArray[np.int64], Floats | None]:
        return Certificates(block["side"], block["kappa"], block["eps"]), block["y"], None


def test_certified_sums__over_blocks_are_those_of_all_points() -> None:
    certificates, y = some_certificates()
    source = array_source({"y": y, **vars(certificates)}, 2)
    with thread_engine(2) as engine:
        merged = engine.reduce(source, CERTIFIED_SUMS, FromColumns(), 0.05)
    whole = certified_sums(certificates, y, 0.05)
    assert merged.expected_certified_error == pytest.approx(whole.expected_certified_error)
    assert (merged.count, merged.wrong, merged.certified) == (5, 2.0, 2.0)


def test_certified_sums__of_no_points_is_nothing() -> None:
    empty = Certificates(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    assert certified_sums(empty, np.empty(0), 0.1) == NOTHING
