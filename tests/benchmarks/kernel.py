"""Speed of the objective and its gradient, and of a whole fit, against proset.

Both evaluate the objective of a first batch with gradient at its start, on the same rows, in turn, with two processors:
protodask as two tasks of its in-process engine (float32), proset with its own number of BLAS threads. The bare matrix
products of the kernel, timed alone, bound any method that looks at all pairs of rows and candidates from below.
"""

from __future__ import annotations

import argparse
import tracemalloc
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protodask.data.format.schema import FEATURES, TARGET
from protodask.engine import Engine, Source, array_source, thread_engine
from protodask.engine.blas import one_blas_thread
from protodask.prototypes.estimator import PrototypeSetClassifier
from protodask.prototypes.objective import RoundProblem, starting_point
from protodask.prototypes.tiles import tile_rows

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _datasets as datasets
    from benchmarks import _problem as problems
else:
    import _common as common
    import _datasets as datasets
    import _problem as problems

WANTED_RATIO = {4: 10.0, 30: 10.0, 300: 5.0}
"""Times as fast as proset, by number of features."""
WANTED_FIT_RATIO = 6.0
TRACED_BYTES = 64 * 10**6
"""Traced peak memory of an evaluation, beside two blocks for each thread."""
SQUARE = 2048
"""Rows of the matrices whose product gives the machine's rate: large enough for full speed."""

Task = Callable[[], object]


@dataclass(frozen=True)
class Evaluation:
    """One size of problem; seconds are medians, `nanoseconds` are per row and candidate."""

    features: int
    classes: int
    seconds: float
    proset_seconds: float
    ratio: float
    fastest_ratio: float
    """Of the fastest calls: what the ratio is when nobody else uses the processors."""
    processor_ratio: float
    """Of processor time: both use all they get, proset's BLAS also while it waits."""
    nanoseconds: float
    proset_nanoseconds: float
    value_error: float
    feature_gradient_error: float
    candidate_gradient_error: float
    gemm_seconds: float
    """Operations of the two products at the rate of large square matrices."""
    shaped_gemm_seconds: float
    """The two products of every tile, as they are shaped."""
    traced_bytes: int
    traced_bound: int


@dataclass(frozen=True)
class Fit:
    """A whole fit; `gradient` is not compared, both stop by the same rule."""

    method: str
    seconds: float
    evaluations: int
    iterations: int
    objective: float
    log_loss: float


def relative_error(found: NDArray[Any], exact: NDArray[Any]) -> float:
    """`|found - exact|_2 / |exact|_2`."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def draw(rows: int, n_features: int, n_classes: int) -> dict[str, NDArray[Any]]:
    """Standard normal features and classes that do not depend on them: the work does not depend on the values."""
    generator = np.random.default_rng(0)
    features = generator.standard_normal((rows, n_features), dtype=np.float32)
    return {FEATURES.name: features, TARGET.name: generator.integers(n_classes, size=rows, dtype=np.int32)}


def proset_evaluation(arrays: dict[str, NDArray[Any]], n_candidates: int) -> Callable[[], object]:
    """proset's objective at its own start, with its defaults."""
    objectives = common.peer("proset.objectives.np_classifier_objective")
    managers = common.peer("proset.set_manager")
    features, target = np.asfortranarray(arrays[FEATURES.name]), arrays[TARGET.name].astype(np.int64)
    objective = objectives.NpClassifierObjective(
        features=features,
        target=target,
        weights=None,
        num_candidates=n_candidates,
        beta=0.1,
        max_fraction=0.5,
        set_manager=managers.ClassifierSetManager(target=target, weights=None),
        lambda_v=1e-3,
        lambda_w=1e-8,
        alpha_v=0.05,
        alpha_w=0.05,
        random_state=np.random.RandomState(0),
    )
    theta, _ = objective.get_starting_point_and_bounds()
    return lambda: objective.evaluate(theta)


def on_threads(pool: ThreadPoolExecutor, tasks: list[Task]) -> None:
    """Run all, each with one BLAS thread."""
    with one_blas_thread():
        for future in [pool.submit(task) for task in tasks]:
            future.result()


def repeated_product(rows: int, inner: int, columns: int, times: int) -> Task:
    """`times` products (rows, inner) by (inner, columns), with memory of their own."""
    generator = np.random.default_rng(1)
    left = generator.standard_normal((rows, inner), dtype=np.float32)
    right = generator.standard_normal((inner, columns), dtype=np.float32)
    out = np.empty((rows, columns), dtype=np.float32)

    def run() -> None:
        for _ in range(times):
            np.matmul(left, right, out=out)

    return run


def measure_rate(pool: ThreadPoolExecutor, threads: int, rounds: int) -> float:
    """Operations a second of float32 products of large square matrices, on all threads together."""
    tasks = [repeated_product(SQUARE, SQUARE, SQUARE, 1) for _ in range(threads)]
    seconds = common.alternate([lambda: on_threads(pool, tasks)], rounds)[0]
    return threads * 2 * SQUARE**3 / common.median(seconds)


def shaped_products(rows: int, block_rows: int, n_features: int, n_candidates: int, threads: int) -> list[Task]:
    """For each thread its share of the products of all tiles."""
    length = tile_rows(block_rows, n_candidates + n_features + 1)
    times = max(1, round(rows / length / threads))
    tasks: list[Task] = []
    for _ in range(threads):
        kernel = repeated_product(length, n_features + 2, n_candidates, times)
        sums = repeated_product(length, n_candidates, n_features + 1, times)
        tasks.append(lambda kernel=kernel, sums=sums: (kernel(), sums()))  # type: ignore[misc]
    return tasks


def traced_peak(function: Task) -> int:
    """Most bytes that were allocated at a time during a call, beyond those before it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        function()
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        tracemalloc.stop()


def traced_evaluation(source: Source, problem: RoundProblem, theta: NDArray[np.float64], threads: int) -> int:
    """Most bytes of an evaluation on new threads, which have no memory from an earlier one."""
    with thread_engine(threads, common.GIB) as engine:
        objective = problems.objective_of(engine, source, problem)
        return traced_peak(lambda: objective(theta))


def measure(
    engine: Engine, pool: ThreadPoolExecutor, settings: argparse.Namespace, rate: float, n_features: int, n_classes: int
) -> Evaluation:
    """All figures of one size."""
    rows, n_candidates, threads = settings.rows, settings.candidates, settings.threads
    arrays = draw(rows, n_features, n_classes)
    source = array_source(arrays)
    problem = problems.problem_of(arrays, np.bincount(arrays[TARGET.name], minlength=n_classes), n_candidates)
    theta = starting_point(problem)
    objective = problems.objective_of(engine, source, problem)
    value, gradient, _ = objective(theta)
    exact_value, exact_gradient, _ = problems.objective_of(engine, source, problem, "float64")(theta)
    products = shaped_products(rows, source.layout.block_rows, n_features, n_candidates, threads)
    calls = [
        common.Metered(call)
        for call in (
            lambda: objective(theta),
            proset_evaluation(arrays, n_candidates),
            lambda: on_threads(pool, products),
        )
    ]
    seconds = common.alternate(calls, settings.rounds)
    ours, theirs, shaped = (common.median(found) for found in seconds)
    pairs = rows * n_candidates
    block_bytes = source.layout.block_rows * sum(array[:1].nbytes for array in arrays.values())
    return Evaluation(
        features=n_features,
        classes=n_classes,
        seconds=ours,
        proset_seconds=theirs,
        ratio=theirs / ours,
        fastest_ratio=min(seconds[1]) / min(seconds[0]),
        processor_ratio=calls[1].means[0] / calls[0].means[0],
        nanoseconds=1e9 * ours / pairs,
        proset_nanoseconds=1e9 * theirs / pairs,
        value_error=abs(value - exact_value) / abs(exact_value),
        feature_gradient_error=relative_error(gradient[:n_features], exact_gradient[:n_features]),
        candidate_gradient_error=relative_error(gradient[n_features:], exact_gradient[n_features:]),
        gemm_seconds=2 * pairs * (2 * n_features + 3) / rate,
        shaped_gemm_seconds=shaped,
        traced_bytes=traced_evaluation(source, problem, theta, threads),
        traced_bound=TRACED_BYTES + 2 * threads * block_bytes,
    )


def evaluations(settings: argparse.Namespace) -> tuple[list[Evaluation], list[common.Check]]:
    """The table of all sizes."""
    found: list[Evaluation] = []
    checks: list[common.Check] = []
    with thread_engine(settings.threads, common.GIB) as engine, ThreadPoolExecutor(settings.threads) as pool:
        rate = measure_rate(pool, settings.threads, settings.rounds)
        print(f"\nfloat32 products of {SQUARE} x {SQUARE}: {rate / 1e9:.0f} GFLOP/s on {settings.threads} threads")
        table = common.Table(
            f"objective and gradient, {settings.rows} rows, {settings.candidates} candidates: medians of "
            f"{settings.rounds}",
            ("features, classes", "ms", "proset ms", "ratio", "fastest", "processor", "ns/pair", "proset ns",
             "value err", "v err", "w err", "GEMM ms", "x GEMM", "tiles ms", "x tiles", "peak MB"),
            18,
        )  # fmt: skip
        for n_features, n_classes in product(settings.features, settings.classes):
            one = measure(engine, pool, settings, rate, n_features, n_classes)
            table.row(
                f"{n_features}, {n_classes}", 1e3 * one.seconds, 1e3 * one.proset_seconds, one.ratio,
                one.fastest_ratio, one.processor_ratio, one.nanoseconds, one.proset_nanoseconds, one.value_error,
                one.feature_gradient_error, one.candidate_gradient_error, 1e3 * one.gemm_seconds,
                one.seconds / one.gemm_seconds, 1e3 * one.shaped_gemm_seconds, one.seconds / one.shaped_gemm_seconds,
                one.traced_bytes / 1e6,
            )  # fmt: skip
            found.append(one)
            size = f"{n_features} features, {n_classes} classes"
            if n_features in WANTED_RATIO:
                checks.append(common.Check(f"times as fast, {size}", one.ratio, ">=", WANTED_RATIO[n_features]))
            checks.append(
                common.Check(f"traced peak in MB, {size}", one.traced_bytes / 1e6, "<=", one.traced_bound / 1e6)
            )
    return found, checks


def log_loss(probability: NDArray[Any], target: NDArray[np.integer]) -> float:
    """`- mean log p[y]`, probabilities kept from 0 as scikit-learn does."""
    own = probability[np.arange(len(target)), target].astype(np.float64)
    return float(-np.log(np.maximum(own, np.finfo(np.float64).eps)).mean())


def fit_ours(settings: argparse.Namespace, split: datasets.Split, center: Any, scale: Any) -> Fit:
    """A fit by protodask with its defaults."""
    with thread_engine(settings.threads) as engine:
        classifier = PrototypeSetClassifier(
            recipe="source", n_candidates=settings.candidates, standardize=False, engine=engine
        )
        train = ((split.train_features - center) / scale).astype(np.float32)
        seconds = common.timed(lambda: classifier.fit(train, split.train_target))
        probability = classifier.predict_proba(((split.test_features - center) / scale).astype(np.float32))
    record = classifier.history_[0]
    loss = log_loss(probability, split.test_target)
    return Fit("protodask", seconds, record.evaluations, record.iterations, record.value, loss)


def fit_proset(settings: argparse.Namespace, split: datasets.Split, center: Any, scale: Any) -> Fit:
    """A fit by proset with its defaults, which are those of protodask: its alpha is the share of l1, and 0.05."""
    proset = common.peer("proset")
    model_module = common.peer("proset.model")
    minimize = model_module.fmin_l_bfgs_b
    solutions: list[Any] = []

    def recorded(*args: Any, **kwargs: Any) -> Any:
        solutions.append(minimize(*args, **kwargs))
        return solutions[-1]

    model = proset.ClassifierModel(
        n_iter=1, num_candidates=settings.candidates, lambda_v=1e-3, lambda_w=1e-8, alpha_v=0.05, alpha_w=0.05,
        solver_factr=1e7, random_state=0,
    )  # fmt: skip
    with patch.object(model_module, "fmin_l_bfgs_b", recorded):
        seconds = common.timed(lambda: model.fit((split.train_features - center) / scale, split.train_target))
    probability = model.predict_proba((split.test_features - center) / scale)
    _, value, details = solutions[0]
    loss = log_loss(probability, split.test_target)
    return Fit("proset", seconds, int(details["funcalls"]), int(details["nit"]), float(value), loss)


def fits(settings: argparse.Namespace) -> tuple[list[Fit], list[common.Check]]:
    """A whole fit of each, one after the other; a quarter as many rows again to test with."""
    rows = settings.fit_rows
    features, target = datasets.synthetic("checker", rows + rows // 4)
    split = datasets.Split(features[:rows], target[:rows], features[rows:], target[rows:])
    center, scale = split.train_features.mean(axis=0), split.train_features.std(axis=0)
    table = common.Table(
        f"whole fit, {rows} checker rows, {settings.candidates} candidates",
        ("method", "seconds", "evaluations", "iterations", "ms/evaluation", "objective", "log-loss"),
    )
    found: list[Fit] = []
    for fit in (fit_ours, fit_proset):
        one = fit(settings, split, center, scale)
        table.row(
            one.method, one.seconds, one.evaluations, one.iterations, 1e3 * one.seconds / one.evaluations,
            one.objective, one.log_loss,
        )  # fmt: skip
        found.append(one)
    ratio = found[1].seconds / found[0].seconds
    return found, [common.Check("times as fast, whole fit", ratio, ">=", WANTED_FIT_RATIO)]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=20_000, help="rows of the evaluations")
    parser.add_argument("--candidates", type=common.positive, default=1000, help="candidates")
    parser.add_argument("--features", type=common.numbers, default=[4, 30, 300], help="numbers of features")
    parser.add_argument("--classes", type=common.numbers, default=[2, 10], help="numbers of classes")
    parser.add_argument("--rounds", type=common.positive, default=20, help="evaluations of each, in turn")
    parser.add_argument("--threads", type=common.positive, default=2, help="threads of protodask")
    parser.add_argument("--fit", action="store_true", help="time whole fits in place of evaluations")
    parser.add_argument("--fit-rows", type=common.positive, default=64_000, help="rows of the fits")
    settings = parser.parse_args()
    measured_on = common.start("kernel")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # proset uses what its dependencies deprecate
        results, checks = fits(settings) if settings.fit else evaluations(settings)
    common.finish("kernel", settings, measured_on, results, checks)


if __name__ == "__main__":
    main()
