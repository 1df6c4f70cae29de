"""`protodask calibrate`, and what asks for calibrated probabilities."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import zarr
from support.commands import check_failed, json_of

from protodask.data import Dataset
from protodask.evaluation import Calibrator, log_loss
from protodask.prototypes import load_model
from protodask.prototypes.scoring import predict_features

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def held_out(example: Any, write_table: Callable[..., Path], tmp_path_factory: Any) -> Path:
    """Rows that the model was not trained on, as a table."""
    found: Path = write_table(tmp_path_factory.mktemp("held-out") / "held-out.csv", 400, 7)
    return found


@pytest.fixture(scope="module")
def calibrated(call: Call, example: Any, held_out: Path, tmp_path_factory: Any) -> Path:
    out = tmp_path_factory.mktemp("calibrated") / "model.zarr"
    done = call("calibrate", example.model, held_out, "--out", out, "--bins", 8)
    assert done.exit_code == 0, done.output
    assert "has a calibration of 2 batches, fitted to 400 rows" in done.stdout
    return Path(out)


def raw_and_target(call: Call, example: Any, table: Path, folder: Path) -> tuple[Any, Any]:
    made = call(
        "ingest", table, "--out", folder / "own.zarr", "--target", "outcome", "--categorical", "colour",
        "--ordinal", "size=small,medium,large",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    dataset = Dataset.open(folder / "own.zarr")
    blocks = [dataset.read(number) for number in range(dataset.layout.n_blocks)]
    features = np.concatenate([block["features"] for block in blocks])
    target = np.concatenate([block["target"] for block in blocks])
    return predict_features(features, load_model(example.model), [2])[0][0], target


def test_calibrate__is_that_of_the_raw_probabilities(
    call: Call, example: Any, held_out: Path, calibrated: Path, tmp_path: Path
) -> None:
    raw, target = raw_and_target(call, example, held_out, tmp_path)
    expected = Calibrator(8).fit(raw, target).transform(raw)
    done = call("predict", calibrated, held_out, "--out", tmp_path / "p.zarr", "--calibrated", "--json")
    assert json.loads(done.stdout)["calibrated"] is True
    group: Any = zarr.open_group(tmp_path / "p.zarr", mode="r")
    np.testing.assert_allclose(group["probability"][...], expected, rtol=1e-6)
    np.testing.assert_array_equal(group["predicted"][...], group["probability"][...].argmax(axis=1))
    assert json_of("info", tmp_path / "p.zarr")["calibrated"] is True
    evaluated = json_of("evaluate", calibrated, held_out, "--calibrated")
    assert evaluated["log_loss"] == pytest.approx(log_loss(expected, target), rel=1e-6)
    assert evaluated["calibrated"] is True
    plain = json_of("evaluate", calibrated, held_out)
    assert plain["log_loss"] == pytest.approx(log_loss(raw, target), rel=1e-6)
    assert plain["calibrated"] is False


def test_calibrate__weights_and_inclusions_count(call: Call, example: Any, held_out: Path, tmp_path: Path) -> None:
    header, *lines = held_out.read_text().splitlines()
    weights = [str(0.5 + number % 3) for number in range(len(lines))]
    kept = ["0.25" if line.endswith("low") else "1" for line in lines]
    table = tmp_path / "weighted.csv"
    rows = zip(lines, weights, kept, strict=True)
    table.write_text("\n".join([f"{header},s,l", *(",".join(row) for row in rows)]) + "\n")
    arguments = ("--weight", "s", "--inclusion", "l", "--monotone", "--batches", 1, "--json")
    done = call("calibrate", example.model, table, "--out", tmp_path / "m.zarr", *arguments)
    found = json.loads(done.stdout)["calibration"]
    total = sum(float(s) / float(share) for s, share in zip(weights, kept, strict=True))
    assert (found["batches"], found["monotone"], found["rows"]) == (1, True, 400)
    assert found["weight"] == pytest.approx(total)
    (own,) = found["splines"]
    assert own["class"] == "low"
    assert own["calibrated"] == sorted(own["calibrated"])
    refused = call("predict", tmp_path / "m.zarr", held_out, "--out", tmp_path / "p", "--calibrated", "--batches", 2)
    check_failed(refused, 1, "bad-setting", "calibration of 1", 2)


def test_calibrate__is_shown_by_info(call: Call, example: Any, calibrated: Path) -> None:
    assert "splines of 8 bins for 2 batches, fitted to 400 rows" in call("info", calibrated).stdout
    found = json_of("info", calibrated)
    assert found["calibration"]["rows"] == 400
    assert found["provenance"]["calibration"]["dataset"] is None
    assert json_of("info", example.model)["calibration"] is None
    assert "calibration" not in call("info", example.model).stdout


def test_calibration__is_left_aside_by_explanations_and_reports_which_say_so(
    call: Call, example: Any, held_out: Path, calibrated: Path, tmp_path: Path
) -> None:
    said, report = "raw probabilities: the model's calibration is left aside", tmp_path / "r.html"
    for model, times in ((calibrated, 1), (example.model, 0)):
        assert call("explain", model, held_out, "--row", 0, "--row", 1).stdout.count(said) == times
        assert call("report", model, held_out, "--out", report, "--overwrite").stdout.count(said) == times
        assert report.read_text().count("raw: the model's calibration is left aside") == times


def test_calibrate__on_the_training_rows_says_so(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("calibrate", example.model, example.data, "--out", tmp_path / "m.zarr")
    assert done.exit_code == 0
    assert "Note: The model was trained on these very rows" in done.stdout


def test_calibrate__says_what_it_does_to_rows_left_out(
    call: Call, example: Any, write_table: Callable[..., Path], held_out: Path, tmp_path: Path
) -> None:
    harm = "Of rows that were left out it makes the log-loss larger"
    few = write_table(tmp_path / "few.csv", 60, 8)
    done = call("calibrate", example.model, few, "--out", tmp_path / "few.zarr", "--bins", 30)
    assert "Fitted to four fifths of these, it takes the log-loss of the others from" in done.stdout
    assert harm in done.stdout
    one = call("calibrate", example.model, held_out, "--out", tmp_path / "one.zarr", "--bins", 1, "--json")
    found = json.loads(one.stdout)
    losses = found["left_out"]["log_loss"]
    assert any(harm in note for note in found["notes"]) == (losses["calibrated"] > losses["raw"])


def test_calibrate__into_parquet(call: Call, held_out: Path, calibrated: Path, tmp_path: Path) -> None:
    done = call("predict", calibrated, held_out, "--out", tmp_path / "p.parquet", "--calibrated")
    assert "The calibrated predictions" in done.stdout
    table = pyarrow.parquet.read_table(tmp_path / "p.parquet").to_pandas()
    high = table["probability_high"] >= table["probability_low"]
    assert (table["predicted"] == np.where(high, "high", "low")).all()


def test_calibrate__again_in_place(call: Call, held_out: Path, calibrated: Path, tmp_path: Path) -> None:
    once = load_model(calibrated)
    once.save(tmp_path / "m.zarr")
    refused = call("calibrate", tmp_path / "m.zarr", held_out, "--out", tmp_path / "m.zarr")
    check_failed(refused, 1, "exists", tmp_path / "m.zarr", "--overwrite")
    done = call("calibrate", tmp_path / "m.zarr", held_out, "--out", tmp_path / "m.zarr", "--bins", 8, "--overwrite")
    assert done.exit_code == 0, done.output
    twice = load_model(tmp_path / "m.zarr")
    assert twice.calibration is not None
    assert once.calibration is not None
    assert twice.calibration.splines[0].outcome.tobytes() == once.calibration.splines[0].outcome.tobytes()


def test_calibrated__of_a_model_without_asks_for_one(call: Call, example: Any, held_out: Path, tmp_path: Path) -> None:
    for command in (
        ("predict", example.model, held_out, "--out", tmp_path / "p"),
        ("evaluate", example.model, held_out),
    ):
        refused = call(*command, "--calibrated")
        check_failed(refused, 1, "not-fitted", "calibration", "`protodask calibrate`")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("bins", "code"), [("0", 2), ("many", 2), ("1001", 2)])
def test_calibrate__refuses_a_number_of_bins(
    call: Call, example: Any, held_out: Path, tmp_path: Path, bins: str, code: int
) -> None:
    refused = call("calibrate", example.model, held_out, "--out", tmp_path / "m.zarr", "--bins", bins)
    assert refused.exit_code == code
    assert list(tmp_path.iterdir()) == []
