"""What a fit keeps with its model."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.data import sample_data
from protodask.data.tables.ingest import ingest
from protodask.engine import Engine
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import MOST_VALUES, batch_summary, fit, thinned
from protodask.prototypes.history import BatchRecord
from protodask.prototypes.persistence import model_fingerprint


@given(st.integers(0, 3 * MOST_VALUES))
def test_thinned__keeps_both_ends_and_the_order(length: int) -> None:
    kept = thinned([float(position) for position in range(length)])
    assert len(kept) == min(length, MOST_VALUES)
    if length:
        assert (kept[0], kept[-1]) == (0.0, length - 1.0)
        steps = np.diff(kept)
        assert len(steps) == 0 or steps.min() >= 1
        assert len(steps) == 0 or steps.max() - steps.min() <= 1, "evenly spread"


def test_batch_summary__of_a_long_fit_stays_small() -> None:
    values = tuple(np.linspace(1, 1 / 3, 5000).tolist())
    record = BatchRecord(1, "converged", 5000, 5100, 3.25, values[-1], 1e-4, 2, 40, np.arange(50), values)
    summary = batch_summary(record)
    assert len(json.dumps(summary)) < 8000
    assert (summary["values"][0], summary["values"][-1]) == (1.0, record.value)


def test_fit__keeps_the_training_curve_with_the_model(tmp_path: Path, engine: Engine) -> None:
    data = sample_data("checker", 200, tmp_path / "data.zarr")
    run = fit(data, FitConfig.of("source", n_batches=2, n_candidates=20, tolerance=1e-4), engine=engine)
    kept = run.model.provenance["fits"][0]["batches"]
    assert [batch["values"] for batch in kept] == [list(record.values) for record in run.history]
    for record in run.history:
        assert len(record.values) == record.iterations > 0
        assert record.values[-1] == record.value


def test_fit__says_when_it_was_finished(tmp_path: Path, engine: Engine) -> None:
    data = sample_data("checker", 200, tmp_path / "data.zarr")
    before = datetime.now(UTC).replace(microsecond=0)
    model = fit(data, FitConfig.of("source", n_batches=0), engine=engine).model
    (entry,) = model.provenance["fits"]
    assert before <= datetime.fromisoformat(entry["finished"]) <= datetime.now(UTC)
    assert model_fingerprint(model) == model_fingerprint(replace(model, provenance={}))


def test_fit__of_further_batches_keeps_what_stays_true_of_the_model(tmp_path: Path, engine: Engine) -> None:
    data = sample_data("checker", 200, tmp_path / "data.zarr")
    config = FitConfig.of("source", n_batches=1, n_candidates=20, tolerance=1e-4)
    first = fit(data, config, engine=engine).model
    shrunk = {"model": "f" * 32, "features": 9, "kept": 2}
    start = replace(first, provenance={**first.provenance, "shrunk": shrunk, "search": {"strategy": "joint"}})
    more = fit(data, config, engine=engine, start=start).model
    assert more.provenance["shrunk"] == shrunk
    assert "search" not in more.provenance, "it is of the settings and the number of batches of another model"
    assert more.provenance["fits"][0] == first.provenance["fits"][0]
    assert [len(entry["batches"]) for entry in more.provenance["fits"]] == [1, 1]


def test_fit__of_further_batches_takes_a_start_whatever_it_says_of_itself(tmp_path: Path, engine: Engine) -> None:
    data = sample_data("checker", 200, tmp_path / "data.zarr")
    start = fit(data, FitConfig.of("source", n_batches=0), engine=engine).model
    for said in ({"fits": None}, {"fits": "never"}, {}):
        more = fit(
            data, FitConfig.of("source", n_batches=0), engine=engine, start=replace(start, provenance=said)
        ).model
        assert len(more.provenance["fits"]) == 1


def test_fit__from_a_model_without_batches_keeps_the_marginals_it_was_trained_over(
    tmp_path: Path, engine: Engine
) -> None:
    data = sample_data("checker", 200, tmp_path / "data.zarr")
    config = FitConfig.of("source", n_batches=1, n_candidates=20, tolerance=1e-4)
    expected = fit(data, config, engine=engine).model
    start = replace(fit(data, replace(config, n_batches=0), engine=engine).model, marginals=np.array([0.9, 0.1]))
    found = fit(data, config, engine=engine, start=start).model
    np.testing.assert_array_equal(found.marginals, expected.marginals)
    np.testing.assert_array_equal(found.batches[0].prototype_weight, expected.batches[0].prototype_weight)


def test_fit__of_further_batches_takes_tables_with_the_columns_of_either_data(tmp_path: Path, engine: Engine) -> None:
    """What is no feature in one of the datasets may stand in the tables that are scored later."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "label": np.arange(60) % 2, "times": 1.0, "note": "seen"})
    first = ingest(table.drop(columns="times"), tmp_path / "first.zarr", target="label", drop=["note"], engine=engine)
    second = ingest(table.drop(columns="note"), tmp_path / "second.zarr", target="label", weight="times", engine=engine)
    start = fit(first, FitConfig.of("source", n_batches=0), engine=engine).model
    more = fit(second, FitConfig.of("source", n_batches=0), engine=engine, start=start).model
    assert set(more.other_names) == {"note", "times"}


def test_fit__says_how_to_open_the_dataset_at_a_path(tmp_path: Path) -> None:
    with refused("wrong-type", "str", "Dataset.open"):
        fit(str(tmp_path / "data.zarr"))  # type: ignore[arg-type]
