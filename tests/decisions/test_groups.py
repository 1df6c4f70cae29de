"""A decision for each group: each as if it were alone, whatever the order, the blocks and the threads."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask.decisions import Loss, as_loss, decide, expected_losses, groups
from protodask.decisions.group_tables import (
    COLUMNS,
    GroupDecisions,
    count_tied_before,
    join_groups,
    select_rows,
)
from protodask.decisions.groups import decide_groups, decide_together
from protodask.decisions.large import decide_normal
from protodask.engine import array_source, thread_engine

Floats = NDArray[np.float64]


def check_each_alone(found: GroupDecisions, probability: Floats, labels: NDArray[Any], loss: str) -> None:
    assert found.selected is not None
    assert sorted(set(labels.tolist())) == sorted(found.group.tolist())
    assert (np.diff(found.first_row) > 0).all()
    for place, label in enumerate(found.group):
        own = np.flatnonzero(labels == label)
        alone = decide(probability[own], loss, "exact")
        assert found.first_row[place] == own[0]
        assert (found.n[place], found.k[place]) == (len(own), alone.k)
        assert (found.threshold[place], found.tied[place], found.taken[place]) == (
            alone.threshold,
            alone.cut.tied,
            alone.cut.taken,
        )
        assert found.expected_loss[place] == pytest.approx(alone.expected_loss, abs=1e-12)
        assert found.loss_at_half[place] == pytest.approx(alone.loss_at_half, abs=1e-12)
        np.testing.assert_array_equal(found.selected[own], alone.selected)


@given(st.data())
@settings(max_examples=25)
def test_decide_groups__decides_each_as_if_alone(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    probability = np.array(data.draw(st.lists(st.sampled_from([0, 0.1, 0.3, 0.5, 0.8, 1]), min_size=n, max_size=n)))
    labels = np.array(data.draw(st.lists(st.integers(-2, 5), min_size=n, max_size=n)))
    loss = data.draw(st.sampled_from(["f1", "am", "g_tp_pr"]))
    check_each_alone(decide_groups(probability, labels, loss), probability.astype(float), labels, loss)


def test_decide_groups__of_text_in_any_order() -> None:
    random = np.random.default_rng(0)
    probability, labels = random.uniform(size=300), random.choice(["red", "green", "blue"], size=300)
    check_each_alone(decide_groups(probability, labels, "jaccard"), probability, labels, "jaccard")


@given(st.data())
@settings(max_examples=25)
def test_decide_together__does_not_depend_on_the_blocks(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=12))
    labels = np.repeat(np.arange(len(lengths))[::-1], lengths)
    probability = np.round(np.random.default_rng(len(labels)).uniform(size=len(labels)), 1)
    block_rows = 2 ** data.draw(st.integers(0, 5))
    with thread_engine(1) as engine:
        source = array_source({"probability": probability, "group": labels}, block_rows)
        found = decide_together(source, "f1", "auto", engine)
        assert found is not None
        before = count_tied_before(source, found, engine)
    flags = [
        select_rows(found, probability[start : start + block_rows], start, before.get(start // block_rows, 0))
        for start in range(0, len(labels), block_rows)
    ]
    whole = decide_groups(probability, labels, "f1")
    np.testing.assert_array_equal(np.concatenate(flags), whole.selected)
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-12)


def test_decide_together__is_the_same_to_the_bit_for_any_threads() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), random.integers(1, 40, size=60))
    source = array_source({"probability": random.uniform(size=len(labels)), "group": labels}, 64)
    tables = []
    for threads in (1, 2, 3):
        with thread_engine(threads) as engine:
            tables.append(decide_together(source, "am", "auto", engine))
    for other in tables[1:]:
        for name in COLUMNS:
            np.testing.assert_array_equal(getattr(other, name), getattr(tables[0], name))


@pytest.mark.parametrize("block_rows", [16, 64, 1024])
def test_decide_together__long_groups_get_passes_of_their_own(block_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LONG", 100)
    monkeypatch.setattr(groups, "EXACT_ROWS", 20)
    random = np.random.default_rng(0)
    lengths = [3, 250, 1, 40, 101, 100, 300]
    labels = np.repeat(np.arange(len(lengths)), lengths)
    probability = np.round(random.beta(1, 3, size=len(labels)), 2)
    with thread_engine(2) as engine:
        source = array_source({"probability": probability, "group": labels}, block_rows)
        found = decide_together(source, "f1", "auto", engine)
        assert found is not None
        before = count_tied_before(source, found, engine)
    assert found.n.tolist() == lengths
    for place, first in enumerate(found.first_row):
        alone = decide_normal(probability[first : first + lengths[place]], "f1")
        assert (found.k[place], found.threshold[place]) == (alone.k, alone.threshold)
        assert found.expected_loss[place] == pytest.approx(alone.expected_loss, abs=1e-12)
    flags = np.concatenate(
        [
            select_rows(found, source.read(number)["probability"], number * block_rows, before.get(number, 0))
            for number in range(source.layout.n_blocks)
        ]
    )
    np.testing.assert_array_equal(np.add.reduceat(flags.astype(int), found.first_row), found.k)


@pytest.mark.parametrize("block_rows", [16, 64, 1024])
def test_decide_together__is_not_exact_on_long_groups_wherever_they_lie(
    block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "LONG", 100)
    monkeypatch.setattr(groups, "MOST_EXACT_ROWS", 100)
    labels = np.repeat([0, 1, 2], [3, 250, 5])
    source = array_source({"probability": np.full(len(labels), 0.3), "group": labels}, block_rows)
    with thread_engine(1) as engine, refused("over-limit", 250, 100):
        decide_together(source, "f1", "exact", engine)


@pytest.mark.parametrize("labels", [[1, 2, 1, 3, 3, 3, 3, 3], [1, 1, 2, 2, 1, 1, 3, 3], [1, 2, 3, 3, 3, 3, 3, 1]])
@pytest.mark.parametrize("block_rows", [1, 2, 4, 8])
def test_decide_together__says_where_a_group_comes_back(labels: list[int], block_rows: int) -> None:
    source = array_source({"probability": np.full(8, 0.3), "group": np.array(labels)}, block_rows)
    with thread_engine(1) as engine:
        assert decide_together(source, "f1", "auto", engine) is None


def test_decide_groups__of_one_row_each_select_by_their_own_loss() -> None:
    probability = np.array([0.2, 0.49, 0.5, 0.51, 0.9])
    found = decide_groups(probability, np.arange(5), "f1")
    # Selected, 1 - eta is the loss; not selected, eta.
    assert found.k.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(found.expected_loss, np.minimum(probability, 1 - probability))
    assert found.mean_expected_loss == pytest.approx(np.minimum(probability, 1 - probability).mean())


def test_decide_groups__methods_agree() -> None:
    random = np.random.default_rng(0)
    probability, labels = random.uniform(size=600), np.repeat([0, 1, 2], 200)
    exact = decide_groups(probability, labels, "am", "exact")
    normal = decide_groups(probability, labels, "am", "normal")
    np.testing.assert_array_equal(exact.k, normal.k)
    np.testing.assert_allclose(exact.expected_loss, normal.expected_loss, atol=1e-10)
    assert (exact.expected_loss != normal.expected_loss).any()  # they are two methods


@pytest.mark.parametrize("loss", ["f1", "jaccard", "am", "g_mean", "g_tp_pr"])
def test_decide_groups__of_many_rows_cost_no_more_than_the_exact_decision(loss: str) -> None:
    random = np.random.default_rng(0)
    parts = [random.uniform(size=513), random.beta(0.3, 8, size=560), 1 - random.beta(0.3, 8, size=530)]
    labels = np.repeat(np.arange(3), [len(part) for part in parts])
    found = decide_groups(np.concatenate(parts), labels, loss)
    for place, part in enumerate(parts):
        exact = expected_losses(part, loss)
        assert exact[found.k[place]] - exact.min() < 1e-11
        assert found.expected_loss[place] == pytest.approx(exact[found.k[place]], abs=1e-11)
        assert found.loss_at_half[place] == pytest.approx(exact[np.count_nonzero(part >= 0.5)], abs=1e-11)


def test_decide_groups__of_many_rows_look_at_many_cuts_at_a_time() -> None:
    calls: list[int] = []
    named = as_loss("g_mean")

    def counted(u: Floats, v: Floats, p: Floats) -> Floats:
        calls.append(np.broadcast(u, v, p).size)
        return named(u, v, p)

    probability = np.random.default_rng(0).uniform(size=1000)
    found = decide_groups(probability, np.zeros(1000), Loss("counted", counted, monotone=True, smooth=True))
    assert found.k[0] == decide_groups(probability, np.zeros(1000), "g_mean").k[0]
    assert len(calls) < 30
    assert sum(calls) < 500_000


def test_decide_groups__refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("wrong-shape", "(1,)", "(2,)"):
        decide_groups([0.1, 0.2], [1], "f1")
    for missing in ([1.0, np.nan], np.array(["a", None])):
        with refused("bad-value"):
            decide_groups([0.1, 0.2], missing, "f1")
    monkeypatch.setattr(groups, "MOST_EXACT_ROWS", 10)
    with refused("bad-setting", "method", "'quick'"):
        decide_groups([0.5], [1], method="quick")  # type: ignore[arg-type]
    with refused("over-limit", 11, 10):
        decide_groups(np.full(11, 0.3), np.zeros(11), "f1", "exact")
    with thread_engine(1) as engine, refused("no-rows"):
        decide_together(array_source({"probability": np.zeros(0), "group": np.zeros(0)}), "f1", "auto", engine)


def test_decide_together__refuses_more_groups_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LEAST_GROUPS", 10)
    monkeypatch.setattr(groups, "GROUP_BYTES", 2**40)
    source = array_source({"probability": np.full(64, 0.3), "group": np.arange(64)}, 8)
    with thread_engine(1) as engine, refused("over-memory", 10, "`memory_bytes`"):
        decide_together(source, "f1", "auto", engine)


def test_decide_groups__refuses_what_is_no_probability_with_its_row() -> None:
    source = array_source({"probability": np.array([0.1, 0.2, np.nan]), "group": np.array([0, 0, 1])}, 2)
    with thread_engine(1) as engine, refused("bad-value", "Row 2", "nan"):
        decide_together(source, "f1", "auto", engine)


def test_join_groups__of_nothing_is_nothing() -> None:
    some = decide_groups([0.2, 0.7], ["a", "b"], "f1")
    assert len(join_groups([])) == 0
    assert join_groups([join_groups([]), some]).group.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "group",
    [
        ["a", None],
        ["a", np.nan],
        np.array([np.nan, "a"], dtype=object),
        np.array(["NaT", "2020-01-01"], dtype="datetime64[D]"),
        np.array([pd.NA, "a"], dtype=object),
        np.ma.array([1, 2], mask=[False, True]),
    ],
    ids=["None", "nan in a list", "nan", "NaT", "NA", "masked"],
)
def test_decide_groups__refuses_items_without_a_group(group: Any) -> None:
    with refused("bad-value"):
        decide_groups([0.1, 0.2], group)


def test_decide_groups__of_whole_numbers_that_float64_would_round() -> None:
    found = decide_groups([0.1, 0.9, 0.5, 0.3], [2**63 + 1, 2**63 + 2, 5, 2**63 + 2])
    assert found.group.tolist() == [2**63 + 1, 2**63 + 2, 5]
    assert found.n.tolist() == [1, 2, 1]


def test_decide_groups__refuses_groups_of_mixed_types() -> None:
    with refused("wrong-type"):
        decide_groups([0.1, 0.2], np.array([1, "a"], dtype=object))
