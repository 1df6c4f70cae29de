"""The warning on rows that weigh very much: once, with the figures, from what is known of the data anyway."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.commands import run_command
from support.errors import refused

from protodask import FitConfig, PrototypeSetClassifier, PrototypeSetSearchCV, SearchConfig, fit, tune
from protodask.data import Column, Dataset, summarize, write_dataset
from protodask.data.format.metadata import from_attributes, to_attributes
from protodask.data.format.summary import Summary, empty_summary
from protodask.data.places.records import hash_json
from protodask.engine import array_source, thread_engine
from protodask.errors import FormatError
from protodask.prototypes import LargeWeightWarning

Arrays = dict[str, NDArray[Any]]

FIGURES = r"largest weight of a row is 1000, 142.9 times the mean of 6.99833 over 600 rows.*calibrate the model"

# Rounds end after some iterations, which are as good as many.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Round . stopped early:protodask.prototypes.convergence.ConvergenceWarning"
)

QUICK = FitConfig.of("source", n_candidates=20, max_iterations=3)
SEARCH = SearchConfig(n_trials=2, max_batches=1, n_folds=2, n_draws=2)


def make_arrays(largest: float) -> Arrays:
    """Six hundred rows that count and one that does not; four have the largest weight, the others weigh little."""
    generator = np.random.default_rng(0)
    features = generator.random((601, 2)).astype(np.float32)
    target = (features[:, 0] > 0.5).astype(np.int32)
    inclusion = np.ones(601)
    inclusion[:4] = 1 / largest
    weight = np.where(np.arange(601) < 600, 1.0, 0.0)
    weight[4:600] = 199 / 596
    return {"features": features, "target": target, "weight": weight, "inclusion": inclusion}


def written(arrays: Arrays, path: Path) -> Dataset:
    return write_dataset(array_source(arrays, 64), path, classes=(0, 1), columns=(Column("a"), Column("b")))


@contextmanager
def caught() -> Iterator[list[str]]:
    """What is said of large weights."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield said
    said += [str(one.message) for one in found if one.category is LargeWeightWarning]


def test_fit__of_a_dataset_warns_once(tmp_path: Path) -> None:
    data = written(make_arrays(1000), tmp_path / "data")
    with pytest.warns(LargeWeightWarning, match=FIGURES) as found:
        fit(data, replace(QUICK, n_batches=2))
    assert len([one for one in found if one.category is LargeWeightWarning]) == 1


def ways(tmp_path: Path, arrays: Arrays) -> dict[str, Callable[[], object]]:
    """Every way of training on the rows."""
    data = written(arrays, tmp_path / "data")
    X, y, weight = arrays["features"], arrays["target"], arrays["weight"] / arrays["inclusion"]
    classifier = PrototypeSetClassifier(n_candidates=20, n_draws=2, max_iterations=3)
    return {
        "classifier": lambda: classifier.fit(X, y, weight),
        "search of rows": lambda: PrototypeSetSearchCV(classifier, SEARCH).fit(X, y, weight),
        "search of a dataset": lambda: tune(data, QUICK, SEARCH),
    }


@pytest.mark.parametrize("way", ["classifier", "search of rows", "search of a dataset"])
def test_training__warns_once_whatever_the_number_of_fits(way: str, tmp_path: Path) -> None:
    train = ways(tmp_path, make_arrays(1000))[way]
    with caught() as said:
        train()
    assert len(said) == 1
    assert "142.9 times the mean" in said[0]


@pytest.mark.slow
def test_commands__say_it_in_a_line(tmp_path: Path) -> None:
    data = written(make_arrays(1000), tmp_path / "data")
    options = ["--candidates", "20", "--max-iterations", "3"]
    for command in (["fit"], ["tune", "--trials", "2", "--max-batches", "1", "--folds", "2", "--draws", "2"]):
        out = str(tmp_path / f"{command[0]}.zarr")
        done = run_command(command[0], data.path, "--out", out, *command[1:], *options)
        assert done.exit_code == 0, done.output
        assert done.stderr.count("Warning: The largest weight of a row is 1000") == 1


def test_training__does_not_warn_of_a_hundred_times_the_mean(tmp_path: Path) -> None:
    # A row of weight w and 199 of weight v have the mean (w + 199 v) / 200: 100 times that is w where w = 199 v.
    arrays = make_arrays(1)
    kept = {name: values[:200] for name, values in arrays.items() if name in ("features", "target")}
    weight = np.ones(200)
    for largest, times in ((199.0, 0), (199.5, 1)):
        weight[0] = largest
        with caught() as said:
            PrototypeSetClassifier(n_candidates=20, max_iterations=3).fit(kept["features"], kept["target"], weight)
        assert len(said) == times
    with caught() as said:
        PrototypeSetClassifier(n_candidates=20, max_iterations=3).fit(kept["features"], kept["target"])
    assert said == []


# What a dataset says of its largest weight.


def resealed(attributes: dict[str, Any]) -> dict[str, Any]:
    record = {name: value for name, value in attributes.items() if name != "checksum"}
    return {**record, "checksum": hash_json(record)}


def test_dataset__keeps_its_largest_weight(tmp_path: Path) -> None:
    arrays = make_arrays(1000)
    data = written(arrays, tmp_path / "data")
    assert Dataset.open(data.path).summary.largest_weight == 1000
    more = {**make_arrays(2000), "weight": arrays["weight"] * 2}
    columns = (Column("a"), Column("b"))
    grown = write_dataset(array_source(more), data.path, classes=(0, 1), columns=columns, append=True)
    assert grown.summary.largest_weight == 4000


def test_dataset__without_weights_has_the_attributes_it_always_had(tmp_path: Path) -> None:
    arrays = {name: values for name, values in make_arrays(1).items() if name in ("features", "target")}
    data = written(arrays, tmp_path / "data")
    assert "largest_weight" not in to_attributes(data.metadata)
    assert data.summary.largest_weight == 1


def test_dataset__from_before_is_read_without_a_largest_weight(tmp_path: Path) -> None:
    data = written(make_arrays(1000), tmp_path / "data")
    file = tmp_path / "data" / "zarr.json"
    document = json.loads(file.read_text())
    del document["attributes"]["largest_weight"]
    document["attributes"] = resealed(document["attributes"])
    file.write_text(json.dumps(document))
    old = Dataset.open(data.path)
    assert old.summary.largest_weight is None
    assert old.key == data.key, "it is the same dataset"
    with caught() as said:
        fit(old, QUICK)
    assert said == []
    columns = (Column("a"), Column("b"))
    grown = write_dataset(array_source(make_arrays(5)), data.path, classes=(0, 1), columns=columns, append=True)
    assert grown.summary.largest_weight is None
    assert "largest_weight" not in to_attributes(grown.metadata)


@pytest.mark.parametrize("value", [0, -1.0, "1", None, [1.0], True])
def test_dataset__refuses_a_largest_weight_that_is_none(value: object, tmp_path: Path) -> None:
    attributes = to_attributes(written(make_arrays(1000), tmp_path / "data").metadata)
    assert attributes["largest_weight"] == 1000
    with refused("damaged", "here", kind=FormatError):
        from_attributes(resealed({**attributes, "largest_weight": value}), "here")


def test_summaries__merge_their_largest_weights() -> None:
    arrays = make_arrays(1000)
    with thread_engine(1) as engine:
        summaries = [
            summarize(engine, array_source({name: values[part] for name, values in arrays.items()}, 16), 2)
            for part in (slice(0, 300), slice(300, 601))
        ]
    low, high = sorted(float(one.largest_weight or 0) for one in summaries)
    assert low < high == 1000
    for left, right in (summaries, summaries[::-1]):
        assert (left + right).largest_weight == 1000
        assert (left + empty_summary(2, 2)).largest_weight == left.largest_weight
    unknown = Summary(**{**vars(summaries[0]), "largest_weight": None})
    assert (unknown + summaries[1]).largest_weight is None
    assert (summaries[1] + unknown).largest_weight is None
