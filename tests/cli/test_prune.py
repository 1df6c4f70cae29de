"""`protodask prune`: fewer prototypes, said and recorded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.commands import check_failed

from protodask.prototypes import load_model
from protodask.prototypes.pruning import PRUNED

Call = Callable[..., Any]


def test_prune__by_the_rows_of_the_training(call: Call, example: Any, tmp_path: Path) -> None:
    before = load_model(example.model)
    done = call("prune", example.model, example.data, "--prototypes", 8, "--out", tmp_path / "few.zarr")
    assert done.exit_code == 0, done.output
    found = load_model(tmp_path / "few.zarr")
    assert 1 <= found.n_prototypes <= 8 < before.n_prototypes
    assert f"has {found.n_prototypes} prototype" in done.stdout
    assert f"of {before.n_prototypes} and uses" in done.stdout
    assert found.provenance[PRUNED]["prototypes"] == before.n_prototypes
    rows = call("explain", tmp_path / "few.zarr", example.data, "--row", 1, "--training", example.data)
    assert rows.exit_code == 0, rows.output


def test_prune__as_json_says_what_every_stage_left(call: Call, example: Any, tmp_path: Path) -> None:
    done = call("prune", example.model, example.data, "--prototypes", 8, "--out", tmp_path / "few.zarr", "--json")
    said = json.loads(done.stdout)
    assert (said["kind"], said["prototypes"] <= 8) == ("prune", True)
    assert said["log_loss"] == said["stages"][-1]["log_loss"]
    assert said["log_loss_before"] == said["stages"][0]["log_loss"]
    left = [stage["prototypes"] for stage in said["stages"]]
    assert left == sorted(left, reverse=True)


def test_prune__refuses_no_prototypes_and_to_overwrite(call: Call, example: Any, tmp_path: Path) -> None:
    none = call("prune", example.model, example.data, "--prototypes", 0, "--out", tmp_path / "m.zarr")
    assert (none.exit_code, "--prototypes" in none.stderr) == (2, True)
    own = call("prune", example.model, example.data, "--prototypes", 5, "--out", example.model)
    check_failed(own, 1, "exists", example.model)
