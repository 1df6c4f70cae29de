from pathlib import Path

import pytest

from protodask.data import sample_data
from protodask.data.storage import sole_writer
from protodask.engine import thread_engine
from protodask.errors import StorageError
from protodask.pipeline.perform import perform
from protodask.pipeline.steps import FitStep
from protodask.prototypes import FitConfig
from protodask.prototypes.runs import RunDirectory


def test_fit__that_finds_its_run_directory_in_use_leaves_it_alone(tmp_path: Path) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    model = tmp_path / "model.zarr"
    settings = {"config": FitConfig().as_dict(), "dataset": data.key, "start": None}
    directory = RunDirectory.open(f"{model}.run", settings)
    assert directory.untouched, "the other process has evaluated nothing yet"
    with (
        sole_writer(directory.path),
        thread_engine(1) as engine,
        pytest.raises(StorageError, match="wait for the other one"),
    ):
        perform(FitStep(data=data.path, out=str(model)), engine)
    assert (tmp_path / "model.zarr.run" / "run.json").exists()
