from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from support.errors import refused

from protodask import PrototypeSetClassifier
from protodask.budget import (
    BudgetedClassifier,
    FailedExpansionWarning,
    build_greedy,
    load_budgeted,
    load_greedy,
    save_budgeted,
    save_greedy,
)
from protodask.data.places.records import CHECKSUM, seal
from protodask.errors import FormatError, OutputExistsError, StorageError

Extractors = dict[str, Callable[[Any], Any]]
EXTRACTORS: Extractors = {
    "mean": lambda item: float(np.mean(item)),
    "ends": lambda item: (float(item[0]), float(item[-1])),
    "spread": lambda item: float(np.std(item)),
}
COSTS = [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]


def make_items(n_items: int = 80) -> tuple[list[Any], Any]:
    generator = np.random.default_rng(3)
    labels = np.arange(n_items) % 2
    items = [generator.normal(label, 1 + label, size=int(generator.integers(2, 9))) for label in labels]
    return items, labels


def fitted(estimator: Any, labels: Any = None, **settings: Any) -> BudgetedClassifier:
    items, own = make_items()
    classifier = BudgetedClassifier(estimator, monotone_error=1.0, folds=3, costs=COSTS, **settings)
    return classifier.fit(items, own if labels is None else labels, EXTRACTORS)


def prototype_sets() -> PrototypeSetClassifier:
    """Of few steps: what they predict is not the point."""
    return PrototypeSetClassifier(recipe="source", n_candidates=20, tolerance=1e-2)


@pytest.fixture(scope="module")
def prototypes() -> BudgetedClassifier:
    return fitted(prototype_sets(), timed=False)


@pytest.fixture(scope="module")
def bayes() -> BudgetedClassifier:
    """Its models are stored as pickles."""
    return fitted(GaussianNB())


@pytest.fixture(scope="module")
def saved(prototypes: BudgetedClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    place = tmp_path_factory.mktemp("prototypes") / "saved"
    save_budgeted(prototypes, place)
    return place


def assert_same(first: BudgetedClassifier, second: BudgetedClassifier) -> None:
    for item in make_items(5)[0]:
        for budget in (0.0, 1.5, 4.0, 9.0, math.inf):
            one, other = first.predict_item(item, budget), second.predict_item(item, budget)
            assert one.names == other.names
            assert one.label == other.label
            assert one.accuracy == other.accuracy
            assert one.expected_cost == other.expected_cost
            np.testing.assert_array_equal(one.probabilities, other.probabilities)


@pytest.mark.parametrize(
    ("method", "timed"),
    [("index", False), ("greedy-index", False), ("greedy", False), ("greedy-cost", False), ("greedy-accuracy", True)],
)
def test_load_budgeted__gives_back_what_was_saved(
    tmp_path: Path, prototypes: BudgetedClassifier, method: Any, timed: bool
) -> None:
    plain = method == "index"
    classifier = prototypes if plain else fitted(GaussianNB(), method=method, timed=timed)
    save_budgeted(classifier, tmp_path / "saved")
    # The order in which extractors are given does not matter.
    loaded = load_budgeted(tmp_path / "saved", dict(reversed(EXTRACTORS.items())), trusted=not plain)

    if not timed:
        assert_same(classifier, loaded)
    assert loaded.overhead_ == classifier.overhead_
    assert loaded.feature_names_ == classifier.feature_names_
    assert loaded.classes_.tolist() == [0, 1]
    assert loaded.timed is timed
    assert loaded.method == method
    assert set(loaded.models_) == set(classifier.models_)
    assert plain is not any((tmp_path / "saved").rglob("*.joblib"))
    assert sorted(os.listdir(tmp_path)) == ["saved"]
    save_budgeted(loaded, tmp_path / "again")
    assert (tmp_path / "again/index.json").read_text() == (tmp_path / "saved/index.json").read_text()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [0.0, 1.0]], ids=str)
def test_load_budgeted__labels(tmp_path: Path, labels: list[Any]) -> None:
    own = np.array(labels)[make_items()[1]]
    classifier = fitted(GaussianNB(), own, timed=False)
    save_budgeted(classifier, tmp_path / "saved")
    assert_same(classifier, load_budgeted(tmp_path / "saved", EXTRACTORS, trusted=True))


def test_save_budgeted__labels_that_no_file_holds(tmp_path: Path) -> None:
    classifier = fitted(GaussianNB(), timed=False)
    classifier.serve(replace(classifier.predictor, classes=np.array([0.5, 1.5])))  # which no fit takes
    with refused("unsupported", 0.5):
        save_budgeted(classifier, tmp_path / "saved")
    assert os.listdir(tmp_path) == []


def test_load_budgeted__pickles_need_trust(tmp_path: Path) -> None:
    classifier = fitted(LogisticRegression(), timed=False)
    save_budgeted(classifier, tmp_path / "saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joblib.load", pytest.fail)
        with refused("unsafe", "trusted=True"):
            load_budgeted(tmp_path / "saved", EXTRACTORS)
    assert_same(classifier, load_budgeted(tmp_path / "saved", EXTRACTORS, trusted=True))


def test_save_budgeted__whole_or_not_at_all(
    tmp_path: Path, prototypes: BudgetedClassifier, bayes: BudgetedClassifier
) -> None:
    class Local(GaussianNB):  # type: ignore[misc]
        """Cannot be pickled, being of a function."""

    place = tmp_path / "saved"
    local = fitted(Local())
    with refused("user-code", "Local"):
        save_budgeted(local, place)
    assert os.listdir(tmp_path) == []

    save_budgeted(prototypes, place)
    with refused("exists", place, "overwrite=True", kind=OutputExistsError):
        save_budgeted(prototypes, place)
    with refused("user-code", "Local"):
        save_budgeted(local, place, overwrite=True)
    load_budgeted(place, EXTRACTORS)
    save_budgeted(bayes, place, overwrite=True)
    load_budgeted(place, EXTRACTORS, trusted=True)
    assert sorted(os.listdir(tmp_path)) == ["saved"]

    (tmp_path / "else").mkdir()
    (tmp_path / "else/notes.txt").write_text("mine")
    with refused("wrong-kind", tmp_path / "else", kind=OutputExistsError):
        save_budgeted(prototypes, tmp_path / "else", overwrite=True)
    with pytest.raises(ValueError, match="not fitted"):
        save_budgeted(BudgetedClassifier(), tmp_path / "new")
    with refused("not-local", "s3://bucket/saved"):
        save_budgeted(prototypes, "s3://bucket/saved")


def test_load_budgeted__extractors_must_be_those_of_the_fit(tmp_path: Path, saved: Path) -> None:
    some = {"mean": EXTRACTORS["mean"]}
    with refused("columns-differ", "ends, spread"):
        load_budgeted(saved, some)
    with refused("columns-differ", "skew"):
        load_budgeted(saved, {**EXTRACTORS, "skew": len})
    with refused("settings-conflict", "`size`"):
        load_budgeted(saved, EXTRACTORS, size=len)
    own = fitted(GaussianNB(), size=len)
    save_budgeted(own, tmp_path / "own")
    with refused("setting-missing", "`size`"):
        load_budgeted(tmp_path / "own", EXTRACTORS, trusted=True)
    load_budgeted(tmp_path / "own", EXTRACTORS, size=len, trusted=True)


def damage_record(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A record that is sealed, and makes no sense all the same."""
    record = json.loads(file.read_text())
    record.pop(CHECKSUM)
    change(record)
    file.write_text(json.dumps(seal(record, "test")))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda record: record.update(method="magic"), ("damaged", "the method is unknown")),
        (lambda record: record.update(version=2), ("newer-format", 2, 1)),
        (lambda record: record.update(format="other"), ("wrong-kind", "save_budgeted")),
        (lambda record: record.update(shares=[1.0, 1.0]), ("damaged", "no probabilities")),
        (lambda record: record.update(classes=[1]), ("damaged", "fewer than two classes")),
        (lambda record: record.update(overhead=-1.0), ("damaged", "overhead is negative")),
        (lambda record: record.update(timed=1), ("damaged", "neither true nor false")),
        (lambda record: record.update(widths=[1]), ("damaged", "list of the right length")),
        (lambda record: record.update(widths=[5, 5, 5]), ("damaged", "does not predict from its features")),
        (lambda record: record["models"].pop(), ("damaged", "a model for each answer")),
        (lambda record: record["models"][0].update(kind="code"), ("damaged", "unknown kind")),
        (lambda record: record["models"][0].update(features=[]), ("damaged", "no features of its own")),
        (lambda record: record["models"][0].update(features="x"), ("damaged", "no features of its own")),
        (lambda record: record["models"][0].update(digest="0"), ("damaged", "not the one that was saved")),
    ],
)
def test_load_budgeted__records_that_make_no_sense(
    tmp_path: Path, saved: Path, change: Callable[[dict[str, Any]], None], expected: tuple[Any, ...]
) -> None:
    shutil.copytree(saved, tmp_path / "saved")
    damage_record(tmp_path / "saved/_protodask.json", change)
    with refused(*expected, kind=FormatError):
        load_budgeted(tmp_path / "saved", EXTRACTORS)


def test_load_budgeted__files_that_are_damaged_or_lost(tmp_path: Path, saved: Path, bayes: BudgetedClassifier) -> None:
    place, pickles = tmp_path / "saved", tmp_path / "pickles"
    save_budgeted(bayes, pickles)
    for whole, name in ((saved, "models/0"), (pickles, "models/0.joblib")):
        for lost in (name, "index.json", "_protodask.json"):
            shutil.copytree(whole, place)
            target = place / lost
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()
            with pytest.raises((FormatError, StorageError)):
                load_budgeted(place, EXTRACTORS, trusted=True)
            shutil.rmtree(place)
    place = pickles
    for name in ("models/0.joblib", "index.json", "_protodask.json"):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[:-20] + bytes(20))
        with pytest.raises(FormatError):
            load_budgeted(place, EXTRACTORS, trusted=True)
        (place / name).write_bytes(content)
    with refused("not-found", kind=StorageError):
        load_budgeted(tmp_path / "nowhere", EXTRACTORS)
    with refused("wrong-kind", "save_budgeted", kind=FormatError):
        load_budgeted(tmp_path, EXTRACTORS)


def accuracy_of(features: frozenset[int]) -> float:
    if features == {1}:
        raise ValueError("no model")
    return 1 - 0.5 ** (1 + len(features))


def test_load_greedy__gives_back_what_was_saved(tmp_path: Path) -> None:
    with pytest.warns(FailedExpansionWarning, match="ValueError: no model"):
        index = build_greedy(
            [[1.0, 0.1], [0.5, 1 / 3], [2.0, 0.0]], accuracy_of, ["accuracy", 0.1, "cost"], sizes=(1, 9), size=3.3
        )
    save_greedy(index, tmp_path / "greedy.json")
    loaded = load_greedy(tmp_path / "greedy.json")

    assert loaded.sets == index.sets
    assert loaded.accuracies.tolist() == index.accuracies.tolist()
    assert loaded.sequences == index.sequences
    assert loaded.size == 3.3
    assert loaded.expanded == index.expanded
    assert [one.features for one in loaded.failures] == [one.features for one in index.failures] == [{1}]
    sizes, budgets = np.linspace(1, 9, 30)[:, None], np.linspace(0, 20, 40)
    np.testing.assert_array_equal(loaded.choose(sizes, budgets), index.choose(sizes, budgets))
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        save_greedy(index, tmp_path / "greedy.json")
    save_greedy(loaded, tmp_path / "greedy.json", overwrite=True)
    unbounded = build_greedy([[1.0]], lambda _: 0.5, size=1.0)
    save_greedy(unbounded, tmp_path / "unbounded.json")
    assert load_greedy(tmp_path / "unbounded.json").curves.high == math.inf


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda record: record.update(size=99.0), ("damaged", "a size out of range")),
        (lambda record: record.update(sequences=[]), ("damaged", "in the order of their trade-offs")),
        (lambda record: record["sequences"].reverse(), ("damaged", "in the order of their trade-offs")),
        (lambda record: record["sequences"][0].update(features=[0, 0, 1]), ("damaged", "listed twice")),
        (
            lambda record: record["sequences"][0].update(features=[0, 1, 7]),
            ("damaged", "features that the index does not have"),
        ),
        (
            lambda record: record["sequences"][0].update(features=None),
            ("damaged", "features that the index does not have"),
        ),
        (lambda record: record["sequences"][0].update(accuracies=[0.5]), ("damaged", "an accuracy for each prefix")),
        (lambda record: record["sequences"][0]["accuracies"].__setitem__(0, 0.1), ("damaged", "two accuracies")),
        (
            lambda record: record["sequences"][0]["accuracies"].__setitem__(0, "x"),
            ("damaged", "something else than finite"),
        ),
        (lambda record: record.update(costs=[]), ("damaged", "no cost for each feature")),
        (lambda record: record["costs"][0].append(1.0), ("damaged", "list of the right length")),
        (lambda record: record["costs"][0].__setitem__(0, -9.0), ("damaged", "its costs make no sense")),
        (lambda record: record.update(feature_names=["a"]), ("damaged", "no cost for each feature")),
        (lambda record: record.update(version=9), ("newer-format", 9, 1)),
    ],
)
def test_load_greedy__records_that_make_no_sense(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], expected: tuple[Any, ...]
) -> None:
    with pytest.warns(FailedExpansionWarning):
        index = build_greedy([[1.0], [0.5], [2.0]], accuracy_of, sizes=(1, 9))
    place = tmp_path / "greedy.json"
    save_greedy(index, place)
    damage_record(place, change)
    with refused(*expected, kind=FormatError):
        load_greedy(place)


def test_load_greedy__damaged_or_no_such_file(tmp_path: Path) -> None:
    place = tmp_path / "greedy.json"
    with refused("not-found", place, kind=StorageError):
        load_greedy(place)
    place.write_text("{")
    with refused("damaged", kind=FormatError):
        load_greedy(place)
    save_greedy(build_greedy([[1.0]], lambda _: 0.5, size=1.0), place, overwrite=True)
    place.write_text(place.read_text().replace("0.5", "0.6"))
    with refused("damaged", "checksum", kind=FormatError):
        load_greedy(place)
    with refused("not-local", "s3://bucket/greedy.json"):
        load_greedy("s3://bucket/greedy.json")
