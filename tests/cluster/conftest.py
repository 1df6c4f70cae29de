"""What the tests of cluster/ share: a dataset with the model it must lead to, and a Slurm cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster._started import Problem, Slurm, slurm_cluster, slurm_is_missing

from protodask import Dataset, FitConfig, fit, sample_data
from protodask.prototypes.persistence import model_fingerprint


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    place = tmp_path_factory.mktemp("problem") / "data.zarr"
    sample_data("checker", 600, place)
    run = fit(Dataset.open(place), FitConfig.of("source", n_candidates=20, n_batches=2, tolerance=1e-4))
    return Problem(place, model_fingerprint(run.model))


@pytest.fixture(scope="module")
def slurm(no_process_left_behind: None) -> Iterator[Slurm]:
    """A Slurm cluster of this machine alone."""
    reason = slurm_is_missing()
    if reason is not None:
        pytest.skip(reason)
    with slurm_cluster() as started:
        yield started
