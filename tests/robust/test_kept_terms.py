from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused
from support.uncertain_tables import drawn_columns

from protodask.data.format.schema import TARGET, WEIGHT
from protodask.engine import Block
from protodask.robust.brackets import bracket
from protodask.robust.classifier_rows import RowsOfArrays
from protodask.robust.formulations import FORMULATIONS, make_terms, unit_terms
from protodask.robust.kept_terms import ClassAgainstRest, TermsForm, pack_block, rounded_down, rounded_up
from protodask.robust.passes import TILE_ROWS
from protodask.robust.uncertain_rows import UncertainRows

NUMBERS = st.floats(-1e30, 1e30)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_rounding__goes_outward_by_less_than_a_step(given_numbers: list[float]) -> None:
    values, single = np.array(given_numbers), np.dtype(np.float32)
    low, high = rounded_down(values, single), rounded_up(values, single)
    assert low.dtype == high.dtype == single
    assert (low <= values).all()
    assert (values <= high).all()
    # There is no number of that type between them and the values.
    assert (np.nextafter(low, np.float32(np.inf)) > values).all()
    assert (np.nextafter(high, np.float32(-np.inf)) < values).all()


def drawn_rows(n_rows: int, exact_means: bool) -> UncertainRows:
    _, _, rows = drawn_columns(n_rows, 5, seed=4)
    # In units where float32 has to round.
    shifted = UncertainRows(*(array + 1000.1 for array in (rows.lower, rows.upper, rows.mean_low, rows.mean_high)))
    return shifted.exact_means() if exact_means else shifted


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_brackets__of_what_is_kept_are_never_below_and_nearly_the_same(formulation: str, dtype: str) -> None:
    rows = drawn_rows(50, formulation.startswith("SM"))
    form = TermsForm(formulation, 5, dtype)
    packed = form.pack(unit_terms(rows, formulation))
    assert {array.dtype for array in packed.values()} == {np.dtype(dtype)}
    assert tuple(packed) == form.names
    random = np.random.default_rng(0)
    y = random.choice([-1.0, 1.0], 50)
    whole = make_terms(rows, formulation, 0.1)
    kept = form.unpack(packed, float(np.sqrt(2 * np.log(10))) if formulation != "MC" else 3.0)
    step = 0.0 if dtype == "float64" else 2 * 1000 * float(np.finfo(np.float32).eps)
    points = "mean" in form.names
    for _ in range(5):
        weights = random.normal(size=5)
        expected, found = bracket(whole, y, weights)[0], bracket(kept, y, weights)[0]
        size = np.abs(weights).sum()
        # A single number for a mean is rounded to the nearest, all else outward.
        assert (found >= expected - (step * size if points else 0.0) - 1e-9).all()
        assert (found <= expected + step * size + 1e-9).all()


def block_of(rows: UncertainRows, start: int = 0) -> Block:
    arrays = {"lower": rows.lower, "upper": rows.upper, "mean_low": rows.mean_low, "mean_high": rows.mean_high}
    return Block(0, start, {**arrays, TARGET.name: np.arange(len(rows), dtype=np.int32) % 3})


def test_pack_block__in_tiles_is_that_of_all_rows() -> None:
    rows = drawn_rows(TILE_ROWS + 100, False)
    form = TermsForm("SBM-I", 5)
    kept = pack_block(block_of(rows), RowsOfArrays(None), form)
    for name, values in form.pack(unit_terms(rows, "SBM-I")).items():
        np.testing.assert_array_equal(kept[name], values)
    assert (kept[WEIGHT.name] == 1).all()
    assert sum(array.nbytes for array in kept.values()) == form.row_bytes * len(rows)


def test_class_against_rest__has_the_sign_and_the_cost_of_each_sample() -> None:
    rows = drawn_rows(6, False)
    form = TermsForm("SBM", 5)
    block = block_of(rows)
    weighted = Block(0, 0, {**block.arrays, WEIGHT.name: np.arange(6.0)})
    kept = Block(0, 0, pack_block(weighted, RowsOfArrays(None), form))
    samples = ClassAgainstRest(form, 2.0, 1, 0.5)(kept)
    np.testing.assert_array_equal(samples.y, [-1, 1, -1, -1, 1, -1])
    np.testing.assert_array_equal(samples.cost, 0.5 * np.arange(6))
    np.testing.assert_array_equal(samples.terms.spread, 2 * unit_terms(rows, "SBM").spread)


def test_pack_block__names_the_row_that_is_wrong() -> None:
    rows = drawn_rows(TILE_ROWS + 10, False)
    block = block_of(rows, start=70_000)
    block["lower"][TILE_ROWS + 3, 2] = np.nan
    with refused("bad-value", f"sample {70_000 + TILE_ROWS + 3}", "feature 2", "lower"):
        pack_block(block, RowsOfArrays(None), TermsForm("SBM", 5))
