"""Running pipelines: what is done again, what is not, and what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.errors import check_error, refused
from support.kills import what_kills_leave
from support.pipelines import Killed, results_of, run_steps, written_pipeline

from protodask.engine import Engine, thread_engine
from protodask.errors import InputError, OutputExistsError, ProtodaskError, StorageError
from protodask.pipeline.file.definition import Pipeline
from protodask.pipeline.state.dry_run import dry_run
from protodask.pipeline.state.records import Begun, State, StepRecord
from protodask.pipeline.state.runner import Part, run_pipeline, step_number
from protodask.pipeline.state.staleness import look, planned
from protodask.pipeline.steps.base import Step
from protodask.pipeline.steps.evaluate import EvaluateStep, ModelEvaluated
from protodask.pipeline.steps.fit import FitStep, ModelFitted
from protodask.pipeline.steps.gate import GateAnswered, GateStep
from protodask.pipeline.steps.ingest import DatasetWritten, IngestStep, SampleDataStep
from protodask.pipeline.steps.policy import PolicyStep
from protodask.pipeline.steps.predict import PredictionsWritten, PredictStep
from protodask.pipeline.telling.events import (
    GateRefused,
    RunEnded,
    RunEvent,
    Said,
    StepDone,
    StepFailed,
    StepFresh,
    StepStarted,
)
from protodask.pipeline.telling.result import Result


@pytest.fixture(scope="module")
def engine() -> Engine:
    return thread_engine(threads=1)


def _pipeline(folder: Path, *steps: Step, **settings: Any) -> Pipeline:
    return Pipeline("example.yaml", steps, state=str(folder / "state"), **settings)


@dataclass
class Copies:
    """Stands for the work: a step writes the contents of what it reads, one after the other, into its output."""

    folder: Path
    done: list[str] = field(default_factory=list)
    kill: Callable[[str], None] = lambda moment: None

    def perform(self, step: Step) -> Any:
        assert isinstance(step, PolicyStep)
        assert step.out is not None
        out = self.folder / step.out
        if out.exists() and not step.overwrite:
            raise OutputExistsError("exists", f"{out} exists already.", "Choose another place.")
        self.kill("before")
        reads = [step.data] if step.model is None else [step.data, step.model]
        out.write_text(f"{Path(step.out).name}({','.join((self.folder / name).read_text() for name in reads)})")
        self.done.append(Path(step.out).name)
        self.kill("after")
        return _Described({"kind": "copy"})

    def run(self, pipeline: Pipeline, **options: Any) -> RunEnded:
        return run_pipeline(pipeline, self.perform, check=lambda pipeline: None, **options)


@dataclass(frozen=True)
class _Described(Result):
    plain: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        return self.plain

    def summary(self) -> str:
        return "Done."


def _chain(folder: Path) -> Pipeline:
    """b of a, c of b, d of c and a."""
    place = {name: str(folder / name) for name in "abcd"}
    return _pipeline(
        folder,
        PolicyStep(place["a"], out=place["b"]),
        PolicyStep(place["b"], out=place["c"]),
        PolicyStep(place["c"], place["a"], out=place["d"]),
    )


def test_run__checks_all_steps_before_the_first_that_is_stale(tmp_path: Path) -> None:
    pipeline, work = _chain(tmp_path), Copies(tmp_path)
    checked: list[tuple[Pipeline, int]] = []

    def run() -> RunEnded:
        return run_pipeline(pipeline, work.perform, check=lambda whole: checked.append((whole, len(work.done))))

    (tmp_path / "a").write_text("1")
    run()
    assert set(map(itemgetter(1), checked)) == {0}, "before anything is done"
    checked.clear()
    assert run().status == "fresh"
    assert checked == []
    (tmp_path / "c").unlink()
    run()
    assert checked == [(pipeline, 3)]
    assert work.done[3:] == ["c"]


def test_run__every_step(engine: Engine, tmp_path: Path) -> None:
    data, model = str(tmp_path / "data"), str(tmp_path / "model")
    table = tmp_path / "table.csv"
    table.write_text("x0,x1,class\n0.1,0.2,0\n0.3,0.4,1\n")
    pipeline = _pipeline(
        tmp_path,
        SampleDataStep("checker", 400, data),
        IngestStep((str(table),), str(tmp_path / "ingested"), target="class"),
        FitStep(data, model, candidates=20, tolerance=0.01, recipe="source"),
        EvaluateStep(model, str(tmp_path / "ingested")),
        PredictStep(model, (str(table),), str(tmp_path / "predictions")),
    )
    heard: list[RunEvent] = []
    outcome = run_steps(pipeline, engine, heard=heard)
    results = [entry.made for entry in outcome.steps]
    assert [type(result) for result in results] == [
        DatasetWritten,
        DatasetWritten,
        ModelFitted,
        ModelEvaluated,
        PredictionsWritten,
    ]
    assert [event.step.number for event in heard if isinstance(event, StepStarted)] == [1, 2, 3, 4, 5]
    assert isinstance(results[3], ModelEvaluated)
    assert results[3].scores.scores.rows == 2
    again = run_steps(pipeline, engine)
    assert again.status == "fresh"
    assert [entry.result for entry in again.steps] == json.loads(json.dumps([entry.result for entry in outcome.steps]))


def test_run__does_what_is_stale_and_nothing_else(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    assert work.run(pipeline).status == "done"
    assert work.done == ["b", "c", "d"]
    assert (tmp_path / "d").read_text() == "d(c(b(1)),1)"
    work.done.clear()
    os.utime(tmp_path / "a", (1, 1))  # touched, not changed
    assert work.run(pipeline).status == "fresh"
    (tmp_path / "c").unlink()
    assert work.run(pipeline).status == "done"
    assert work.done == ["c"]  # which is what it was, so that nothing follows from it
    work.done.clear()
    (tmp_path / "b").write_text("somebody else's")
    with refused("exists", tmp_path / "b", "`overwrite: true`", kind=OutputExistsError):
        work.run(pipeline)
    (tmp_path / "b").unlink()
    work.run(pipeline)
    assert work.done == ["b"]
    work.done.clear()
    (tmp_path / "a").write_text("2")
    heard: list[RunEvent] = []
    work.run(pipeline, listen=heard.append)
    assert work.done == ["b", "c", "d"]
    assert [event.why for event in heard if isinstance(event, StepStarted)] == [
        f"{tmp_path / name} has changed" for name in "abc"
    ]
    work.done.clear()
    last = pipeline.steps[2]
    assert isinstance(last, PolicyStep)
    changed = replace(pipeline, steps=(*pipeline.steps[:2], replace(last, confidence=0.9)))
    work.run(changed)
    assert work.done == ["d"]


@pytest.mark.parametrize("still", [False, True])
def test_run__does_not_replace_what_others_make_while_it_works(still: bool, tmp_path: Path) -> None:
    work, pipeline, out = Copies(tmp_path), _chain(tmp_path), tmp_path / "b"
    (tmp_path / "a").write_text("1")

    def perform(step: Step) -> Any:
        out.write_text("somebody else's")
        if still:
            raise StorageError("written-by-another", f"Someone else is writing to {out}.", "Wait.")
        return work.perform(step)

    with refused("written-by-another" if still else "exists", out, kind=ProtodaskError):
        run_pipeline(pipeline, perform, check=lambda pipeline: None)
    with refused("exists", out, "`overwrite: true`", kind=OutputExistsError):
        work.run(pipeline)
    assert out.read_text() == "somebody else's"
    out.unlink()
    assert work.run(pipeline).status == "done"


def test_run__how_long_a_fresh_step_took_its_own_record_says(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    done = work.run(pipeline)
    (record,) = (tmp_path / "state").glob("run-*.json")
    record.unlink()
    again = work.run(pipeline)
    assert again.status == "fresh"
    took = [outcome.seconds for outcome in done.steps]
    assert None not in took
    assert [outcome.seconds for outcome in again.steps] == took
    last = State(str(tmp_path / "state"), pipeline.path).last_run()
    assert last is not None
    assert [outcome.seconds for outcome in last.known.steps] == took


def test_run__steps_may_move_and_places_may_change(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    work.run(pipeline)
    work.done.clear()
    first = PolicyStep(str(tmp_path / "a"), out=str(tmp_path / "z"))
    assert work.run(replace(pipeline, steps=(first, *pipeline.steps))).steps[1].status == "fresh"
    assert work.done == ["z"]


@hypothesis_settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_run__ends_where_doing_everything_anew_would(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    names = [f"s{number}" for number in range(data.draw(st.integers(1, 3)))]
    for name in names:
        (folder / name).write_text("0")
    steps: list[Step] = []
    for number in range(data.draw(st.integers(1, 6))):
        read, *further = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))
        out = f"o{number}"
        model = str(folder / further[0]) if further else None
        steps.append(PolicyStep(str(folder / read), model, out=str(folder / out)))
        names.append(out)
    pipeline = _pipeline(folder, *steps)
    work = Copies(folder)
    for turn in range(data.draw(st.integers(1, 6))):
        for source in [name for name in names if name.startswith("s")]:
            if data.draw(st.booleans()):
                (folder / source).write_text(str(turn))
        for out in [name for name in names if name.startswith("o")]:
            if data.draw(st.integers(0, 5)) == 0:
                (folder / out).unlink(missing_ok=True)
        left = data.draw(st.integers(0, 2 * len(steps)))

        def kill(moment: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        work.kill = kill
        try:
            work.run(pipeline)
        except Killed:
            continue
        finally:
            work.kill = lambda moment: None
        _check_all(folder, steps)
        work.done.clear()
        assert work.run(pipeline).status == "fresh"
        assert work.done == []
    work.run(pipeline)
    _check_all(folder, steps)


def _check_all(folder: Path, steps: list[Step]) -> None:
    for step in steps:
        assert isinstance(step, PolicyStep)
        assert step.out is not None
        reads = [step.data] if step.model is None else [step.data, step.model]
        expected = f"{Path(step.out).name}({','.join(Path(name).read_text() for name in reads)})"
        assert Path(step.out).read_text() == expected


def test_run__what_a_killed_step_left_is_its_own(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")

    def kill(moment: str) -> None:
        if moment == "after":
            raise Killed

    work.kill = kill
    with pytest.raises(Killed):
        work.run(pipeline)
    assert (tmp_path / "b").exists()
    work.kill = lambda moment: None
    assert [entry.status for entry in work.run(pipeline).steps] == ["done", "done", "done"]


def test_run__what_others_put_there_is_not(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("mine")
    for _ in range(2):
        with refused("exists", "step 1 (policy)", tmp_path / "b", kind=OutputExistsError):
            work.run(pipeline)
    assert (tmp_path / "b").read_text() == "mine"


def test_run__of_a_file_that_was_renamed_says_where_what_it_did_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work, old = Copies(tmp_path), replace(_chain(tmp_path), path="old.yaml", state="")
    (tmp_path / "a").write_text("1")
    work.run(old)
    new, folder = replace(old, path="new.yaml"), os.path.join(".protodask", "old")
    assert {plan.why for plan in dry_run(new)} == {f"it was never done by this file, but by that of {folder}"}
    with refused("exists", "step 1 (policy)", f"`state: {folder}`", kind=OutputExistsError):
        work.run(new)
    assert work.run(replace(new, state=folder)).status == "fresh"


def test_run__what_others_put_in_place_of_what_failed_is_not(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")

    def fail(moment: str) -> None:
        raise InputError("bad-value", "A line is damaged.", "Mend it.")

    work.kill = fail
    with refused("bad-value", "Mend it"):
        work.run(pipeline)
    (tmp_path / "b").write_text("mine")
    work.kill = lambda moment: None
    for _ in range(2):
        with refused("exists", "step 1 (policy)", tmp_path / "b", kind=OutputExistsError):
            work.run(pipeline)
    assert (tmp_path / "b").read_text() == "mine"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("when", ["before", "after", "noted", "twice"])
def test_run__what_others_put_in_place_of_what_was_stopped_is_not(
    stop: type[BaseException], when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")

    def end(moment: str) -> None:
        if moment == when or (when == "twice" and moment == "after"):
            raise stop

    def done(*_: object) -> None:
        raise stop

    def begin(state: State, name: str, begun: Begun) -> None:
        if when == "twice" and begun.left:
            os.kill(os.getpid(), signal.SIGINT)
        noted(state, name, begun)

    noted = State.begin
    work.kill = end
    with monkeypatch.context() as patched:
        patched.setattr(State, "begin", begin)
        if when == "noted":
            patched.setattr(State, "done", done)
        with pytest.raises((stop, KeyboardInterrupt)):
            work.run(pipeline)
    (tmp_path / "b").unlink(missing_ok=True)
    (tmp_path / "b").write_text("mine")
    work.kill = lambda moment: None
    for _ in range(2):
        with refused("exists", "step 1 (policy)", tmp_path / "b", kind=OutputExistsError):
            work.run(pipeline)
    assert (tmp_path / "b").read_text() == "mine"


def test_run__what_others_had_there_is_not_for_having_been_told_to_replace_it(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("mine")

    def kill(moment: str) -> None:
        raise Killed

    work.kill = kill
    told = _pipeline(tmp_path, PolicyStep(str(tmp_path / "a"), out=str(tmp_path / "b"), overwrite=True))
    with pytest.raises(Killed):
        work.run(told)
    work.kill = lambda moment: None
    with refused("exists", "step 1 (policy)", tmp_path / "b", kind=OutputExistsError):
        work.run(pipeline)
    assert (tmp_path / "b").read_text() == "mine"


def test_run__what_a_failed_step_left_is_its_own(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")

    def fail(moment: str) -> None:
        if moment == "after":
            raise InputError("bad-value", "It ended badly.", "Try again.")

    work.kill = fail
    with refused("bad-value", "Try again"):
        work.run(pipeline)
    assert (tmp_path / "b").exists()
    work.kill = lambda moment: None
    assert [entry.status for entry in work.run(pipeline).steps] == ["done", "done", "done"]


def test_run__does_not_look_through_a_foreign_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "a").write_text("1")
    pipeline = _pipeline(tmp_path, PolicyStep(str(tmp_path / "a"), out=str(tmp_path / "home")))
    asked: list[str] = []

    def identity_of(place: str) -> str:
        asked.append(place)
        return "something"

    monkeypatch.setattr("protodask.pipeline.state.runner.identity", identity_of)
    with pytest.raises(OutputExistsError):
        Copies(tmp_path).run(pipeline)
    assert not asked


def test_run__records_that_are_damaged_cost_work_alone(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    work.run(pipeline)
    work.done.clear()
    for number, path in enumerate(sorted((tmp_path / "state" / "steps").iterdir())):
        path.write_text(["{", "[]", '{"format": 1, "key": 5, "inputs": 1, "outputs": []}'][number])
    pipeline = replace(pipeline, steps=tuple(plan.overwriting() for plan in planned(pipeline)))
    assert {plan.why for plan in dry_run(pipeline)} == {"what was noted of it cannot be read"}
    assert work.run(pipeline).status == "done"
    assert len(work.done) == 3


@pytest.mark.parametrize(
    "damage",
    [
        {"result": None},
        {"result": [1]},
        {"settings": None, "key": "other"},
        {"refused": [1]},
        {"refused": "no"},
        {"refused": 5},
        {"version": 5},
        {"ended": None},
        {"outputs": []},
        {"files": []},
        {"seconds": "x"},
    ],
)
def test_state__a_record_with_something_else_in_it_is_none(damage: dict[str, Any], tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    work.run(pipeline)
    state = State(pipeline.state_folder, pipeline.path)
    for plan in planned(pipeline):
        path = tmp_path / "state" / "steps" / f"{plan.record}.json"
        assert state.record(plan.record) is not None
        path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
        assert state.record(plan.record) is None
        assert look(plan, state).why == "what was noted of it cannot be read"


def test_run__checks_all_steps_before_the_first(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    pipeline = _pipeline(tmp_path, SampleDataStep("checker", 10, data), FitStep(data, "model", lambda_v=-1.0))
    with refused("bad-setting", "step 2 (fit)"):
        run_steps(pipeline, engine)
    assert list(tmp_path.iterdir()) == []


def test_run__a_failing_step_is_named_and_ends_the_run(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    pipeline = _pipeline(
        tmp_path,
        SampleDataStep("checker", 10, data),
        FitStep(str(tmp_path / "other"), str(tmp_path / "model")),
        SampleDataStep("checker", 10, str(tmp_path / "more")),
        lines=(1, 4, 9),
    )
    heard: list[RunEvent] = []
    with refused("not-found", "example.yaml, line 4, step 2 (fit)", tmp_path / "other", kind=StorageError):
        run_steps(pipeline, engine, heard=heard)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "state"}
    failed, ended = heard[-2:]
    assert isinstance(failed, StepFailed)
    assert failed.step.name == "fit-2"
    assert isinstance(ended, RunEnded)
    assert (ended.status, ended.message, ended.code) == ("failed", str(failed.error), "not-found")


def test_run__an_unexpected_error_is_told_and_raised_as_it_is(tmp_path: Path) -> None:
    def broken(step: Step) -> Any:
        raise ZeroDivisionError("by zero")

    heard: list[RunEvent] = []
    with pytest.raises(ZeroDivisionError):
        run_pipeline(_chain(tmp_path), broken, listen=heard.append, check=lambda pipeline: None)
    assert isinstance(heard[-2], StepFailed)
    check_error(heard[-2].error, "unexpected", "ZeroDivisionError: by zero")
    assert isinstance(heard[-1], RunEnded)
    assert (heard[-1].status, heard[-1].code) == ("failed", "unexpected")


def test_run__existing_output_advises_what_a_file_can_say(engine: Engine, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    results_of(_pipeline(tmp_path, SampleDataStep("checker", 10, data)), engine)
    elsewhere = Pipeline("example.yaml", (SampleDataStep("checker", 10, data),), state=str(tmp_path / "other"))
    with refused("exists", data, "`overwrite: true`", kind=OutputExistsError):
        results_of(elsewhere, engine)
    results_of(replace(elsewhere, steps=(SampleDataStep("checker", 10, data, overwrite=True),)), engine)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "mine.txt").write_text("mine")
    with refused("wrong-kind", tmp_path / "text", "step 1 (sample-data)", kind=OutputExistsError):
        results_of(_pipeline(tmp_path, SampleDataStep("checker", 10, str(tmp_path / "text"), overwrite=True)), engine)
    assert (tmp_path / "text" / "mine.txt").read_text() == "mine"


def _gate(passed: bool, accepted: bool = False) -> GateAnswered:
    return GateAnswered(passed, ("It is too much.",), accepted, (), None, None, None)


@pytest.mark.parametrize(("if_no", "status"), [("fail", "refused"), ("stop", "stopped")])
def test_run__a_gate_that_says_no_ends_it(if_no: Any, status: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    gate = GateStep(results=str(tmp_path / "a"), if_no=if_no)
    pipeline = _pipeline(tmp_path, gate, PolicyStep(str(tmp_path / "a"), out=str(tmp_path / "b")))
    work, asked, answer = Copies(tmp_path), [], _gate(False)

    def perform(step: Step) -> Any:
        if isinstance(step, GateStep):
            asked.append(step)
            return answer
        return work.perform(step)

    def run() -> tuple[RunEnded, list[RunEvent]]:
        heard: list[RunEvent] = []
        return run_pipeline(pipeline, perform, listen=heard.append, check=lambda pipeline: None), heard

    for repeated in (False, True):
        outcome, heard = run()
        assert (outcome.status, outcome.reasons) == (status, ("It is too much.",))
        assert [entry.status for entry in outcome.steps] == ["fresh" if repeated else "done", "left out"]
        refused = [event for event in heard if isinstance(event, GateRefused)]
        assert [(event.repeated, event.stops) for event in refused] == [(repeated, if_no == "stop")]
    assert len(asked) == 1
    assert not (tmp_path / "b").exists()
    pipeline = replace(pipeline, steps=(replace(gate, accept=True), pipeline.steps[1]))
    answer = _gate(False, accepted=True)
    assert run()[0].status == "done"
    assert (tmp_path / "b").exists()
    assert run()[0].status == "fresh"
    pipeline = replace(pipeline, steps=(gate, pipeline.steps[1]))
    assert run()[0].status == "fresh"  # what was accepted stays so
    answer = _gate(False)
    (tmp_path / "a").write_text("2")
    assert run()[0].status == status


def test_run__from_a_step_and_one_alone(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    (tmp_path / "a").write_text("1")
    work.run(pipeline)
    work.done.clear()
    (tmp_path / "a").write_text("2")
    outcome = work.run(pipeline, part=Part(2, forced=True))
    assert work.done == ["c", "d"]
    assert [entry.status for entry in outcome.steps] == ["not looked at", "done", "done"]
    work.done.clear()
    assert work.run(pipeline, part=Part(3, 3)).status == "fresh"
    assert work.run(pipeline, part=Part(1, 1)).status == "done"
    assert work.done == ["b"]


def test_step_number__by_number_name_and_kind(tmp_path: Path) -> None:
    pipeline = _pipeline(
        tmp_path,
        PolicyStep("a"),
        PolicyStep("b"),
        FitStep("c", "d"),
        GateStep(results="e"),
        names=("", "x", "", "3"),
    )
    assert [step_number(pipeline, text) for text in ("1", "policy-1", "x", "fit", "3", "gate")] == [1, 1, 2, 3, 4, 4]
    for text in ("policy", "0", "5", "y"):
        with refused("unknown-name", repr(text), "policy-1, x, fit-3, 3"):
            step_number(pipeline, text)
    with refused("unknown-name", "Did you mean fit-3?"):
        step_number(pipeline, "fit-4")


def test_run__what_it_changes_itself_does_not_make_it_stale(tmp_path: Path) -> None:
    """The first step reads what the last one adds to."""
    work = Copies(tmp_path)
    first = PolicyStep(str(tmp_path / "a"), str(tmp_path / "total"), out=str(tmp_path / "b"))
    last = PolicyStep(str(tmp_path / "b"), out=str(tmp_path / "total"))
    (tmp_path / "a").write_text("1")
    (tmp_path / "total").write_text("0")
    pipeline = _pipeline(tmp_path, first, replace(last, overwrite=True))
    assert work.run(pipeline).status == "done"
    assert work.run(pipeline).status == "fresh"
    (tmp_path / "a").write_text("2")
    assert work.run(pipeline).status == "done"
    assert work.run(pipeline).status == "fresh"
    assert work.done == ["b", "total"] * 2


def test_run__what_a_step_writes_to_the_place_it_reads_does_not_make_it_stale(tmp_path: Path) -> None:
    work, total = Copies(tmp_path), str(tmp_path / "total")
    (tmp_path / "a").write_text("1")
    (tmp_path / "total").write_text("0")
    pipeline = _pipeline(tmp_path, PolicyStep(str(tmp_path / "a"), total, out=total, overwrite=True))
    assert work.run(pipeline).status == "done"
    assert work.run(pipeline).status == "fresh"
    (tmp_path / "a").write_text("2")
    assert work.run(pipeline).status == "done"
    assert work.run(pipeline).status == "fresh"
    assert (tmp_path / "total").read_text() == "total(2,total(1,0))"


def test_run__a_second_interrupt_while_its_end_is_noted_is_told_like_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, heard = State.ended, list[RunEvent]()

    def interrupted(self: Any, end: RunEnded | None = None) -> NoReturn:
        if end is not None:
            ended(self, end)
        raise KeyboardInterrupt

    (tmp_path / "a").write_text("1")
    monkeypatch.setattr(State, "ended", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(_chain(tmp_path), interrupted, listen=heard.append, check=lambda _: None)
    assert isinstance(heard[-1], RunEnded)
    assert heard[-1].status == "interrupted"


def test_run__whose_end_cannot_be_noted_ends_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    work.run(pipeline)
    (record,) = (tmp_path / "state").glob("run-*.json")
    record.unlink()
    record.mkdir()
    heard: list[RunEvent] = []
    assert work.run(pipeline, listen=heard.append).status == "fresh"
    warning, end = heard[-2:]
    assert isinstance(warning, Said)
    assert "could not be noted" in warning.text
    assert isinstance(end, RunEnded)


@pytest.mark.parametrize(("overlap", "status"), [("leave", "left"), ("wait", "done")])
def test_run__while_another_is_under_way(overlap: Any, status: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    pipeline = replace(_chain(tmp_path), overlap=overlap)
    work, go = Copies(tmp_path), threading.Event()
    outcomes: list[RunEnded] = []
    waited: list[str] = []
    code = (
        "import sys\nfrom protodask.pipeline.state.records import State\n"
        f"with State({str(tmp_path / 'state')!r}, {pipeline.path!r}).sole_run(False) as alone:\n"
        "    print(alone, flush=True)\n    sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        try:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline().strip() == "True"
            with refused("written-by-another", f"process {other.pid}", "--overlap wait", kind=ProtodaskError):
                work.run(replace(pipeline, overlap="refuse"))
            assert not list((tmp_path / "state").glob("run-*.json")), "the other run notes how it ends"

            def hear(event: RunEvent) -> None:
                if isinstance(event, Said):
                    waited.append(event.text)
                    go.set()

            def run() -> None:
                outcomes.append(work.run(pipeline, listen=hear))
                go.set()

            thread = threading.Thread(target=run)
            thread.start()
            assert go.wait(60)
            assert outcomes == [] or overlap == "leave"
            other.stdin.close()
            thread.join(60)
        finally:
            other.kill()
    assert [outcome.status for outcome in outcomes] == [status]
    assert len(waited) == (overlap == "wait")
    assert len(list((tmp_path / "state").glob("run-*.json"))) == (overlap == "wait")
    assert all(f"process {other.pid}" in text for text in waited)


def test_state__files_of_one_name_do_not_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(tmp_path / "p.yaml")
    one, other, same = (
        State(str(tmp_path / "state"), str(tmp_path / name)) for name in ("p.yaml", "a/p.yaml", "link.yaml")
    )
    with one.sole_run(False) as first, other.sole_run(False) as second, same.sole_run(False) as third:
        assert (first, second, third) == (True, True, False)


def test_state__a_kill_while_a_step_is_noted_leaves_one_note_of_it(tmp_path: Path) -> None:
    """Without any, what lies at its output would be somebody else's."""
    folder = tmp_path / "state"
    state = State(str(folder), "p.yaml")
    state.begin("step", Begun("key"))
    record = StepRecord("key", {}, {}, {}, 1.0, "2026-01-01T00:00:00", {})
    copies = what_kills_leave(lambda: state.done("step", record), folder, tmp_path / "copies")
    assert state.record("step") == record
    left = [State(str(copy), "p.yaml") for copy in [*copies, folder]]
    notes = {(one.begun("step") is not None, one.record("step") is not None) for one in left}
    assert notes == {(True, False), (True, True), (False, True)}


def test_state__the_lock_of_a_killed_run_is_free(tmp_path: Path) -> None:
    state = State(str(tmp_path / "state"), "p.yaml")
    code = (
        "import os, signal\nfrom protodask.pipeline.state.records import State\n"
        f"with State({state.folder!r}, 'p.yaml').sole_run(False):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False)
    assert done.returncode == -9
    with state.sole_run(False) as alone:
        assert alone


def test_run__the_record_of_a_fit_with_other_data_goes(engine: Engine, tmp_path: Path) -> None:
    data, model = tmp_path / "data.zarr", tmp_path / "model.zarr"
    steps = (
        SampleDataStep("checker", 400, str(data)),
        FitStep(str(data), str(model), candidates=20, tolerance=1e-3, recipe="source"),
    )
    pipeline = _pipeline(tmp_path, *steps)
    heard: list[RunEvent] = []

    def interrupted(step: Step) -> Any:

        from protodask.prototypes.history import IterationDone

        def stop(event: object) -> None:
            if isinstance(event, IterationDone) and event.iteration == 1:
                raise KeyboardInterrupt

        return step.perform(engine, stop)

    with pytest.raises(KeyboardInterrupt):
        run_pipeline(pipeline, interrupted, listen=heard.append)
    assert isinstance(heard[-1], RunEnded)
    assert heard[-1].status == "interrupted"
    assert heard[-1].steps[-1].status == "interrupted"
    assert (tmp_path / "model.zarr.run").is_dir()
    other = replace(pipeline, steps=(replace(steps[0], rows=500), steps[1]))
    outcome = run_steps(other, engine)
    assert [entry.status for entry in outcome.steps] == ["done", "done"]
    assert not (tmp_path / "model.zarr.run").exists()
    made = outcome.steps[1].made
    assert isinstance(made, ModelFitted)
    assert made.model.provenance["fits"][0]["rows"] == 500


def test_run__without_work_imports_little(tmp_path: Path) -> None:
    pipeline = written_pipeline(
        tmp_path, "steps:\n  - sample-data: {kind: checker, rows: 300, out: '${folder}/d.zarr'}\n"
        "  - fit: {data: '${folder}/d.zarr', out: '${folder}/m.zarr', candidates: 9, tolerance: 0.1, recipe: source}\n"
        "  - evaluate: {data: '${folder}/d.zarr', model: '${folder}/m.zarr', out: '${folder}/s.json'}\n",
    )  # fmt: skip
    with thread_engine(1) as engine:
        results_of(pipeline, engine)
    code = (
        "import sys\nfrom protodask.cli import app\n"
        f"app(['run', {pipeline.path!r}], standalone_mode=False)\n"
        "heavy = {'asyncio', 'numpy', 'zarr', 'dask', 'distributed', 'pandas', 'pyarrow', 'scipy', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, timeout=60, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["There is nothing to do: everything is up to date.", "[]"]
    assert done.stderr.count("is up to date") == 3


def test_events__tell_of_every_step(tmp_path: Path) -> None:
    work, pipeline = Copies(tmp_path), _chain(tmp_path)
    heard: list[RunEvent] = []
    (tmp_path / "a").write_text("1")
    work.run(pipeline, listen=heard.append)
    kinds = [type(event).__name__ for event in heard]
    assert kinds == ["RunStarted", *["StepStarted", "StepDone"] * 3, "RunEnded"]
    assert [event.why for event in heard if isinstance(event, StepStarted)] == ["it was never done"] * 3
    assert all(event.seconds >= 0 for event in heard if isinstance(event, StepDone))
    heard.clear()
    (tmp_path / "c").write_text("x")
    with pytest.raises(OutputExistsError):
        work.run(pipeline, listen=heard.append)
    (started,) = [event for event in heard if isinstance(event, StepStarted)]
    assert started.why == f"{tmp_path / 'c'} was changed by others"
    assert [event.step.number for event in heard if isinstance(event, StepFresh)] == [1]


def test_run__says_which_step_below_would_make_what_is_not_there(tmp_path: Path, engine: Engine) -> None:
    data = str(tmp_path / "data")
    early, late = FitStep(data=f"{data}/", out=str(tmp_path / "m")), SampleDataStep(kind="xor", rows=9, out=data)
    with refused("not-found", data, "Step 2 (sample-data)", "above", kind=StorageError):
        run_pipeline(_pipeline(tmp_path, early, late), lambda step: step.perform(engine))


def test_run__of_a_step_alone_says_which_one_above_makes_what_is_not_there(tmp_path: Path, engine: Engine) -> None:
    data = str(tmp_path / "data")
    early, late = SampleDataStep(kind="xor", rows=9, out=data), FitStep(data=data, out=str(tmp_path / "m"))
    with refused("not-found", data, "Step 1 (sample-data)", "first", kind=StorageError):
        run_pipeline(_pipeline(tmp_path, early, late), lambda step: step.perform(engine), part=Part(2, 2))
