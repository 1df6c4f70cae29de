"""Expanding with a function, in this thread, in several, and on a cluster."""

import gc
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import LocalCluster
from support.errors import refused

from protodask.budget.expanding import expander, usable
from protodask.budget.expansions import Expand, Expansion, FeatureSet
from protodask.budget.lattice import explore
from protodask.engine import Engine, open_engine, thread_engine
from protodask.engine.scheduling import Processes
from protodask.engine.threads import ThreadScheduler
from protodask.errors import ClusterError, InputError, LostTaskError

SETS = [frozenset(features) for features in ((), (0,), (1,), (0, 1), (5, 2), (3,), (7, 8, 9))]


@pytest.fixture(scope="module")
def threads() -> Iterator[Engine]:
    with thread_engine(2) as engine:
        yield engine


@pytest.fixture(params=["no engine", "threads", "cluster"])
def engine(request: pytest.FixtureRequest) -> Engine | None:
    if request.param == "no engine":
        return None
    found: Engine = request.getfixturevalue(request.param)
    return found


def expand_all(expand: Expand, sets: list[FeatureSet]) -> list[Expansion]:
    found: list[Expansion] = []
    here = threading.get_ident()

    def on_end(expansion: Expansion) -> None:
        assert threading.get_ident() == here
        found.append(expansion)

    expand(sets, on_end)
    return found


def test_expander__gives_each_set_its_accuracy(engine: Engine | None) -> None:
    weights = {feature: feature / 100 for feature in range(10)}  # the function travels with what it refers to
    found = expand_all(expander(lambda features: 0.5 + sum(weights[one] for one in features), engine), SETS)
    found.sort(key=lambda one: SETS.index(one.features))
    assert [one.features for one in found] == SETS
    assert [one.accuracy for one in found] == [0.5 + sum(weights[one] for one in features) for features in SETS]
    assert all(one.failure is None and one.seconds >= 0 for one in found)


def test_expander__takes_what_is_raised_as_the_failure_of_that_set(engine: Engine | None) -> None:
    def accuracy(features: FeatureSet) -> float:
        if 1 in features:
            raise InputError("bad-value", "Feature 1 is constant.", "Leave it out.")
        if 2 in features:
            return 1 / 0
        return 0.75

    found = {one.features: one for one in expand_all(expander(accuracy, engine), SETS)}
    for features in SETS:
        failure = found[features].failure
        if 1 in features:
            assert failure == "InputError: Feature 1 is constant. Leave it out."
        elif 2 in features:
            assert failure is not None
            assert failure.startswith("ZeroDivisionError: ")
        else:
            assert failure is None
        assert (found[features].accuracy is None) == (failure is not None)


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.float64(0.5), np.int8(1), np.float16(0.5)], ids=repr)
def test_expander__takes_numbers(value: Any) -> None:
    (found,) = expand_all(expander(lambda features: value), [frozenset()])
    assert type(found.accuracy) is float
    assert found.accuracy == value


@pytest.mark.parametrize(
    ("value", "failure"),
    [
        (None, "Its accuracy is a NoneType, not a number."),
        ("0.5", "Its accuracy is a str, not a number."),
        (True, "Its accuracy is a bool, not a number."),
        (np.bool_(True), "Its accuracy is a bool, not a number."),
        (np.ones(1), "Its accuracy is a ndarray, not a number."),
        (0.5 + 0j, "Its accuracy is a complex, not a number."),
        (Fraction(1, 2), "Its accuracy is a Fraction, not a number."),
        (math.nan, "Its accuracy is nan, which is not a finite number."),
        (np.float32("-inf"), "Its accuracy is -inf, which is not a finite number."),
        (10**400, "Its accuracy is a number beyond the range of float64."),
        (-1e308, "Its accuracy is -1e+308, which is beyond 1e+300."),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_expander__takes_what_is_no_number_as_a_failure(value: Any, failure: str) -> None:
    (found,) = expand_all(expander(lambda features: value), [frozenset({3})])
    assert (found.accuracy, found.failure) == (None, failure)


def test_expander__without_an_engine_stays_in_this_thread() -> None:
    used = set()

    def accuracy(features: FeatureSet) -> float:
        used.add(threading.get_ident())
        return 0.5

    expand_all(expander(accuracy), SETS)
    assert used == {threading.get_ident()}


def test_expander__expands_as_many_at_once_as_there_are_threads(threads: Engine) -> None:
    together = threading.Barrier(2)  # broken, and an exception in both, where one waits alone
    found = expand_all(expander(lambda features: 0.5 + together.wait(timeout=30), threads), SETS[:6])
    assert [one.failure for one in found] == [None] * 6
    assert sorted(one.accuracy or 0 for one in found) == [0.5] * 3 + [1.5] * 3


def test_expander__says_what_has_ended_before_the_rest_begins(threads: Engine) -> None:
    begun: list[FeatureSet] = []
    ahead: list[int] = []

    def accuracy(features: FeatureSet) -> float:
        begun.append(features)
        return 0.5

    expander(accuracy, threads)(SETS, lambda expansion: ahead.append(len(begun) - len(ahead)))
    assert max(ahead) <= 2


def test_expander__computes_on_the_workers(cluster: Engine) -> None:
    found = expand_all(expander(lambda features: float(os.getpid()), cluster), SETS)
    processes = {one.accuracy for one in found}
    assert len(processes) == 2  # each of the two threads gets a set as soon as it is free
    assert os.getpid() not in processes


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", [None, "threads"])
def test_expander__lets_the_user_interrupt(
    stop: type[BaseException], name: str | None, request: pytest.FixtureRequest
) -> None:
    def accuracy(features: FeatureSet) -> float:
        raise stop

    with pytest.raises(stop):
        expand_all(expander(accuracy, None if name is None else request.getfixturevalue(name)), SETS)


def test_expander__says_of_each_set_as_it_ends(threads: Engine) -> None:
    """One thread waits for what the other has done meanwhile: were all heard of at the end, it would wait in vain."""
    ended, seen = threading.Event(), threading.Event()

    def accuracy(features: FeatureSet) -> float:
        if features == SETS[0]:
            assert ended.wait(timeout=30)
        return 0.5

    def on_end(expansion: Expansion) -> None:
        assert expansion.failure is None
        if expansion.features == SETS[4]:
            ended.set()
        if expansion.features == SETS[0]:
            seen.set()

    expander(accuracy, threads)(SETS, on_end)
    assert seen.is_set()


class Workers(ThreadScheduler):
    """Stands in for a cluster: a task with a feature fails with an error, and ends the others."""

    def __init__(self, error: ClusterError, feature: int) -> None:
        super().__init__(2)
        self.error = error
        self.feature = feature
        self.failed = 0

    def processes(self) -> Processes:
        return Processes("workers", 2, 1, 2**30, 2**30)

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
        for number, item in enumerate(items):
            if self.feature in item:
                self.failed += 1
                raise self.error
            yield number, function(item)


def test_expander__takes_a_set_that_is_too_much_for_workers_as_failed() -> None:
    with Engine(
        Workers(LostTaskError("bad-value", "The task was given up.", "Give workers more memory."), feature=1)
    ) as engine:
        found = expand_all(expander(lambda features: 0.5, engine), SETS)
    assert [one.features for one in found] == SETS
    for one in found:
        if 1 in one.features:
            assert one.failure == "LostTaskError: The task was given up. Give workers more memory."
        else:
            assert one.accuracy == 0.5


def test_expander__does_not_take_the_loss_of_the_cluster_for_a_failure() -> None:
    workers = Workers(ClusterError("no-workers", "There is no worker.", "Start workers."), feature=1)
    found: list[Expansion] = []
    with Engine(workers) as engine, refused("no-workers", kind=ClusterError):
        expander(lambda features: 0.5, engine)(SETS, found.append)
    assert [one.features for one in found] == SETS[:2]
    assert workers.failed == 1  # whoever waits for workers once more waits as long again


def test_expander__on_a_cluster_waits_for_no_round(cluster: Engine, tmp_path: Path) -> None:
    """One set ends only after all others were heard of, though there are three times as many as threads."""
    heard = tmp_path / "heard"

    def accuracy(features: FeatureSet) -> float:
        while features == SETS[0] and not heard.exists():
            time.sleep(0.01)
        return 0.5

    found: list[FeatureSet] = []

    def on_end(expansion: Expansion) -> None:
        found.append(expansion.features)
        if len(found) == len(SETS) - 1:
            heard.touch()

    expander(accuracy, cluster)(SETS, on_end)
    assert found[-1] == SETS[0]
    assert set(found) == set(SETS)


@pytest.mark.slow
def test_expander__sends_what_accuracy_refers_to_once_for_all_rounds(cluster: Engine, tmp_path: Path) -> None:
    sent: list[int] = []

    def unpack(rows: list[float], path: Path) -> Any:
        (path / uuid.uuid4().hex).touch()
        return rows

    class Matrix:
        """Counts how often it is packed here, and unpacked on workers."""

        def __reduce__(self) -> tuple[Any, ...]:
            sent.append(1)
            return unpack, ([0.25, 0.5], tmp_path)

    matrix: Any = Matrix()
    expand = expander(lambda features: matrix[len(features) % 2], cluster)
    for round_of_sets in (SETS[:1], SETS[1:5], SETS[5:]):
        assert len(expand_all(expand, round_of_sets)) == len(round_of_sets)
    assert len(sent) == 1
    assert len(list(tmp_path.iterdir())) <= 2, "once on each worker"
    scheduler: Any = cluster.scheduler
    held = len(scheduler._functions)
    del expand
    gc.collect()
    assert len(scheduler._functions) == held - 1, "it goes from the workers when nobody can ask for more"


def test_expander__sends_again_what_the_cluster_has_lost(cluster: Engine) -> None:
    scheduler: Any = cluster.scheduler
    expand = expander(lambda features: 0.5, cluster)
    assert len(expand_all(expand, SETS[:1])) == 1
    for sent in scheduler._functions.values():
        sent.cancel(force=True)  # as where its workers died one after the other, or a client restarted them
    assert [one.accuracy for one in expand_all(expand, SETS[1:4])] == [0.5] * 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_expander__goes_on_without_a_set_that_kills_its_workers(
    own_cluster: Callable[[int], LocalCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    def accuracy(features: FeatureSet) -> float:
        if features == {0, 1}:
            time.sleep(3)  # a nanny whose worker dies while it starts does not start another one
            os._exit(1)
        return 0.5

    monkeypatch.setattr("protodask.engine.submission.MOST_TRIES", 1)
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = own_cluster(2)
    with dask.config.set({"protodask.worker-timeout": "300s"}), open_engine(cluster.scheduler_address) as engine:
        found = expand_all(expander(accuracy, engine), SETS)
    assert sorted((one.features for one in found), key=SETS.index) == SETS
    for one in found:
        if one.features == {0, 1}:
            assert one.failure is not None
            assert one.failure.endswith("give workers more, or blocks fewer rows.")
        else:
            assert one.accuracy == 0.5


@pytest.mark.slow
def test_expander__of_a_cluster_that_has_no_workers_left_raises(own_cluster: Callable[[int], LocalCluster]) -> None:
    cluster = own_cluster(1)
    found: list[Expansion] = []

    def on_end(expansion: Expansion) -> None:
        found.append(expansion)
        cluster.scale(0)

    with (
        dask.config.set({"protodask.worker-timeout": "3s"}),
        open_engine(cluster.scheduler_address) as engine,
        refused("no-workers", kind=ClusterError),
    ):
        expander(lambda features: 0.5, engine)([frozenset({number}) for number in range(1000)], on_end)
    assert 1 <= len(found) < 1000


def test_expander__finds_the_same_on_every_engine(engine: Engine | None) -> None:
    weights = np.random.default_rng(3).exponential(size=5)

    def accuracy(features: FeatureSet) -> float:
        if features == {2, 4}:
            raise ValueError("It did not converge.")
        return float(1 - np.exp(-sum(weights[feature] for feature in sorted(features))))

    def outcome(used: Engine | None) -> list[tuple[FeatureSet, float | None, str | None]]:
        found = explore(5, expander(accuracy, used), alpha=0.05)
        return [(one.features, one.accuracy, one.failure) for one in found.expansions]

    assert outcome(engine) == outcome(None)


@pytest.mark.parametrize(
    ("given", "accuracy", "failure"),
    [
        (Expansion(frozenset(), 0.5), 0.5, None),
        (Expansion(frozenset(), 0.5, "no"), None, "no"),
        (Expansion(frozenset(), None, "no"), None, "no"),
        (Expansion(frozenset(), None), None, "Nothing was said of its accuracy."),
        (Expansion(frozenset(), math.inf), None, "Its accuracy is inf, which is not a finite number."),
    ],
)
def test_usable__has_an_accuracy_or_a_failure(given: Expansion, accuracy: float | None, failure: str | None) -> None:
    found = usable(given)
    assert (found.accuracy, found.failure) == (accuracy, failure)


def test_usable__shortens_failures_to_what_can_be_written() -> None:
    failure = usable(Expansion(frozenset(), None, "odd: \ud800 " + "x" * 10**6)).failure
    assert failure is not None
    assert failure.startswith("odd: \\ud800 xxx")
    assert len(failure) < 10_000
