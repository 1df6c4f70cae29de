import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.decisions import Cut, Decision
from protodask.decisions.decision import NOTHING


def test_cut__takes_the_first_of_the_tied() -> None:
    cut = Cut(0.5, tied=3, taken=2)
    np.testing.assert_array_equal(cut.select([0.5, 0.9, 0.1, 0.5, 0.5]), [True, True, False, True, False])
    assert cut.splits_ties
    assert cut.share_of_tied == pytest.approx(2 / 3)


def test_cut__of_nothing() -> None:
    assert not NOTHING.select([0.0, 1.0]).any()
    assert NOTHING.threshold == math.inf
    assert NOTHING.share_of_tied == 0
    assert not NOTHING.splits_ties


def test_cut__compares_single_precision_as_it_was_given() -> None:
    values = np.array([0.1, 0.3, 0.3], dtype=np.float32)
    cut = Cut(float(values[1]), tied=2, taken=2)
    np.testing.assert_array_equal(cut.select(values), [False, True, True])


@given(
    values=st.lists(st.sampled_from([0.1, 0.5, 0.5, 0.9]), max_size=12),
    taken=st.integers(0, 12),
    edge=st.integers(0, 12),
)
def test_cut__is_the_same_block_by_block(values: list[float], taken: int, edge: int) -> None:
    tied = values.count(0.5)
    cut = Cut(0.5, tied, min(taken, tied))
    blocks = [cut.select(values[:edge]), cut.select(values[edge:], tied_before=values[:edge].count(0.5))]
    np.testing.assert_array_equal(np.concatenate(blocks), cut.select(values))
    assert cut.select(values).sum() == values.count(0.9) + min(taken, tied)


def test_decision__explains_itself() -> None:
    decision = Decision(1000, 20, Cut(0.125, 1, 1), 0.5, 0.75, "f1", "quadratic")
    assert str(decision).splitlines() == [
        "Selected 20 of 1,000 items: probability at least 0.125.",
        "Expected f1 loss 0.5 (exact); selecting probabilities of at least 0.5 would cost 0.75, 0.25 more.",
    ]
    assert decision.threshold == 0.125
    assert "selected" not in repr(decision)


def test_decision__explains_split_ties_and_nothing() -> None:
    tied = Decision(1000, 20, Cut(0.125, 4, 1), 0.5, 0.5, "f1", "normal")
    assert tied.explain().startswith("Selected 20 of 1,000 items: 1 of the 4 items at 0.125, all above.\n")
    assert "loss 0.5 (nearly normal counts); selecting" in tied.explain()
    nothing = Decision(1000, 0, NOTHING, 0.0, 0.5, "auc", "general")
    assert nothing.explain().startswith("Selected none of 1,000 items.\n")
