"""Linear classifiers of roughly known samples: what each formulation makes of what it knows, as the noise grows.

Data of two labels:

  noise           clean points of two clouds, and independent noise on each feature: uniform, a skewed beta, or two
                  points one of which is rare and far away. Its size differs from place to place. Support, moments and
                  bounds around the mean are known exactly
  dim digits      scikit-learn's 3s and 8s as photons counted in 16 blocks, of which 10 readings each are known: all
                  bounds are estimates from these
  limited digits  the same readings, where none and full ink are known to be the ends of what is possible
  moved digits    the same digits turned, moved and stretched, so that the features of a reading depend on each other,
                  against what all but S assume
  cancer          means of the nuclei in an image, their standard errors and the mean of the three largest; most bounds
                  are estimates, and there are no new readings

and, where `--noises` and `--replicates` ask for them,

  uniform alike, uniform by feature, uniform by row      noise of one size, or of one for each feature or row
  dim 3 readings, dim 30 readings, limited 3 readings, moved 3 readings      digits read more seldom, or more often

Methods are the twelve formulations, SVM from a single reading of each sample, M from the means; and three peers that
know nothing of bounds: scikit-learn's linear SVC of the means, the same of all readings, which see the noise, and
logistic regression of the means. For each the cost C is the one of a grid with the least expected certified error on a
third of the training samples, or in the last table the least nominal error there; then it is trained on all of them.
`SMV-I, milder` chooses eps of training as well, among the one asked for, 0.5 and 0.9; and so does `Wasserstein`, the
hinge of the means with a margin of 1 + r |w|, with r the standard deviation of a row's features, scaled as MC does.

Figures on test samples, in per cent where so said:

  nominal       error of the means
  drawn         error of new readings of the samples
  certified     expected certified error: 1 where the mean is on the wrong side, else the least probability that is
                certified. `own`: by the brackets the method was trained with. Without that word: by the same
                certificates for all, the better of Chernoff's and Chebyshev's, from the best that is known for sure
  fraction      of all samples, those certified on the side of their label at the eps of training
  wrong         readings on the other side, of the samples certified at eps by the method's own brackets (peers, SVM and
                M: by the common ones): to be at most eps
  refuted       samples whose readings cannot agree with the probability that was certified, of all draws together
  flat          draws in which all samples are on one side: with much noise no weights cost less than any that keep
                their distance. Half of the samples are then certified for nothing
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from protodask.robust import UncertainRows
from protodask.robust.certified import knowledge
from protodask.robust.formulations import unit_terms

if TYPE_CHECKING:
    from benchmarks import _common as common
    from benchmarks import _robust_data as data
    from benchmarks import _robust_methods as methods
    from benchmarks._robust_certificates import certify
    from benchmarks._robust_methods import (
        CERTIFIED,
        METHODS,
        MILDER,
        NOMINAL,
        SVC_MEANS,
        SVC_READINGS,
        WASSERSTEIN,
        Case,
        Covered,
        Measured,
    )
else:
    import _common as common
    import _robust_data as data
    import _robust_methods as methods
    from _robust_certificates import certify
    from _robust_methods import (
        CERTIFIED,
        METHODS,
        MILDER,
        NOMINAL,
        SVC_MEANS,
        SVC_READINGS,
        WASSERSTEIN,
        Case,
        Covered,
        Measured,
    )


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return common.median(known) if known else None


def per_cent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def of(
    found: Sequence[Measured], name: str, size: float | None, method: str, eps: float, chosen_by: str = CERTIFIED
) -> list[Measured]:
    """The draws of one cell, by seed."""
    return [
        one
        for one in found
        if one.case.kind == name
        and one.case.size == size
        and (one.method, one.eps, one.chosen_by) == (method, eps, chosen_by)
    ]


COLUMNS = ("nominal", "drawn", "certified", "fraction", "own cert.", "own frac.", "wrong", "refuted", "C", "flat")


def show_side_by_side(found: Sequence[Measured], name: str, size: float | None, eps: float) -> None:
    """Everything of one kind of data."""
    called = name if size is None else f"{name} noise of size {size:g}"
    table = common.Table(f"{called}, eps {eps:g}: per cent, medians", ("method", *COLUMNS), first_width=14)
    for method in METHODS:
        rows = of(found, name, size, method, eps)
        figures = [
            middle(getattr(one, figure) for one in rows)
            for figure in ("nominal", "drawn", "certified", "fraction", "own_certified", "own_fraction", "wrong")
        ]
        refuted = [one.refuted for one in rows if one.refuted is not None]
        table.row(
            method,
            *map(per_cent, figures),
            sum(refuted) if refuted else None,
            f"{statistics.median_low([one.cost for one in rows]):g}",
            f"{sum(one.flat for one in rows)} of {len(rows)}",
        )


def show_growing(found: Sequence[Measured], kind: str, sizes: Sequence[float], eps: float) -> None:
    """Three figures for each size of the noise."""
    title = f"{kind} noise of growing size, eps {eps:g}: nominal error / certified error / certified fraction, per cent"
    table = common.Table(title, ("method", *(f"size {size:g}".rjust(16) for size in sizes)), first_width=14)
    for method in METHODS:
        cells = []
        for size in sizes:
            rows = of(found, kind, size, method, eps)
            figures = [middle(getattr(one, name) for one in rows) for name in ("nominal", "certified", "fraction")]
            cells.append(
                " ".join(per_cent(figure).rjust(5) for figure in figures[:2]) + f"{100 * (figures[2] or 0):5.0f}"
            )
        table.row(method, *cells)


def show_covered(covered: Sequence[Covered]) -> None:
    """How honest estimated bounds are."""
    names = [name for name in data.ALL_REPLICATED if any(one.case.kind == name for one in covered)]
    if not names:
        return
    columns = ("data", "outside", "means held", "moments held")
    table = common.Table("bounds estimated from readings: per cent of new readings outside the support", columns)
    for name in names:
        rows = [one for one in covered if one.case.kind == name]
        table.row(
            name, *(per_cent(middle(getattr(one, part) for one in rows)) for part in ("outside", "mean", "second"))
        )


NEW_READINGS = ("M", "S", "MC", "SMV-I", MILDER, WASSERSTEIN, SVC_MEANS, SVC_READINGS)


def show_new_readings(found: Sequence[Measured], settings: Sequence[tuple[str, float | None]], eps: float) -> None:
    """Errors on new readings, by what the data are, and how far apart robust and plain planes are."""
    title = f"error on new readings, eps {eps:g}: per cent, medians; C by the nominal error; (flat draws)"
    table = common.Table(title, ("data", *(method.rjust(15) for method in NEW_READINGS)), first_width=24)
    for name, size in settings:
        cells = []
        for method in NEW_READINGS:
            rows = of(found, name, size, method, eps, NOMINAL)
            flat = sum(one.flat for one in rows)
            cells.append(per_cent(middle(one.drawn for one in rows)) + (f" ({flat})" if flat else ""))
        table.row(name if size is None else f"{name} {size:g}", *cells)


def show_flat(
    found: Sequence[Measured], kinds: Sequence[str], sizes: Sequence[float], epsilons: Sequence[float]
) -> None:
    """How soon training gives up."""
    columns = [f"{eps:g}, {size:g}" for eps in epsilons for size in sizes]
    title = "noise of all kinds: draws in which training leaves all samples on one side, by eps and size"
    table = common.Table(title, ("method", *columns), first_width=14)
    for method in METHODS:
        cells = []
        for eps in epsilons:
            for size in sizes:
                rows = [one for kind in kinds for one in of(found, kind, size, method, eps)]
                cells.append(f"{sum(one.flat for one in rows)} of {len(rows)}")
        table.row(method, *cells)


CLAIMS = (
    ("SMV-I", "S", "moments besides the support help"),
    ("SMV-I", "M", "bounds besides the mean help"),
    ("SMV-I", "SVM", "... against one reading"),
    ("SMV-I", SVC_MEANS, "... against SVC of the means"),
    ("SMV-I", SVC_READINGS, "... against SVC of all readings"),
    ("SMV-I", "MC", "Bernstein's bound rather than Chebyshev's"),
    ("SMV-I", "SM-I", "second moments help"),
    ("SMV", "SM", "... without the box"),
    ("SMV-I", "SMV", "the box helps"),
    ("SM-I", "SM", "... where only means are known"),
    ("SBMV-I", "SMV-I", "bounds do as well as exact moments"),
    ("SM-I", "S", "means besides the support help"),
    ("S", "M", "the support alone helps"),
    (MILDER, SVC_READINGS, "a milder eps in training"),
    (MILDER, SVC_MEANS, "... against SVC of the means"),
    (MILDER, "SMV-I", "... against the eps asked for"),
    (WASSERSTEIN, SVC_MEANS, "a Wasserstein ball around each mean"),
    (WASSERSTEIN, SVC_READINGS, "... against SVC of all readings"),
    (WASSERSTEIN, MILDER, "... against a milder eps"),
)
"""Pairs of which the literature expects the first to do better, or as well; and, last, what we found to help."""

SAME = 0.002
"""Medians closer than that, as shares of all samples, count as equal."""


@dataclass(frozen=True)
class Compared:
    """One method against another over kinds of data, each by the median difference over the seeds."""

    better: int
    equal: int
    worse: int
    typical: float | None
    """The median of these differences, negative where the first has fewer errors."""

    def __str__(self) -> str:
        typical = "-" if self.typical is None else f"{100 * self.typical:+.1f}"
        return f"{self.better:3} {self.equal:3} {self.worse:3} {typical:>6}"


def compare(found: Sequence[Measured], first: str, second: str, figure: str, chosen_by: str) -> Compared:
    """Over all data, sizes and eps, but for draws in which either has all samples on one side."""
    pairs: dict[tuple[str, float | None, float], list[float]] = {}
    chosen = [one for one in found if one.chosen_by == chosen_by and not one.flat]
    seconds = {(one.case, one.eps): one for one in chosen if one.method == second}
    for one in chosen:
        other = seconds.get((one.case, one.eps))
        if one.method == first and other is not None and getattr(one, figure) is not None:
            difference = getattr(one, figure) - getattr(other, figure)
            pairs.setdefault((one.case.kind, one.case.size, one.eps), []).append(difference)
    differences = [common.median(several) for several in pairs.values()]
    return Compared(
        sum(one < -SAME for one in differences),
        sum(abs(one) <= SAME for one in differences),
        sum(one > SAME for one in differences),
        common.median(differences) if differences else None,
    )


def show_claims(found: Sequence[Measured], chosen_by: str) -> None:
    """In how many kinds of data the first of a pair does better, as well, and worse, and by how much typically."""
    title = (
        f"data where the first of a pair has fewer errors, as many, more, and the difference in per cent; C by the"
        f" {chosen_by} error; without draws where either has all samples on one side"
    )
    table = common.Table(title, ("pair", *(name.rjust(18) for name in ("certified", "drawn", "nominal"))), 70)
    for first, second, what in CLAIMS:
        cells = [str(compare(found, first, second, figure, chosen_by)) for figure in ("certified", "drawn", "nominal")]
        table.row(f"{first} : {second}".ljust(30) + what, *cells)


def until_flat(rows: Sequence[Measured], part: str) -> float:
    """The median of a figure, none where most planes have all samples on one side."""
    known = middle(getattr(one, part) for one in rows)
    return float("nan") if known is None or 2 * sum(one.flat for one in rows) > len(rows) else known


def plot(path: str, found: Sequence[Measured], kinds: Sequence[str], sizes: Sequence[float], eps: float) -> None:
    """What becomes of all formulations as the noise grows."""
    from protodask.explain.palette import CLASS_COLORS, INK, MUTED
    from protodask.explain.plot_figures import name_axes, new_figure, set_ticks, set_title, tidy

    families = ("S", "MC", "SBMV", "SMV", "SBM", "SM")
    looks: dict[str, dict[str, Any]] = {
        "SVM": {"color": MUTED, "linestyle": ":"},
        "M": {"color": MUTED, "linestyle": "-"},
        SVC_READINGS: {"color": INK, "linestyle": "-."},
        MILDER: {"color": INK, "linestyle": "-"},
    }
    for family, color in zip(families, CLASS_COLORS, strict=False):
        both = f"{family}-I" in METHODS
        looks[family] = {"color": color, "linestyle": "--" if both else "-"}
        if both:
            looks[f"{family}-I"] = {"color": color, "linestyle": "-"}
    figures = (("nominal", "nominal error"), ("certified", "certified error"), ("fraction", f"certified at {eps:g}"))
    figure = new_figure(7.2, 3.0 * len(kinds))
    grid = figure.subplots(len(figures), len(kinds), sharex=True, sharey="row", squeeze=False)
    for column, kind in enumerate(kinds):
        for row, (part, called) in enumerate(figures):
            axes = tidy(grid[row, column], grid="y")
            for method, look in looks.items():
                values = [until_flat(of(found, kind, size, method, eps), part) for size in sizes]
                axes.plot(sizes, values, label=method, linewidth=1.4, marker="o", markersize=2.5, **look)
            axes.set_xscale("log")
            set_ticks(axes, "x", sizes, [f"{size:g}" for size in sizes])
            axes.minorticks_off()
            if row == 0:
                set_title(axes, kind)
            name_axes(axes, "size of the noise" if row + 1 == len(figures) else "", called if column == 0 else "")
    for axes in grid[:2, 0]:
        # All are drawn: the limit at the top is that of the whole row.
        axes.set_ylim(0.0, None)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        title="lines end where most training leaves all samples on one side",
        loc="outside lower center",
        ncols=7,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )
    figure.savefig(path, dpi=150)
    print(f"\nDrawn to {path}.")


@dataclass(frozen=True)
class CertifiedShares:
    """Shares of rows that different bounds certify."""

    features: int
    eps: float
    bracket: float
    """By SMV-I's."""
    chebyshev: float
    best: float
    """By what a model takes."""
    above: int
    """Rows whose best bound is above one of the others."""


def show_certificates(rows: int, epsilons: Sequence[float]) -> list[CertifiedShares]:
    """What is certified of rows of exact means at a plane that has no part in it, by the bounds there are."""
    table = common.Table(
        f"certified, of {rows:,} rows at a random plane, in per cent",
        ("features", "eps", "SMV-I", "Chebyshev", "a model", "above"),
    )
    found = []
    for features in (5, 20):
        random = np.random.default_rng(features)
        mean, half = random.uniform(-0.8, 0.8, (rows, features)), random.uniform(0.1, 1, (rows, features))
        second = mean**2 + (1 - mean**2) * random.uniform(0, 1, (rows, features)) ** 2
        center = random.normal(size=(rows, features))
        known = UncertainRows(
            center - half, center + half, center + half * mean, center + half * mean, half**2 * second, center
        )
        weights = random.normal(size=features)
        bracket = certify(unit_terms(known, "SMV-I"), weights, 0.0)
        chebyshev = certify(unit_terms(known, "MC"), weights, 0.0, "chebyshev").eps
        best, _ = knowledge(known, "SMV-I").least(bracket.side.astype(float), weights, 0.0)
        above = int((best > np.minimum(bracket.eps, chebyshev) * (1 + 1e-9)).sum())
        for eps in epsilons:
            shares = [float((bound <= eps).mean()) for bound in (bracket.eps, chebyshev, best)]
            one = CertifiedShares(features, eps, shares[0], shares[1], shares[2], above)
            table.row(features, eps, per_cent(one.bracket), per_cent(one.chebyshev), per_cent(one.best), above)
            found.append(one)
    return found


def checks_of(found: Sequence[Measured], sizes: Sequence[float]) -> list[common.Check]:
    """What must hold: where all that is known is true and features are independent, certificates are."""
    true = [one for one in found if one.case.size in sizes and one.refuted is not None]
    if not true:
        return []
    over = [one.wrong - one.eps for one in true if one.wrong is not None]
    return [
        common.Check("certificates refuted, noise", sum(one.refuted or 0 for one in true), "<=", 0),
        common.Check("wrong readings above eps, noise, most", max(over, default=-1.0), "<=", 0.0),
    ]


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument(
        "--replicates", type=common.choices([*data.ALL_REPLICATED]), default=[*data.REPLICATED], help="other data"
    )
    parser.add_argument(
        "--noises", type=common.choices([*data.ALL_NOISES]), default=[*data.NOISES], help="kinds of noise"
    )
    parser.add_argument("--sizes", type=common.fractions, default=[0.1, 0.2, 0.3, 0.5, 0.8], help="of the noise")
    parser.add_argument("--epsilons", type=common.fractions, default=[0.1, 0.01], help="probabilities of error")
    parser.add_argument("--costs", type=common.fractions, default=[0.01, 0.1, 1.0, 10.0], help="values of C")
    parser.add_argument("--seeds", type=common.positive, default=5, help="draws of each kind of noise")
    parser.add_argument("--splits", type=common.positive, default=3, help="draws of the other data")
    parser.add_argument("--draws", type=common.positive, default=500, help="new readings of each test sample")
    parser.add_argument(
        "--certified-rows", type=common.positive, default=20_000, help="rows on which the bounds are compared"
    )
    parser.add_argument("--processes", type=common.positive, default=2, help="that share the work")
    parser.add_argument("--quick", action="store_true", help="one eps, two sizes, one draw and one split of each")
    parser.add_argument("--plot", metavar="FILE.png", help="also draw the figures of growing noise into this file")
    settings = parser.parse_args()
    if settings.quick:
        settings.epsilons, settings.sizes = settings.epsilons[:1], [0.2, 0.5]
        settings.seeds, settings.splits, settings.draws = 1, 1, 200
    measured_on = common.start("robust_study")
    found, covered = methods.study_all(
        cases_of(settings), settings.epsilons, settings.costs, settings.draws, settings.processes
    )
    for eps in settings.epsilons:
        for kind in settings.noises:
            show_growing(found, kind, settings.sizes, eps)
    for eps in settings.epsilons:
        for kind in settings.noises:
            show_side_by_side(found, kind, settings.sizes[len(settings.sizes) // 2], eps)
        for name in settings.replicates:
            show_side_by_side(found, name, None, eps)
        kinds: list[tuple[str, float | None]] = [(kind, size) for kind in settings.noises for size in settings.sizes]
        show_new_readings(found, [*kinds, *((name, None) for name in settings.replicates)], eps)
    show_flat(found, settings.noises, settings.sizes, settings.epsilons)
    show_covered(covered)
    shares = show_certificates(settings.certified_rows, settings.epsilons)
    for chosen_by in (CERTIFIED, NOMINAL):
        show_claims(found, chosen_by)
    if settings.plot is not None:
        plot(settings.plot, found, settings.noises, settings.sizes, settings.epsilons[0])
    common.finish(
        "robust_study",
        settings,
        measured_on,
        [*found, *covered, *shares],
        [
            *checks_of(found, settings.sizes),
            common.Check("rows certified worse than by another bound", sum(one.above for one in shares), "<=", 0),
        ],
    )


def cases_of(settings: argparse.Namespace) -> list[Case]:
    """All draws, the longest first so that the processes end together."""
    cases = [Case(name, None, seed) for name in settings.replicates for seed in range(settings.splits)]
    for seed in range(settings.seeds):
        cases += [Case(kind, size, seed) for kind in settings.noises for size in settings.sizes]
    return cases


if __name__ == "__main__":
    main()
