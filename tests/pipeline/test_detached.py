"""Handing work over to a platform, with stand-ins for its programs; tests/cluster has the real ones."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import ClusterError, OutputExistsError
from protodask.pipeline.state.detached import Work, fit_work, job_manifest, pipeline_work, submit, without_detach
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.tune import TuneStep

TEMPLATE = Path(__file__).parents[2] / "cluster" / "kubernetes" / "driver-job.yaml"
FIT = Work(("fit",), "run", "run/.driver.log")
WORDS = st.lists(st.text(min_size=1).filter(lambda word: not word.startswith("--detach") and word != "--"))


@settings(max_examples=30)
@given(before=WORDS, after=WORDS, platform=st.sampled_from(["local", "slurm", "kubernetes"]), joined=st.booleans())
def test_without_detach__leaves_the_rest_as_it_is(
    before: list[str], after: list[str], platform: str, joined: bool
) -> None:
    option = [f"--detach={platform}"] if joined else ["--detach", platform]
    assert without_detach([*before, *option, *after]) == (*before, *after)
    assert without_detach([*before, "--", *option]) == (*before, "--", *option)


def test_fit_work__the_run_directory_is_named_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    work = fit_work(FitStep("d.zarr", "m.zarr"), ["fit", "d.zarr", "--out", "m.zarr"], "local")
    assert work.arguments == ("fit", "d.zarr", "--out", "m.zarr", "--run-dir", "m.zarr.run")
    assert work.run_dir == str(tmp_path / "m.zarr.run")
    named = fit_work(FitStep("d", "m", run_dir="r"), ["fit", "--run-dir", "r", "--out", "m", "--", "d"], "slurm")
    assert named.arguments == ("fit", "--run-dir", "r", "--out", "m", "--", "d")
    last = fit_work(FitStep("-d", "m"), ["fit", "--out", "m", "--", "-d"], "slurm")
    assert last.arguments == ("fit", "--out", "m", "--run-dir", "m.run", "--", "-d")


def test_fit_work__refuses_what_the_job_would_refuse(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    step = FitStep("d", str(tmp_path / "m"))
    with refused("exists", tmp_path / "m", kind=OutputExistsError):
        fit_work(step, ["fit"], "slurm")
    # In a container there are other files.
    assert fit_work(step, ["fit"], "kubernetes").run_dir == f"{tmp_path}/m.run"
    with refused("not-local", "s3://bucket/m", "`run_dir`"):
        fit_work(FitStep("d", "s3://bucket/m"), ["fit"], "kubernetes")


def test_fit_work__of_a_search(tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    step = TuneStep("d", str(tmp_path / "m"))
    work = fit_work(step, ["tune", "d", "--out", str(tmp_path / "m")], "local")
    assert work.arguments[-2:] == ("--run-dir", f"{tmp_path}/m.run")
    with refused("exists", tmp_path / "t.csv", "overwrite=True", kind=OutputExistsError):
        fit_work(replace(step, table=str(tmp_path / "t.csv")), ["tune"], "local")
    fit_work(replace(step, table=str(tmp_path / "t.csv")), ["tune"], "kubernetes")


Stand = Callable[..., dict[str, Path]]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Put a program first on the path that writes down what it is given, and answers."""

    def make(name: str, answer: str, code: int = 0, error: str = "") -> dict[str, Path]:
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        told = {"arguments": tmp_path / "arguments", "text": tmp_path / "text"}
        program = programs / name
        program.write_text(
            f"#!{sys.executable}\nimport sys, json\n"
            f"open({str(told['arguments'])!r}, 'w').write(json.dumps(sys.argv[1:]))\n"
            f"open({str(told['text'])!r}, 'w').write(sys.stdin.read())\n"
            f"print({answer!r}); print({error!r}, file=sys.stderr); sys.exit({code})\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return told

    return make


def work(tmp_path: Path) -> Work:
    run = tmp_path / "runs 100%"
    return Work(("fit", "a b", "--out", "m"), str(run), str(run / ".driver.log"))


def test_local__modules_beside_the_data_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "typer", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('somebody put this beside the data')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    job = submit("local", Work(("--version",), None, str(tmp_path / "log")))
    deadline = time.monotonic() + 60
    while os.waitpid(int(job.name), os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(int(job.name), signal.SIGKILL)
        time.sleep(0.02)
    assert (tmp_path / "log").read_text().startswith("protodask ")


def test_slurm__what_sbatch_is_given(tmp_path: Path, stand_in: Stand) -> None:
    told = stand_in("sbatch", "42;far")
    job = submit("slurm", work(tmp_path), {"PROTODASK_SBATCH_OPTIONS": "--mem=4G --comment 'two words'"})
    arguments = json.loads(told["arguments"].read_text())
    assert {"--parsable", "--requeue", "--open-mode=append", "--mem=4G", "two words"} <= set(arguments)
    assert "--no-requeue" not in arguments
    # Slurm replaces what follows a per cent sign.
    assert f"--output={tmp_path}/runs 100%%/.driver.log" in arguments
    assert told["text"].read_text().endswith("-P -m protodask fit 'a b' --out m\n")
    assert (tmp_path / "runs 100%" / ".driver.log").exists()
    assert job.name == "42"
    assert job.stop == "scancel --clusters=far 42"
    assert job.progress == f"protodask info '{tmp_path}/runs 100%'"


def test_slurm__pipelines_are_asked_for_at_the_queue(tmp_path: Path, stand_in: Stand) -> None:
    told = stand_in("sbatch", "7")
    job = submit("slurm", pipeline_work(str(tmp_path / "p.yaml"), ["run", "p.yaml"]), {})
    # Begun again, it does what is left to do.
    assert "--requeue" in json.loads(told["arguments"].read_text())
    assert job.progress == "squeue --job 7"
    assert job.output == f"tail -f {tmp_path}/p.yaml.log"


def test_slurm__refused_or_missing(tmp_path: Path, stand_in: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("sbatch", "", 1, "sbatch: error: invalid partition")
    with refused("refused", "Slurm", "invalid partition", kind=ClusterError):
        submit("slurm", work(tmp_path), {})
    with refused("bad-setting", "PROTODASK_SBATCH_OPTIONS"):
        submit("slurm", work(tmp_path), {"PROTODASK_SBATCH_OPTIONS": "'"})
    monkeypatch.setenv("PATH", str(tmp_path))
    with refused("package-missing", "sbatch", kind=ClusterError):
        submit("slurm", work(tmp_path), {})


def test_kubernetes__what_kubectl_is_given(tmp_path: Path, stand_in: Stand) -> None:
    told = stand_in("kubectl", "job.batch/protodask-driver-x1")
    variables = {"PROTODASK_JOB_TEMPLATE": str(TEMPLATE), "PROTODASK_NAMESPACE": "team", "PROTODASK_IMAGE": "image:1"}
    job = submit("kubernetes", work(tmp_path), variables)
    assert json.loads(told["arguments"].read_text()) == [
        "--namespace", "team", "create", "--filename", "-", "--output", "name",
    ]  # fmt: skip
    expected = yaml.safe_load(TEMPLATE.read_text())
    container = expected["spec"]["template"]["spec"]["containers"][0]
    container["args"], container["image"] = ["fit", "a b", "--out", "m"], "image:1"
    assert yaml.safe_load(told["text"].read_text()) == expected
    assert job.stop == "kubectl --namespace team delete job.batch/protodask-driver-x1"
    assert job.progress.startswith("kubectl --namespace team exec job.batch/protodask-driver-x1 -- protodask info ")
    # The folders are those of the container.
    assert not (tmp_path / "runs 100%").exists()


def test_kubernetes__work_may_begin_again_as_the_template_says() -> None:
    template = yaml.safe_load(TEMPLATE.read_text())
    for work in (FIT, pipeline_work("p.yaml", ["run", "p.yaml"])):
        made = job_manifest(template, "t", work)["spec"]
        assert made["backoffLimit"] == template["spec"]["backoffLimit"] > 0
        assert made["podFailurePolicy"] == template["spec"]["podFailurePolicy"]


def test_kubernetes__each_submission_has_a_name_of_its_own() -> None:
    template = yaml.safe_load(TEMPLATE.read_text())
    template["metadata"] = {"name": "mine"}
    made = job_manifest(template, "t", FIT)
    assert made["metadata"] == {"generateName": "mine-"}
    assert template["metadata"] == {"name": "mine"}


EXAMPLE = "cluster/kubernetes/driver-job.yaml"


@pytest.mark.parametrize(
    ("template", "fact"),
    [
        ({"kind": "Pod"}, "Pod"),
        ({}, EXAMPLE),
        ({"kind": "Job", "spec": 3}, EXAMPLE),
        ({"kind": "Job", "metadata": {}, "spec": {"template": {"spec": {"containers": []}}}}, EXAMPLE),
        ({"kind": "Job", "metadata": {}, "spec": {"template": {"spec": {"containers": ["a"]}}}}, EXAMPLE),
    ],
)
def test_kubernetes__templates_that_are_none(template: Any, fact: str) -> None:
    with refused("wrong-kind", "t.yaml", "Job", fact):
        job_manifest(template, "t.yaml", FIT)


def test_kubernetes__without_a_template(tmp_path: Path) -> None:
    with refused("setting-missing", "PROTODASK_JOB_TEMPLATE", EXAMPLE):
        submit("kubernetes", work(tmp_path), {})
