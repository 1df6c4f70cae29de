"""The value of a policy as a step: the same from any source, engine and blocks, in one pass."""

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
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.results.common import PolicyEvaluated
from protodask.pipeline.steps import EvaluateStep, describe_step
from protodask.pipeline.work.policy_log import LogColumns, policy_log
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


def _perform(step: EvaluateStep, engine: Engine) -> PolicyEvaluated:
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
            found[kind] = _perform(EvaluateStep(table, model, policy=True), engine).estimate
    taken = made.predict(log[["x", "y"]])
    assert found["integers"].matched == np.count_nonzero(taken == log.action) > 0
    assert np.count_nonzero(taken == log.action % 2) > found["integers"].matched, "the log has actions that are none"
    assert all(one == found["integers"] for one in found.values())


def test_evaluate_policy__one_pass_over_blocks_of_any_size(tmp_path: Path) -> None:
    model = _model(tmp_path)
    model.save(tmp_path / "model.zarr")
    log = _log(500)
    found = []
    for block_rows in (16, 512):
        data = ingest(log, tmp_path / f"{block_rows}.zarr", target="action", block_rows=block_rows, dtype="float64")
        with thread_engine(2) as engine:
            step = EvaluateStep(data.path, str(tmp_path / "model.zarr"), policy=True, estimator="snips")
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
                EvaluateStep(str(tmp_path / name), model, policy=True, action="action")
                if by_model
                else EvaluateStep(str(tmp_path / name), policy=True, match="match"),
                engine,
            ).estimate
            for name in ("log.parquet", "log.npz")
        )
    assert found == wanted
    assert found.matched > 20


def test_pipeline__judges_a_policy(tmp_path: Path) -> None:
    _log(100).to_parquet(tmp_path / "log.parquet")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "variables: {folder: .}\nstate: ${folder}/state\n"
        "steps:\n"
        "  - evaluate: {data: '${folder}/log.parquet', policy: true, match: match, dropped-zeros: 10, "
        "out: '${folder}/value.json'}\n"
    )
    pipeline = read_pipeline(str(file), {"folder": str(tmp_path)})
    with thread_engine(1) as engine:
        (result,) = results_of(pipeline, engine)
    assert isinstance(result, PolicyEvaluated)
    assert result.estimate.records == 110
    assert (tmp_path / "value.json").exists()
    assert describe_step(pipeline.steps[0]) == f"evaluate, a policy on {tmp_path}/log.parquet"


@pytest.mark.parametrize(
    ("step", "code", "facts"),
    [
        (EvaluateStep("log"), "setting-missing", ["model", "data"]),
        (EvaluateStep("log", "model", match="m"), "settings-conflict", ["match is set", "policy"]),
        (EvaluateStep("log", policy=True), "setting-missing", ["policy", "model", "match"]),
        (EvaluateStep("log", policy=True, match="m", action="a"), "settings-conflict", ["match", "action"]),
        (EvaluateStep("log", policy=True, match="m", batches=1), "settings-conflict", ["match", "batches"]),
        (EvaluateStep("log", "model", policy=True, roc_auc=False), "settings-conflict", ["roc-auc", "policy"]),
    ],
)
def test_check__settings_that_do_not_go_together(step: EvaluateStep, code: Code, facts: list[str]) -> None:
    with refused(code, *facts):
        step.check()
