"""Drawing rows by class: which are kept, what they stand for, and that nothing else matters."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from support.datasets import rows_of
from support.errors import refused

from protodask.data import Column, Dataset, summarize, write_dataset
from protodask.engine import Block, Engine, array_source, thread_engine
from protodask.errors import Code, OutputExistsError, StorageError
from protodask.evaluation import balanced_rates, subsample
from protodask.evaluation.chosen_rows import ChosenRows
from protodask.evaluation.strata import of_classes
from protodask.evaluation.subsampling import check_rates, checked_seed, is_kept, stratum_rates

Arrays = dict[str, NDArray[Any]]

COUNTS = st.lists(st.integers(1, 10**6), min_size=1, max_size=6)


# Rates from a budget of rows.


@given(counts=COUNTS, share=st.floats(1e-6, 1.0))
@example(counts=[5, 5, 5], share=0.2)
@example(counts=[7], share=1.0)
@example(counts=[2, 1817, 314473], share=6.103515625e-05)
def test_balanced_rates__fill_the_classes_to_one_level(counts: list[int], share: float) -> None:
    budget = share * sum(counts)
    rows = np.array(counts, dtype=float)
    exact = 1e-12 * budget / len(counts)  # the level is at least the share of a class
    level = brentq(lambda t: np.minimum(rows, t).sum() - budget, 0, rows.max(), xtol=exact, rtol=1e-14)
    found = balanced_rates(counts, budget)
    np.testing.assert_allclose(found, np.minimum(1, level / rows), rtol=1e-9)
    assert rows @ found == pytest.approx(budget, rel=1e-12)


@given(
    counts=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    share=st.floats(1e-3, 1.0),
    other=st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)),
)
def test_balanced_rates__leave_no_shorter_interval_of_an_auc(
    counts: tuple[int, int], share: float, other: tuple[float, float]
) -> None:
    rows, budget = np.array(counts, dtype=float), share * sum(counts)

    def information(rates: NDArray[np.float64]) -> float:
        kept = rows * rates
        rho = kept[1] / kept.sum()
        return float(rho * (1 - rho) * kept.sum())

    rivals = np.array(other)
    rivals *= min(1.0, budget / (rows @ rivals))  # within the budget
    assert information(rivals) <= information(balanced_rates(counts, budget)) * (1 + 1e-12)


def test_balanced_rates__by_hand() -> None:
    np.testing.assert_allclose(balanced_rates([10, 1000], 110), [1, 0.1])
    np.testing.assert_allclose(balanced_rates([1000, 10], 20), [0.01, 1])
    np.testing.assert_allclose(balanced_rates([100, 50, 10, 1000], 110), [1 / 3, 2 / 3, 1, 1 / 30])
    np.testing.assert_array_equal(balanced_rates([3, 4], 7), [1, 1])
    np.testing.assert_array_equal(balanced_rates([3, 4], 8), [1, 1], "there is no more to keep")
    np.testing.assert_array_equal(balanced_rates([0, 4], 2), [1, 0.5], "an empty class takes nothing")
    np.testing.assert_allclose(balanced_rates(np.array([100, 900]), 1), [0.005, 0.5 / 900])


@pytest.mark.parametrize(
    ("counts", "budget", "code", "facts"),
    [
        ([], 5, "wrong-shape", ("counts", "(0,)")),
        ([[1, 2]], 5, "wrong-shape", ("counts", "(1, 2)")),
        (["a", "b"], 5, "wrong-type", ("counts", "<U1")),
        ([True, False], 5, "wrong-type", ("counts", "bool")),
        ([0, 0], 5, "bad-value", ("from 0", "counts")),
        ([1, -1], 5, "bad-value", ("from 0", "counts")),
        ([1.5, 2], 5, "bad-value", ("from 0", "counts")),
        ([np.nan, 2], 5, "bad-value", ("from 0", "counts")),
        ([np.inf, 2], 5, "bad-value", ("from 0", "counts")),
        ([1, 2], 0, "bad-setting", ("above 0", "budget", 0)),
        ([1, 2], -3, "bad-setting", ("above 0", "budget", -3)),
        ([1, 2], np.nan, "bad-setting", ("above 0", "budget", "nan")),
        ([1, 2], np.inf, "bad-setting", ("above 0", "budget", "inf")),
        ([1, 2], "2", "bad-setting", ("above 0", "budget", "'2'")),
        ([1, 2], True, "bad-setting", ("above 0", "budget", True)),
        ([1, 2], None, "bad-setting", ("above 0", "budget", None)),
    ],
)
def test_balanced_rates__refuse(counts: Any, budget: Any, code: Code, facts: tuple[object, ...]) -> None:
    with refused(code, *facts):
        balanced_rates(counts, budget)


# The draw.

MASK = 2**64 - 1


def mixed(value: int) -> int:
    """The finaliser of SplitMix64, on Python's integers."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def drawn(seed: int, row: int, before: float) -> float:
    """What is compared with the rate of a row."""
    golden = 0x9E3779B97F4A7C15
    key = mixed(seed)
    for stream in (0x73756273, int(np.float64(before).view(np.uint64))):
        key = mixed(key ^ (stream * golden & MASK))
    return (mixed((key + row * golden) & MASK) >> 11) / 2**53


def make_arrays(rows: int, seed: int = 0, dtype: str = "float32", inclusion: bool = False) -> Arrays:
    """Three features, three classes of which the last is rare, weights and groups."""
    generator = np.random.default_rng(seed)
    arrays: Arrays = {
        "features": generator.normal(size=(rows, 3)).astype(dtype),
        "target": np.minimum(generator.geometric(0.6, rows) - 1, 2).astype(np.int32),
        "weight": generator.integers(1, 4, rows) / 2,
        "group": generator.integers(0, 2**40, rows),
    }
    if inclusion:
        arrays["inclusion"] = generator.choice([1.0, 0.5, 0.125], rows)
    return arrays


COLUMNS = (Column("a"), Column("b", "ordinal", ("low", "high")), Column("c"))
LABELS = ("no", "perhaps", "yes")


def written(arrays: Arrays, path: Path, **changes: Any) -> Dataset:
    return write_dataset(
        array_source(arrays), path, **{"classes": LABELS, "columns": COLUMNS, "target_name": "answer", **changes}
    )


@pytest.fixture
def engine_of_one() -> Iterator[Engine]:
    with thread_engine(1) as engine:
        yield engine


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(30, 700),
    exponent=st.integers(2, 10),
    rates=st.tuples(*[st.sampled_from([0.05, 0.3, 0.8, 1.0])] * 3),
    seed=st.sampled_from([0, 7, 2**64 - 1]),
    inclusion=st.booleans(),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_subsample__keeps_the_rows_that_the_draw_says_in_their_order(
    rows: int,
    exponent: int,
    rates: tuple[float, ...],
    seed: int,
    inclusion: bool,
    dtype: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("subsample")
    arrays = make_arrays(rows, rows, dtype, inclusion)
    before = arrays.get("inclusion", np.ones(rows))
    share = np.array(rates)[arrays["target"]]
    kept = [row for row in range(rows) if drawn(seed, row, before[row]) < share[row]]
    assume(set(arrays["target"][kept]) == set(arrays["target"]))  # else it is refused
    source = written(arrays, folder / "all", dtype=dtype, block_rows=2**exponent)
    with thread_engine(2) as engine:
        found = subsample(source, folder / "part", rates=rates, seed=seed, engine=engine)
    stored = rows_of(found)
    assert set(stored) == {*arrays, "inclusion"}
    for name in arrays.keys() - {"inclusion"}:
        np.testing.assert_array_equal(stored[name], arrays[name][kept])
        assert stored[name].dtype == arrays[name].dtype
    np.testing.assert_array_equal(stored["inclusion"], (before * share)[kept])
    weight = arrays["weight"][kept] / (before * share)[kept]
    assert found.summary.weight == pytest.approx(weight.sum())
    assert found.summary.largest_weight == weight.max()
    np.testing.assert_allclose(found.summary.mean, weight @ arrays["features"][kept].astype(float) / weight.sum())


def test_subsample__keeps_what_the_dataset_says_of_its_rows(tmp_path: Path) -> None:
    arrays = make_arrays(400)
    options = {"weight_name": "w", "group_name": "person", "dropped": ("comment",), "notes": ("From somewhere.",)}
    source = written(arrays, tmp_path / "all", **options)
    found = Dataset.open(subsample(source, tmp_path / "part", rates={"no": 0.25}, seed=np.int64(3)).path)  # type: ignore[arg-type]
    old, new = source.metadata, found.metadata
    for name in ("classes", "columns", "target_name", "weight_name", "group_name", "dropped", "dtype"):
        assert getattr(new, name) == getattr(old, name), name
    assert (old.inclusion_name, new.inclusion_name) == (None, "inclusion")
    assert new.notes[0] == "From somewhere."
    assert source.key in new.notes[1]
    assert "400 rows" in new.notes[1]
    assert "seed 3; rates by class: 'no' 0.25, 'perhaps' 1.0, 'yes' 1.0." in new.notes[1]
    with thread_engine(1) as engine:
        again = summarize(engine, found, 3)
    for name, value in vars(again).items():
        np.testing.assert_array_equal(getattr(found.summary, name), value)
    json.dumps(found.describe())


def test_subsample__of_a_subsample_stands_for_the_rows_of_the_first(tmp_path: Path) -> None:
    arrays = {name: values for name, values in make_arrays(8_000).items() if name in ("features", "target")}
    source = written(arrays, tmp_path / "all")
    once = subsample(source, tmp_path / "once", rates=[0.5, 0.5, 1])
    twice = subsample(once, tmp_path / "twice", rates=[0.5, 1, 0.25])
    assert len(twice.notes) == 2
    inclusion, target = (rows_of(twice)[name] for name in ("inclusion", "target"))
    np.testing.assert_array_equal(inclusion, np.array([0.25, 0.5, 0.25])[target])
    # Sums of 1/l over kept rows have the variance sum (1 - l) / l over all rows.
    deviation = np.sqrt(source.summary.class_rows * np.array([3, 1, 3]))
    assert (np.abs(twice.summary.class_weight - source.summary.class_rows) < 4 * deviation).all()


def block_of(rows: int, **arrays: Any) -> Block:
    return Block(0, 0, {"target": np.zeros(rows, dtype=np.int32), **arrays})


def test_draw__is_uniform_and_other_for_other_seeds() -> None:
    block = block_of(200_000)
    found = {seed: is_kept(block, block["target"], np.array([0.3]), seed) for seed in (0, 1)}
    for kept in found.values():
        assert abs(kept.mean() - 0.3) < 4 * np.sqrt(0.21 / 200_000)
    both = found[0] & found[1]
    assert abs(both.mean() - 0.09) < 4 * np.sqrt(0.09 * 0.91 / 200_000)


def test_draw__of_a_row_kept_before_is_a_new_one() -> None:
    """Else the first rows of a subsample, whose numbers are what they were, would all be kept a second time."""
    rate, codes = np.array([0.5]), np.zeros(10_000, dtype=np.int64)
    first = is_kept(block_of(10_000), codes, rate, 0)
    again = is_kept(block_of(10_000, inclusion=np.full(10_000, 0.5)), codes, rate, 0)
    assert abs((first == again).mean() - 0.5) < 0.02
    np.testing.assert_array_equal(is_kept(block_of(10_000, inclusion=np.ones(10_000)), codes, rate, 0), first)


@given(low=st.floats(0, 1, exclude_min=True), high=st.floats(0, 1, exclude_min=True), seed=st.integers(0, 2**64 - 1))
def test_draw__at_a_higher_rate_keeps_what_a_lower_one_keeps(low: float, high: float, seed: int) -> None:
    low, high = sorted((low, high))
    block, codes = block_of(500), np.zeros(500, dtype=np.int64)
    assert not (is_kept(block, codes, np.array([low]), seed) & ~is_kept(block, codes, np.array([high]), seed)).any()
    assert is_kept(block, codes, np.array([1.0]), seed).all()


@pytest.mark.slow
def test_subsample__does_not_depend_on_blocks_and_threads(tmp_path: Path) -> None:
    arrays = make_arrays(2000, inclusion=True)
    keys = set()
    for exponent in (6, 7, 12):
        source = written(arrays, tmp_path / f"all-{exponent}", block_rows=2**exponent)
        with thread_engine(1 + exponent % 3) as engine:
            part = subsample(source, tmp_path / f"part-{exponent}", rates={"no": 0.1, "perhaps": 0.5}, engine=engine)
        keys.add(part.key)
    assert len(keys) == 1, "the same rows in the same blocks"


def test_subsample__works_in_a_remote_store(tmp_path: Path) -> None:
    arrays = make_arrays(500)
    here = subsample(written(arrays, tmp_path / "all"), tmp_path / "part", budget=200)
    there = written(arrays, "memory://subsample/all")  # type: ignore[arg-type]
    found = subsample(there, "memory://subsample/part", budget=200)
    assert found.key == here.key
    assert Dataset.open("memory://subsample/part").key == here.key
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        subsample(there, "memory://subsample/part", budget=100)


@pytest.mark.slow
def test_subsample__needs_no_memory_for_rows(engine_of_one: Engine, tmp_path: Path) -> None:
    width, peaks = 64, []
    columns = [Column(f"x{number}") for number in range(width)]
    for rows in (2**10, 2**13):
        generator = np.random.default_rng(0)
        features = generator.random((rows, width), dtype=np.float32)
        arrays = {"features": features, "target": (generator.random(rows) < 0.5).astype(np.int32)}
        place = tmp_path / str(rows)
        source = write_dataset(array_source(arrays), place, classes=(0, 1), columns=columns, block_rows=512)
        tracemalloc.start()
        subsample(source, tmp_path / f"part-{rows}", rates={0: 0.9, 1: 0.9}, engine=engine_of_one)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < features.nbytes / 4


# Budgets.


def test_subsample__with_a_budget_keeps_about_so_many_rows_evenly(tmp_path: Path) -> None:
    arrays = {name: values for name, values in make_arrays(12_000).items() if name in ("features", "target")}
    source = written(arrays, tmp_path / "all")
    counts = source.summary.class_rows
    budget = 3 * int(counts[2]) - 600  # all classes have more than their share
    found = subsample(source, tmp_path / "part", budget=budget)
    assert (np.abs(found.summary.class_rows - budget / 3) < 4 * np.sqrt(budget / 3)).all()
    np.testing.assert_allclose(stratum_rates(source, of_classes(source), None, budget), balanced_rates(counts, budget))
    whole = subsample(source, tmp_path / "whole", budget=10**9)
    assert whole.n_rows == 12_000
    assert whole.summary.largest_weight == 1


def test_stratum_rates__of_a_budget_count_rows_of_weight_zero(tmp_path: Path) -> None:
    arrays = make_arrays(1000)
    arrays["weight"][::2] = 0
    source = written(arrays, tmp_path / "all", block_rows=64)
    counts = np.bincount(arrays["target"])
    assert (source.summary.class_rows < counts).all()
    np.testing.assert_array_equal(stratum_rates(source, of_classes(source), None, 300), balanced_rates(counts, 300))


# Wrong use.


@pytest.fixture
def source(tmp_path: Path) -> Dataset:
    return written(make_arrays(300), tmp_path / "all")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(make_arrays(300), tmp_path_factory.mktemp("unchanged") / "all")


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({}, "setting-missing", ("rates", "budget")),
        ({"rates": {"no": 0.5}, "budget": 100}, "settings-conflict", ("rates", "budget")),
        ({"budget": 0}, "bad-setting", ("above 0", "budget", 0)),
        ({"rates": {"no": 0}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", 0)),
        ({"rates": {"no": -0.5}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", -0.5)),
        ({"rates": {"no": 1.5}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", 1.5)),
        ({"rates": {"no": np.nan}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", "nan")),
        ({"rates": {"no": "1"}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", "'1'")),
        ({"rates": {"no": True}}, "bad-setting", ("above 0 and up to 1", "rate", "'no'", True)),
        ({"rates": "abc"}, "bad-setting", ("above 0 and up to 1", "rate", "'a'")),
        ({"rates": [0.5, 0.5]}, "wrong-shape", ("2 rates", "3 classes")),
        ({"rates": []}, "wrong-shape", ("0 rates", "3 classes")),
        ({"rates": np.full((3, 1), 0.5)}, "bad-setting", ("above 0 and up to 1", "rate", "array([0.5])")),
        ({"rates": {"never": 0.5}}, "unknown-name", ("'never'", "'no'", "'perhaps'", "'yes'")),
        ({"rates": {None: 0.5}}, "unknown-name", (None, "'no'", "'perhaps'", "'yes'")),
        ({"rates": {"no": 0.5}, "seed": -1}, "bad-setting", ("from 0 to 2**64 - 1", "seed", -1)),
        ({"rates": {"no": 0.5}, "seed": 2**64}, "bad-setting", ("from 0 to 2**64 - 1", "seed", 2**64)),
        ({"rates": {"no": 0.5}, "seed": 1.5}, "bad-setting", ("from 0 to 2**64 - 1", "seed", "1.5")),
        ({"rates": {"yes": 1e-12}}, "too-few", ("'yes'", "43 rows", "1e-12")),
        ({"budget": 1e-9}, "too-few", ("'no'", "178 rows", "1.87266e-12", "budget")),
    ],
)
def test_subsample__refuses(
    options: Any, code: Code, facts: tuple[object, ...], unchanged: Dataset, tmp_path: Path
) -> None:
    with refused(code, *facts):
        subsample(unchanged, tmp_path / "part", **options)
    assert not list(tmp_path.iterdir())


def test_subsample__knows_labels_by_what_they_mean(tmp_path: Path) -> None:
    source = written(make_arrays(300), tmp_path / "all", classes=(0, 1, 2))
    strata = of_classes(source)
    by_number, by_text = (stratum_rates(source, strata, {label: 0.25}, None) for label in (np.int64(1), "1"))
    np.testing.assert_array_equal(by_number, [1, 0.25, 1])
    np.testing.assert_array_equal(by_text, [1, 0.25, 1])
    with refused("named-twice", "class 1"):
        stratum_rates(source, strata, {1: 0.25, "1": 0.5}, None)
    with refused("unknown-name", True, "0, 1, 2"):
        stratum_rates(source, strata, {True: 0.5}, None)
    np.testing.assert_array_equal(stratum_rates(source, strata, {}, None), [1, 1, 1])


def test_subsample__of_classes_without_rows_leaves_them_empty(tmp_path: Path) -> None:
    arrays = make_arrays(300)
    source = written(arrays, tmp_path / "all", classes=(*LABELS, "never"))
    found = subsample(source, tmp_path / "part", budget=100)
    assert found.classes == (*LABELS, "never")
    assert found.summary.class_rows[3] == 0


def test_subsample__calls_the_inclusion_otherwise_where_a_column_is_called_so(tmp_path: Path) -> None:
    columns = (Column("inclusion"), Column("b"), Column("c"))
    source = written(make_arrays(300), tmp_path / "all", columns=columns, dropped=("inclusion_",))
    assert subsample(source, tmp_path / "part", rates={"no": 0.5}).metadata.inclusion_name == "inclusion__"


def test_subsample__looks_first_whether_it_may_write(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: Dataset, number: int) -> Block:
        raise AssertionError("rows were read")

    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "file").touch()
    monkeypatch.setattr(Dataset, "read", read)
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        subsample(source, tmp_path / "part", rates={"no": 0.5})


def test_subsample__may_take_the_place_of_its_source(source: Dataset, tmp_path: Path) -> None:
    elsewhere = subsample(source, tmp_path / "part", rates={"no": 0.5})
    in_place = subsample(source, source.path, rates={"no": 0.5}, overwrite=True)
    assert in_place.key == elsewhere.key
    with refused("changed-meanwhile", kind=StorageError):
        source.read(0)


def test_subsample__that_fails_leaves_what_was_there(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_of_one: Engine
) -> None:
    before = subsample(source, tmp_path / "part", rates={"no": 0.5}, engine=engine_of_one)

    def fail(self: ChosenRows, start: int, stop: int) -> Arrays:
        raise StorageError("unwritable", "The disk is gone.", "Find it.")

    monkeypatch.setattr(ChosenRows, "rows", fail)
    for name, overwrite in (("part", True), ("new", False)):
        with refused("unwritable", kind=StorageError):
            subsample(source, tmp_path / name, rates={"no": 0.9}, overwrite=overwrite, engine=engine_of_one)
    assert Dataset.open(tmp_path / "part").key == before.key
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["all", "part"]


def test_subsample__reads_twice_and_only_blocks_with_rows_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_of_one: Engine
) -> None:
    arrays = make_arrays(64 * 16)
    arrays["target"] = np.repeat([0, 1], [64 * 12, 64 * 4]).astype(np.int32)
    source = written(arrays, tmp_path / "all", classes=("no", "yes"), block_rows=64)
    read: list[int] = []
    plain = Dataset.read

    def noted(self: Dataset, number: int) -> Block:
        if self == source:
            read.append(number)
        return plain(self, number)

    monkeypatch.setattr(Dataset, "read", noted)
    found = subsample(source, tmp_path / "part", rates={"no": 0.002}, engine=engine_of_one, seed=1)
    kept = int(found.summary.class_rows[0])
    assert 0 < kept < 6
    assert sorted(read[:16]) == list(range(16))
    assert len(read[16:]) <= kept + 4


def test_balanced_rates__refuses_a_budget_beyond_all_numbers() -> None:
    with refused("bad-setting", "above 0", "budget"):
        balanced_rates([10, 10], 10**400)


@pytest.mark.parametrize("rates", [0.5, (rate for rate in [0.5, 0.5])], ids=["number", "generator"])
def test_check_rates__refuses_other_than_a_rate_for_each_class(rates: Any) -> None:
    with refused("bad-setting", "rates", "by label"):
        check_rates(rates, None)


def test_checked_seed__refuses_a_truth_value() -> None:
    with refused("bad-setting", "from 0 to 2**64 - 1", "seed", True):
        checked_seed(True)


def test_subsample__of_a_path_asks_for_a_dataset(tmp_path: Path) -> None:
    with refused("wrong-type", "str", "Dataset.open"):
        subsample("data.zarr", tmp_path / "part.zarr", budget=10)  # type: ignore[arg-type]
