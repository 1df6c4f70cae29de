"""The Kubernetes manifests, against the schemas of the Dask operator and of Kubernetes; no cluster is needed."""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from cluster._started import CLUSTER
from distributed.cli import dask_scheduler, dask_worker

from protodask.cli import app
from protodask.cli.options import parse_bytes
from protodask.security.certificates import make_certificates

FOLDER = CLUSTER / "kubernetes"
DASK = "kubernetes.dask.org/v1"
POD_PORTS = {8786, 8790, 8791}


def documents() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in sorted(FOLDER.glob("*.yaml")):
        found += [(file.name, document) for document in yaml.safe_load_all(file.read_text()) if document]
    return found


def document(kind: str) -> dict[str, Any]:
    (found,) = [one for _, one in documents() if one["kind"] == kind]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Pod specifications by role."""
    cluster = document("DaskCluster")["spec"]
    return {
        "scheduler": cluster["scheduler"]["spec"],
        "worker": cluster["worker"]["spec"],
        "driver": document("Job")["spec"]["template"]["spec"],
    }


def closed(schema: Any) -> Any:
    """The schema, but what it does not name is wrong: a server would drop it without a word."""
    if isinstance(schema, list):
        return [closed(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(entry) for name, entry in schema.items()}
    if isinstance(inner.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        inner.setdefault("additionalProperties", False)
    return inner


@pytest.fixture(scope="module")
def operator_schema() -> Any:
    """What the operator's own definition says of a DaskCluster."""
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or found.origin is None:
        pytest.skip("dask-kubernetes, which carries the operator's schemas, is not installed: the extra `manifests`")
    folder = Path(found.origin).parent / "operator" / "deployment" / "helm" / "dask-kubernetes-operator" / "crds"
    definition = yaml.load((folder / "daskcluster.yaml").read_text(), Loader=yaml.CSafeLoader)
    (version,) = [one for one in definition["spec"]["versions"] if one["name"] == "v1"]
    schema = closed(version["schema"]["openAPIV3Schema"])
    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
    return schema


@pytest.mark.slow
def test_cluster__is_what_the_operator_takes(operator_schema: Any) -> None:
    import jsonschema

    cluster = document("DaskCluster")
    assert cluster["apiVersion"] == DASK
    validator = jsonschema.validators.validator_for(operator_schema)
    validator.check_schema(operator_schema)  # for seconds, so once
    takes = validator(operator_schema)
    takes.validate(cluster)
    for path, value in (
        (("worker", "replicas"), "four"),
        (("worker", "spec", "containers", 0, "securityContext", "readOnlyRootFilesystm"), True),
        (("scheduler", "service", "ports", 0, "port"), "8786"),
    ):
        broken = copy.deepcopy(cluster)
        place: Any = broken["spec"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        with pytest.raises(jsonschema.ValidationError):
            takes.validate(broken)


def test_manifests__are_what_kubernetes_takes() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: the extra `manifests` brings it"
    )
    others = [(name, one) for name, one in documents() if one["apiVersion"] != DASK]
    assert {one["kind"] for _, one in others} == {"Job", "NetworkPolicy", "PersistentVolumeClaim"}
    for _, one in others:
        validate.validate(one, validate.latest_version(), strict=True)
        broken = {**one, "spec": {**one["spec"], "surprise": 1}}
        with pytest.raises(validate.ValidationError):
            validate.validate(broken, validate.latest_version(), strict=True)
    # The operator makes deployments of these.
    for role in ("scheduler", "worker"):
        labels = {"app": role}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": role},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pods()[role]},
            },
        }
        validate.validate(deployment, validate.latest_version(), strict=True)


@pytest.mark.parametrize("role", ["scheduler", "worker", "driver"])
def test_pods__have_no_more_rights_than_they_need(role: str) -> None:
    pod = pods()[role]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    limit, request = (container["resources"][name]["memory"] for name in ("limits", "requests"))
    assert limit == request
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes
    assert mounts["tls"]["readOnly"] is True


@pytest.mark.parametrize("role", ["scheduler", "worker", "driver"])
def test_pods__commands_exist_and_name_files_of_their_own_certificates(role: str) -> None:
    (container,) = pods()[role]["containers"]
    program = {
        "scheduler": dask_scheduler.main,
        "worker": dask_worker.main,
        "driver": typer.main.get_command(app).commands["fit"],  # type: ignore[attr-defined]
    }[role]
    known = {name for parameter in program.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = [argument.partition("=") for argument in container["args"] if argument.startswith("--")]
    assert {name for name, _, _ in given} <= known
    client = "client" if role == "driver" else role
    files = [value for name, _, value in given if name.startswith("--tls-")]
    made = make_certificates().files
    assert files == ["/tls/ca.pem", f"/tls/{client}.pem", f"/tls/{client}-key.pem"]
    assert {file.removeprefix("/tls/") for file in files} <= made.keys()
    (tls,) = [volume for volume in pods()[role]["volumes"] if volume["name"] == "tls"]
    assert tls["secret"]["secretName"] == f"protodask-tls-{client}"


def test_worker__dask_pauses_before_the_system_kills() -> None:
    (container,) = pods()["worker"]["containers"]
    (limit,) = [a.partition("=")[2] for a in container["args"] if a.startswith("--memory-limit=")]
    assert parse_bytes(limit) < parse_bytes(container["resources"]["limits"]["memory"] + "B")


def test_network__admits_the_roles_and_ports_that_are_used() -> None:
    policy = document("NetworkPolicy")["spec"]
    cluster = document("DaskCluster")["spec"]
    labels = [cluster["scheduler"]["metadata"]["labels"], cluster["worker"]["metadata"]["labels"]]
    labels.append(document("Job")["spec"]["template"]["metadata"]["labels"])
    roles = [one["protodask/role"] for one in labels]
    (expression,) = policy["podSelector"]["matchExpressions"]
    assert expression["values"] == roles == list(pods())
    (admitted,) = policy["ingress"]
    assert {entry["port"] for entry in admitted["ports"]} == POD_PORTS == set(used_ports())


def used_ports() -> Iterator[int]:
    for pod in pods().values():
        for argument in pod["containers"][0]["args"]:
            # Not the dashboard: it is on loopback.
            found = re.fullmatch(r"--(?:worker-|nanny-)?port=([0-9]+)", argument)
            if found:
                yield int(found[1])


def test_dashboard__is_on_loopback_where_the_probe_asks() -> None:
    for role in ("scheduler", "worker"):
        (container,) = pods()[role]["containers"]
        (port,) = [entry["value"] for entry in container["env"] if entry["name"] == "HEALTH_PORT"]
        assert f"--dashboard-address=127.0.0.1:{port}" in container["args"]
        assert container["livenessProbe"]["exec"]["command"] == ["python", "/opt/healthcheck.py"]
