"""The first section: what was trained on what, and how good it is."""

from __future__ import annotations

import math

from protodask.evaluation.row_moments import Estimate
from protodask.explain.report.content import Content, figure
from protodask.explain.report.statistics import Metric, Quality
from protodask.explain.report.text import (
    Html,
    bar,
    cell,
    join,
    name,
    note,
    number,
    pairs,
    percent,
    row,
    table,
    text,
)

SHARES = ("accuracy", "balanced accuracy")


def overview(content: Content) -> Html:
    """Tiles with the figures that count, then the model, then all figures and the classes."""
    return join(
        [
            _verdict(content),
            f'<div class="tiles">{join(_tile(metric) for metric in content.quality.metrics)}</div>',
            f'<div class="columns"><div><h3>The model</h3>{_model(content)}</div>',
            f"<div><h3>The rows it is tried on</h3>{_rows(content)}</div></div>",
            "<h3>Quality</h3>",
            _metrics(content.quality),
            "<h3>Classes</h3>",
            _classes(content),
        ]
    )


def _verdict(content: Content) -> Html:
    found = {metric.name: metric for metric in content.quality.metrics}
    loss, accuracy = found["log-loss"], found["accuracy"]
    better = loss.baseline is not None and loss.estimate.value < loss.baseline
    gained = (
        f" and its log-loss is {1 - loss.estimate.value / loss.baseline:.0%} below that of always predicting the class "
        "shares of the training data"
        if better and loss.baseline is not None and math.isfinite(loss.baseline)
        else "; its log-loss is no better than that of always predicting the class shares of the training data"
    )
    return note(
        f"The model is right on <strong>{percent(accuracy.estimate.value)}</strong> of "
        f"{content.quality.rows:,} rows{gained}.",
        "lead",
    )


def _figure(metric: Metric, value: float | None, digits: int = 4) -> str:
    if value is None or math.isnan(value):
        return "–"
    return percent(value, 2) if metric.name in SHARES else number(value, digits)


def _interval(metric: Metric, estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "–"
    return f"{_figure(metric, estimate.low, 3)} to {_figure(metric, estimate.high, 3)}"


def _tile(metric: Metric) -> Html:
    estimate = metric.estimate
    has_interval = estimate.low is not None
    below = f"95%: {_interval(metric, estimate)}" if has_interval else "no interval"
    compared = "" if metric.baseline is None else f"<span>baseline {_figure(metric, metric.baseline, 3)}</span>"
    title = metric.name[0].upper() + metric.name[1:]
    return Html(
        f'<div class="tile"><div class="label">{title}</div><div class="value">{_figure(metric, estimate.value)}</div>'
        f'<div class="below"><span>{below}</span>{compared}</div></div>'
    )


def _model(content: Content) -> Html:
    model = content.model
    shown = model.batches[: content.n_batches]
    prototypes = sum(batch.n_prototypes for batch in shown)
    looked_at = {index for batch in shown for index in batch.looked_at.tolist()}
    used = f"{content.n_batches} of {model.n_batches}" if content.n_batches < model.n_batches else f"{model.n_batches}"
    entries = [
        ("Model", name(content.model_name)),
        ("Fingerprint", f"<code>{text(content.model_key)}</code>"),
        ("Target", name(model.target_name)),
        ("Classes", f"{model.n_classes:,}"),
        ("Features", f"{len(looked_at):,} used of {model.n_features:,}"),
        ("Batches", used),
        ("Prototypes", f"{prototypes:,}"),
        ("Kernel precision", text(model.precision)),
    ]
    for number_of, fit in enumerate(content.fits, start=1):
        label = "Trained on" if len(content.fits) == 1 else f"Fit {number_of}, trained on"
        rows = figure(fit.get("rows"))
        counted = "" if rows is None else f"{number(rows)} rows, "
        entries.append((label, f"{counted}dataset <code>{text(fit.get('dataset', 'not known'))}</code>"))
        if "finished" in fit:
            entries.append(("Finished", text(fit["finished"])))
    if not content.fits:
        entries.append(("Trained on", "not known: the model does not say"))
    return pairs(entries)


def _rows(content: Content) -> Html:
    quality = content.quality
    same = any(fit.get("dataset") == content.data_key for fit in content.fits) and content.data_key is not None
    entries = [
        ("Data", name(content.data_name)),
        (
            "Fingerprint",
            "raw tables have none" if content.data_key is None else f"<code>{text(content.data_key)}</code>",
        ),
        ("Rows", f"{quality.rows:,}"),
    ]
    if quality.weighted:
        entries.append(("Sum of weights", number(quality.weight)))
        entries.append(("Effective rows", number(quality.effective_rows)))
    seen = sum(estimate is not None for estimate in quality.recall)
    entries.append(("Classes that occur", f"{seen:,} of {content.model.n_classes:,}"))
    warning = (
        note(
            "These are the rows the model was trained on: on new rows it will do worse than this page says.", "warning"
        )
        if same
        else ""
    )
    return join([pairs(entries), warning])


def _metrics(quality: Quality) -> Html:
    rows = [
        row(
            [
                f'<th scope="row">{metric.name[0].upper() + metric.name[1:]}</th>',
                cell(_figure(metric, metric.estimate.value), kind="num strong"),
                cell(_interval(metric, metric.estimate), kind="num"),
                cell(_figure(metric, metric.baseline), kind="num"),
                cell("higher" if metric.higher_is_better else "lower"),
                cell(metric.method, kind="muted"),
            ]
        )
        for metric in quality.metrics
    ]
    header = ["Figure", "Value", "95% interval", "Baseline", "Better is", "How the interval is made"]
    said = (
        "The baseline predicts the class shares of the training data for every row. Intervals take the rows as drawn "
        "independently; "
        + (
            f"with weights, they count as {number(quality.effective_rows)} rows of equal weight, (sum s)² / sum s²."
            if quality.weighted
            else "every row counts once."
        )
        + " They say nothing of what another training set would have given."
    )
    return join([table("Quality", header, rows, numeric=(1, 2, 3)), note(said)])


def _classes(content: Content) -> Html:
    quality, model = content.quality, content.model
    occurring = quality.confusion.sum(axis=1) / quality.weight
    counts = [0] * model.n_classes
    for batch in model.batches[: content.n_batches]:
        for position in batch.prototype_class.tolist():
            counts[position] += 1
    rows = []
    for position, label in enumerate(model.classes):
        recall = quality.recall[position]
        ends = (
            f"{percent(recall.low)} to {percent(recall.high)}"
            if recall is not None and recall.low is not None
            else "does not occur"
        )
        rows.append(
            row(
                [
                    f'<th scope="row" data-sort="{text(label)}">{name(label)}</th>',
                    cell(percent(float(model.marginals[position])), float(model.marginals[position]), "num"),
                    cell(percent(float(occurring[position])), float(occurring[position]), "num"),
                    cell(
                        "–" if recall is None else percent(recall.value), -1 if recall is None else recall.value, "num"
                    ),
                    cell(bar(0.0 if recall is None else recall.value), kind="barcell"),
                    cell(ends, -1 if recall is None or recall.low is None else recall.low, "num"),
                    cell(f"{counts[position]:,}", counts[position], "num"),
                ]
            )
        )
    header = ["Class", "In training", "In these rows", "Predicted right", "", "95% interval", "Prototypes"]
    return table("Classes", header, rows, sortable=True, numeric=(1, 2, 3, 5, 6))
