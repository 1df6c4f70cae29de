import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import check_error, refused

from protodask.budget import BudgetIndex, load_greedy, load_index, save_greedy, save_index
from protodask.budget.costs import CostCurves
from protodask.budget.expansions import Expansion
from protodask.budget.index import make_index
from protodask.budget.index_file import RECORD, index_text, parse_index
from protodask.data.places.records import CHECKSUM, seal
from protodask.errors import Code, FormatError, OutputExistsError, StorageError

# Written by an earlier version.
OLD_INDEX = (
    '{"format":"protodask-budget-index","version":1,"low":1.0,"high":9.0,"costs":[[1.0,0.5],[2.0,0.0]],'
    '"feature_names":["a","b"],'
    '"alpha":0.0,"monotone_error":0.0,"guarantee":0.0,"observed_error":0.0,'
    '"expansions":{"features":[[],[0,1],[0],[1]],"accuracy":[0.5,1.0,0.75,null],'
    '"failure":[null,null,null,"ValueError: no"],"seconds":[0.0,0.0,0.0,0.0]},'
    '"candidates":[0,2,1],"listed":{"candidate":[0,1,2],"start":[1.0,1.0,1.0],'
    '"end":[9.000000000000002,9.000000000000002,9.000000000000002]},'
    '"checksum":"befb259eb5ff307f6e8fd96909a2bafb"}'
    "\n"
)
OLD_GREEDY = (
    '{"format":"protodask-greedy-index","version":1,"low":1.0,"high":9.0,"costs":[[1.0,0.5],[2.0,0.0]],'
    '"feature_names":["a","b"],"size":5.0,'
    '"sequences":[{"trade_off":0.0,"features":[0,1],"accuracies":[0.5,0.75,1.0]},{"trade_off":null,"features":[1,0],"accuracies":[0.5,null,1.0]}],'
    '"expanded":4,"failures":[{"features":[1],"failure":"ValueError: no"}],'
    '"checksum":"eeb0f932dbb7353b50bd0ff2733e366d"}'
    "\n"
)


@pytest.mark.parametrize(
    ("content", "load", "save"), [(OLD_INDEX, load_index, save_index), (OLD_GREEDY, load_greedy, save_greedy)]
)
def test_load_index__files_of_earlier_versions_are_read_and_written_as_they_are(
    tmp_path: Path, content: str, load: Callable[[Path], Any], save: Callable[[Any, Path], None]
) -> None:
    (tmp_path / "old.json").write_text(content)
    index = load(tmp_path / "old.json")
    assert index.feature_names == ("a", "b")
    assert index.best(5.0, 4.0).features == {0}
    assert index.best(5.0, 9.0).features == {0, 1}
    assert [(one.features, one.failure) for one in index.failures] == [({1}, "ValueError: no")]
    save(index, tmp_path / "new.json")
    assert (tmp_path / "new.json").read_text() == content


def drawn_index(sizes: tuple[float, float] = (0.0, math.inf), guarantee: float = 0.01) -> BudgetIndex:
    rng = np.random.default_rng(4)
    curves = CostCurves.of(rng.random((5, 3)) * [1, 0.1, 1e-15], sizes)
    expansions = [
        Expansion(frozenset(f for f in range(5) if mask >> f & 1), float(value), None, float(value) / 3)
        for mask, value in enumerate(rng.random(32))
    ]
    expansions[7] = Expansion(expansions[7].features, None, 'ValueError: "ü"\n', 0.1)
    return make_index(
        curves,
        expansions,
        alpha=0.01,
        monotone_error=0.1,
        guarantee=guarantee,
        observed_error=1 / 3,
        feature_names=["a", "ß", "c", "d d", "e"],
    )


def check_same(one: BudgetIndex, other: BudgetIndex) -> None:
    assert one.curves.coefficients.tobytes() == other.curves.coefficients.tobytes()
    assert (one.curves.low, one.curves.high) == (other.curves.low, other.curves.high)
    assert one.feature_names == other.feature_names
    assert one.expansions == other.expansions
    assert one.sets == other.sets
    for name in ("accuracies", "costs"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    for name in ("starts", "offsets", "entries"):
        assert getattr(one.listing, name).tobytes() == getattr(other.listing, name).tobytes()
        assert getattr(one.listing, name).dtype == getattr(other.listing, name).dtype
    assert (one.alpha, one.monotone_error, one.guarantee, one.observed_error) == (
        other.alpha,
        other.monotone_error,
        other.guarantee,
        other.observed_error,
    )


@pytest.mark.parametrize("sizes", [(0.0, math.inf), (0.1, 1e9), (3.0, 3.0)])
@pytest.mark.parametrize("guarantee", [0.01, math.inf])
def test_load_index__is_what_was_saved_to_the_bit(tmp_path: Path, sizes: tuple[float, float], guarantee: float) -> None:
    index = drawn_index(sizes, guarantee)
    save_index(index, tmp_path / "deep" / "index.json")
    loaded = load_index(tmp_path / "deep" / "index.json")
    check_same(loaded, index)
    rng = np.random.default_rng(0)
    n, budget = rng.uniform(sizes[0], min(sizes[1], 1e9), 500), 10.0 ** rng.uniform(-3, 3, 500)
    assert (loaded.choose(n, budget) == index.choose(n, budget)).all()
    save_index(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "deep" / "index.json").read_bytes()


def test_save_index__is_json_that_others_read(tmp_path: Path) -> None:
    index = drawn_index()
    save_index(index, tmp_path / "index.json")

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    record = json.loads((tmp_path / "index.json").read_text(), parse_constant=refuse)
    assert (record["format"], record["version"], record["high"]) == ("protodask-budget-index", 1, None)
    # Looked up without this package: the last candidate listed at a size that costs no more than the budget.
    size, budget = 3.0, 1.7
    found = None
    for number, expansion in enumerate(record["candidates"]):
        cost = [sum(record["costs"][f][k] for f in record["expansions"]["features"][expansion]) for k in range(3)]
        listed = zip(*(record["listed"][name] for name in ("candidate", "start", "end")), strict=True)
        if any(c == number and start <= size and (end is None or size < end) for c, start, end in listed) and (
            cost[0] + cost[1] * size + cost[2] * size**2 <= budget
        ):
            found = record["expansions"]["features"][expansion]
    assert found == sorted(index.best(size, budget).features)


def test_save_index__does_not_overwrite_unless_told(tmp_path: Path) -> None:
    place = tmp_path / "index.json"
    save_index(drawn_index(), place)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        save_index(drawn_index((1.0, 2.0)), place)
    save_index(drawn_index((1.0, 2.0)), place, overwrite=True)
    assert load_index(place).curves.high == 2.0
    assert os.listdir(tmp_path) == ["index.json"]


def test_load_index__says_what_is_not_there(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "none", kind=StorageError):
        load_index(tmp_path / "none")
    with refused("unreadable", tmp_path, kind=StorageError):
        load_index(tmp_path)
    with refused("not-local", "s3://bucket/index.json"):
        load_index("s3://bucket/index.json")


def test_load_index__refuses_what_is_damaged_at_any_place() -> None:
    content = index_text(drawn_index()).encode()
    rng = np.random.default_rng(1)
    for place in rng.integers(len(content), size=150).tolist():
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(7))
        # A blank more or less between values means the same.
        if bytes(changed).strip() != content.strip():
            with pytest.raises(FormatError) as caught:
                parse_index(bytes(changed), "index.json")
            assert caught.value.code in {"damaged", "wrong-kind", "newer-format"}
            check_error(caught.value, caught.value.code, "index.json")
    for length in (0, 1, 100, len(content) // 2, len(content) - 3):
        with refused("damaged", kind=FormatError):
            parse_index(content[:length], "index.json")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        *[(other, "wrong-kind") for other in (b"[]", b"3", b"{}", b'{"format": "protodask-model", "version": 1}')],
        (b"\xff\x00", "damaged"),
    ],
)
def test_load_index__refuses_what_is_something_else(content: bytes, code: Code, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(content)
    with refused(code, tmp_path / "index.json", kind=FormatError):
        load_index(tmp_path / "index.json")


def resealed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A file that is wrong, and has the checksum of what is wrong."""
    record = json.loads(index_text(drawn_index((1.0, 50.0))))
    del record[CHECKSUM]
    change(record)
    return json.dumps(seal(record, RECORD.name)).encode()


def test_load_index__refuses_newer_ones() -> None:
    with refused("newer-format", 2, 1, kind=FormatError):
        parse_index(resealed(lambda record: record.update(version=2)), "index.json")


def put(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set what a path of keys and numbers leads to."""

    def change(record: dict[str, Any]) -> None:
        *path, last = [int(key) if key.lstrip("-").isdigit() else key for key in name.split("/")]
        target: Any = record
        for key in path:
            target = target[key]
        target[last] = value

    return change


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("low", -1.0),
        ("low", None),
        ("low", 2.0),  # lists begin before it
        ("high", 0.5),
        ("high", 60.0),  # lists end before it
        ("high", "60"),
        ("costs", []),
        ("costs", 3),
        ("costs/0", [1.0]),
        ("costs/0", 1.0),
        ("costs/0/0", None),
        ("costs/0/0", -5.0),
        ("costs/0", []),
        ("feature_names", ["a"]),
        ("feature_names/1", "a"),
        ("feature_names/1", 1),
        ("alpha", -0.5),
        ("alpha", None),
        ("monotone_error", "x"),
        ("observed_error", []),
        ("guarantee", -1),
        ("expansions", []),
        ("expansions/features", None),
        ("expansions/features/0", 3),
        ("expansions/features/3", [0, 5]),
        ("expansions/features/3", [0, 0]),
        ("expansions/features/3", [True]),
        ("expansions/features/3", [-1]),
        ("expansions/accuracy", []),
        ("expansions/accuracy/2", None),
        ("expansions/accuracy/2", "0.5"),
        ("expansions/accuracy/7", 0.5),
        ("expansions/failure", [None]),
        ("expansions/failure/7", None),
        ("expansions/seconds/1", None),
        ("expansions/seconds", [1.0]),
        ("candidates", []),
        ("candidates", None),
        ("candidates/0", 7),  # it failed
        ("candidates/0", 99),
        ("candidates/0", -1),
        ("candidates/0", 1.5),
        ("listed", None),
        ("listed/candidate", None),
        ("listed/candidate", []),
        ("listed/candidate/0", 99),
        ("listed/candidate/-1", 0),
        ("listed/start/0", None),
        ("listed/start/0", -0.0),
        ("listed/start/0", 0.5),
        ("listed/end/0", 99.0),
        ("listed/end/0", 1.0),
        ("listed/end/0", "x"),
        ("listed/end", [None]),
        ("listed/end", 7),
    ],
)
def test_load_index__refuses_what_makes_no_sense(name: str, value: Any) -> None:
    with refused("damaged", kind=FormatError):
        parse_index(resealed(put(name, value)), "index.json")


def test_load_index__refuses_candidates_out_of_order() -> None:
    def turn(record: dict[str, Any]) -> None:
        record["candidates"] = record["candidates"][::-1]

    def repeat(record: dict[str, Any]) -> None:
        record["candidates"][0] = record["candidates"][1]

    def leave_a_gap(record: dict[str, Any]) -> None:
        for number in range(len(record["listed"]["end"])):
            record["listed"]["end"][number] = min(record["listed"]["end"][number], 40.0)

    for change in (turn, repeat, leave_a_gap):
        with refused("damaged", kind=FormatError):
            parse_index(resealed(change), "index.json")


def test_load_index__refuses_more_entries_than_any_index_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodask.budget.index_file.MOST_ENTRIES", 5)
    with refused("damaged", kind=FormatError):
        parse_index(index_text(drawn_index()).encode(), "index.json")


def test_make_index__refuses_to_grow_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodask.budget.index.MOST_ENTRIES", 5)
    with refused("over-limit", 5, 21):
        drawn_index()
