"""Steps that add to what others make, and runs that end in between."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.errors import refused
from support.pipelines import Killed

from protodask.data import Dataset
from protodask.engine import Engine, thread_engine
from protodask.errors import OutputExistsError
from protodask.pipeline.each_file.scoring import FilesScored
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.state.dry_run import dry_run
from protodask.pipeline.state.runner import run_pipeline
from protodask.pipeline.steps.base import Step
from protodask.pipeline.steps.evaluate import EvaluateStep
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.gate import GateAnswered, GateStep
from protodask.pipeline.steps.ingest import AppendStep, IngestStep, SampleDataStep
from protodask.pipeline.steps.predict import PredictStep
from protodask.pipeline.telling.events import RunEnded, RunEvent, StepFailed, StepFresh
from protodask.pipeline.telling.result import FilesFailedError
from protodask.prototypes.model import load_model
from protodask.prototypes.persistence import model_fingerprint


@pytest.fixture(scope="module")
def engine() -> Engine:
    return thread_engine(threads=1)


def _table(folder: Path, name: str, rows: int) -> str:
    place = folder / f"{name}.csv"
    place.write_text("x,y,outcome\n" + "".join(f"{row % 7},{row % 5},{row % 2}\n" for row in range(rows)))
    return str(place)


def _growing(folder: Path) -> Pipeline:
    """Rows of a and b."""
    first, second, out = _table(folder, "a", 30), _table(folder, "b", 20), str(folder / "rows.zarr")
    return Pipeline(
        "example.yaml",
        (IngestStep((first, second), out, target="outcome", new=True),),
        state=str(folder / "state"),
    )


def _run(pipeline: Pipeline, engine: Engine, kill_after: int | None = None) -> RunEnded:
    """Run a pipeline, killed after the step of this number if there is one."""
    performed = 0

    def do(step: Step) -> Any:
        nonlocal performed
        result = step.perform(engine)
        performed += 1
        if performed == kill_after:
            raise Killed
        return result

    return run_pipeline(pipeline, do)


def _statuses(outcome: RunEnded) -> list[str]:
    return [entry.status for entry in outcome.steps]


def _rows(folder: Path) -> int:
    return Dataset.open(str(folder / "rows.zarr")).n_rows


def test_new__makes_anew_what_is_lost(engine: Engine, tmp_path: Path) -> None:
    pipeline = _growing(tmp_path)
    for _ in range(2):
        assert _statuses(_run(pipeline, engine)) == ["done"]
        assert _statuses(_run(pipeline, engine)) == ["fresh"]
        assert _rows(tmp_path) == 50
        (tmp_path / "rows.zarr").rename(tmp_path / f"away-{uuid4()}.zarr")


@pytest.mark.parametrize("moment", ["touched", "upgraded", "appended by others", "killed"])
def test_new__adds_rows_once(moment: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = _growing(tmp_path)
    if moment == "killed":
        with pytest.raises(Killed):
            _run(pipeline, engine, kill_after=1)
    else:
        _run(pipeline, engine)
    others = 0
    match moment:
        case "touched":
            os.utime(tmp_path / "b.csv", (1, 1))
        case "upgraded":
            monkeypatch.setattr("protodask.pipeline.state.staleness.__version__", "999")
        case "appended by others":
            others = 10
            AppendStep((_table(tmp_path, "c", others),), f"{tmp_path}/rows.zarr", target="outcome").perform(engine)
    assert _statuses(_run(pipeline, engine)) == ["fresh"]
    assert _rows(tmp_path) == 50 + others


def test_step__that_was_killed_is_done_again_though_all_is_as_its_record_says(engine: Engine, tmp_path: Path) -> None:
    step = SampleDataStep("checker", 100, f"{tmp_path}/rows.zarr")
    pipeline = Pipeline("example.yaml", (step,), state=str(tmp_path / "state"))
    _run(pipeline, engine)
    assert _statuses(_run(pipeline, engine)) == ["fresh"]

    def die(step: Step) -> Any:
        raise Killed

    with pytest.raises(Killed):
        run_pipeline(replace(pipeline, steps=(replace(step, rows=200),)), die)
    assert [(plan.verdict, plan.why) for plan in dry_run(pipeline)] == [("to do", "it had begun, and did not end")]
    assert _statuses(_run(pipeline, engine)) == ["done"]
    assert _statuses(_run(pipeline, engine)) == ["fresh"]


@pytest.mark.parametrize(
    ("damage", "told_by"), [("changed", "content"), ("changed", "size"), ("truncated", "size"), ("lost", "size")]
)
def test_step__whose_model_lost_a_chunk_is_done_again(
    damage: str, told_by: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told_by == "size":
        monkeypatch.setattr("protodask.pipeline.state.identities.READ_BYTES", 100)
    rows, model = f"{tmp_path}/rows.zarr", tmp_path / "model.zarr"
    steps = (
        SampleDataStep("checker", 200, rows),
        FitStep(rows, str(model), candidates=20, recipe="source", tolerance=0.01),
    )
    pipeline = Pipeline("example.yaml", steps, state=str(tmp_path / "state"))
    _run(pipeline, engine)
    before = model_fingerprint(load_model(model))
    (chunk,) = (path for path in model.rglob("prototypes/c/**/*") if path.is_file())
    content = chunk.read_bytes()
    os.utime(chunk, (1, 1))  # as after copying all of it
    assert _statuses(_run(pipeline, engine)) == ["fresh", "fresh"]
    match damage:
        case "changed":
            chunk.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "truncated":
            chunk.write_bytes(content[:-1])
        case "lost":
            chunk.unlink()
    if (damage, told_by) == ("changed", "size"):  # whoever reads it will say so
        assert _statuses(_run(pipeline, engine)) == ["fresh", "fresh"]
        return
    assert [plan.why for plan in dry_run(pipeline)] == ["", f"files of {model} were changed by others"]
    assert _statuses(_run(pipeline, engine)) == ["fresh", "done"]
    assert model_fingerprint(load_model(model)) == before
    assert _statuses(_run(pipeline, engine)) == ["fresh", "fresh"]


@pytest.mark.filterwarnings("ignore:.*does not say from which files its rows are")
def test_step__to_whose_output_a_later_one_adds_stays_fresh(engine: Engine, tmp_path: Path) -> None:
    out = f"{tmp_path}/rows.zarr"
    steps = (
        IngestStep((_table(tmp_path, "a", 20),), out, target="outcome"),
        IngestStep((_table(tmp_path, "b", 30),), out, target="outcome", new=True),
    )
    pipeline = Pipeline(f"{tmp_path}/p.yaml", steps, state=f"{tmp_path}/state")
    assert _statuses(_run(pipeline, engine)) == ["done", "done"]
    assert _rows(tmp_path) == 50
    for _ in range(2):
        assert _statuses(_run(pipeline, engine)) == ["fresh", "fresh"]
    assert _rows(tmp_path) == 50


def test_steps__that_write_to_one_place_by_mistake_are_told_so(engine: Engine, tmp_path: Path) -> None:
    out = str(tmp_path / "rows.zarr")
    steps = (SampleDataStep("checker", 100, out), SampleDataStep("checker", 200, out))
    pipeline = Pipeline("example.yaml", steps, state=str(tmp_path / "state"))
    with refused("exists", "step 2", out, kind=OutputExistsError):
        _run(pipeline, engine)


def test_record__of_a_place_in_other_words(engine: Engine, tmp_path: Path) -> None:
    first = SampleDataStep("checker", 100, f"{tmp_path}/rows.zarr")
    pipeline = Pipeline("example.yaml", (first,), state=str(tmp_path / "state"))
    _run(pipeline, engine)
    other = replace(pipeline, steps=(replace(first, rows=200, out=f"{tmp_path}/./rows.zarr/"),))
    assert _statuses(_run(other, engine)) == ["done"]
    assert _rows(tmp_path) == 200


def test_new__files_without_rows_are_waited_for(engine: Engine, tmp_path: Path) -> None:
    inbox, new, copy = tmp_path / "inbox", str(tmp_path / "new.zarr"), str(tmp_path / "rows.zarr")
    inbox.mkdir()
    known = str(tmp_path / "known.zarr")
    IngestStep((_table(tmp_path, "known", 20),), known, target="outcome", new=True).perform(engine)
    steps = (
        IngestStep((str(inbox),), new, target="outcome", unless_in=known),
        IngestStep((new,), copy, new=True),
    )
    pipeline = Pipeline("example.yaml", steps, state=str(tmp_path / "state"))
    assert _statuses(_run(pipeline, engine)) == ["fresh", "waits"]
    (inbox / "nothing.csv").write_text("x,y,outcome\n")
    for _ in range(2):
        outcome = _run(pipeline, engine)
        assert (outcome.status, _statuses(outcome)) == ("fresh", ["waits", "waits"])
    _table(inbox, "some", 30)
    assert _statuses(_run(pipeline, engine)) == ["done", "done"]
    assert _rows(tmp_path) == 30


def test_fit__begins_anew_when_the_model_it_starts_from_is_another_one(engine: Engine, tmp_path: Path) -> None:
    """Which one that is does not make it stale, as the last step writes it; but it cannot go on from the old one."""
    data, start, out = (str(tmp_path / name) for name in ("rows.zarr", "start.zarr", "model.zarr"))
    SampleDataStep("checker", 400, data).perform(engine)
    FitStep(data, start, candidates=20, recipe="source", tolerance=0.01).perform(engine)
    steps = (
        FitStep(data, out, candidates=20, recipe="source", tolerance=1e-3, start=start),
        FitStep(data, start, candidates=30, recipe="source", overwrite=True, tolerance=0.01),
    )
    pipeline = Pipeline("example.yaml", steps, state=str(tmp_path / "state"))

    def interrupted(step: Step) -> Any:
        from protodask.prototypes.history import IterationDone

        def stop(event: object) -> None:
            if isinstance(event, IterationDone):
                raise KeyboardInterrupt

        return step.perform(engine, stop)

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(pipeline, interrupted)
    assert (tmp_path / "model.zarr.run").is_dir()
    FitStep(data, start, candidates=25, recipe="source", overwrite=True, tolerance=0.01).perform(engine)
    assert _statuses(_run(pipeline, engine)) == ["done", "done"]


def test_fit__what_it_cannot_go_on_from_is_removed_before_the_note_of_it(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protodask.pipeline.state import runner

    data, out = str(tmp_path / "rows.zarr"), str(tmp_path / "model.zarr")
    SampleDataStep("checker", 100, data).perform(engine)
    step = FitStep(data, out, candidates=20)
    pipeline = Pipeline("example.yaml", (step,), state=str(tmp_path / "state"))

    def killed(*arguments: object) -> Any:
        raise Killed

    with pytest.raises(Killed):
        run_pipeline(pipeline, killed, check=lambda pipeline: None)
    removals: list[Step] = []

    def remove(step: Step) -> None:
        removals.append(step)
        if len(removals) == 1:
            raise Killed

    monkeypatch.setattr(runner, "_remove_unfinished", remove)
    with pytest.raises(Killed):
        run_pipeline(pipeline, killed, check=lambda pipeline: None)
    assert not removals, "the same fit goes on from it"
    other = replace(pipeline, steps=(replace(step, candidates=30),))
    for _ in range(2):
        with pytest.raises(Killed):
            run_pipeline(other, killed, check=lambda pipeline: None)
    assert len(removals) == 2


@pytest.mark.parametrize("gate_says", ["yes", "no"])
def test_failure__of_some_files_holds_up_no_later_step(gate_says: str, tmp_path: Path) -> None:
    left = FilesScored("scores.parquet", (), ("again.csv",), (), (), (), 0)
    out = tmp_path / "scores.parquet"

    def do(step: Step) -> Any:
        match step:
            case PredictStep():
                out.write_text("some")
                error = FilesFailedError("files-failed", "1 file cannot be scored: b.csv.", "Mend it.")
                error.result = left
                raise error
            case GateStep():
                return GateAnswered(gate_says == "yes", ("It is too much.",), False, (), None, None, None)
            case EvaluateStep():
                done.append(step.data)
                return left

    (tmp_path / "in.csv").write_text("a")
    predict = PredictStep("model", (str(tmp_path / "in.csv"),), str(out), each_file=True)
    steps = (predict, EvaluateStep("b", str(out)), GateStep(results=str(out)), EvaluateStep("d", "c"))
    pipeline = Pipeline("example.yaml", steps, state=str(tmp_path / "state"))
    done: list[str] = []
    for number in range(2):
        heard: list[RunEvent] = []
        with refused("files-failed", "step 1 (predict)", "Mend it", kind=FilesFailedError):
            run_pipeline(pipeline, do, listen=heard.append, check=lambda pipeline: None)
        assert done == [str(out), "c"][: 2 if gate_says == "yes" else 1], "once each"
        (failed,) = (event for event in heard if isinstance(event, StepFailed))
        assert failed.result is left
        assert [event.step.number for event in heard if isinstance(event, StepFresh)] == [2, 3, 4][: number * 3] or (
            gate_says == "no"
        )
        ended = heard[-1]
        assert isinstance(ended, RunEnded)
        assert (ended.status, ended.code) == ("failed", "files-failed")
