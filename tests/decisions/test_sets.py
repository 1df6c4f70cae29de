from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference.decisions import NAMED, bits, loss_table, set_losses
from support.errors import refused

from protodask.decisions import Loss, RowDecisions, decide, decide_rows, decide_sets, sets

Floats = NDArray[np.float64]


def class_probabilities(n_rows: int, n_classes: int, seed: int) -> Floats:
    generator = np.random.default_rng(seed)
    probability = generator.dirichlet(np.full(n_classes, 0.6), size=n_rows)
    probability[: n_rows // 4] = np.round(probability[: n_rows // 4], 1)  # ties and zeros
    probability[: n_rows // 4, 0] += 1 - probability[: n_rows // 4].sum(axis=1)
    clipped: Floats = np.clip(probability, 0, 1)
    normalised: Floats = clipped / clipped.sum(axis=1, keepdims=True)
    return normalised


@pytest.mark.parametrize("n_classes", [1, 2, 3, 7])
@pytest.mark.parametrize("name", NAMED)
def test_decide_sets__is_the_best_of_all_sets(name: str, n_classes: int) -> None:
    probability = class_probabilities(40, n_classes, seed=n_classes)
    probability[-1] = np.eye(n_classes)[0]
    table = loss_table(NAMED[name], n_classes)
    found = decide_sets(probability, name)
    for row, values in enumerate(probability):
        every = set_losses(values, table)
        chosen = int(found.selected[row] @ (1 << np.arange(n_classes)))
        assert abs(every[chosen] - every.min()) <= 1e-12
        assert found.expected_loss[row] == pytest.approx(every[chosen], abs=1e-12)
        half = int((values >= 0.5) @ (1 << np.arange(n_classes)))
        assert found.loss_at_half[row] == pytest.approx(every[half], abs=1e-12)
        assert bits(n_classes)[chosen].sum() == found.k[row]


def test_decide_sets__hand_computed() -> None:
    """F1 of k classes of which one is right is 2 / (k + 1): 0.5 for one, 0.9 * 2 / 3 for two."""
    found = decide_sets([[0.5, 0.1, 0.4], [0.9, 0.1, 0.0]])
    np.testing.assert_array_equal(found.selected, [[True, False, True], [True, False, False]])
    np.testing.assert_allclose(found.expected_loss, [0.4, 0.1])
    np.testing.assert_allclose(found.threshold, [0.4, 0.9])
    np.testing.assert_allclose(found.loss_at_half, [0.5, 0.1])
    assert found.loss == "f1"


def test_decide_sets__first_of_tied_classes() -> None:
    certain = Loss("one", lambda u, v, p: np.abs(v - 0.25))
    np.testing.assert_array_equal(decide_sets(np.full((2, 4), 0.25), certain).selected[1], [True, False, False, False])


@pytest.mark.parametrize("name", NAMED)
def test_decide_rows__is_decide_row_by_row(name: str) -> None:
    generator = np.random.default_rng(8)
    probability = generator.beta(0.4, 1.5, size=(30, 6))
    probability[:6] = generator.choice([0, 0.3, 0.5, 1], size=(6, 6))
    found = decide_rows(probability, name)
    for row, values in enumerate(probability):
        single = decide(values, name, "exact")
        np.testing.assert_array_equal(found.selected[row], single.selected)
        assert found.k[row] == single.k
        assert found.threshold[row] == single.threshold
        assert found.expected_loss[row] == pytest.approx(single.expected_loss, abs=1e-14)
        assert found.loss_at_half[row] == pytest.approx(single.loss_at_half, abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(edges=st.lists(st.integers(0, 50), max_size=4), function=st.sampled_from([decide_sets, decide_rows]))
def test_decide_rows_and_sets__do_not_depend_on_blocks(edges: list[int], function: object) -> None:
    assert function in (decide_sets, decide_rows)
    decide_block = decide_sets if function is decide_sets else decide_rows
    probability = class_probabilities(50, 5, seed=9)
    whole = decide_block(probability, "g_mean")
    cuts = [0, *sorted(edges), 50]
    parts = [decide_block(probability[low:high], "g_mean") for low, high in pairwise(cuts)]
    for name in ("selected", "k", "threshold"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    losses = np.concatenate([part.expected_loss for part in parts])
    np.testing.assert_allclose(losses, whole.expected_loss, rtol=0, atol=1e-14)


def test_decide_rows__many_labels() -> None:
    """Rows of few and of many true labels share their tables."""
    generator = np.random.default_rng(11)
    probability = np.stack(
        [generator.beta(*shape, size=400) for shape in ((0.1, 9.0), (5.0, 0.5), (1.0, 1.0), (0.01, 10.0))]
    )
    found = decide_rows(probability, "g_mean")
    for row, values in enumerate(probability):
        single = decide(values, "g_mean", "exact")
        assert found.k[row] == single.k
        assert found.expected_loss[row] == pytest.approx(single.expected_loss, abs=1e-13)


def test_decide_rows__few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    probability = np.random.default_rng(10).uniform(size=(25, 9))
    whole = decide_rows(probability, "am")
    monkeypatch.setattr(sets, "TABLE_ENTRIES", 300)
    parts = decide_rows(probability, "am")
    np.testing.assert_array_equal(parts.selected, whole.selected)
    np.testing.assert_allclose(parts.expected_loss, whole.expected_loss, atol=1e-15)


def test_decide_rows__rare_labels_underflow_to_nothing() -> None:
    probability = np.full((3, 100), 1e-8)
    probability[:, 7] = 0.9
    found = decide_rows(probability, "jaccard")
    np.testing.assert_array_equal(np.flatnonzero(found.selected[0]), [7])
    assert found.expected_loss[0] == pytest.approx(decide(probability[0], "jaccard").expected_loss, abs=1e-14)


@pytest.mark.parametrize("function", [decide_sets, decide_rows])
def test_decide_rows_and_sets__no_rows(function: object) -> None:
    assert function in (decide_sets, decide_rows)
    found = (decide_sets if function is decide_sets else decide_rows)(np.empty((0, 3)))
    assert isinstance(found, RowDecisions)
    assert found.selected.shape == (0, 3)
    assert found.k.shape == found.threshold.shape == found.expected_loss.shape == found.loss_at_half.shape == (0,)
    assert replace(found, loss="f2").loss == "f2"


def test_decide_sets__refuses() -> None:
    with refused("bad-value", 1, "1.8", "decide_rows"):
        decide_sets([[0.5, 0.5], [0.9, 0.9]])
