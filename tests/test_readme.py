"""Every example of the README, run as a reader would run it."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

from protodask import FitConfig, fit, ingest, sample_data

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(r"<!-- run:(?P<kind>\w+) -->\n```\w*\n(?P<code>.*?)```", re.DOTALL)


def examples(kind: str) -> list[str]:
    return [match["code"] for match in EXAMPLE.finditer(README.read_text(encoding="utf-8")) if match["kind"] == kind]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # The scripts of this environment come first, whether or not it has been activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


IN_ONE_PROCESS = """
import shlex, sys
from protodask.cli import app
for line in sys.argv[1].replace("\\\\\\n", " ").splitlines():
    if words := shlex.split(line, comments=True):
        command, *arguments = words
        assert command == "protodask", line
        assert not {"|", "||", "&&", ";", ">", "<", "&"} & set(words), line
        sys.argv[1:] = arguments
        if code := app(arguments, standalone_mode=False):
            sys.exit(code)
"""
"""Each command as its own process would take a second or two to start; the tour and the cluster do it like that."""


def run_commands(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run lines that are commands of the package and nothing else; the first that fails ends it."""
    return run([sys.executable, "-c", IN_ONE_PROCESS, code], folder)


def test_readme__has_examples_of_each_kind() -> None:
    assert len(examples("python")) == 5
    assert len(examples("plots")) == 1
    assert len(examples("cli")) == 1
    assert len(examples("tune")) == 1
    assert len(examples("plan")) == 1
    assert len(examples("tls")) == 1
    assert len(examples("why")) == 1
    assert len(examples("explain")) == 1
    assert len(examples("report")) == 1
    assert len(examples("watch")) == 1
    assert len(examples("decisions")) == 1
    assert len(examples("decide")) == 1
    assert len(examples("auc")) == 1
    assert len(examples("policy")) == 1
    assert len(examples("policycli")) == 1
    assert len(examples("subsample")) == 1
    assert len(examples("calibrate")) == 1
    assert len(examples("calibrator")) == 1
    assert len(examples("decisions")) == 1
    assert len(examples("budget")) == 1
    assert len(examples("budgetcli")) == 1
    assert len(examples("robust")) == 1
    assert len(examples("robustcli")) == 1
    assert len(examples("registry")) == 1
    assert len(examples("registrypython")) == 1


@pytest.mark.parametrize("code", examples("python"), ids=["estimator", "dask", "dataset", "tune", "search estimator"])
def test_readme__python_examples_run(code: str, tmp_path: Path) -> None:
    done = run([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_readme__decisions_in_python_run(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("decisions")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("selecting probabilities of at least 0.5 would cost") == 3


def test_readme__decisions_on_stored_predictions_are_written(tmp_path: Path) -> None:
    done = run_commands(examples("decide")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("selecting probabilities of at least 0.5 would cost") == 2
    assert (tmp_path / "selected.parquet").is_dir()


def test_readme__budgets_in_python_run(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("budget")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Choice(features=frozenset({1, 2}), accuracy=0.88, cost=5.0)" in done.stdout
    assert "Choice(features=frozenset({0}), accuracy=0.7, cost=5.0)" in done.stdout
    assert "[7 4 1]" in done.stdout
    assert (tmp_path / "digits.budget").is_dir()


def test_readme__budgets_on_the_command_line_run(tmp_path: Path) -> None:
    done = run(["bash", "-euo", "pipefail", "-c", examples("budgetcli")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "as accurate as the best set for every size and budget" in done.stdout
    assert "model     blobs.budget/models/" in done.stdout
    assert (tmp_path / "budget.png").read_bytes().startswith(b"\x89PNG")


def test_readme__planes_for_features_known_roughly_are_found(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("robust")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    plain, robust = (float(line.split()[2]) for line in done.stdout.splitlines()[:2])
    assert robust < plain, "the expected certified error"
    done = run_commands(examples("robustcli")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The robust model is right on" in done.stdout
    (error,) = re.findall(r"^expected certified error +([0-9.]+)$", done.stdout, re.MULTILINE)
    assert float(error) == pytest.approx(robust, abs=2e-3), "of the same rows, by a plane of another solver"
    assert (tmp_path / "classes.parquet").is_dir()


def test_readme__areas_under_curves_are_printed(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("auc")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    exact, kept, bound = done.stdout.splitlines()
    assert "error_bound=0.0" in exact
    assert "error_bound=0.0" in kept
    assert 0 < float(bound) < 1e-4


def test_readme__pictures_are_drawn(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("plots")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = ("surface", "map", "importance", "calibration", "training")
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_readme__report_is_written(tmp_path: Path) -> None:
    done = run_commands(examples("report")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_readme__policies_are_judged(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("policy")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    whole, _, counted = done.stdout.splitlines()
    assert counted.split(",")[0] == whole.split(",")[0], "the value is the same to the last bit"
    done = run_commands(examples("policycli")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The policy would earn 0.02986 a record" in done.stdout
    assert '"estimator": "snips"' in done.stdout


def test_readme__command_line_tour_runs(tmp_path: Path) -> None:
    frame = load_iris(as_frame=True).frame
    frame["species"] = load_iris().target_names[frame.pop("target")]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    done = run(["bash", "-euo", "pipefail", "-c", examples("cli")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "log-loss" in done.stdout
    assert {"iris.zarr", "iris-model.zarr", "predictions.parquet"} <= {path.name for path in tmp_path.iterdir()}


def test_readme__searches_run(tmp_path: Path) -> None:
    done = run_commands(examples("tune")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "joint search, chosen by: half a standard error" in done.stdout
    assert "two-stage search, chosen by: half a standard error" in done.stdout
    assert {"tuned.zarr", "pair.zarr", "trials.csv"} <= {path.name for path in tmp_path.iterdir()}


def test_readme__explanations_of_the_command_line_run(tmp_path: Path) -> None:
    frame = load_iris(as_frame=True).frame
    frame["species"] = load_iris().target_names[frame.pop("target")]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    dataset = ingest(frame, tmp_path / "iris.zarr", target="species")
    fit(dataset, FitConfig(n_batches=2)).model.save(tmp_path / "iris-model.zarr")
    done = run_commands(examples("why")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "In the training data" in done.stdout
    assert "p-value" in done.stdout
    assert {"why.csv", "iris-model.csv"} <= {path.name for path in tmp_path.iterdir()}


def test_readme__explanations_in_python_run(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("explain")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "of 30 features" in done.stdout
    assert (tmp_path / "weights.csv").is_file()


def test_readme__streams_are_watched(tmp_path: Path) -> None:
    done = run_commands(examples("watch")[0], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing changed in 1,000 rows" in done.stdout
    assert done.stdout.count("The gate says yes.") == 2
    assert "above the margin of 0.01" in done.stdout


def test_readme__models_are_calibrated(tmp_path: Path) -> None:
    done = run_commands(examples("calibrate")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "has a calibration of 1 batch, fitted to 5,526 rows" in done.stdout
    assert "The calibrated model is right on" in done.stdout
    (loss,) = re.findall(r"^log-loss +([0-9.]+)$", done.stdout, re.MULTILINE)
    assert float(loss) < 0.65, "half of the rows are of either class; without the calibration it is 1.07"


def test_readme__a_subsample_is_undone(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("calibrator")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    share, raw, calibrated = (float(number) for number in done.stdout.replace("[", "").split()[:3])
    assert raw > 0.2
    assert abs(calibrated - share) < 0.1 * share


def test_readme__subsamples_are_drawn(tmp_path: Path) -> None:
    done = run_commands(examples("subsample")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("which stand for") == 2
    assert "log-loss" in done.stdout


def test_readme__plans_run(tmp_path: Path) -> None:
    sample_data("checker", 2000, tmp_path / "checker.zarr")
    done = run_commands(examples("plan")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "It fits." in done.stdout
    assert '"fits": true' in done.stdout


def test_readme__versions_of_models_are_kept(tmp_path: Path) -> None:
    done = run_commands(examples("registry")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Version 2 of the registry models is new. It is champion, in place of version 1." in done.stdout
    assert "Versions 1 and 2 are different models." in done.stdout
    assert "champion is now version 1; it was version 2." in done.stdout
    losses = re.findall(r"^log-loss +([0-9.]+)$", done.stdout, re.MULTILINE)
    assert losses[2] == losses[0] != losses[1], "the champion is the first model again"


def test_readme__versions_of_models_in_python(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", examples("registrypython")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 1 {'champion': 2, 'previous': 1}" in done.stdout
    assert "('n_candidates', 50, 200)" in done.stdout


def test_readme__cluster_with_tls_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    end = "trap 'kill $(jobs -p); wait' EXIT\n"
    done = run(["bash", "-euo", "pipefail", "-c", end + examples("tls")[0].replace("8786", str(port))], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "No problem found." in done.stdout
    assert (tmp_path / "model.zarr").is_dir()


def test_readme__gives_both_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert "pip install . && protodask run pipelines/quickstart.yaml" in text
    assert "pip install '.[test]' && pytest" in text
