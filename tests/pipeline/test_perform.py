import errno
import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.errors import refused
from support.pipelines import results_of

from protodask.data import sample_data
from protodask.data.places import own_folder as own_folder_module
from protodask.data.places.local_files import place_aside
from protodask.data.places.own_folder import own_folder
from protodask.engine import thread_engine
from protodask.errors import Code, OutputExistsError, StorageError
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.state.runner import check_pipeline
from protodask.pipeline.steps.base import describe_step
from protodask.pipeline.steps.fit import FitStep, ModelFitted
from protodask.pipeline.steps.tune import ModelTuned, TuneStep
from protodask.pipeline.telling.events import SearchStarted
from protodask.prototypes import FitConfig, load_model, planning
from protodask.prototypes import fitting as fitting_module
from protodask.prototypes import runs as runs_module
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.runs import RunDirectory
from protodask.selection import SettingDone, read_search


def test_fit__that_finds_its_run_directory_in_use_leaves_it_alone(tmp_path: Path) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    model = tmp_path / "model.zarr"
    settings = {"config": FitConfig.of("source").as_dict(), "dataset": data.key, "start": None}
    directory = RunDirectory.open(f"{model}.run", settings)
    assert directory.untouched, "the other process has evaluated nothing yet"
    with (
        own_folder(directory.path),
        thread_engine(1) as engine,
        refused("written-by-another", kind=StorageError),
    ):
        FitStep(data=data.path, out=str(model)).perform(engine)
    assert (tmp_path / "model.zarr.run" / "run.json").exists()


def test_fit__refused_between_another_drivers_look_and_lock_leaves_the_other_one_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    run_dir = f"{tmp_path / 'model.zarr'}.run"
    settings = {"config": FitConfig.of("source").as_dict(), "dataset": data.key, "start": None}
    plain = planning.require_shape
    with ExitStack() as first, thread_engine(1) as engine:

        def overtaken(*arguments: Any) -> Any:
            # The last thing before the directory is locked; until now there was none.
            first.enter_context(own_folder(run_dir))
            assert RunDirectory.open(run_dir, settings).untouched
            return plain(*arguments)

        monkeypatch.setattr(fitting_module, "require_shape", overtaken)
        with refused("written-by-another", kind=StorageError):
            FitStep(data=data.path, out=str(tmp_path / "model.zarr")).perform(engine)
        assert RunDirectory.existing(run_dir).untouched


def test_fit__holds_its_run_directory_until_the_model_is_written_and_the_directory_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    run_dir = f"{tmp_path / 'model.zarr'}.run"
    kept_out = []

    def second(path: str) -> str:
        with refused("written-by-another", kind=StorageError), own_folder(run_dir):
            pass
        kept_out.append(path)
        return place_aside(path)

    monkeypatch.setattr(own_folder_module, "place_aside", second)
    with thread_engine(1) as engine:
        FitStep(data=data.path, out=str(tmp_path / "model.zarr"), candidates=20, tolerance=1e-2).perform(engine)
    assert kept_out == [run_dir]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.zarr", "model.zarr"]


@pytest.mark.slow
def test_fit__killed_after_its_model_was_written_is_done_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    model, run_dir = tmp_path / "model.zarr", tmp_path / "model.zarr.run"
    step = FitStep(data=data.path, out=str(model), candidates=20, tolerance=1e-2)

    def die(path: str) -> str:
        raise KeyboardInterrupt

    with thread_engine(1) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(own_folder_module, "place_aside", die)
            with pytest.raises(KeyboardInterrupt):
                step.perform(engine)
        written = model_fingerprint(load_model(model))
        shutil.copytree(run_dir, tmp_path / "copy")
        step.perform(engine)
        assert not run_dir.exists()
        assert model_fingerprint(load_model(model)) == written
        with refused("exists", step.out, "overwrite=True", kind=OutputExistsError):
            step.perform(engine)
        # A finished run that made another model than the one that is there does not replace it unasked.
        other = FitStep(data=data.path, out=str(model), candidates=21, tolerance=1e-2, overwrite=True)
        other.perform(engine)
        (tmp_path / "copy").rename(run_dir)
        with refused("exists", step.out, "overwrite=True", kind=OutputExistsError):
            step.perform(engine)
    assert model_fingerprint(load_model(model)) != written
    assert run_dir.exists()


def test_fit__with_a_run_directory_of_its_own_is_done_when_its_model_is_there(tmp_path: Path) -> None:
    data = sample_data("checker", 400, tmp_path / "data.zarr")
    step = FitStep(
        data=data.path,
        out=str(tmp_path / "m.zarr"),
        run_dir=str(tmp_path / "run"),
        candidates=20,
        tolerance=1e-2,
        recipe="source",
    )
    with thread_engine(1) as engine:
        first = step.perform(engine)
        written = (tmp_path / "m.zarr" / "zarr.json").stat()
        # As a job does that was lost after its last word was written and before it had ended.
        again = step.perform(engine)
        assert isinstance(first, ModelFitted)
        assert isinstance(again, ModelFitted)
        assert model_fingerprint(again.model) == model_fingerprint(first.model)
        assert os.path.samestat(written, (tmp_path / "m.zarr" / "zarr.json").stat())
        # Neither a model of another run nor anything else counts as its own.
        replace(step, run_dir=str(tmp_path / "other"), seed=1, overwrite=True).perform(engine)
        with refused("exists", step.out, "overwrite=True", kind=OutputExistsError):
            step.perform(engine)
        with refused("exists", data.path, "overwrite=True", kind=OutputExistsError):
            replace(step, out=data.path).perform(engine)
        with refused("exists", step.out, "overwrite=True", kind=OutputExistsError):
            replace(step, run_dir=str(tmp_path / "new")).perform(engine)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("own", [True, False])
def test_fit__whose_record_finds_no_space_says_whose_it_is(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    data = sample_data("checker", 400, tmp_path / "data.zarr")
    model, run_dir = tmp_path / "m.zarr", tmp_path / "run"
    step = FitStep(
        data=data.path,
        out=str(model),
        run_dir=str(run_dir) if own else None,
        candidates=20,
        recipe="source",
    )
    monkeypatch.setattr(runs_module, "open_to_append", full)
    where = f"the record of the run in {run_dir}." if own else f"the record of the run, which lies beside {model}."
    with thread_engine(1) as engine, refused("disk-full", f"writing {where}", "`run_dir`", kind=StorageError) as caught:
        step.perform(engine)
    assert "batch-1" not in str(caught.value)


def test_fit__into_an_object_store_needs_a_place_for_its_record() -> None:
    step = FitStep(data="d.zarr", out="s3://me:secret@bucket/m.zarr")
    with refused("not-local", "s3://***@bucket/m.zarr", "`run_dir`") as caught:
        step.check()
    assert "secret" not in str(caught.value)
    replace(step, run_dir="run").check()


PIPELINE = """
state: ${folder}/state
variables: {folder: here, candidates: 20}
steps:
  - sample-data: {kind: checker, rows: 400, out: "${folder}/d.zarr"}
  - tune:
      data: ${folder}/d.zarr
      out: ${folder}/m.zarr
      strategy: two-stage
      trials: 2
      lambda-v-range: [1e-3, 0.01]
      lambda-w-range: [1e-8, 1e-8]
      max-batches: 1
      folds: 2
      rule: best
      candidates: ${candidates}
      tolerance: 1e-4
      table: ${folder}/trials.csv
  - evaluate: {model: "${folder}/m.zarr", data: "${folder}/d.zarr"}
"""


@pytest.mark.slow
def test_tune__in_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    pipeline = read_pipeline(str(file), {"folder": str(tmp_path)})
    step = pipeline.steps[1]
    assert isinstance(step, TuneStep)
    assert step.lambda_v_range == (1e-3, 0.01)
    assert describe_step(step) == f"tune, {tmp_path}/d.zarr into {tmp_path}/m.zarr"
    heard: list[object] = []
    with thread_engine(1) as engine:
        results = results_of(pipeline, engine, heard.append)
    tuned = results[1]
    assert isinstance(tuned, ModelTuned)
    assert tuned.search == read_search(load_model(tmp_path / "m.zarr"))
    assert [trial.lambda_v for trial in tuned.search.trials if trial.stage == 1] == [1e-3, 0.01]
    assert heard[0] == SearchStarted("two-stage", 2, 2, None)
    assert sum(isinstance(event, SettingDone) for event in heard) == 3
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 1 + len(tuned.search.trials)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "d.zarr",
        "m.zarr",
        "pipeline.yaml",
        "state",
        "trials.csv",
    ]


@pytest.mark.parametrize(
    ("line", "code", "facts"),
    [
        ("lambda-v-range: [low, high]", "bad-setting", ["lambda-v-range", "'low'"]),
        ("rule: one standard error", "unknown-name", ["half-a-standard-error, one-standard-error or best"]),
        ("lambda-w: 1e-8", "settings-conflict", ["lambda-w", "lambda-w-range"]),
    ],
)
def test_tune__in_a_pipeline_that_cannot_work(line: str, code: Code, facts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    steps = f"steps:\n  - tune:\n      data: d\n      out: m\n      strategy: two-stage\n      {line}\n"
    file.write_text(f"state: {tmp_path}/state\n{steps}")
    with thread_engine(1) as engine, refused(code, *facts):
        results_of(read_pipeline(str(file)), engine)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


@pytest.mark.parametrize("text", ["1e-3", "[1e-3, 1e-2, 1e-1]"])
def test_tune__ranges_have_two_ends(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"steps:\n  - tune: {{data: d, out: m, lambda-v-range: {text}}}\n")
    with refused("bad-setting", "step 1 (tune)", "lambda-v-range", "list of 2 values"):
        check_pipeline(read_pipeline(str(file)))


def test_tune__into_an_object_store_needs_a_place_for_its_record() -> None:
    step = TuneStep(data="d.zarr", out="s3://bucket/m.zarr")
    with refused("not-local", step.out, "`run_dir`"):
        step.check()
    replace(step, run_dir="run").check()
