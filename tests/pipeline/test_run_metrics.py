"""What the file of metrics says after runs of all kinds."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from support.errors import refused

from protodask.errors import OutputExistsError
from protodask.pipeline.state.records import State
from protodask.pipeline.telling.events import Known, RunEnded, Status, StepIdentity, StepOutcome
from protodask.pipeline.telling.metrics import FAMILIES, run_metrics

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PREDICT, JUDGE, GATE = (
    StepIdentity(1, "scoring", "predict"),
    StepIdentity(2, "judged", "evaluate"),
    StepIdentity(3, "ok", "gate"),
)
SCORES = {
    "kind": "scores",
    "rows": 500,
    "log_loss": 0.25,
    "accuracy": 0.9,
    "roc_auc": None,
    "confusion": [[1.0]],
    "balanced_accuracy": "high",
}
ANSWER = {
    "kind": "gate",
    "passed": True,
    "figures": [{"name": "drift.largest", "value": 0.1}, {"name": "none", "value": None}, "odd"],
    "comparison": {"gain": 0.02, "p_value": 0.01, "rows": 5},
}

Figures = dict[tuple[str, ...], float]


def _done(step: StepIdentity, seconds: float, described: dict[str, Any]) -> StepOutcome:
    return StepOutcome(step, "done", described, seconds)


def _fresh(step: StepIdentity, described: dict[str, Any] | None = None, waiting: int | None = None) -> StepOutcome:
    return StepOutcome(step, "fresh", described, waiting=waiting)


def _run(
    path: Path,
    status: Status,
    outcomes: Sequence[StepOutcome],
    hours: int = 0,
    steps: Sequence[StepIdentity] = (PREDICT, JUDGE, GATE),
    pipeline: str = "score.yaml",
) -> Figures:
    """The figures after a run that ended so, given what the state at the same place knows of those before."""
    complaints: list[str] = []
    listen = run_metrics(str(path), complaints.append)
    state = State(f"{path}.state", pipeline)
    end = RunEnded(pipeline, "r", NOON + timedelta(hours=hours), 4.5, status, steps=tuple(outcomes))
    last = state.last_run()
    end = replace(end, known=(Known() if last is None else last.known).after(end, steps))
    if status != "left":
        state.ended(end)
        assert state.last_run() == replace(end, steps=())
    listen(end)
    assert complaints == []
    return _read(path) if path.exists() else {}


def _read(path: Path) -> Figures:
    """By family, without the prefix, and the labels but the pipeline; as both parsers have it."""
    text = path.read_text(encoding="utf-8")
    found: list[Figures] = []
    for parse in (parse_open_metrics, parse_prometheus):
        families = list(parse(text))
        assert all(family.type == "gauge" for family in families)
        found.append(
            {
                (
                    each.name.removeprefix("protodask_"),
                    *(v for k, v in each.labels.items() if k != "pipeline"),
                ): each.value
                for family in families
                for each in family.samples
            }
        )
    assert found[0] == found[1]
    return found[0]


WHOLE = (
    _done(PREDICT, 2.0, {"kind": "predictions", "rows": 70}),
    _done(JUDGE, 1.0, SCORES),
    _done(GATE, 0.5, ANSWER),
)


def test_metrics__of_a_run_that_did_all(tmp_path: Path) -> None:
    found = _run(tmp_path / "score.prom", "done", WHOLE)
    noon = NOON.timestamp()
    assert (
        found.items()
        >= {
            ("run_status", "done"): 1,
            ("run_status", "failed"): 0,
            ("run_success",): 1,
            ("run_end_timestamp_seconds",): noon,
            ("run_last_success_timestamp_seconds",): noon,
            ("run_duration_seconds",): 4.5,
            ("step_performed", "scoring"): 1,
            ("step_failed", "scoring"): 0,
            ("step_duration_seconds", "scoring"): 2,
            ("step_rows", "scoring"): 70,
            ("step_rows_per_second", "scoring"): 35,
            ("step_rows_per_second", "judged"): 500,
            ("model_quality", "judged", "log_loss"): 0.25,
            ("model_quality", "judged", "accuracy"): 0.9,
            ("gate_passed", "ok"): 1,
            ("gate_figure", "ok", "drift.largest"): 0.1,
            ("gate_figure", "ok", "gain"): 0.02,
            ("gate_figure", "ok", "p_value"): 0.01,
        }.items()
    )
    assert ("model_quality", "judged", "roc_auc") not in found
    assert ("model_quality", "judged", "balanced_accuracy") not in found
    assert ("step_rows", "ok") not in found


def test_metrics__the_pipeline_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run(tmp_path / "score.prom", "done", WHOLE)
    text = (tmp_path / "score.prom").read_text()
    assert f'protodask_run_success{{pipeline="{tmp_path}/score.yaml"}} 1\n' in text
    assert text.endswith("# EOF\n")


def test_metrics__a_fresh_run_gives_what_is_recorded_and_the_durations_of_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    before = _run(path, "done", WHOLE)
    again = (
        _fresh(PREDICT, {"kind": "predictions", "rows": 70}),
        _fresh(JUDGE, SCORES | {"log_loss": 0.5}),
        _fresh(GATE, None),
    )
    found = _run(path, "fresh", again, hours=1)
    noon = NOON.timestamp()
    changed = {
        ("run_status", "done"): 0,
        ("run_status", "fresh"): 1,
        ("run_end_timestamp_seconds",): noon + 3600,
        ("run_last_success_timestamp_seconds",): noon + 3600,
        ("step_performed", "scoring"): 0,
        ("step_performed", "judged"): 0,
        ("step_performed", "ok"): 0,
        ("model_quality", "judged", "log_loss"): 0.5,
    }
    assert found == before | changed
    path.unlink()
    assert _run(path, "fresh", again, hours=1) == found, "without an earlier file"
    found = _run(tmp_path / "other.prom", "fresh", again, hours=1)
    assert found["model_quality", "judged", "accuracy"] == 0.9, "from the record of the step alone"


def test_metrics__a_failure_keeps_the_time_of_the_last_success_and_the_figures(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    before = _run(path, "done", WHOLE)
    failed = (_fresh(PREDICT), StepOutcome(JUDGE, "failed", seconds=1.5))
    found = _run(path, "failed", failed, hours=2)
    assert found == before | {
        ("run_status", "done"): 0,
        ("run_status", "failed"): 1,
        ("run_success",): 0,
        ("run_end_timestamp_seconds",): NOON.timestamp() + 7200,
        ("step_performed", "scoring"): 0,
        ("step_failed", "judged"): 1,
    }
    found = _run(path, "failed", (), hours=3)
    assert found["run_last_success_timestamp_seconds",] == NOON.timestamp()
    assert found["model_quality", "judged", "log_loss"] == 0.25
    (tmp_path / "other.prom").write_text("")
    assert ("run_last_success_timestamp_seconds",) not in _run(tmp_path / "other.prom", "failed", ())


def test_metrics__what_a_failed_step_did_nevertheless(tmp_path: Path) -> None:
    described = {"kind": "scored files", "rows": 30, "files": 3, "repeated": 0, "waiting": 0, "failed": 1, "changed": 0}
    failed = StepOutcome(PREDICT, "failed", described, 1.5)
    found = _run(tmp_path / "score.prom", "failed", [failed])
    assert found["step_failed", "scoring"] == 1
    assert found["step_rows", "scoring"] == 30
    assert found["step_rows_per_second", "scoring"] == 20
    assert found["files", "scoring", "scored"] == 3
    assert found["files", "scoring", "failed"] == 1


def test_metrics__steps_that_are_gone_go(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    _run(path, "done", WHOLE)
    found = _run(path, "done", WHOLE[:2], steps=(PREDICT, JUDGE))
    assert not any("ok" in labels for labels in found)
    found = _run(path, "done", (*WHOLE[:1], StepOutcome(JUDGE, "not looked at")), steps=(PREDICT, JUDGE))
    assert ("model_quality", "judged", "accuracy") in found, "a step that was not looked at"


def test_metrics__figures_that_a_new_result_does_not_have_go(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    _run(path, "done", WHOLE)
    found = _run(
        path, "done", (*WHOLE[:1], _done(JUDGE, 1.0, {"kind": "scores", "rows": 5, "accuracy": 0.1}), WHOLE[2])
    )
    assert found["model_quality", "judged", "accuracy"] == 0.1
    assert ("model_quality", "judged", "log_loss") not in found


@pytest.mark.parametrize("repeated", [False, True])
def test_metrics__a_gate_that_says_no(repeated: bool, tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    _run(path, "done", WHOLE)
    answer = ANSWER | {"passed": False, "figures": [{"name": "drift.largest", "value": 0.4}]}
    told = _fresh(GATE, answer) if repeated else _done(GATE, 0.5, answer)
    found = _run(path, "refused", (*WHOLE[:2], told), hours=1)
    assert found["gate_passed", "ok"] == 0
    assert found["gate_figure", "ok", "drift.largest"] == 0.4
    assert found["run_success",] == 0
    assert found["run_last_success_timestamp_seconds",] == NOON.timestamp()
    stopped = _run(path, "stopped", (*WHOLE[:2], told), hours=2)
    assert stopped["run_success",] == 1


def test_metrics__of_what_a_monitor_saw(tmp_path: Path) -> None:
    seen = {
        "kind": "monitor",
        "rows": 90,
        "drift": {"largest": 0.3, "features": 1, "worst": [{"name": "age", "index": 0.3, "p_value": 0.0}]},
        "labels": {"shift": None, "unknown": 0.5},
        "familiarity": {"rare": 0.02, "p05": 1.5, "p50": 2.5, "before": {"p50": 9.0}, "p_value": 0.5},
        "log_loss": {"value": 0.7, "increase": 0.1},
        "accuracy": 0.8,
        "predictions": "odd",
    }
    step = StepIdentity(1, "m", "monitor")
    found = _run(tmp_path / "m.prom", "done", [_done(step, 1.0, seen)], steps=(step,))
    figures = {
        labels: value
        for labels, value in found.items()
        if labels[0] in {"drift", "feature_drift", "familiarity", "model_quality"}
    }
    assert figures == {
        ("drift", "m", "drift.largest"): 0.3,
        ("drift", "m", "drift.features"): 1,
        ("drift", "m", "labels.unknown"): 0.5,
        ("drift", "m", "familiarity.rare"): 0.02,
        ("drift", "m", "log_loss.increase"): 0.1,
        ("feature_drift", "m", "age"): 0.3,
        ("familiarity", "m", "0.05"): 1.5,
        ("familiarity", "m", "0.5"): 2.5,
        ("model_quality", "m", "log_loss"): 0.7,
        ("model_quality", "m", "accuracy"): 0.8,
    }


def test_metrics__of_files(tmp_path: Path) -> None:
    scored = {"kind": "scored files", "files": 3, "rows": 60, "repeated": 1, "waiting": 2, "failed": 0, "changed": 0}
    scored["marked"] = 7
    taken = {"kind": "dataset", "rows": 1000, "new_sources": 4, "new_rows": 80, "left": ["a.csv"]}
    events = [_done(PREDICT, 2.0, scored), _done(JUDGE, 4.0, taken)]
    found = _run(tmp_path / "m.prom", "done", events)
    shown = {"files", "rows_marked", "step_rows_per_second"}
    assert {labels: value for labels, value in found.items() if labels[0] in shown} == {
        ("rows_marked", "scoring"): 7,
        ("files", "scoring", "scored"): 3,
        ("files", "scoring", "repeated"): 1,
        ("files", "scoring", "waiting"): 2,
        ("files", "scoring", "failed"): 0,
        ("files", "scoring", "changed"): 0,
        ("files", "judged", "new"): 4,
        ("files", "judged", "waiting"): 1,
        ("step_rows_per_second", "scoring"): 30,
        ("step_rows_per_second", "judged"): 20,
    }


def test_metrics__of_files_that_wait_where_nothing_is_new(tmp_path: Path) -> None:
    left = {"kind": "scored files", "files": 3, "waiting": 0}
    found = _run(tmp_path / "m.prom", "fresh", [_fresh(PREDICT, left, waiting=2)])
    assert (found["files", "scoring", "waiting"], found["files", "scoring", "scored"]) == (2, 3)
    found = _run(tmp_path / "m.prom", "fresh", [_fresh(PREDICT, {**left, "waiting": 2}, waiting=0)])
    assert found["files", "scoring", "waiting"] == 0
    for waiting in (1, 0):  # of a step that was never done, as nothing has come
        found = _run(tmp_path / "n.prom", "fresh", [_fresh(PREDICT, None, waiting)])
        assert found["files", "scoring", "waiting"] == waiting
    assert ("files", "judged", "waiting") not in _run(tmp_path / "o.prom", "fresh", [_fresh(JUDGE, None)])


def test_metrics__a_run_that_left_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    before = _run(path, "done", WHOLE)
    assert _run(path, "left", (), hours=1) == before
    assert _run(tmp_path / "none.prom", "left", ()) == {}


@pytest.mark.parametrize(
    "content", ["", "garbage\n\x00\n", 'protodask_step_rows{pipeline="/else/score.yaml",step="x"} 5\n']
)
def test_metrics__whatever_lay_there_is_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    path.write_text(content)
    found = _run(path, "done", WHOLE)
    assert not any("x" in labels for labels in found)
    assert found == _run(tmp_path / "fresh.prom", "done", WHOLE)


def test_metrics__the_file_is_readable_by_others_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    old = os.umask(0o022)
    try:
        _run(path, "done", WHOLE)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry for entry in os.listdir(tmp_path) if entry.endswith(".prom")] == ["score.prom"]


def test_metrics__names_and_secrets(tmp_path: Path) -> None:
    path = tmp_path / "score.prom"
    step = StepIdentity(1, 'a "b"\\\n{c}', "evaluate")
    found = _run(
        path, "done", (_done(step, 0.0, SCORES),), steps=(step,), pipeline="s3://user:quiet-word@bucket/p.yaml"
    )
    assert found["step_rows", 'a "b"\\\n{c}'] == 500
    assert ("step_rows_per_second", 'a "b"\\\n{c}') not in found, "in no time at all"
    assert "quiet-word" not in path.read_text()
    again = _run(path, "failed", (), steps=(step,), pipeline="s3://user:quiet-word@bucket/p.yaml")
    assert again["step_rows", 'a "b"\\\n{c}'] == 500


def test_metrics__places_that_cannot_be_written(tmp_path: Path) -> None:
    with refused("wrong-kind", tmp_path, kind=OutputExistsError):
        run_metrics(str(tmp_path), print)
    with refused("not-local", "s3://bucket/x.prom"):
        run_metrics("s3://bucket/x.prom", print)
    complaints: list[str] = []
    (tmp_path / "folder").mkdir()
    listen = run_metrics(str(tmp_path / "folder" / "x.prom"), complaints.append)
    (tmp_path / "folder").rmdir()
    (tmp_path / "folder").write_text("in the way")
    listen(RunEnded("p.yaml", "r", NOON, 1.0, "done"))
    assert len(complaints) == 1
    listen = run_metrics(str(tmp_path / "folder" / "x.prom"), complaints.append)  # a run is worth more than its figures
    listen(RunEnded("p.yaml", "r", NOON, 1.0, "done"))
    assert len(complaints) == 2


def test_families__have_names_and_units_of_the_specification() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert family.name.startswith("protodask_")
        assert not family.name.endswith(("_total", "_created", "_count", "_sum", "_bucket", "_info"))
        assert family.unit is None or family.name.endswith(f"_{family.unit}")
        assert family.help.endswith(".")
