"""The run directory: whose it is, and what its log answers."""

import errno
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.errors import refused

from protodask import sample_data
from protodask.data import Dataset
from protodask.data.places.own_folder import own_folder
from protodask.engine import Engine, Progress
from protodask.errors import Code, FormatError, StorageError
from protodask.prototypes import FitConfig, PrototypeSet, fit
from protodask.prototypes import planning as planning_module
from protodask.prototypes import runs as runs_module
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.runs import RunDirectory, read_history, read_run
from protodask.prototypes.solver import Evaluation

Floats = NDArray[np.float64]

QUICK = FitConfig.of("source", n_candidates=10, tolerance=1e-3)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return sample_data("checker", 100, tmp_path_factory.mktemp("data") / "d.zarr")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lambda_v": 0.5}, "config.lambda_v was 0.001 and is 0.5"),
        ({"seed": 7}, "config.seed was 0 and is 7"),
        ({"precision": "float64"}, "config.precision was 'float32' and is 'float64'"),
        (
            {"n_batches": 2, "n_candidates": 20},
            "config.n_batches was 1 and is 2; config.n_candidates was 10 and is 20",
        ),
    ],
)
def test_fit__refuses_the_run_of_other_settings_naming_them(
    dataset: Dataset, engine: Engine, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with refused("other-run", tmp_path / "run", named):
        fit(dataset, replace(QUICK, **changes), run_dir=tmp_path / "run", engine=engine)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_fit__refuses_the_run_of_another_dataset_or_start(
    dataset: Dataset, engine: Engine, tmp_path: Path, make_model: Callable[..., PrototypeSet]
) -> None:
    run = fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    other = sample_data("checker", 101, tmp_path / "other.zarr")
    with refused("other-run", f"dataset was '{dataset.key}' and is '{other.key}'"):
        fit(other, QUICK, run_dir=tmp_path / "run", engine=engine)
    with refused("other-run", "start was None and is"):
        fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine, start=run.model)


def test_fit__of_the_same_content_elsewhere_is_the_same_run(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    first = fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    copy = sample_data("checker", 100, tmp_path / "copy.zarr")
    again = fit(copy, QUICK, run_dir=tmp_path / "run", engine=engine)
    assert again.history[0].value == first.history[0].value


def test_fit__leaves_its_settings_and_history(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    run = fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    record = read_run(str(tmp_path / "run"))
    assert FitConfig.of("source", **record["config"]) == QUICK
    assert (record["dataset"], record["start"]) == (dataset.key, None)
    assert record["environment"]["numpy"] == np.__version__
    history = read_history(str(tmp_path / "run"), record)
    assert history is not None
    (entry,) = history
    assert (entry["value"], entry["candidates"]) == (run.history[0].value, len(run.history[0].candidates))
    assert run.model.provenance["fits"][0]["config"] == QUICK.as_dict()


def test_fit__with_numpy_settings_can_have_a_run_directory(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    config = replace(QUICK, n_candidates=np.int64(10), seed=np.int64(1))  # type: ignore[arg-type]
    run = fit(dataset, config, run_dir=tmp_path / "run", engine=engine)
    run.model.save(tmp_path / "m.zarr")


def test_open__refuses_a_folder_with_other_things_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    with refused("wrong-kind", tmp_path, "empty or new folder"):
        RunDirectory.open(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_open__refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with refused("unwritable", tmp_path / "run", kind=StorageError):
        RunDirectory.open(tmp_path / "run", {})


@pytest.mark.parametrize(
    ("content", "code", "remedy"),
    [
        ("", "damaged", "start the run again"),
        ("{", "damaged", "start the run again"),
        ("[" * 100_000, "damaged", "start the run again"),
        ("[]", "wrong-kind", "folder that `run_dir` named"),
        ('{"format": "other"}', "wrong-kind", "folder that `run_dir` named"),
        ('{"format": "protodask-run", "version": 2}', "newer-format", "Upgrade protodask"),
        ('{"format": "protodask-run", "version": "1"}', "damaged", "start the run again"),
    ],
)
def test_open__refuses_damaged_foreign_or_newer_settings(tmp_path: Path, content: str, code: Code, remedy: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with refused(code, tmp_path, remedy, kind=FormatError):
        RunDirectory.open(tmp_path, {})


def test_read_run__of_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with refused("damaged", tmp_path, "start the run again", kind=FormatError):
        read_run(str(tmp_path))


def test_read_run__of_no_run(tmp_path: Path) -> None:
    with refused("wrong-kind", tmp_path, "`run_dir`", kind=FormatError):
        read_run(str(tmp_path))


class Counted:
    """A function of theta that notes its calls; what it says has digits to the last."""

    def __init__(self, held_out: bool = False) -> None:
        self.calls: list[Floats] = []
        self.held_out = held_out

    def __call__(self, theta: Floats) -> Evaluation:
        self.calls.append(theta.copy())
        held_out = float(np.cos(theta).sum()) if self.held_out else math.nan
        return Evaluation(float(np.sin(theta).sum()), np.cos(theta) / 3, held_out)


def thetas(count: int, length: int = 3) -> list[Floats]:
    return list(np.random.default_rng(0).normal(size=(count, length)))


def same(found: Evaluation, expected: Evaluation) -> bool:
    numbers = [np.array([one.value, one.held_out]).tobytes() + one.gradient.tobytes() for one in (found, expected)]
    return numbers[0] == numbers[1]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1), junk=st.binary(max_size=80), held_out=st.booleans())
@example(cut=0.998046875, junk=b"?", held_out=False)
def test_recorded__answers_up_to_where_the_log_was_torn(
    tmp_path: Path, cut: float, junk: bytes, held_out: bool
) -> None:
    run = RunDirectory(str(tmp_path))
    path = tmp_path / "batch-1-float64.log"
    path.unlink(missing_ok=True)
    recorded = run.recorded(1, "float64", Counted(held_out))
    answers = [recorded(theta) for theta in thetas(6)]
    whole = path.read_bytes()
    record_bytes = len(whole) // 6
    torn = whole[: int(cut * len(whole))] + junk
    path.write_bytes(torn)
    function = Counted(held_out)
    again = run.recorded(1, "float64", function)
    for theta, expected in zip(thetas(6), answers, strict=True):
        assert same(again(theta), expected)
    # The junk may happen to be what was torn off.
    intact = next((n for n in range(6) if not torn.startswith(whole[: (n + 1) * record_bytes])), 6)
    assert len(function.calls) == 6 - intact
    # What follows a log that had all the answers was never looked at.
    assert path.read_bytes() == (whole if function.calls else torn)


def test_recorded__that_goes_another_way_computes_and_replaces_the_rest(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path))
    first = run.recorded(1, "float32", Counted())
    for theta in thetas(5):
        first(theta)
    function = Counted()
    second = run.recorded(1, "float32", function)
    other = thetas(5)[:2] + [theta + 1 for theta in thetas(5)[2:]]
    for theta in other:
        assert same(second(theta), Counted()(theta))
    assert len(function.calls) == 3
    third = Counted()
    replay = run.recorded(1, "float32", third)
    for theta in other:
        replay(theta)
    assert third.calls == []


def test_recorded__keeps_batches_and_precisions_apart(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path))
    for batch, stage in ((1, "float32"), (1, "float64"), (2, "float32")):
        function = Counted()
        run.recorded(batch, stage, function)(thetas(1)[0])
        assert len(function.calls) == 1
    assert len(os.listdir(tmp_path)) == 3


def test_recorded__does_not_answer_from_the_log_of_another_batch_or_of_other_settings(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path), seal=1)
    run.recorded(1, "float32", Counted())(thetas(1)[0])
    log = tmp_path / "batch-1-float32.log"
    log.rename(tmp_path / "batch-2-float32.log")
    function = Counted()
    run.recorded(2, "float32", function)(thetas(1)[0])
    assert len(function.calls) == 1
    function = Counted()
    RunDirectory(str(tmp_path), seal=2).recorded(2, "float32", function)(thetas(1)[0])
    assert len(function.calls) == 1


def test_arrays__are_made_once(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path), seal=3)
    made = {"rows": np.arange(5), "features": np.arange(6.0).reshape(3, 2)}
    first = run.arrays(1, "candidates", lambda: made)
    again = run.arrays(1, "candidates", lambda: pytest.fail("they were recorded"))
    for name, values in made.items():
        for found in (first, again):
            assert found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name], values)


def test_arrays__of_another_batch_are_made_anew(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path), seal=3)
    run.arrays(1, "candidates", lambda: {"rows": np.arange(5)})
    (tmp_path / "batch-1-candidates.arrays").rename(tmp_path / "batch-2-candidates.arrays")
    found = run.arrays(2, "candidates", lambda: {"rows": np.arange(7)})
    np.testing.assert_array_equal(found["rows"], np.arange(7))


def test_arrays__of_something_else_are_made_anew(tmp_path: Path) -> None:
    run = RunDirectory(str(tmp_path), seal=3)
    for of in (5, 0, 7):
        made = run.arrays(1, "steps-9", lambda of=of: {"at": np.arange(of)}, of)  # type: ignore[misc]
        again = run.arrays(1, "steps-9", lambda: pytest.fail("they were recorded"), of)
        assert len(made["at"]) == len(again["at"]) == of


def test_fit__of_a_finished_run_makes_no_pass_but_the_one_that_scores(
    dataset: Dataset, engine: Engine, tmp_path: Path
) -> None:
    config = replace(QUICK, n_batches=2)
    first = fit(dataset, config, run_dir=tmp_path / "run", engine=engine)
    events: list[Progress] = []
    again = fit(dataset, config, run_dir=tmp_path / "run", engine=engine.with_progress(events.append))
    assert {event.label for event in events} == {"score"}
    assert model_fingerprint(again.model) == model_fingerprint(first.model)


def test_fit__with_damaged_candidates_draws_them_again(dataset: Dataset, engine: Engine, tmp_path: Path) -> None:
    first = fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    file = tmp_path / "run" / "batch-1-candidates.arrays"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    again = fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    assert model_fingerprint(again.model) == model_fingerprint(first.model)


def test_fit__refuses_a_run_directory_in_use_before_it_writes_to_it(
    dataset: Dataset, engine: Engine, tmp_path: Path
) -> None:
    with (
        own_folder(str(tmp_path / "run")),
        refused("written-by-another", tmp_path / "run", kind=StorageError),
    ):
        fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    assert list((tmp_path / "run").iterdir()) == []


def test_fit__refused_leaves_nothing_of_the_run_directory_it_made(
    dataset: Dataset, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runs_module, "write_whole", full)
        with refused("disk-full", tmp_path / "run", kind=StorageError):
            fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    assert list(tmp_path.iterdir()) == []
    # What others made stays.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("precious")
    with refused("wrong-kind", tmp_path / "run"):
        fit(dataset, QUICK, run_dir=tmp_path / "run", engine=engine)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_fit__leaves_no_scores_in_the_run_directory(
    dataset: Dataset, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning_module, "scores_stored", lambda *_: True)
    fit(dataset, replace(QUICK, n_batches=2), run_dir=tmp_path / "run", engine=engine)
    assert [path.name for path in (tmp_path / "run").iterdir() if path.is_dir()] == []
