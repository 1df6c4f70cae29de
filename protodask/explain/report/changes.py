"""The section on drift, and the one on how the model came to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from protodask.explain.report.content import Content, figure, mapped
from protodask.explain.report.drift import Alarm, Drift, FeatureDrift
from protodask.explain.report.text import (
    Html,
    bar,
    cell,
    empty,
    join,
    name,
    note,
    number,
    p_text,
    pairs,
    percent,
    row,
    seconds,
    table,
    text,
)
from protodask.selection.results import SearchResult, Trial

MOST_FEATURES = 500
MOST_TRIALS = 500

WORDS: Mapping[Alarm, str] = {"strong": "strong", "some": "some", "none": "none"}


def drift(content: Content, plot: str) -> Html:
    """What changed between two sets of rows; `plot` shows their familiarity."""
    found = content.drift
    if found is None:
        return empty(
            "Nothing was compared. <code>--training TRAIN</code> compares these rows with those of the training data, "
            "<code>--drift OTHER</code> compares a second dataset with them."
        )
    return join(
        [
            _summary(content, found),
            "<h3>Familiarity</h3>",
            _familiarity(found),
            plot,
            "<h3>Features</h3>",
            _features(found),
            "<h3>Classes</h3>",
            _classes(found),
        ]
    )


def _summary(content: Content, found: Drift) -> Html:
    before, after = name(content.before_name), name(content.after_name)
    alarming = found.alarming
    verdict = (
        f"<strong>{alarming:,}</strong> of {len(found.features):,} features differ strongly"
        if alarming
        else "No feature differs strongly"
    )
    return join(
        [
            note(
                f"{verdict} between {after} ({found.rows_after:,} rows) and {before} ({found.rows_before:,} rows).",
                "lead",
            ),
            "" if found.rows_before and found.rows_after else note("One of them has no rows.", "warning"),
            note(f"{before} is not the dataset that the model was trained on, by its fingerprint.", "warning")
            if content.is_other_training
            else "",
        ]
    )


def _familiarity(found: Drift) -> Html:
    drifted = found.familiarity
    before, after = (
        number(float(np.median(values))) if len(values) else "–" for values in (drifted.before, drifted.after)
    )
    return pairs(
        [
            ("Median", f"{before} before, {after} now"),
            ("Distance", f"{drifted.distance:.3f} (p {p_text(drifted.p_value)})"),
            ("Less familiar than 99% of the rows before", percent(drifted.rare)),
        ]
    )


def _features(found: Drift) -> Html:
    lines = [_feature(feature, rank) for rank, feature in enumerate(found.features[:MOST_FEATURES])]
    header = [
        "Feature",
        "Alarm",
        "In use",
        "Mean before",
        "Mean now",
        "Mean difference",
        "KS distance",
        "p-value",
        "Outside range",
    ]
    left = len(found.features) - MOST_FEATURES
    said = (
        "The mean difference is in standard deviations, <code>(mean now − mean before) / √((var before + var now) / 2)"
        "</code>. The Kolmogorov-Smirnov distance is the largest gap between the two cumulative distributions, from "
        f"samples of {found.sample_before:,} and {found.sample_after:,} rows that are drawn by row number; its p-value "
        f"is adjusted by Holm's method for {len(found.features):,} features, so that 0.01 is the chance of even one "
        "false alarm among all of them. With many rows small differences are significant, too: the alarm asks for size "
        "as well, strong from a distance of 0.2, half a standard deviation, or 5% of the rows outside the range of "
        "those before, where that many are not to be expected of so few rows."
    )
    more = note(f"and {left:,} features with smaller differences") if left > 0 else ""
    return join(
        [note(said), table("Drift of features", header, lines, sortable=True, numeric=(3, 4, 5, 6, 7, 8)), more]
    )


def _feature(feature: FeatureDrift, rank: int) -> Html:
    step = number(feature.step, 3)
    gap = bar(feature.distance, "warn" if feature.alarm != "none" else "")
    return row(
        [
            f'<th scope="row" data-sort="{text(feature.name)}">{name(feature.name)}</th>',
            cell(f'<span class="alarm {feature.alarm}">{WORDS[feature.alarm]}</span>', -rank),
            cell("yes" if feature.used else "no"),
            cell(number(feature.mean_before), _key(feature.mean_before), "num"),
            cell(number(feature.mean_after), _key(feature.mean_after), "num"),
            cell(f"+{step}" if feature.step > 0 else step, abs(_key(feature.step)), "num"),
            cell(
                f"<span>{feature.distance:.3f}</span>{gap}",
                feature.distance,
                "num gap",
            ),
            cell(p_text(feature.p_value), feature.p_value, "num"),
            cell(percent(feature.outside, 2), feature.outside, "num"),
        ]
    )


def _key(value: float) -> float:
    return value if math.isfinite(value) else math.copysign(1e308, value)


def _classes(found: Drift) -> Html:
    if not found.classes:
        return empty("The rows that were compared have no classes.")
    lines = []
    for entry in found.classes:
        before, after = entry.before or 0.0, entry.after or 0.0
        state = "new" if not before and after else "vanished" if before and not after else ""
        shown = f'<span class="alarm strong">{state}</span>' if state else ""
        change = 100 * (after - before)
        lines.append(
            row(
                [
                    f'<th scope="row" data-sort="{text(entry.label)}">{name(entry.label)}</th>',
                    cell(percent(before), before, "num"),
                    cell(percent(after), after, "num"),
                    cell(f"{change:+.1f}".replace("-", "−"), change, "num"),
                    cell(shown),
                ]
            )
        )
    header = ["Class", "Share before", "Share now", "Points", ""]
    return table("Class shares", header, lines, sortable=True, numeric=(1, 2, 3))


def training(content: Content, curve: str, search: str) -> Html:
    """Run costs, training curve, search, settings; `curve` and `search` are figures."""
    return join(
        [
            "<h3>What it took</h3>",
            _costs(content),
            "<h3>Training curve</h3>",
            curve or empty("The model does not keep the objective of each iteration."),
            "<h3>Search for the settings</h3>",
            _search(content.search, search),
            "<h3>Settings and environment</h3>",
            _settings(content),
        ]
    )


def _costs(content: Content) -> Html:
    records = content.batch_records
    if not records:
        return empty("The model does not say how its training went.")
    keys = ("seconds", "iterations", "evaluations", "value", "active_features", "prototypes", "candidates")
    lines = []
    for position, record in enumerate(records, start=1):
        status = str(record.get("status", "not known"))
        calm = status in ("converged", "stationary", "held out")
        cells = [
            f'<th scope="row">{text(record.get("batch", position))}</th>',
            cell(f'<span class="alarm {"none" if calm else "some"}">{text(status)}</span>'),
        ]
        for key in keys:
            value = figure(record.get(key))
            shown = "–" if value is None else seconds(value) if key == "seconds" else number(value, 6)
            cells.append(cell(shown, value if value is not None and math.isfinite(value) else -1.0, "num"))
        lines.append(row(cells))
    total = math.fsum(found for record in records if (found := figure(record.get("seconds"))) is not None)
    header = [
        "Batch",
        "Status",
        "Time",
        "Iterations",
        "Evaluations",
        "Objective",
        "Features",
        "Prototypes",
        "Candidates",
    ]
    return join(
        [
            table("Costs by batch", header, lines, sortable=True, numeric=tuple(range(2, 9))),
            note(f"{seconds(total)} in all; an evaluation is one pass over the training data."),
        ]
    )


def _search(result: SearchResult | None, plots: str) -> Html:
    if result is None:
        return empty("The settings were not searched for, or the model does not say so.")
    order = sorted(range(len(result.trials)), key=lambda index: result.trials[index].mean)
    lines = [_trial(result, index, result.trials[index]) for index in order[:MOST_TRIALS]]
    header = ["Held-out log-loss", "Standard error", "lambda_v", "lambda_w", "Batches", "Folds", "Stage", ""]
    folds = max((len(trial.fold_losses) for trial in result.trials), default=0)
    left = len(order) - MOST_TRIALS
    return join(
        [
            note(
                f"{len(result.trials):,} trials, {folds} folds, the {text(result.strategy)} strategy. "
                f"{text(result.rule)}"
            ),
            plots,
            table("Trials", header, lines, sortable=True, numeric=tuple(range(7))),
            note(f"and {left:,} trials with a larger loss") if left > 0 else "",
        ]
    )


def _trial(result: SearchResult, index: int, trial: Trial) -> Html:
    marks = [word for word, position in (("chosen", result.selected), ("best", result.best)) if position == index]
    error = trial.standard_error if len(trial.fold_losses) > 1 else math.nan
    return row(
        [
            cell(number(trial.mean, 5), _key(trial.mean), "num strong"),
            cell(number(error, 3), _key(error), "num"),
            cell(number(trial.lambda_v, 3), trial.lambda_v, "num"),
            cell(number(trial.lambda_w, 3), trial.lambda_w, "num"),
            cell(str(trial.n_batches), trial.n_batches, "num"),
            cell(str(len(trial.fold_losses)), len(trial.fold_losses), "num"),
            cell(str(trial.stage), trial.stage, "num"),
            cell(join(f'<span class="alarm {"best" if word == "best" else "chosen"}">{word}</span>' for word in marks)),
        ],
        "selected" if index == result.selected else "",
    )


def _settings(content: Content) -> Html:
    if not content.fits:
        return empty("The model does not say.")
    parts = []
    for position, fit in enumerate(content.fits, start=1):
        title = "Settings" if len(content.fits) == 1 else f"Settings of fit {position}"
        parts.append(
            f'<div class="columns"><div><h4>{title}</h4>{_plain(mapped(fit.get("config")))}</div>'
            f"<div><h4>Environment</h4>{_plain(mapped(fit.get('environment')))}</div></div>"
        )
    return join(parts)


def _plain(entries: Mapping[str, Any]) -> Html:
    if not entries:
        return empty("Not known.")
    values = ((str(key), figure(value), value) for key, value in entries.items())
    return pairs((key, text(value) if found is None else number(found, 6)) for key, found, value in values)
