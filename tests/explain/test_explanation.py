"""What `print` shows of an explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protodask.explain.contributions import explain_rows
from protodask.explain.explanation import MOST_LINES, WIDTH
from protodask.prototypes.model import PrototypeSet

MakeModel = Callable[..., PrototypeSet]


@pytest.mark.parametrize("n_batches", [0, 1, 3])
def test_text__says_all_that_counts(make_model: MakeModel, n_batches: int) -> None:
    model = make_model(n_batches)
    (found,) = explain_rows(model, np.random.default_rng(0).normal(size=(1, model.n_features)), most=5)
    text = str(found)
    probability = found.probability[found.classes.index(found.predicted)]
    assert text.startswith(f"{found.predicted}, with probability {probability:.3f}.\nFamiliarity: ")
    lines = text.splitlines()
    for label, own in zip(found.classes, found.probability, strict=True):
        assert any(line.startswith(f"{label} ") and line.endswith(f" {own:.4f}") for line in lines)
    for rank, item in enumerate(found.contributions, start=1):
        (line,) = (line for line in lines if line.lstrip(" *").startswith(f"#{rank} "))
        assert line.startswith("*") == item.dominant
        numbers = [f"{item.share:.4f}", f"{item.weight:.4g}", f"{item.similarity:.4f}", str(item.batch), str(item.row)]
        assert line.split()[1:] == [*str(item.label).split(), *numbers]
        for match in item.features:
            assert any(line.startswith(match.name) and f"{match.value:.6g}" in line for line in lines)
    assert max(map(len, lines[3:])) <= WIDTH
    assert all(line == line.rstrip() for line in lines)


def test_text__of_many_features_says_how_many_more(make_model: MakeModel) -> None:
    model = make_model(1, n_features=60)
    (found,) = explain_rows(model, np.zeros((1, 60)), most=3)
    named = {match.name for item in found.contributions for match in item.features}
    assert len(named) > MOST_LINES
    assert str(found).splitlines()[-1] == f"and {len(named) - MOST_LINES} more"


def test_text__keeps_rows_rows_whatever_is_in_names(make_model: MakeModel) -> None:
    model = make_model(1)
    plain = str(explain_rows(model, np.zeros((1, model.n_features)), most=3)[0])
    broken = replace(
        model,
        classes=tuple(f"{label}\n" for label in model.classes),
        feature_names=tuple(f"{name}\n" for name in model.feature_names),
    )
    text = str(explain_rows(broken, np.zeros((1, model.n_features)), most=3)[0])
    assert len(text.splitlines()) == len(plain.splitlines())
    assert r"\n, with probability" in text
