"""Whether a model may be written to its place."""

from pathlib import Path

from support.errors import refused

from protodask import FitConfig, fit, sample_data
from protodask.errors import OutputExistsError
from protodask.pipeline.work.published import published_model
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.runs import HISTORY_FILE


def test_published_model__counts_as_that_of_a_run_only_when_the_run_has_ended(tmp_path: Path) -> None:
    where, run_dir = str(tmp_path / "model.zarr"), tmp_path / "run"
    run_dir.mkdir()
    assert published_model(where, str(run_dir), overwrite=False) is None
    data = sample_data("checker", 100, tmp_path / "data.zarr")
    model = fit(data, FitConfig.of("source", n_candidates=5, max_fraction=0.9, tolerance=1e-1)).model
    model.save(where)
    with refused("exists", where, kind=OutputExistsError):
        published_model(where, str(run_dir), overwrite=False)
    (run_dir / HISTORY_FILE).write_text("{}")
    assert published_model(where, str(run_dir), overwrite=False) == model_fingerprint(model)
    with refused("exists", str(tmp_path / "data.zarr"), kind=OutputExistsError):
        published_model(str(tmp_path / "data.zarr"), str(run_dir), overwrite=False)
