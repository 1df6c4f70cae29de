"""What a fit keeps with its model."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protodask.data import sample_data
from protodask.engine import Engine
from protodask.prototypes.config import FitConfig
from protodask.prototypes.fitting import MOST_VALUES, batch_summary, fit, thinned
from protodask.prototypes.history import BatchRecord


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
    run = fit(data, FitConfig(n_batches=2, n_candidates=20, tolerance=1e-4), engine=engine)
    kept = run.model.provenance["fits"][0]["batches"]
    assert [batch["values"] for batch in kept] == [list(record.values) for record in run.history]
    for record in run.history:
        assert len(record.values) == record.iterations > 0
        assert record.values[-1] == record.value
