"""Small valid stores of every kind, two of each, and what using one of them gives."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask.data import Column, Dataset, write_dataset
from protodask.engine import array_source, thread_engine
from protodask.evaluation.calibration import calibrate_model
from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.inspecting.describe import describe_place
from protodask.prototypes import FitConfig, fit, load_model
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.prediction import predict
from protodask.prototypes.scoring import predict_features

ROWS, BLOCK_ROWS = 80, 32

COLUMNS = (
    Column("age"),
    Column("colour", "nominal", ("red", "green")),
    Column("size", "ordinal", ("small", "large", "huge")),
)
CLASSES = ("high", "low")

TINY = FitConfig.of("source", n_batches=1, n_candidates=6, max_iterations=2)
TWO_BATCHES = FitConfig.of("source", n_batches=2, n_candidates=8, max_iterations=4)

PIPELINE = """\
description: Try it
variables: {root: out, rows: 200, share: 0.5}
steps:
  - sample-data: {kind: checker, rows: "${rows}", out: "${root}/data.zarr"}
  - ingest:
      sources: [a.csv, b.csv]
      out: "${root}/tables.zarr"
      ordinal: {size: [small, large]}
  - fit: {data: "${root}/data.zarr", out: "${root}/model.zarr", max-fraction: "${share}", lambda-v: 1e-3}
  - evaluate: {model: "${root}/model.zarr", data: "${root}/data.zarr"}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of store: how it is used, and whether other content can be as good as the original one."""

    name: str
    use: Callable[[Path, Path], Any]
    """What is found out by using the store; the second path is that of the valid stores."""
    free: bool = False
    """Written by people: what is changed means something else, and nothing else can be said of it."""


def make_stores(folder: Path) -> None:
    """One valid store of each kind in `folder/one`, and another one of the same form in `folder/other`."""
    for seed, name in enumerate(("one", "other")):
        place = folder / name
        place.mkdir(parents=True)
        _make_dataset(place / "dataset", seed)
        data = Dataset.open(place / "dataset")
        with thread_engine(1, 2**26) as engine:
            config = replace(TWO_BATCHES, seed=seed)
            run = fit(data, config, run_dir=place / "finished", engine=engine)
            calibrate_model(run.model, data, np.arange(len(data.classes)), engine, n_bins=4).save(place / "model")
            predict(run.model, data, place / "predictions", engine=engine)
        shutil.copytree(place / "finished", place / "run")
        _interrupt(place / "run")
        (place / "pipeline").mkdir()
        (place / "pipeline" / "pipeline.yaml").write_text(PIPELINE.replace("200", str(200 + seed)))


def _make_dataset(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    age = random.uniform(0, 10, ROWS)
    red = random.integers(0, 2, ROWS)
    arrays: dict[str, NDArray[Any]] = {
        "features": np.column_stack([age, red, 1 - red, random.integers(0, 3, ROWS)]).astype(np.float32),
        "target": (age > 5).astype(np.int32),
        "weight": random.uniform(0.5, 2, ROWS),
        "inclusion": random.uniform(0.1, 1, ROWS),
        "group": random.integers(0, ROWS // 4, ROWS),
    }
    write_dataset(array_source(arrays), path, classes=CLASSES, columns=COLUMNS, block_rows=BLOCK_ROWS)


def _interrupt(run: Path) -> None:
    """As if the process had been killed while it wrote to the log of the second batch."""
    (run / "history.json").unlink()
    for log in run.glob("batch-2-*.log"):
        content = log.read_bytes()
        log.write_bytes(content[: len(content) * 2 // 3])


def _plain(description: dict[str, Any]) -> str:
    return json.dumps(
        {name: value for name, value in description.items() if name not in ("path", "logs", "progress", "driver_log")}
    )


def _use_dataset(path: Path, valid: Path) -> Any:
    described = _plain(describe_place(str(path)))
    dataset = Dataset.open(path)
    digest = hashlib.blake2b()
    for number in range(dataset.layout.n_blocks):
        for name, values in dataset.read(number).arrays.items():
            digest.update(name.encode() + values.tobytes())
    with thread_engine(1, 2**26) as engine:
        model = fit(dataset, TINY, engine=engine).model
    return described, digest.hexdigest(), model_fingerprint(model)


def _use_model(path: Path, valid: Path) -> Any:
    described = _plain(describe_place(str(path)))
    model = load_model(path)
    features = np.random.default_rng(3).uniform(0, 3, (20, model.n_features))
    scores = model.scores(features, range(model.n_batches + 1))
    calibrated = predict_features(features, model, [model.calibrated_batches()], calibrated=True)[0][0]
    return described, [values.tobytes().hex() for values in (*scores, calibrated)]


def _use_run(path: Path, valid: Path) -> Any:
    described = _plain(describe_place(str(path)))
    with thread_engine(1, 2**26) as engine:
        model = fit(Dataset.open(valid / "one" / "dataset"), TWO_BATCHES, run_dir=path, engine=engine).model
    return described, model_fingerprint(model)


def _use_by_description(path: Path, valid: Path) -> Any:
    return _plain(describe_place(str(path)))


def _use_pipeline(path: Path, valid: Path) -> Any:
    return repr(read_pipeline(str(path / "pipeline.yaml")).steps)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("dataset", _use_dataset),
        Kind("model", _use_model),
        Kind("run", _use_run),
        Kind("finished", _use_by_description),
        Kind("predictions", _use_by_description),
        Kind("pipeline", _use_pipeline, free=True),
    )
}
