"""Where the model goes wrong: the confusion of classes, and the worst errors with what they were decided by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protodask.explain.contributions import Contribution, Explanation, FeatureMatch
from protodask.explain.report.content import Content
from protodask.explain.report.text import (
    Html,
    bar,
    cell,
    empty,
    join,
    name,
    note,
    number,
    percent,
    row,
    shade,
    table,
    text,
)

MOST_CLASSES = 40
"""Classes of a confusion matrix that people still read; beyond, the most frequent confusions are listed."""

DENSE_CLASSES = 12
"""Classes from which the matrix is set in smaller letters, its column heads upright."""

MOST_CONFUSIONS = 20
MOST_PROTOTYPES = 4
MOST_FEATURES = 12
MOST_PROBABILITIES = 5

Floats = NDArray[np.float64]


def errors(content: Content) -> Html:
    """Confusion, then the worst errors."""
    return join(
        [
            "<h3>Confusion matrix</h3>",
            _confusion(content),
            _confusions(content),
            "<h3>The worst errors, explained</h3>",
            _worst(content),
        ]
    )


def _confusion(content: Content) -> Html:
    confusion, classes = content.quality.confusion, content.model.classes
    if len(classes) > MOST_CLASSES:
        return note(f"With {len(classes)} classes the matrix is left out; the most frequent confusions follow.")
    totals = confusion.sum(axis=1)
    dense = len(classes) > DENSE_CLASSES
    nothing = f"<span class=zero>{'·' if dense else '0'}</span>"
    heads = join(
        f'<th scope="col"><span class="clip" title="{text(label)}">{name(label)}</span></th>' for label in classes
    )
    lines = []
    for position, label in enumerate(classes):
        share = confusion[position] / totals[position] if totals[position] > 0 else np.zeros(len(classes))
        cells = [
            f'<td class="num {"right" if column == position else "wrong"} {shade(float(part))}">'
            f"{number(float(count), 3) if count else nothing}</td>"
            for column, (count, part) in enumerate(zip(confusion[position], share, strict=True))
        ]
        lines.append(
            f'<tr><th scope="row"><span class="clip" title="{text(label)}">{name(label)}</span></th>{join(cells)}</tr>'
        )
    kind = "confusion dense" if dense else "confusion"
    grid = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">'
        f'<table class="{kind}"><caption class="hidden">Confusion matrix</caption>'
        f'<thead><tr><th scope="col"><span class="axes">true \\ predicted</span></th>{heads}</tr></thead>'
        f"<tbody>{join(lines)}</tbody></table></div>"
    )
    return join(
        [note(f"{_counted(content)} by true class (lines) and predicted class; shades are shares of the line."), grid]
    )


def _counted(content: Content) -> str:
    return "Weight" if content.quality.weighted else "Rows"


def _confusions(content: Content) -> Html:
    confusion = content.quality.confusion.copy()
    totals = confusion.sum(axis=1)
    np.fill_diagonal(confusion, 0.0)
    order = np.argsort(-confusion, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = [(int(index) // len(totals), int(index) % len(totals)) for index in order]
    lines = [
        row(
            [
                cell(name(content.model.classes[true])),
                cell(name(content.model.classes[predicted])),
                cell(number(float(confusion[true, predicted])), float(confusion[true, predicted]), "num"),
                cell(
                    percent(float(confusion[true, predicted] / totals[true])),
                    float(confusion[true, predicted] / totals[true]),
                    "num",
                ),
                cell(bar(float(confusion[true, predicted] / totals[true]), "warn"), kind="barcell"),
            ]
        )
        for true, predicted in pairs
        if confusion[true, predicted] > 0
    ]
    if not lines or len(totals) == 2:
        return Html("")
    header = ["True class", "Predicted", _counted(content), "Of the true class", ""]
    return join(
        ["<h3>Most frequent confusions</h3>", table("Confusions", header, lines, sortable=True, numeric=(2, 3))]
    )


def _worst(content: Content) -> Html:
    if not content.explanations:
        return empty("There is no error to explain: every row is predicted right.")
    entries = [_error(content, position) for position in range(len(content.explanations))]
    said = (
        "The rows that are predicted wrong with the least probability of their true class. Beside the row stand the "
        "prototypes with the most impact; a shade tells how similar the row is to a prototype in a feature. A low "
        "quantile of familiarity means that the model has hardly seen such a row."
    )
    return join([note(said), *entries])


def _error(content: Content, position: int) -> Html:
    explanation, found = content.explanations[position], content.errors
    label = content.model.classes[int(found.target[position])]
    own = float(explanation.probability[int(found.target[position])])
    quantile = content.reference.quantile(explanation.familiarity)
    strongest = explanation.contributions[:MOST_PROTOTYPES]
    head = (
        f'<header><h4>Row {found.rows[position]:,}: <span class="chip wrong">{name(explanation.predicted)}</span> '
        f'predicted, <span class="chip right">{name(label)}</span> true</h4>'
        f'<ul class="facts"><li>true class <strong>{percent(own, 2)}</strong></li>'
        f"<li>predicted <strong>{percent(float(explanation.probability.max()))}</strong></li>"
        f"<li>familiarity <strong>{number(explanation.familiarity)}</strong>, "
        f"quantile <strong>{percent(quantile)}</strong></li>"
        f"<li>class shares alone count for <strong>{percent(explanation.marginal_share)}</strong></li></ul></header>"
    )
    body = f'<div class="sides">{_probabilities(explanation)}{_comparison(content, position, strongest)}</div>'
    return Html(f'<article class="error">{head}{body}</article>')


def _probabilities(explanation: Explanation) -> Html:
    order = np.argsort(-explanation.probability, kind="stable")[:MOST_PROBABILITIES]
    lines = [
        f"<li><span class=who>{name(explanation.classes[int(index)])}</span>"
        f"{bar(float(explanation.probability[index]))}<span class=num>{percent(float(explanation.probability[index]))}"
        "</span></li>"
        for index in order
    ]
    left = len(explanation.probability) - len(order)
    more = f"<li class=muted>and {left:,} less likely</li>" if left else ""
    return Html(f"<ul class=probabilities>{join(lines)}{more}</ul>")


def _comparison(content: Content, position: int, strongest: tuple[Contribution, ...]) -> Html:
    if not strongest:
        return empty("No prototype is near this row: the class shares of the training data decide.")
    weights: dict[str, float] = {}
    values: dict[str, float] = {}
    for contribution in strongest:
        for match in contribution.features:
            weights[match.name] = max(weights.get(match.name, 0.0), match.weight)
            values[match.name] = match.value
    names = sorted(weights, key=lambda feature: -weights[feature])
    matches = [{match.name: match for match in contribution.features} for contribution in strongest]
    lines = []
    for feature in names[:MOST_FEATURES]:
        cells = [f'<th scope="row">{name(feature)}</th>']
        cells.append(cell(number(values[feature]), kind="num strong"))
        cells += [_match(found.get(feature)) for found in matches]
        lines.append(row(cells))
    heads = [
        "Feature",
        "This row",
        *(
            f"{name(one.label)}<small>share {percent(one.share)}<br>row {one.row:,}<br>"
            f"similarity {number(one.similarity, 2)}</small>"
            for one in strongest
        ),
    ]
    left = len(names) - MOST_FEATURES
    more = note(f"and {left:,} features of smaller weight") if left > 0 else ""
    caption = f"Row {content.errors.rows[position]} beside its strongest prototypes"
    return Html(f"<div>{table(caption, heads, lines, numeric=tuple(range(1, len(heads))))}{more}</div>")


def _match(match: FeatureMatch | None) -> Html:
    if match is None:
        return cell("–", kind="num")
    return cell(number(match.prototype_value), kind=f"num {shade(match.similarity)}")
