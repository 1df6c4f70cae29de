from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

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
from protodask.errors import FormatError, InputError, OutputExistsError, StorageError

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


@pytest.fixture(scope="module", autouse=True)
def few_rehearsals() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protodask.budget.overhead.REHEARSALS", 30)
        yield


@pytest.fixture(scope="module")
def prototypes() -> BudgetedClassifier:
    return fitted(PrototypeSetClassifier(n_candidates=20))


def assert_same(first: BudgetedClassifier, second: BudgetedClassifier) -> None:
    for item in make_items(10)[0]:
        for budget in (0.0, 1.5, 4.0, 9.0, math.inf):
            one, other = first.predict_item(item, budget), second.predict_item(item, budget)
            assert one.names == other.names
            assert one.label == other.label
            assert one.accuracy == other.accuracy
            assert one.expected_cost == other.expected_cost
            np.testing.assert_array_equal(one.probabilities, other.probabilities)


@pytest.mark.parametrize(
    ("method", "timed"),
    [("index", False), ("greedy", False), ("greedy-cost", False), ("greedy-accuracy", True)],
)
def test_load_budgeted__gives_back_what_was_saved(tmp_path: Path, method: Any, timed: bool) -> None:
    plain = method in {"index", "greedy-accuracy"}
    classifier = fitted(PrototypeSetClassifier(n_candidates=20) if plain else GaussianNB(), method=method, timed=timed)
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
    classifier = fitted(GaussianNB(), np.array([0.5, 1.5])[make_items()[1]], timed=False)
    with pytest.raises(InputError, match="Use text or whole numbers"):
        save_budgeted(classifier, tmp_path / "saved")
    assert os.listdir(tmp_path) == []


def test_load_budgeted__pickles_need_trust(tmp_path: Path) -> None:
    classifier = fitted(LogisticRegression(), timed=False)
    save_budgeted(classifier, tmp_path / "saved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("joblib.load", pytest.fail)
        with pytest.raises(InputError, match="load them with trusted=True; prototype set classifiers need no pickles"):
            load_budgeted(tmp_path / "saved", EXTRACTORS)
    assert_same(classifier, load_budgeted(tmp_path / "saved", EXTRACTORS, trusted=True))


def test_save_budgeted__whole_or_not_at_all(tmp_path: Path, prototypes: BudgetedClassifier) -> None:
    class Local(GaussianNB):  # type: ignore[misc]
        """Cannot be pickled, being of a function."""

    place = tmp_path / "saved"
    with pytest.raises(InputError, match="Use an estimator that can be pickled"):
        save_budgeted(fitted(Local()), place)
    assert os.listdir(tmp_path) == []

    save_budgeted(prototypes, place)
    with pytest.raises(OutputExistsError, match="--overwrite"):
        save_budgeted(prototypes, place)
    with pytest.raises(InputError, match="Use an estimator that can be pickled"):
        save_budgeted(fitted(Local()), place, overwrite=True)
    load_budgeted(place, EXTRACTORS)
    save_budgeted(fitted(GaussianNB()), place, overwrite=True)
    load_budgeted(place, EXTRACTORS, trusted=True)
    assert sorted(os.listdir(tmp_path)) == ["saved"]

    (tmp_path / "else").mkdir()
    (tmp_path / "else/notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="remove it yourself"):
        save_budgeted(prototypes, tmp_path / "else", overwrite=True)
    with pytest.raises(ValueError, match="not fitted"):
        save_budgeted(BudgetedClassifier(), tmp_path / "new")
    with pytest.raises(InputError, match="Use a local path"):
        save_budgeted(prototypes, "s3://bucket/saved")


def test_load_budgeted__extractors_must_be_those_of_the_fit(tmp_path: Path, prototypes: BudgetedClassifier) -> None:
    place = tmp_path / "saved"
    save_budgeted(prototypes, place)
    some = {"mean": EXTRACTORS["mean"]}
    with pytest.raises(InputError, match="no extractors for ends, spread. Give those"):
        load_budgeted(place, some)
    with pytest.raises(InputError, match="no features skew. Give the extractors it was fitted with"):
        load_budgeted(place, {**EXTRACTORS, "skew": len})
    with pytest.raises(InputError, match="Leave `size` out"):
        load_budgeted(place, EXTRACTORS, size=len)
    own = fitted(GaussianNB(), size=len)
    save_budgeted(own, tmp_path / "own")
    with pytest.raises(InputError, match="Give the same function"):
        load_budgeted(tmp_path / "own", EXTRACTORS, trusted=True)
    load_budgeted(tmp_path / "own", EXTRACTORS, size=len, trusted=True)


def damage_record(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A record that is sealed, and makes no sense all the same."""
    from protodask.data.records import CHECKSUM, seal

    file = place / "_protodask.json"
    record = json.loads(file.read_text())
    record.pop(CHECKSUM)
    change(record)
    file.write_text(json.dumps(seal(record, "test")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(method="magic"), "the method is unknown"),
        (lambda record: record.update(version=2), "Upgrade protodask"),
        (lambda record: record.update(format="other"), "Make one with save_budgeted"),
        (lambda record: record.update(shares=[1.0, 1.0]), "no probabilities"),
        (lambda record: record.update(classes=[1]), "fewer than two classes"),
        (lambda record: record.update(overhead=-1.0), "overhead is negative"),
        (lambda record: record.update(timed=1), "neither true nor false"),
        (lambda record: record.update(widths=[1]), "list of the right length"),
        (lambda record: record.update(widths=[5, 5, 5]), "does not predict from its features"),
        (lambda record: record["models"].pop(), "a model for each answer"),
        (lambda record: record["models"][0].update(kind="code"), "unknown kind"),
        (lambda record: record["models"][0].update(features=[]), "no features of its own"),
        (lambda record: record["models"][0].update(features="x"), "no features of its own"),
        (lambda record: record["models"][0].update(digest="0"), "not the one that was saved"),
    ],
)
def test_load_budgeted__records_that_make_no_sense(
    tmp_path: Path, prototypes: BudgetedClassifier, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    save_budgeted(prototypes, tmp_path / "saved")
    damage_record(tmp_path / "saved", change)
    with pytest.raises(FormatError, match=message):
        load_budgeted(tmp_path / "saved", EXTRACTORS)


def test_load_budgeted__files_that_are_damaged_or_lost(tmp_path: Path, prototypes: BudgetedClassifier) -> None:
    place = tmp_path / "saved"
    for estimator, name in ((prototypes, "models/0"), (fitted(GaussianNB()), "models/0.joblib")):
        for lost in (name, "index.json", "_protodask.json"):
            save_budgeted(estimator, place, overwrite=True)
            target = place / lost
            if target.is_dir():
                shutil.rmtree(target)
            else:
                target.unlink()
            with pytest.raises((FormatError, StorageError)):
                load_budgeted(place, EXTRACTORS, trusted=True)
            shutil.rmtree(place)
    save_budgeted(fitted(GaussianNB()), place)
    for name in ("models/0.joblib", "index.json", "_protodask.json"):
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[:-20] + bytes(20))
        with pytest.raises(FormatError):
            load_budgeted(place, EXTRACTORS, trusted=True)
        (place / name).write_bytes(content)
    with pytest.raises(StorageError, match="Check the path"):
        load_budgeted(tmp_path / "nowhere", EXTRACTORS)
    with pytest.raises(FormatError, match="Make one with save_budgeted"):
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
    with pytest.raises(OutputExistsError):
        save_greedy(index, tmp_path / "greedy.json")
    save_greedy(loaded, tmp_path / "greedy.json", overwrite=True)
    unbounded = build_greedy([[1.0]], lambda _: 0.5, size=1.0)
    save_greedy(unbounded, tmp_path / "unbounded.json")
    assert load_greedy(tmp_path / "unbounded.json").curves.high == math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.update(size=99.0), "a size out of range"),
        (lambda record: record.update(sequences=[]), "in the order of their trade-offs"),
        (lambda record: record["sequences"].reverse(), "in the order of their trade-offs"),
        (lambda record: record["sequences"][0].update(features=[0, 0, 1]), "listed twice"),
        (lambda record: record["sequences"][0].update(features=[0, 1, 7]), "features that the index does not have"),
        (lambda record: record["sequences"][0].update(features=None), "features that the index does not have"),
        (lambda record: record["sequences"][0].update(accuracies=[0.5]), "an accuracy for each prefix"),
        (lambda record: record["sequences"][0]["accuracies"].__setitem__(0, 0.1), "two accuracies"),
        (lambda record: record["sequences"][0]["accuracies"].__setitem__(0, "x"), "something else than finite"),
        (lambda record: record.update(costs=[]), "no cost for each feature"),
        (lambda record: record["costs"][0].append(1.0), "list of the right length"),
        (lambda record: record["costs"][0].__setitem__(0, -9.0), "its costs make no sense"),
        (lambda record: record.update(feature_names=["a"]), "no cost for each feature"),
        (lambda record: record.update(version=9), "Upgrade protodask"),
    ],
)
def test_load_greedy__records_that_make_no_sense(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    from protodask.data.records import CHECKSUM, seal

    with pytest.warns(FailedExpansionWarning):
        index = build_greedy([[1.0], [0.5], [2.0]], accuracy_of, sizes=(1, 9))
    place = tmp_path / "greedy.json"
    save_greedy(index, place)
    record = json.loads(place.read_text())
    record.pop(CHECKSUM)
    change(record)
    place.write_text(json.dumps(seal(record, "test")))
    with pytest.raises(FormatError, match=message):
        load_greedy(place)


def test_load_greedy__damaged_or_no_such_file(tmp_path: Path) -> None:
    place = tmp_path / "greedy.json"
    with pytest.raises(StorageError):
        load_greedy(place)
    place.write_text("{")
    with pytest.raises(FormatError, match="Build the index again"):
        load_greedy(place)
    save_greedy(build_greedy([[1.0]], lambda _: 0.5, size=1.0), place, overwrite=True)
    place.write_text(place.read_text().replace("0.5", "0.6"))
    with pytest.raises(FormatError, match="checksum"):
        load_greedy(place)
    with pytest.raises(InputError, match="Use a local path"):
        load_greedy("s3://bucket/greedy.json")
