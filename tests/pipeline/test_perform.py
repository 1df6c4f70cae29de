import shutil
from pathlib import Path

import pytest

from protodask.data import sample_data
from protodask.data.storage import sole_writer
from protodask.engine import thread_engine
from protodask.errors import OutputExistsError, StorageError
from protodask.pipeline import perform as perform_module
from protodask.pipeline.perform import perform
from protodask.pipeline.steps import FitStep
from protodask.prototypes import FitConfig, load_model
from protodask.prototypes.persistence import model_fingerprint
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


def test_fit__killed_after_its_model_was_written_is_done_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    model, run_dir = tmp_path / "model.zarr", tmp_path / "model.zarr.run"
    step = FitStep(data=data.path, out=str(model), candidates=20, tolerance=1e-2)

    def die(path: str) -> None:
        raise KeyboardInterrupt

    with thread_engine(1) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(perform_module, "discard", die)
            with pytest.raises(KeyboardInterrupt):
                perform(step, engine)
        written = model_fingerprint(load_model(model))
        shutil.copytree(run_dir, tmp_path / "copy")
        perform(step, engine)
        assert not run_dir.exists()
        assert model_fingerprint(load_model(model)) == written
        with pytest.raises(OutputExistsError, match="--overwrite"):
            perform(step, engine)
        # A finished run that made another model than the one that is there does not replace it unasked.
        other = FitStep(data=data.path, out=str(model), candidates=21, tolerance=1e-2, overwrite=True)
        perform(other, engine)
        (tmp_path / "copy").rename(run_dir)
        with pytest.raises(OutputExistsError, match="--overwrite"):
            perform(step, engine)
    assert model_fingerprint(load_model(model)) != written
    assert run_dir.exists()
