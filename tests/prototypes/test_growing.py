"""Candidates that grow: when they do, from where, and that all else stays as it is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protodask import PrototypeSetClassifier, plan, thread_engine
from protodask.data.tables.ingest import ingest_arrays
from protodask.engine import Engine
from protodask.prototypes import FitConfig, fit
from protodask.prototypes import rounds as rounds_module
from protodask.prototypes.candidates import draw, sample_of
from protodask.prototypes.config import STEPPED_ROWS
from protodask.prototypes.growing import LOOKED_AFTER, spread
from protodask.prototypes.history import FitEvent, IterationDone
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.run_progress import read_progress
from protodask.prototypes.solver import Evaluation, Iteration, solve
from protodask.prototypes.training import DrawnCandidates

SameBits = Callable[[PrototypeSet, PrototypeSet], None]
Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

FEW: dict[str, Any] = {"n_candidates": 60, "n_draws": 1, "feature_weights": "shared"}
GROWING: dict[str, Any] = {**FEW, "most_candidates": 500}


def waves(rows: int = 700) -> Rows:
    """Two classes in stripes that few prototypes cannot follow."""
    x = np.random.default_rng(1).uniform(size=(rows, 3))
    return x, (np.floor(7 * x[:, 0]) + np.floor(5 * x[:, 1])).astype(int) % 2


def of_boundary(rows: int = 700) -> Rows:
    """Two classes on either side of a plane, with noise."""
    random = np.random.default_rng(3)
    x = random.standard_normal((rows, 3))
    return x, (x[:, 0] + x[:, 1] + random.standard_normal(rows) > 0).astype(int)


@given(data=st.data(), n=st.integers(1, 30), n_groups=st.integers(1, 4))
def test_spread__keeps_the_weight_of_each_group_and_is_even(data: st.DataObject, n: int, n_groups: int) -> None:
    groups = np.array(data.draw(st.lists(st.integers(0, n_groups - 1), min_size=n, max_size=n)))
    weight = np.array(data.draw(st.lists(st.floats(0, 1e4), min_size=n, max_size=n)))
    over = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    found = spread(weight, groups, over)
    assert not found[~over].any()
    for group in np.unique(groups):
        of_group = groups == group
        some = found[of_group & over]
        if len(some):
            assert some.sum() == pytest.approx(weight[of_group].sum())
            assert (some == some[0]).all()


def test_solve__is_left_where_it_is_asked_to_be_and_goes_the_same_way_until_then() -> None:
    def bowl(theta: NDArray[np.float64]) -> Evaluation:
        apart = theta - np.arange(1.0, 6.0)
        return Evaluation(float((apart**4).sum()), 4 * apart**3, float(np.abs(apart).sum()))

    def run(leaves: Callable[[Iteration], bool] | None) -> Any:
        told = list[Iteration]()
        found = solve(bowl, np.full(5, 9.0), np.ones(5), 1e-9, 100, told.append, leaves=leaves)
        return found, [(state.value, state.theta.tobytes()) for state in told]

    (whole, way), (left, until) = run(None), run(lambda state: state.iteration == 4)
    _, same = run(lambda state: False)
    assert (left.status, left.iterations, until) == ("left", 4, way[:4])
    assert left.held_out == min(np.abs(np.frombuffer(theta) - np.arange(1.0, 6.0)).sum() for _, theta in until)
    assert (whole.status != "left", same) == (True, way)


def test_fit__goes_on_with_more_candidates_where_these_tell_classes_apart() -> None:
    X, y = waves()
    events = list[FitEvent]()
    grown = PrototypeSetClassifier(**GROWING, callbacks=[events.append]).fit(X, y)
    few = PrototypeSetClassifier(**FEW).fit(X, y)
    (record,), (before,) = grown.history_, few.history_
    assert len(before.candidates) == 60
    assert set(before.candidates) < set(record.candidates)
    assert 490 <= len(record.candidates) <= 500
    assert record.held_out is not None
    assert before.held_out is not None
    assert record.held_out < 0.8 * before.held_out
    steps = [event for event in events if isinstance(event, IterationDone)]
    assert [event.iteration for event in steps] == list(range(1, len(steps) + 1)), "counted on"
    assert all(event.candidates <= 60 for event in steps[:LOOKED_AFTER])
    assert max(event.candidates for event in steps) > 200
    evaluations = [event.evaluations for event in steps]
    assert evaluations == sorted(evaluations)


@pytest.mark.parametrize("make", [of_boundary, waves])
@pytest.mark.parametrize(
    "settings",
    [
        {"hold_out": 0.0, "tolerance": 1e-2},
        {"leave_one_out": False},
        {"most_candidates": 60},
        {"most_candidates": 0},
    ],
)
def test_fit__is_as_it_was_where_candidates_do_not_grow(
    make: Callable[[], Rows], settings: dict[str, Any], assert_same_bits: SameBits
) -> None:
    X, y = make()
    grown = PrototypeSetClassifier(**{**GROWING, **settings}).fit(X, y)
    few = PrototypeSetClassifier(**{**FEW, **settings, "most_candidates": None}).fit(X, y)
    assert_same_bits(grown.model_, few.model_)
    assert [record.candidates.tolist() for record in grown.history_] == [few.history_[0].candidates.tolist()]


def test_fit__is_the_same_to_the_last_bit_where_more_would_not_help(
    assert_same_bits: SameBits, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = waves()
    looked = list[bool]()
    serve = rounds_module.Round._all_serve

    def noted(*arguments: Any) -> bool:
        found = serve(*arguments)
        looked.extend([found] * (arguments[-1].iteration == LOOKED_AFTER))
        return found

    monkeypatch.setattr(rounds_module.Round, "_all_serve", noted)
    many = {**FEW, "n_candidates": 490, "max_fraction": 0.9}
    few, found = (PrototypeSetClassifier(**many, most_candidates=most).fit(X, y) for most in (490, 500))
    assert_same_bits(found.model_, few.model_)
    (record,), (before,) = found.history_, few.history_
    assert (record.evaluations, record.candidates.tolist()) == (before.evaluations, before.candidates.tolist())
    assert looked == [False]


def test_fit__keeps_the_few_where_all_of_them_lose_more(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = waves()
    grow = rounds_module.Round._grow
    lost = list[float]()

    def failing(*arguments: Any) -> Any:
        found = grow(*arguments)
        lost.append(found.iterations)
        return replace(found, held_out=1e3)

    monkeypatch.setattr(rounds_module.Round, "_grow", failing)
    for most in (5000, 12):
        told = list[FitEvent]()
        (record,) = PrototypeSetClassifier(**GROWING, max_iterations=most, callbacks=[told.append]).fit(X, y).history_
        assert len(record.candidates) == 60
        steps = [event.iteration for event in told if isinstance(event, IterationDone)]
        assert steps == list(range(1, len(steps) + 1)), "counted on"
        assert len(record.values) == record.iterations == len(steps) <= most
        assert (record.iterations - record.on_all_rows > lost[-1]) == (most > lost[-1]), "and go on"
    assert len(lost) == 2


def test_fit__has_the_same_bits_however_it_is_computed_and_goes_on_from_anywhere(
    tmp_path: Path, assert_same_bits: SameBits
) -> None:
    X, y = waves()
    data = ingest_arrays(X, y, tmp_path / "data.zarr", block_rows=128)
    config = FitConfig(n_candidates=60, most_candidates=500, n_draws=2, seed=5)
    with thread_engine(1, 2**28) as one, thread_engine(3, 2**28) as three:
        expected = fit(data, config, engine=one)
        place = tmp_path / "run"
        found = fit(data, config, engine=three, run_dir=place)
        assert_same_bits(found.model, expected.model)
        stages = {stage.stage for stage in read_progress(str(place)).stages}
        assert stages == {"float32", "grown-float32", "whole-float32"}
        for name in ("batch-1-looked-float32.log", "batch-1-grown-float32.log", "batch-2-grown-float32.log"):
            log = place / name
            whole = log.read_bytes()
            for left in (len(whole) // 2, 0):
                log.write_bytes(whole[:left])
                (place / "history.json").unlink(missing_ok=True)
                again = fit(data, config, engine=one, run_dir=place)
                assert_same_bits(again.model, expected.model)
                assert log.stat().st_size == len(whole)
    for record in expected.history:
        assert len(record.candidates) > 400


@pytest.mark.parametrize("most", [LOOKED_AFTER, LOOKED_AFTER + 2])
def test_fit__takes_no_more_iterations_than_it_may(most: int) -> None:
    X, y = waves()
    (record,) = PrototypeSetClassifier(**GROWING, max_iterations=most, finish=False).fit(X, y).history_
    assert record.iterations == most
    assert (len(record.candidates) > 60) == (most > LOOKED_AFTER)


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    wanted=st.integers(1, 200),
    more=st.integers(-5, 300),
    max_fraction=st.floats(0.1, 0.9),
)
def test_draw__has_the_few_among_those_grown(sizes: list[int], wanted: int, more: int, max_fraction: float) -> None:
    bins = np.repeat(np.arange(len(sizes)), sizes)
    sample = sample_of(np.arange(len(bins)), bins, len(sizes), 1, 1, 600)
    few, grown = draw(sample, wanted, max_fraction), draw(sample, wanted, max_fraction, wanted + more)
    assert np.isin(few, grown).all()
    assert len(grown) <= max(len(few), wanted + more + len(sizes) / 2)
    if more > 0 and wanted + more >= len(bins):
        assert grown.tolist() == list(range(len(bins)))


def test_fit__is_the_same_where_a_few_more_would_not_help(
    assert_same_bits: SameBits, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = waves()
    y[:40] = 2
    monkeypatch.setattr(rounds_module.Round, "_all_serve", lambda *arguments: False)
    few, found = (PrototypeSetClassifier(**FEW, most_candidates=most).fit(X, y) for most in (0, 61))
    assert_same_bits(found.model_, few.model_)


def test_fit__is_refused_where_no_candidate_can_be_drawn_to_begin_with() -> None:
    X, _ = waves()
    settings = {**GROWING, "n_candidates": 5}
    with pytest.raises(ValueError, match=r"there are 20 classes and `n_candidates` is 5"):
        PrototypeSetClassifier(**settings).fit(X, np.arange(len(X)) % 20)


def test_fit__goes_on_from_candidates_that_do_not_say_which_are_the_few(
    tmp_path: Path, assert_same_bits: SameBits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of earlier versions."""
    X, y = waves()
    data = ingest_arrays(X, y, tmp_path / "data.zarr")
    config, place = FitConfig(n_candidates=60, n_draws=1), tmp_path / "run"
    expected = fit(data, config)
    arrays = DrawnCandidates.arrays

    def without_few(drawn: DrawnCandidates) -> dict[str, Any]:
        return {name: array for name, array in arrays(drawn).items() if name != "few"}

    def interrupt(event: FitEvent) -> None:
        if isinstance(event, IterationDone):
            raise InterruptedError

    with monkeypatch.context() as before:
        before.setattr(DrawnCandidates, "arrays", without_few)
        with pytest.raises(InterruptedError):
            fit(data, config, run_dir=place, callbacks=[interrupt])
    assert_same_bits(fit(data, config, run_dir=place).model, expected.model)


def test_plan__knows_how_many_there_may_be(tmp_path: Path, engine: Engine) -> None:
    X, y = waves()
    data = ingest_arrays(X, y, tmp_path / "data.zarr")
    few, many = (
        plan(data, FitConfig(n_candidates=60, most_candidates=most), engine, calibrate=False) for most in (0, 10**6)
    )
    assert few.describe()["candidates"] == many.describe()["candidates"] == few.describe()["most_candidates"] == 60
    assert many.describe()["most_candidates"] == 700, "no more than rows"
    assert many.worker.total > few.worker.total
    assert plan(data, FitConfig(), engine, calibrate=False).describe()["most_candidates"] == 700


@pytest.mark.parametrize(
    ("rows", "settings"), [(700, {"hold_out": 0.0}), (700, {"leave_one_out": False}), (STEPPED_ROWS, {})]
)
def test_plan__has_none_more_where_none_are_drawn(
    rows: int, settings: dict[str, Any], tmp_path: Path, engine: Engine
) -> None:
    X, y = waves(rows)
    data = ingest_arrays(X, y, tmp_path / "data.zarr")
    few, many = (
        plan(data, FitConfig(n_candidates=60, most_candidates=most, **settings), engine, calibrate=False)
        for most in (0, 10**9)
    )
    assert many.describe() == few.describe()


def test_plan__says_how_candidates_do_not_grow_where_they_do_not_fit(tmp_path: Path) -> None:
    X, y = waves()
    data = ingest_arrays(np.tile(X, 100), y, tmp_path / "data.zarr")
    many = FitConfig(n_candidates=60, most_candidates=700, n_draws=1)
    few = replace(many, most_candidates=0)
    with thread_engine(1, 2**40) as engine:
        needs = [plan(data, config, engine, calibrate=False).worker.total for config in (few, many)]
    with thread_engine(1, sum(needs) // 2) as engine:
        (remedy,) = (one for one in plan(data, many, engine, False).remedies if one.setting == "candidates")
        assert "(n_candidates=60, most_candidates=0, n_draws=1)" in remedy.text
        assert plan(data, few, engine, False).fits


@pytest.mark.parametrize(("forms", "most"), [(1, 4000), (2500, 4000), (5000, 2000), (60_000, 166)])
def test_config__has_fewer_to_grow_to_where_features_are_many(forms: int, most: int) -> None:
    assert FitConfig().for_rows(2000, n_forms=forms).most_candidates == most
    assert FitConfig(most_candidates=3000).for_rows(2000, n_forms=forms).most_candidates == 3000
