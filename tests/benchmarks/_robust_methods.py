"""The twelve formulations and their peers on one draw of roughly known samples, and how a plane is judged."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from protodask.engine import one_blas_thread
from protodask.robust import RobustClassifier
from protodask.robust.certified import knowledge
from protodask.robust.conic import solve_conic
from protodask.robust.formulations import FORMULATIONS, unit_terms
from protodask.robust.terms import Terms
from protodask.robust.uncertain_rows import UncertainRows

if TYPE_CHECKING:
    from benchmarks import _robust_data as data
    from benchmarks._robust_certificates import Certificates, certify
else:
    import _robust_data as data
    from _robust_certificates import Certificates, certify

Floats = NDArray[np.float64]

SVC_MEANS, SVC_READINGS, LOGISTIC = "linear SVC", "SVC, readings", "logistic"
PEERS = (SVC_MEANS, SVC_READINGS, LOGISTIC)

MILDER = "SMV-I, milder"

WASSERSTEIN = "Wasserstein"
"""The plane for the worst distribution near each sample's mean, in any direction alike: see `wasserstein_terms`."""

CHOOSES_EPS = (MILDER, WASSERSTEIN)
"""Trained at an eps that is chosen together with C."""

METHODS = (*FORMULATIONS, *CHOOSES_EPS, *PEERS)

WITHOUT_EPS = ("SVM", "M", "S", *PEERS)
"""Trained alike whatever eps is."""

KNOW_NO_SPREAD = ("SVM", "M", WASSERSTEIN, *PEERS)

MILDER_EPS = (0.5, 0.9)
"""Tried besides the eps that is asked for."""

HELD_OUT = 1 / 3
GAP = 1e-4
NEVER = 1e-9
"""Probability with which chance refutes one certificate that is true."""

CERTIFIED, NOMINAL = "certified", "nominal"
"""What C is chosen by."""


@dataclass(frozen=True)
class Case:
    """Data, drawn with a seed."""

    kind: str
    size: float | None
    """Of the noise, None where there is none of a known kind."""
    seed: int

    def samples(self) -> tuple[data.Roughly, data.Roughly]:
        return (
            data.ALL_REPLICATED[self.kind](self.seed)
            if self.size is None
            else data.noisy(self.kind, self.size, self.seed)
        )


@dataclass(frozen=True, order=True)
class Setting:
    """How a plane is trained."""

    cost: float
    eps: float


@dataclass(frozen=True)
class Plane:
    weights: Floats
    intercept: float


@dataclass(frozen=True)
class Measured:
    """A method on one draw of the data."""

    case: Case
    method: str
    eps: float
    chosen_by: str
    cost: float
    trained_at: float
    """eps of training."""
    flat: bool
    """All samples on one side: what is left where nothing can be kept at its distance."""
    nominal: float
    drawn: float | None
    certified: float
    fraction: float
    own_certified: float | None
    own_fraction: float | None
    wrong: float | None
    """Share of readings, None if no sample is certified or there are no new readings."""
    refuted: int | None


@dataclass(frozen=True)
class Covered:
    """How often the bounds of the test samples hold."""

    case: Case
    outside: float
    mean: float
    second: float


def formulation_of(method: str) -> str:
    return "SMV-I" if method == MILDER else method


def rows_for(method: str, samples: data.Roughly) -> UncertainRows:
    """What a formulation knows: SVM one reading, those without a B in their name exact means."""
    if method == "SVM":
        return UncertainRows.point(samples.readings[0])
    return samples.bounds if method == "S" or method.startswith("SB") else samples.exact


def fit(method: str, samples: data.Roughly, setting: Setting) -> Plane:
    """The plane of a method; the cost is that of a sample."""
    cost = setting.cost
    if method == WASSERSTEIN:
        worst = solve_conic(wasserstein_terms(samples.judged, setting.eps), samples.y, cost, gap=GAP)
        return Plane(worst.weights, worst.intercept)
    if method not in PEERS:
        classifier = RobustClassifier(formulation_of(method), setting.eps, cost, gap=GAP)
        classifier.fit(rows_for(method, samples), samples.y)
        return Plane(classifier.coef_[0], float(classifier.intercept_[0]))
    points, y = samples.judged.mean_midpoint, samples.y
    if method == SVC_READINGS:
        n = len(samples.readings)
        points, y, cost = np.concatenate(list(samples.readings)), np.tile(y, n), cost / n
    peer: Any = LogisticRegression(C=cost, max_iter=10_000) if method == LOGISTIC else SVC(kernel="linear", C=cost)
    peer.fit(points, y)
    return Plane(np.asarray(peer.coef_[0]), -float(peer.intercept_[0]))


def wasserstein_terms(rows: UncertainRows, eps: float) -> Terms:
    """Balls of radius `r_i` about the means, for `sum C_i max(0, 1 - y_i (w.m_i - b) + r_i |w|)`.

    That is the worst hinge of all distributions at a Wasserstein distance of at most `r_i` from the mean. The radius is
    the root mean square of the standard deviations of the features, so often as MC takes them at this eps. One radius
    for all, in the mean of hinges, is the SVM of the means with another C: the peer `linear SVC`.
    """
    deviation = unit_terms(rows, "MC").spread
    radius = np.sqrt((1 - eps) / eps * np.mean(np.square(deviation), axis=1, keepdims=True))
    means = rows.mean_midpoint
    return Terms(means, means, np.broadcast_to(radius, means.shape).copy())


@dataclass(frozen=True, eq=False)
class Judge:
    """What is computed once of the samples that planes are judged on."""

    samples: data.Roughly
    readings: Floats | None

    def common(self, plane: Plane) -> Certificates:
        """The best of all bounds that hold, as a model takes it."""
        rows = self.samples.judged
        bernstein = certify(unit_terms(rows, "SBMV-I"), plane.weights, plane.intercept)
        eps, _ = knowledge(rows, "SBMV-I").least(bernstein.side.astype(float), plane.weights, plane.intercept)
        return Certificates(bernstein.side, bernstein.kappa, eps)

    def own(self, plane: Plane, method: str) -> Certificates:
        if method in KNOW_NO_SPREAD:
            return self.common(plane)
        tail: Any = "chebyshev" if method == "MC" else "bernstein"
        terms = unit_terms(rows_for(method, self.samples), formulation_of(method))
        return certify(terms, plane.weights, plane.intercept, tail)

    def error(self, certificates: Certificates, criterion: str) -> float:
        right = certificates.side == self.samples.y
        return float(1 - right.mean() if criterion == NOMINAL else np.where(right, certificates.eps, 1.0).mean())

    def fraction(self, certificates: Certificates, eps: float) -> float:
        return float(np.mean((certificates.side == self.samples.y) & (certificates.eps <= eps)))

    def against_readings(self, certificates: Certificates, plane: Plane, eps: float) -> tuple[float | None, int]:
        """The share of readings on the other side, of what is certified at eps, and how many samples they refute."""
        assert self.readings is not None
        margins: Floats = certificates.side * (self.readings @ plane.weights - plane.intercept)
        other = margins < 0
        count = other.sum(axis=0)
        refuted = stats.binom.sf(count - 1, len(other), certificates.eps) < NEVER
        certified = certificates.eps <= eps
        return (float(other[:, certified].mean()) if certified.any() else None), int(np.sum(refuted))


def judged(judge: Judge, case: Case, method: str, eps: float, chosen_by: str, by: Setting, plane: Plane) -> Measured:
    """All figures of a plane on the test samples."""
    shared, own = judge.common(plane), judge.own(plane, method)
    knows = method not in KNOW_NO_SPREAD
    drawn, wrong, refuted = None, None, None
    if judge.readings is not None:
        sides = np.where(judge.readings @ plane.weights >= plane.intercept, 1, -1)
        drawn = float(np.mean(sides != judge.samples.y))
        wrong, refuted = judge.against_readings(own, plane, eps)
    return Measured(
        case,
        method,
        eps,
        chosen_by,
        by.cost,
        by.eps,
        flat=bool(np.all(shared.side == shared.side[0])),
        nominal=judge.error(shared, NOMINAL),
        drawn=drawn,
        certified=judge.error(shared, CERTIFIED),
        fraction=judge.fraction(shared, eps),
        own_certified=judge.error(own, CERTIFIED) if knows else None,
        own_fraction=judge.fraction(own, eps) if knows else None,
        wrong=wrong,
        refuted=refuted,
    )


def study(case: Case, epsilons: Sequence[float], costs: Sequence[float], n_draws: int) -> list[Measured | Covered]:
    """Every method on one draw."""
    with one_blas_thread():
        train, test = case.samples()
        rng = np.random.default_rng([case.seed, 1])
        judge = Judge(test, None if test.draw is None else test.draw(rng, n_draws))
        found: list[Measured | Covered] = []
        if judge.readings is not None:
            known = data.coverage(test, judge.readings)
            found.append(Covered(case, known.outside, known.mean, known.second))
        for method in METHODS:
            for eps in epsilons[:1] if method in WITHOUT_EPS else epsilons:
                for chosen_by, (setting, plane) in chosen(method, train, eps, costs, case.seed).items():
                    asked = epsilons if method in WITHOUT_EPS else [eps]
                    found += [judged(judge, case, method, one, chosen_by, setting, plane) for one in asked]
        return found


def chosen(
    method: str, train: data.Roughly, eps: float, costs: Sequence[float], seed: int
) -> dict[str, tuple[Setting, Plane]]:
    """The settings with the least errors on samples held out, and the planes of all training samples with them."""
    within, beside = train_test_split(np.arange(len(train)), test_size=HELD_OUT, random_state=seed, stratify=train.y)
    some, held_out = train.take(within), Judge(train.take(beside), None)
    # The first of equals counts: the most cautious.
    epsilons = (eps, *MILDER_EPS) if method in CHOOSES_EPS else (eps,)
    settings = [Setting(cost, one) for one, cost in product(epsilons, sorted(costs))]
    certificates = [held_out.common(fit(method, some, setting)) for setting in settings]
    best = {
        criterion: settings[int(np.argmin([held_out.error(one, criterion) for one in certificates]))]
        for criterion in (CERTIFIED, NOMINAL)
    }
    planes = {setting: fit(method, train, setting) for setting in set(best.values())}
    return {criterion: (setting, planes[setting]) for criterion, setting in best.items()}


def study_all(
    cases: Sequence[Case], epsilons: Sequence[float], costs: Sequence[float], n_draws: int, processes: int
) -> tuple[list[Measured], list[Covered]]:
    """All draws, in several processes: each is on its own, so that the figures do not depend on how many."""
    count = len(cases)
    arguments = (cases, [epsilons] * count, [costs] * count, [n_draws] * count)
    if processes == 1:
        found = [one for several in map(study, *arguments) for one in several]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = [one for several in pool.map(study, *arguments) for one in several]
    return [one for one in found if isinstance(one, Measured)], [one for one in found if isinstance(one, Covered)]
