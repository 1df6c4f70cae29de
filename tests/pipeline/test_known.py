"""What is known of a pipeline after runs, and what the state remembers of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protodask.pipeline.state.records import State
from protodask.pipeline.telling.events import SUCCESSES, Done, Known, RunEnded, Status, StepIdentity, StepOutcome

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = ("data", "training", "better")
STEPS = [StepIdentity(number, name, "fit") for number, name in enumerate(NAMES, start=1)]

RESULTS = st.none() | st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.booleans(), max_size=3)
SECONDS = st.none() | st.floats(0, 1e6)
OUTCOMES = st.builds(
    StepOutcome,
    st.sampled_from(STEPS),
    st.sampled_from(get_args(Done)),
    RESULTS,
    SECONDS,
    waiting=st.none() | st.integers(0, 5),
)
ENDS = st.builds(
    RunEnded,
    st.just("p.yaml"),
    st.just("r"),
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.floats(0, 1e6),
    st.sampled_from(get_args(Status)),
    reasons=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    steps=st.lists(OUTCOMES, max_size=4, unique_by=lambda outcome: outcome.step.name).map(tuple),
)


@given(st.lists(ENDS, max_size=4), st.sets(st.sampled_from(NAMES)))
def test_known__of_any_runs(tmp_path_factory: pytest.TempPathFactory, ends: list[RunEnded], names: set[str]) -> None:
    state, found = State(str(tmp_path_factory.mktemp("state")), "p.yaml"), Known()
    for end in ends:
        found = found.after(end, [step for step in STEPS if step.name in names])
        noted = replace(end, known=found)
        state.ended(noted)
        assert state.last_run() == replace(noted, steps=())
    successes = [end.time for end in ends if end.status in SUCCESSES]
    assert found.succeeded == (successes[-1] if successes else None)
    looked_at = {outcome.step.name: outcome for end in ends for outcome in end.steps if outcome.looked_at}
    assert {outcome.step.name: outcome.status for outcome in found.steps} == {
        name: outcome.status for name, outcome in looked_at.items() if name in names
    }


def test_known__what_a_step_left_stays_until_it_leaves_something_else() -> None:
    step = StepIdentity(1, "data", "fit")

    def known(*outcomes: StepOutcome) -> StepOutcome:
        found = Known()
        for outcome in outcomes:
            found = found.after(RunEnded("p.yaml", "r", NOON, 1.0, "done", steps=(outcome,)), (step,))
        return found.steps[0]

    done = StepOutcome(step, "done", {"rows": 5}, 2.0)
    assert known(done, StepOutcome(step, "fresh")) == StepOutcome(step, "fresh", {"rows": 5}, 2.0)
    assert known(done, StepOutcome(step, "fresh", {"rows": 7})) == StepOutcome(step, "fresh", {"rows": 7}, 2.0)
    assert known(done, StepOutcome(step, "failed", None, 9.0)) == StepOutcome(step, "failed", {"rows": 5}, 2.0)
    assert known(done, StepOutcome(step, "failed", {"rows": 1}, 9.0)) == StepOutcome(step, "failed", {"rows": 1}, 9.0)
    assert known(done, StepOutcome(step, "left out")) == done
    assert known(StepOutcome(step, "interrupted", None, 9.0)) == StepOutcome(step, "interrupted")


def test_known__steps_stand_where_they_stand_in_the_file_now() -> None:
    data, training = StepIdentity(1, "data", "ingest"), StepIdentity(2, "training", "fit")
    done = (StepOutcome(data, "done", {"rows": 5}, 2.0), StepOutcome(training, "done", {"kind": "model"}, 3.0))
    before = Known().after(RunEnded("p.yaml", "r", NOON, 1.0, "done", steps=done), (data, training))
    new, moved = StepIdentity(1, "new", "split"), StepIdentity(2, "data", "ingest")
    other = StepIdentity(3, "training", "tune")
    failed = RunEnded("p.yaml", "r", NOON, 1.0, "failed", steps=(StepOutcome(other, "failed", None, 9.0),))
    # What another kind of step left is nothing that this one left.
    found = (StepOutcome(moved, "done", {"rows": 5}, 2.0), StepOutcome(other, "failed"))
    assert before.after(failed, (new, moved, other)).steps == found
    nothing = RunEnded("p.yaml", "r", NOON, 1.0, "failed")
    assert before.after(nothing, (new, moved, other)).steps == found[:1]


def test_state__of_a_link_stays_where_it_leads_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "p.yaml").touch()
    link, current = tmp_path / "p.yaml", tmp_path / "current"
    current.symlink_to("one")
    link.symlink_to("current/p.yaml")
    state, end = State(str(tmp_path / "state"), str(link)), RunEnded(str(link), "r", NOON, 1.0, "done")
    state.ended(end)
    current.unlink()
    current.symlink_to("two")
    assert state.last_run() == end


def test_state__is_found_by_another_path_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").touch()
    link = tmp_path / "link.yaml"
    link.symlink_to("p.yaml")
    folder = str(tmp_path / "state")
    State(folder, str(tmp_path / "p.yaml")).ended(RunEnded("p.yaml", "r", NOON, 1.0, "done"))
    assert State(folder, str(link)).last_run() == RunEnded(str(link), "r", NOON, 1.0, "done")


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 99},
        {"steps": 5},
        {"steps": [5]},
        {"steps": [{}]},
        {"succeeded": "yesterday"},
        {"status": "odd"},
        {"ended": None},
        {"seconds": "long"},
        {"seconds": 10**400},
        {"reasons": "none"},
        {"ended": "0001-01-01T00:00:00"},
        {"ended": "9999-12-31T23:59:59-14:00"},
        {"succeeded": "0001-01-01T00:00:00+14:00"},
        {
            "steps": [
                {
                    "number": 1,
                    "name": "a",
                    "step": "fit",
                    "status": "done",
                    "seconds": 1,
                    "waiting": 10**400,
                    "result": {},
                }
            ]
        },
        {
            "steps": [
                {"number": 1, "name": "a", "step": "fit", "status": "odd", "seconds": 1, "waiting": 0, "result": {}}
            ]
        },
        {
            "steps": [
                {"number": 1, "name": "a", "step": "fit", "status": "done", "seconds": 1, "waiting": 0, "result": 5}
            ]
        },
    ],
)
def test_state__a_record_of_runs_that_is_damaged_is_as_good_as_none(damage: dict[str, Any], tmp_path: Path) -> None:
    state, end = State(str(tmp_path), "p.yaml"), RunEnded("p.yaml", "r", NOON, 1.0, "done", known=Known(NOON))
    assert state.last_run() is None
    state.ended(end)
    (record,) = tmp_path.glob("run-*.json")
    assert state.last_run() == end
    record.write_text(json.dumps(json.loads(record.read_text()) | damage))
    assert state.last_run() is None
    record.write_text("{")
    assert state.last_run() is None


def test_state__no_secret_is_noted_with_the_end_of_a_run(tmp_path: Path) -> None:
    state = State(str(tmp_path), "p.yaml")
    outcome = StepOutcome(StepIdentity(1, "data", "ingest"), "done", {"path": "s3://me:quiet-word@bucket/x"}, 1.0)
    end = RunEnded("p.yaml", "r", NOON, 1.0, "failed", "Nothing at s3://me:quiet-word@bucket/x?token=hidden, or so.")
    state.ended(replace(end, known=Known(None, (outcome,))))
    (record,) = tmp_path.glob("run-*.json")
    assert "bucket" in record.read_text()
    assert "quiet-word" not in record.read_text()
    assert "hidden" not in record.read_text()
