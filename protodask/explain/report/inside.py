"""What is inside the model: feature weights, and prototypes as cards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    row,
    short_numbers,
    table,
    text,
)
from protodask.explain.visible import visible
from protodask.prototypes.model import FORM_NAMES, LEVEL, NORMAL_SCORE, Batch, PrototypeSet

Integers = NDArray[np.int64]

MOST_FEATURES = 1000
MOST_VALUES = 600_000
"""Feature values of prototypes in a page: about 5 MB. A larger model shows its strongest prototypes only."""

PLAIN_CARDS = 24
PLAIN_FEATURES = 8
"""What is shown where no script runs."""


def features(content: Content) -> Html:
    """Feature weights by batch, the largest first."""
    model, batches = content.model, content.model.batches[: content.n_batches]
    label_of = {
        form: label for batch in batches for form, label in zip(batch.forms, model.names_in(batch), strict=True)
    }
    # In the order of the features, a feature as it is before its normal score and level, and differences last.
    number_of = {form: place for place, form in enumerate(sorted(label_of))}
    names = [label_of[form] for form in sorted(label_of)]
    weights = np.zeros((len(names), len(batches)))
    for column, batch in enumerate(batches):
        weights[[number_of[form] for form in batch.forms], column] = batch.feature_weight
    strongest = weights.max(axis=1, initial=0.0)
    used = [int(index) for index in np.argsort(-strongest, kind="stable") if strongest[index] > 0]
    if not used:
        return empty("The model looks at no feature: it predicts the class shares of the training data for every row.")
    largest = float(strongest.max())
    lines = []
    for index in used[:MOST_FEATURES]:
        cells = [f'<th scope="row" data-sort="{text(names[index])}">{name(names[index])}</th>']
        for column in range(len(batches)):
            weight = float(weights[index, column])
            shown = f"{bar(weight / largest)}<span>{number(weight, 3) if weight else '–'}</span>"
            cells.append(cell(shown, weight, "weight"))
        lines.append(row(cells))
    header = ["Feature", *(_batch_name(model, position, batch) for position, batch in enumerate(batches, start=1))]
    said = (
        "A weight of 1 makes two cases that differ by one standard deviation in this feature alone 61% similar, a "
        "weight of 2 makes them 14% similar. Where features were not standardised, it is one unit instead."
    )
    kinds = {FORM_NAMES[kind] for *_, kind in label_of}
    if NORMAL_SCORE in kinds:
        said += (
            " A normal score is the place of a value among those of the training data: 0 in the middle, at least -3 "
            "and at most 3."
        )
    if LEVEL in kinds:
        said += (
            " A level rises where classes change from one value of the feature to the next, and is the same between "
            "such thresholds; its standard deviation is 0.5, of few rows less."
        )
    if any(batch.differences is not None for batch in batches):
        said += (
            " Of two features that go together, a difference says what the first has beyond what the second says; its "
            "standard deviation is that of what is left."
        )
    left = "" if len(used) <= MOST_FEATURES else note(f"and {len(used) - MOST_FEATURES:,} features of smaller weight")
    looked_at = {index for batch in batches for index in batch.looked_at.tolist()}
    idle = [index for index in range(model.n_features) if index not in looked_at]
    listed = join(f"<li>{name(model.feature_names[index])}</li>" for index in idle[:MOST_FEATURES])
    more = f"<li>and {len(idle) - MOST_FEATURES:,} more</li>" if len(idle) > MOST_FEATURES else ""
    unused = (
        f"<details><summary>{len(idle):,} features are not looked at</summary>"
        f"<ul class=names>{listed}{more}</ul></details>"
        if idle
        else note("The model looks at every feature.")
    )
    return join([note(said), table("Feature weights", header, lines, sortable=True), left, unused])


def _batch_name(model: PrototypeSet, position: int, batch: Batch) -> str:
    label = model.label_of(batch)
    return f"Batch {position}" if label is None else f"Batch {position}, {label}"


def strongest_prototypes(model: PrototypeSet, n_batches: int, most_values: int) -> list[list[int]]:
    """Positions of the prototypes of each batch that a page has room for: those of largest weight over all batches."""
    batches = model.batches[:n_batches]
    owner = np.repeat(np.arange(len(batches)), [batch.n_prototypes for batch in batches])
    position = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(batch.n_prototypes) for batch in batches)])
    weight = np.concatenate([np.zeros(0), *(batch.prototype_weight for batch in batches)])
    width = np.array([batch.n_features + 4 for batch in batches], dtype=np.int64)
    order = np.argsort(-weight, kind="stable")
    kept = order[np.cumsum(width[owner[order]]) <= most_values] if len(order) else order
    return [np.sort(position[kept[owner[kept] == number]]).tolist() for number in range(len(batches))]


def prototype_data(content: Content, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """The prototypes as plain values, compact: what the script makes cards from."""
    model = content.model
    kept = strongest_prototypes(model, content.n_batches, most_values)
    names, number_of = list(model.feature_names), dict[tuple[int, float, int], int]()
    for batch in model.batches:
        for (other, factor, feature, _), label in zip(batch.forms, model.value_names_in(batch), strict=True):
            if other < 0:
                number_of[other, factor, feature] = feature
            elif (other, factor, feature) not in number_of:
                number_of[other, factor, feature] = len(names)
                names.append(label)
    return {
        "classes": [visible(label) for label in model.classes],
        "features": [visible(label) for label in names],
        "batches": [
            {
                "features": [number_of[forms[column][:3]] for column in columns.tolist()],
                "weights": short_numbers(batch.feature_weight[columns]),
                "class": batch.prototype_class[positions].tolist(),
                "weight": short_numbers(batch.prototype_weight[positions]),
                "row": batch.row[positions].tolist(),
                "values": short_numbers(batch.prototypes[positions][:, columns]),
            }
            for batch, positions in zip(model.batches, kept, strict=False)
            for forms, columns in [(batch.forms, _different(batch))]
        ],
    }


def _different(batch: Batch) -> Integers:
    """Columns of a batch, of several forms of a feature the heaviest one: all have the same raw values."""
    forms, heaviest = batch.forms, dict[tuple[int, float, int], int]()
    for place in np.argsort(-batch.feature_weight, kind="stable").tolist():
        heaviest.setdefault(forms[place][:3], place)
    return np.array([heaviest[value] for value in sorted(heaviest)], dtype=np.int64)


def prototypes(content: Content, most_values: int = MOST_VALUES) -> Html:
    """Controls, and the strongest prototypes as cards, which the script replaces by all of them."""
    model = content.model
    total = sum(batch.n_prototypes for batch in model.batches[: content.n_batches])
    if not total:
        return empty("The model has no prototypes: it predicts the class shares of the training data for every row.")
    kept = sum(map(len, strongest_prototypes(model, content.n_batches, most_values)))
    said = (
        f"The model keeps {total:,} rows of its training data. How strongly one counts for a case is its weight times "
        "its similarity to the case. Values are in raw units; features are in the order of their weight."
    )
    if kept < total:
        said += f" This page has room for the {kept:,} of largest weight."
    options = join(f'<option value="{batch}">batch {batch}</option>' for batch in range(1, content.n_batches + 1))
    controls = (
        '<form class="controls script" role="search" aria-label="Prototypes">'
        '<label>Search <input type="search" id="find" placeholder="class or row number" autocomplete="off"></label>'
        '<label>Class <select id="of-class"><option value="">all</option></select></label>'
        f'<label>Batch <select id="of-batch"><option value="">all</option>{options}</select></label>'
        '<label>Sort by <select id="sort"><option value="weight">weight, largest first</option>'
        '<option value="class">class</option><option value="row">row</option><option value="batch">batch</option>'
        "</select></label></form>"
        '<p class="found script" id="found" role="status" aria-live="polite"></p>'
    )
    pager = (
        '<nav class="pager script" aria-label="Pages of prototypes"><button type="button" id="before">Previous</button>'
        '<span id="page"></span><button type="button" id="after">Next</button></nav>'
    )
    return join([note(said), controls, f'<div id="cards" class="cards">{_plain_cards(content)}</div>', pager])


def _plain_cards(content: Content) -> Html:
    batches = content.model.batches[: content.n_batches]
    entries = [
        (float(weight), number_of, position)
        for number_of, batch in enumerate(batches)
        for position, weight in enumerate(batch.prototype_weight.tolist())
    ]
    entries.sort(key=lambda entry: -entry[0])
    cards = []
    for weight, number_of, position in entries[:PLAIN_CARDS]:
        batch = batches[number_of]
        columns = _different(batch)
        order = columns[np.argsort(-batch.feature_weight[columns], kind="stable")][:PLAIN_FEATURES].tolist()
        labels = content.model.value_names_in(batch)
        values = join(
            f"<div><dt>{name(labels[column])}</dt><dd>{number(float(batch.prototypes[position, column]))}</dd></div>"
            for column in order
        )
        left = len(columns) - len(order)
        more = f"<p class=muted>and {left:,} more</p>" if left else ""
        label = name(content.model.classes[int(batch.prototype_class[position])])
        cards.append(
            f'<article class="card"><header><h4>{label}</h4><span class="muted">row {int(batch.row[position]):,} · '
            f'batch {number_of + 1}</span></header><div class="weight">{bar(weight / entries[0][0])}'
            f"<span>{number(weight, 3)}</span></div><dl>{values}</dl>{more}</article>"
        )
    said = f"<noscript><p>The {len(cards):,} of largest weight of {len(entries):,}.</p></noscript>"
    return join([said if len(entries) > len(cards) else "", *cards])
