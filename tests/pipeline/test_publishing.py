"""The step that publishes a model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.errors import refused
from typer.testing import CliRunner

from protodask import FitConfig, fit, sample_data
from protodask.cli import app
from protodask.pipeline.state.identities import identity
from protodask.pipeline.steps.base import describe_step
from protodask.pipeline.steps.publish import PublishStep
from protodask.registry import Registry


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    folder = tmp_path_factory.mktemp("models")
    data = sample_data("checker", 200, folder / "data.zarr")
    for seed in (0, 1):
        config = FitConfig.of("source", n_candidates=10, max_fraction=0.9, tolerance=1e-1, seed=seed)
        fit(data, config).model.save(folder / f"m{seed}.zarr")
    return lambda seed: str(folder / f"m{seed}.zarr")


def test_publish__is_a_step_of_its_settings(models: Callable[[int], str], tmp_path: Path) -> None:
    step = PublishStep(models(0), str(tmp_path / "models"), alias="trial", note="n", retain=3)
    step.check()
    assert step.command == "publish"
    assert describe_step(step).startswith("publish, ")
    found = step.perform()
    assert found.path == str(tmp_path / "models")
    assert found.published.version.aliases == ("trial",)
    assert found.describe()["note"] == "n"


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"alias": "1"}, "'1'"),
        ({"alias": ""}, "''"),
        ({"files": {"a b": "x"}}, "'a b'"),
    ],
)
def test_publish__refuses_settings_before_anything_is_read(wrong: dict[str, object], fact: object) -> None:
    with refused("bad-setting", fact):
        PublishStep("none.zarr", "none", **wrong).check()  # type: ignore[arg-type]


def test_publish__repeated_ends_as_if_run_once(models: Callable[[int], str], tmp_path: Path) -> None:
    place = str(tmp_path / "models")
    assert PublishStep(models(0), place).perform().published.added
    assert PublishStep(models(1), place).perform().published.added
    for _ in range(2):
        again = PublishStep(models(1), place).perform().published
        assert (again.added, again.version.number, again.replaced) == (False, 2, None)
    assert Registry.open(place).aliases == {"champion": 2, "previous": 1}


def test_identity__of_a_registry_outlasts_a_rollback_and_that_of_the_champion_does_not(
    models: Callable[[int], str], tmp_path: Path
) -> None:
    place = str(tmp_path / "models")
    assert identity(place) is None
    assert identity(f"{place}@champion") is None
    for seed in (0, 1):
        PublishStep(models(seed), place).perform()
    before = identity(place), identity(f"{place}@champion")
    Registry.open(place).rollback()
    assert identity(place) == before[0] is not None
    assert identity(f"{place}@champion") != before[1]


PIPELINE = """
steps:
  - evaluate: {model: models@champion, data: data.zarr, out: scores.json}
"""


def test_run__does_again_what_reads_the_champion_when_that_moves(
    models: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample_data("checker", 300, "data.zarr", seed=3)
    for seed in (0, 1):
        PublishStep(models(seed), "models").perform()
    Path("scores.yaml").write_text(PIPELINE)

    def run() -> float:
        done = CliRunner().invoke(app, ["run", "scores.yaml"])
        assert done.exit_code == 0, done.output
        return float(json.loads(Path("scores.json").read_text())["log_loss"])

    first = run()
    written = Path("scores.json").stat().st_mtime_ns
    assert run() == first
    assert Path("scores.json").stat().st_mtime_ns == written, "there was nothing to do"
    Registry.open("models").rollback()
    assert run() != first
    Registry.open("models").rollback()
    assert run() == first
