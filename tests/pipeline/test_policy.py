"""The value of a policy as a step: the same from any source, engine and blocks, in one pass."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.errors import refused
from support.pipelines import results_of

from protodask.data.tables.ingest import ingest
from protodask.engine import Engine, thread_engine
from protodask.errors import Code
from protodask.evaluation.policy_log import LogColumns, policy_log
from protodask.pipeline.file.definition import Pipeline, read_pipeline
from protodask.pipeline.state.records import record_name
from protodask.pipeline.steps.base import describe_step
from protodask.pipeline.steps.evaluate import EvaluateStep
from protodask.pipeline.steps.policy import PolicyEvaluated, PolicyStep
from protodask.prototypes import FitConfig, fit
from protodask.prototypes.model import PrototypeSet


def _log(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": random.normal(size=rows),
            "y": random.normal(size=rows),
            "action": random.integers(0, 3, rows),
            "reward": np.where(random.random(rows) < 0.1, random.normal(size=rows), 0.0),
            "propensity": random.choice([0.1, 1 / 3, 0.9], rows),
            "match": random.random(rows),
        }
    )


def _model(folder: Path) -> PrototypeSet:
    frame = _log(300)[["y", "x"]]
    frame["action"] = (frame.x > 0).astype(int)
    data = ingest(frame, folder / "training.zarr", target="action")
    return fit(data, FitConfig.of("source", n_candidates=20)).model


def _perform(step: PolicyStep, engine: Engine) -> PolicyEvaluated:
    result = step.perform(engine)
    assert isinstance(result, PolicyEvaluated)
    return result


def _actions(values: NDArray[np.int64]) -> dict[str, pd.Series]:
    """The same actions as numbers and text of every kind."""
    return {
        "integers": pd.Series(values),
        "floats": pd.Series(values.astype(float)),
        "text": pd.Series(values.astype(str)),
        "category": pd.Series(values.astype(str)).astype("category"),
    }


def test_evaluate_policy__actions_are_told_by_their_meaning(tmp_path: Path) -> None:
    made, model = _model(tmp_path), str(tmp_path / "model.zarr")
    made.save(model)
    log = _log(200)
    found = {}
    with thread_engine(2) as engine:
        for kind, actions in _actions(log.action.to_numpy()).items():
            table = str(tmp_path / f"{kind}.parquet")
            log.assign(action=actions).to_parquet(table)
            found[kind] = _perform(PolicyStep(table, model), engine).estimate
    taken = made.predict(log[["x", "y"]])
    assert found["integers"].matched == np.count_nonzero(taken == log.action) > 0
    assert np.count_nonzero(taken == log.action % 2) > found["integers"].matched, "the log has actions that are none"
    assert all(one == found["integers"] for one in found.values())


@pytest.mark.parametrize("column", ["reward", "propensity", "match"])
def test_evaluate_policy__refuses_what_is_missing_in_a_dataset(tmp_path: Path, column: str) -> None:
    log = _log(20)
    log.loc[7, column] = np.nan
    ingest(log, tmp_path / "log.zarr", target="action", dtype="float64")  # where the mean of the others stands for it
    with thread_engine(1) as engine, refused("bad-value", column, "row 7"):
        _perform(PolicyStep(str(tmp_path / "log.zarr"), match="match"), engine)


def test_evaluate_policy__one_pass_over_blocks_of_any_size(tmp_path: Path) -> None:
    model = _model(tmp_path)
    model.save(tmp_path / "model.zarr")
    log = _log(500)
    found = []
    for block_rows in (16, 512):
        data = ingest(log, tmp_path / f"{block_rows}.zarr", target="action", block_rows=block_rows, dtype="float64")
        with thread_engine(2) as engine:
            step = PolicyStep(data.path, str(tmp_path / "model.zarr"), estimator="snips")
            found.append(_perform(step, engine).estimate)
    assert found[0].interval.value == found[1].interval.value
    assert found[0].interval.low == pytest.approx(found[1].interval.low, rel=1e-12)
    # The features of the model in its own order, and nothing else.
    with thread_engine(1) as engine:
        block = policy_log(model, str(tmp_path / "16.zarr"), LogColumns(), engine=engine).read(1)
    np.testing.assert_array_equal(block["features"], log[["y", "x"]].to_numpy()[16:32])
    np.testing.assert_array_equal(block["action"], np.where(log.action < 2, log.action, -1)[16:32])
    assert set(block.arrays) == {"features", "action", "reward", "propensity"}


@pytest.mark.parametrize("by_model", [True, False])
def test_evaluate_policy__of_arrays(by_model: bool, tmp_path: Path) -> None:
    model = str(tmp_path / "model.zarr")
    _model(tmp_path).save(model)
    log = _log(100)
    log.to_parquet(tmp_path / "log.parquet")
    arrays: dict[str, Any] = {name: log[name].to_numpy() for name in ("action", "reward", "propensity", "match")}
    np.savez(tmp_path / "log.npz", features=log[["y", "x"]].to_numpy(), **arrays)
    with thread_engine(1) as engine:
        wanted, found = (
            _perform(
                PolicyStep(str(tmp_path / name), model, action="action")
                if by_model
                else PolicyStep(str(tmp_path / name), match="match"),
                engine,
            ).estimate
            for name in ("log.parquet", "log.npz")
        )
    assert found == wanted
    assert found.matched > 20


@pytest.mark.parametrize(
    ("step", "noted"),
    [("policy: {estimator: ips", False), ("evaluate: {policy: true", True)],
    ids=["policy", "evaluate"],
)
def test_pipeline__judges_a_policy(step: str, noted: bool, tmp_path: Path) -> None:
    _log(100).to_parquet(tmp_path / "log.parquet")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "variables: {folder: .}\nstate: ${folder}/state\n"
        "steps:\n"
        f"  - {step}, data: '${{folder}}/log.parquet', match: match, dropped-zeros: 10, "
        "out: '${folder}/value.json'}\n"
    )
    pipeline = read_pipeline(str(file), {"folder": str(tmp_path)})
    with thread_engine(1) as engine:
        (result,) = results_of(pipeline, engine)
    assert isinstance(result, PolicyEvaluated)
    assert result.estimate.records == 110
    assert (tmp_path / "value.json").exists()
    assert [("line 4" in note, "step `policy`" in note) for note in pipeline.notes] == [(True, True)] * noted
    assert describe_step(pipeline.steps[0]) == f"policy, a policy on {tmp_path}/log.parquet"


def test_pipeline__that_had_asked_evaluate_for_a_policy_goes_on(tmp_path: Path) -> None:
    """What it wrote when the step had another name is its own, and is written again."""
    _log(100).to_parquet(tmp_path / "log.parquet")
    out = tmp_path / "value.json"
    pipeline = Pipeline(
        str(tmp_path / "p.yaml"),
        (PolicyStep(str(tmp_path / "log.parquet"), match="match", out=str(out)),),
        state=str(tmp_path / "state"),
    )
    with thread_engine(1) as engine:
        results_of(pipeline, engine)
        (record,) = (tmp_path / "state/steps").glob("*.json")
        assert record.name == f"{record_name('evaluate', (str(out),), {}, 0)}.json"
        known = json.loads(record.read_text())
        record.write_text(json.dumps({**known, "key": "of the version before"}))
        (result,) = results_of(pipeline, engine)
    assert isinstance(result, PolicyEvaluated)


def test_pipeline__that_asks_for_no_policy_is_one_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("steps:\n  - evaluate: {data: d.zarr, model: m.zarr, policy: 'false'}\n")
    pipeline = read_pipeline(str(file))
    assert pipeline.steps == (EvaluateStep("m.zarr", "d.zarr"),)
    assert ["leave it out" in note for note in pipeline.notes] == [True]
    file.write_text("steps:\n  - evaluate: {data: d.zarr, model: m.zarr, policy: }\n")
    assert read_pipeline(str(file)).notes == ()
    file.write_text("steps:\n  - evaluate:\n      data: d.zarr\n      policy: true\n      confidence: high\n")
    with refused("bad-setting", "line 5", "(evaluate)", "high"):
        read_pipeline(str(file))
    file.write_text("steps:\n  - evaluate: {data: d.zarr, model: m.zarr, policy: perhaps}\n")
    with refused("bad-setting", "line 2", "policy", "perhaps"):
        read_pipeline(str(file))


@pytest.mark.parametrize(
    ("step", "code", "facts"),
    [
        (PolicyStep("log"), "setting-missing", ["policy", "model", "match"]),
        (PolicyStep("log", match="m", action="a"), "settings-conflict", ["match", "action"]),
        (PolicyStep("log", match="m", batches=1), "settings-conflict", ["match", "batches"]),
        (PolicyStep("log", "model", match="m"), "settings-conflict", ["match", "model"]),
    ],
)
def test_check__settings_that_do_not_go_together(step: PolicyStep, code: Code, facts: list[str]) -> None:
    with refused(code, *facts):
        step.check()
