"""Records of arrays as a whole."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protodask.engine.records import add_records, joined, merged_by, taken, with_arrays

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sums:
    total: int
    by: tuple[float, float]


@dataclass(frozen=True)
class Outer:
    weight: Floats
    inner: Sums


@dataclass(frozen=True)
class Place:
    x: Floats
    label: NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    y: Floats
    place: Place
    beside: Floats | None
    name: str


def table(start: int, n_rows: int, name: str) -> Table:
    rows, x = np.arange(start, start + n_rows), np.arange(start, start + n_rows, dtype=np.float64)
    return Table(x / 2, Place(np.stack([x, -x], axis=1), rows), None, name)


def test_add_records__adds_numbers_arrays_tuples_and_records_within() -> None:
    left, right = (Outer(np.arange(3.0) + k, Sums(k, (0.5, 2.0 * k))) for k in (1, 2))
    found = add_records(left, right)
    assert found.weight.tolist() == [3.0, 5.0, 7.0]
    assert found.inner == Sums(3, (1.0, 6.0))
    assert left.weight.tolist() == [1.0, 2.0, 3.0]


def test_taken__rows_of_all_arrays() -> None:
    found = taken(table(0, 5, "a"), np.array([3, 1]))
    assert found.y.tolist() == [1.5, 0.5]
    assert found.place.x.tolist() == [[3.0, -3.0], [1.0, -1.0]]
    assert (found.beside, found.name) == (None, "a")


def test_joined__rows_of_several_with_what_the_first_says() -> None:
    found = joined(table(0, 2, "a"), table(2, 1, "b"), table(3, 2, "c"))
    assert found.place.label.tolist() == [0, 1, 2, 3, 4]
    assert found.place.x.shape == (5, 2)
    assert found.name == "a"
    assert joined(table(1, 2, "b")).y.tolist() == [0.5, 1.0]


def test_with_arrays__leaves_the_table_as_it_was() -> None:
    own = table(0, 2, "a")
    assert with_arrays(np.negative, own).place.label.tolist() == [0, -1]
    assert own.place.label.tolist() == [0, 1]


@dataclass(frozen=True)
class Mean:
    weight: float
    mean: float

    def __add__(self, other: "Mean") -> "Mean":
        weight = self.weight + other.weight
        return Mean(weight, (self.weight * self.mean + other.weight * other.mean) / weight)


@dataclass(frozen=True)
class Seen:
    rows: int
    least: float = field(metadata=merged_by(min))
    means: tuple[Mean, ...]
    known: float | None


def test_add_records__goes_by_what_records_and_fields_say_of_themselves() -> None:
    left, right = Seen(1, 2.0, (Mean(1.0, 4.0),), 1.0), Seen(2, 0.5, (Mean(3.0, 8.0),), 2.0)
    assert add_records(left, right) == Seen(3, 0.5, (Mean(4.0, 7.0),), 3.0)
    assert add_records(left, Seen(2, 0.5, right.means, None)).known is None


@dataclass(frozen=True)
class Found:
    by_name: dict[str, tuple[int, int]]
    names: frozenset[str]


def test_add_records__add_what_two_mappings_have_and_join_sets() -> None:
    found = add_records(
        Found({"a": (1, 2), "b": (3, 4)}, frozenset("ab")), Found({"c": (5, 6), "b": (7, 8)}, frozenset("c"))
    )
    assert found == Found({"a": (1, 2), "b": (10, 12), "c": (5, 6)}, frozenset("abc"))
