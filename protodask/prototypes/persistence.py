"""The model on disk: a Zarr group with its settings as JSON and its numbers as arrays, checksummed, without pickle."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protodask.data.arrays.model_arrays import damage_named, digest_arrays, read_array
from protodask.data.places.records import Fields, RecordKind, Relative
from protodask.errors import FormatError
from protodask.prototypes.batches import FORM_NAMES, Batch
from protodask.prototypes.fitted import FittedPrototypes
from protodask.prototypes.kernel import Differences, Knots
from protodask.prototypes.splines import Spline, SplineCalibration
from protodask.prototypes.table_model import (
    FIT_AGAIN,
    find_model,
    read_precision,
    read_table,
    table_fields,
    write_model,
)

MODEL_VERSION = 6
"""The newest form of a model: 2 has a calibration, 3 normal scores, 4 columns with missing values, 5 differences of
features, 6 levels. A model is written as the oldest that holds it."""

MODEL = RecordKind(
    "model",
    "protodask-model",
    MODEL_VERSION,
    "Make one with `fit()`.",
    FIT_AGAIN,
    (
        Relative(
            "protodask-robust-model",
            "a robust model, which has planes and no prototypes",
            "Use `protodask robust predict` or `protodask robust evaluate`, in Python `load_robust_model` of "
            "`protodask.robust`.",
        ),
    ),
)

CALIBRATION = "calibration"
"""Field of the record of a model that has one."""

READ_AS = "read_as"
"""Field of the record of a model that says which type its rows are of."""

ROUNDS = "rounds"
"""Field of the record of a model of which some batches were trained together; readers of earlier versions, to which
batches are batches, pass over it."""

KNOTS = "knots"
"""Field of the record of a model that looks at normal scores or levels: the knots of each batch, 0 if it has none."""

LEVELS = "levels"
"""Field of the record of a model that looks at levels: how many each batch has."""

DIFFERENCES = "differences"
"""Field of the record of a model that looks at differences of features: how many each batch has."""

MOST_KNOTS = 10**4
MOST_DIFFERENCES = 10**4
MOST_PROTOTYPES = 10**8
"""A bound on what a damaged or hostile file can make a reader allocate."""

COUNTS = {KNOTS: ("Q", MOST_KNOTS), LEVELS: ("L", MOST_PROTOTYPES), DIFFERENCES: ("P", MOST_DIFFERENCES)}
"""Those three: the letter that `_Array` has for each, and the bound."""


class _Array(NamedTuple):
    """An array of a batch."""

    name: str
    dtype: str
    dims: str
    """Sizes: of D features, J prototypes, Q knots and P differences."""
    of: str
    """The size, or L levels, of which a batch has some if it has the array; none where each batch has it."""


ARRAYS = (
    _Array("feature_index", "int64", "D", ""),
    _Array("feature_weight", "float64", "D", ""),
    _Array("center", "float64", "D", ""),
    _Array("scale", "float64", "D", ""),
    _Array("prototypes", "float64", "JD", ""),
    _Array("prototype_class", "int64", "J", ""),
    _Array("prototype_weight", "float64", "J", ""),
    _Array("row", "int64", "J", ""),
    _Array("knot_values", "float64", "DQ", "Q"),
    _Array("knot_scores", "float64", "DQ", "Q"),
    _Array("knot_is_level", "int64", "D", "L"),
    _Array("difference_other", "int64", "D", "P"),
    _Array("difference_factor", "float64", "D", "P"),
    _Array("compared", "float64", "JP", "P"),
)


def save_model(model: FittedPrototypes, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a model, whole or not at all."""
    sizes = [_sizes_of(batch) for batch in model.batches]
    counts = {name: [size[letter] for size in sizes] for name, (letter, _) in COUNTS.items()}
    record = {
        "version": _version(model),
        "marginals": model.marginals.tolist(),
        "feature_names": list(model.feature_names),
        **table_fields(model),
        "batches": [[batch.n_features, batch.n_prototypes] for batch in model.batches],
        **({} if model.rounds is None else {ROUNDS: list(model.rounds)}),
        **({} if model.read_as is None else {READ_AS: model.read_as}),
        **{name: of_batches for name, of_batches in counts.items() if any(of_batches)},
        "digest": _digest(model),
        **({} if model.calibration is None else {CALIBRATION: _describe_calibration(model.calibration)}),
    }
    arrays = (
        (f"batch-{number}/{name}", values, dtype)
        for number, batch in enumerate(model.batches, start=1)
        for name, values, dtype in _arrays(batch)
    )
    write_model(path, overwrite, MODEL, record, arrays)


def _sizes_of(batch: Batch) -> dict[str, int]:
    """By the letters of `_Array`."""
    knots = batch.knots
    return {
        "D": batch.n_features,
        "J": batch.n_prototypes,
        "Q": 0 if knots is None else knots.values.shape[1],
        "L": 0 if knots is None or knots.levels is None else int(knots.levels.sum()),
        "P": 0 if batch.differences is None else len(batch.differences.places),
    }


def _version(model: FittedPrototypes) -> int:
    if any(_sizes_of(batch)["L"] for batch in model.batches):
        return 6
    if any(batch.differences is not None for batch in model.batches):
        return 5
    if any(column.filled is not None for column in model.columns):
        return 4
    if any(batch.knots is not None for batch in model.batches):
        return 3
    return 1 if model.calibration is None else 2


def _arrays(batch: Batch) -> list[tuple[str, NDArray[Any], str]]:
    """Name, numbers and type of the arrays that a batch has."""
    if batch.differences is not None and batch.compared is None:
        raise ValueError("a batch with differences has no values to show of them")
    known = dict(vars(batch))
    if batch.knots is not None:
        knots = batch.knots
        known |= {"knot_values": knots.values, "knot_scores": knots.scores, "knot_is_level": knots.levels}
    if batch.differences is not None:
        known |= {"difference_other": batch.differences.others, "difference_factor": batch.differences.factor}
    sizes = _sizes_of(batch)
    return [(array.name, known[array.name], array.dtype) for array in ARRAYS if not array.of or sizes[array.of]]


def _digest(model: FittedPrototypes) -> str:
    return digest_arrays(array for batch in model.batches for array in _arrays(batch))


def read_model(path: str | os.PathLike[str]) -> FittedPrototypes:
    """Read a model; whatever is wrong with it is a `FormatError`. `REGISTRY@ALIAS` is a version in a registry."""
    return find_model(path, MODEL, _parse, _digest)


def _parse(fields: Fields) -> FittedPrototypes:
    table = read_table(fields)
    feature_names = fields.texts("feature_names")
    marginals = fields.floats("marginals", len(table.classes))
    if (marginals < 0).any() or abs(marginals.sum() - 1) > 1e-9:
        fields.damaged("the marginals are no probabilities")
    if len(table.feature_names) != len(feature_names):
        fields.damaged("the columns do not make the features")
    rounds = _parse_rounds(fields)
    calibration = _parse_calibration(fields, len(table.classes))
    ends = None if rounds is None else itertools.accumulate(rounds, initial=0)
    if calibration is not None and ends is not None and calibration.n_batches not in ends:
        fields.damaged("the calibration does not end with a round")
    return FittedPrototypes(
        **vars(table),
        marginals=marginals,
        feature_names=feature_names,
        batches=tuple(_read_batch(fields, number, sizes) for number, sizes in enumerate(_all_sizes(fields), start=1)),
        rounds=rounds,
        calibration=calibration,
        read_as=read_precision(fields, READ_AS) if READ_AS in fields.record else None,
    )


def _describe_calibration(calibration: SplineCalibration) -> dict[str, Any]:
    return {
        "n_batches": calibration.n_batches,
        "n_bins": calibration.n_bins,
        "monotone": calibration.monotone,
        "rows": calibration.rows,
        "weight": calibration.weight,
        "splines": [
            {"points": len(spline.score), "score": spline.score.tolist(), "outcome": spline.outcome.tolist()}
            for spline in calibration.splines
        ],
    }


def _parse_calibration(fields: Fields, n_classes: int) -> SplineCalibration | None:
    record = fields.record.get(CALIBRATION)
    if record is None:
        return None
    if not isinstance(record, dict):
        fields.damaged("the calibration is not an object")
    own = replace(fields, record=record)
    monotone = record.get("monotone")
    if not isinstance(monotone, bool):
        own.damaged("the calibration does not say whether it is monotone")
    splines = own.objects("splines")
    if len(splines) != (1 if n_classes == 2 else n_classes):
        own.damaged("the calibration is not of the classes of the model")
    return SplineCalibration(
        splines=tuple(_parse_spline(replace(fields, record=spline)) for spline in splines),
        n_batches=own.integer("n_batches", 0, len(_sizes(fields))),
        n_bins=own.integer("n_bins", 1),
        monotone=monotone,
        rows=own.integer("rows", 1),
        weight=float(own.floats("weight", None)[0]),
    )


def _parse_spline(fields: Fields) -> Spline:
    length = fields.integer("points", 1)
    score, outcome = fields.floats("score", length), fields.floats("outcome", length)
    if (np.diff(score) <= 0).any() or (outcome < 0).any() or (outcome > 1).any():
        fields.damaged("the control points of a calibration make no sense")
    return Spline(score, outcome)


def _sizes(fields: Fields) -> list[tuple[int, int]]:
    sizes, n_features = fields.record.get("batches"), len(fields.texts("feature_names"))
    if not isinstance(sizes, list):
        fields.damaged("the batches are not a list")
    found: list[tuple[int, int]] = []
    for size in sizes:
        match size:
            case [int(width), int(length)] if 0 <= width <= len(FORM_NAMES) * n_features + MOST_DIFFERENCES and (
                0 <= length <= MOST_PROTOTYPES // max(width, 1)
            ):
                found.append((width, length))
            case _:
                fields.damaged("a batch has no sensible size")
    return found


def _parse_rounds(fields: Fields) -> tuple[int, ...] | None:
    if ROUNDS not in fields.record:
        return None
    rounds = fields.record[ROUNDS]
    whole = isinstance(rounds, list) and all(type(size) is int and size > 0 for size in rounds)
    if not whole or sum(rounds) != len(_sizes(fields)):
        fields.damaged("the rounds are not those of its batches")
    return tuple(rounds)


def _all_sizes(fields: Fields) -> list[dict[str, int]]:
    """Those of each batch, as `_sizes_of` has them."""
    found = [{"D": n_features, "J": n_prototypes} for n_features, n_prototypes in _sizes(fields)]
    for name, (letter, most) in COUNTS.items():
        counts = fields.record.get(name, [0] * len(found))
        if not isinstance(counts, list) or len(counts) != len(found):
            fields.damaged(f"the {name} are not those of its batches")
        for sizes, count in zip(found, counts, strict=True):
            among = most if letter == "Q" else min(most, sizes["D"])  # levels and differences are features
            if type(count) is not int or not 0 <= count <= among:
                fields.damaged(f"the {name} are not those of its batches")
            sizes[letter] = count
    if any(sizes["L"] and not sizes["Q"] for sizes in found):
        fields.damaged("the levels are of batches without knots")
    return found


def _read_batch(fields: Fields, number: int, sizes: dict[str, int]) -> Batch:
    with damage_named(f"Batch {number} of the model", fields.where, FIT_AGAIN):
        read: dict[str, NDArray[Any]] = {
            array.name: read_array(
                fields.where, f"batch-{number}/{array.name}", array.dtype, tuple(sizes[letter] for letter in array.dims)
            )
            for array in ARRAYS
            if not array.of or sizes[array.of]
        }
    levels = read["knot_is_level"] == 1 if sizes["L"] else None
    batch = Batch(
        **{name: values for name, values in read.items() if not name.startswith(("knot_", "difference_"))},
        knots=Knots(read["knot_values"], read["knot_scores"], levels) if sizes["Q"] else None,
        differences=Differences(read["difference_other"], read["difference_factor"]) if sizes["P"] else None,
    )
    if _sizes_of(batch)["L"] != sizes["L"]:
        fields.damaged(f"the levels of batch {number} are not as many as it says")
    if reason := _implausible(batch, fields):
        raise FormatError("damaged", f"Batch {number} of the model {fields.where} is damaged: {reason}.", FIT_AGAIN)
    return batch


def _implausible(batch: Batch, fields: Fields) -> str | None:
    n_features, n_classes = len(fields.texts("feature_names")), len(fields.labels("classes"))
    if batch.knots is not None and not (_monotone(batch.knots) and _without_unit(batch)):
        return "its normal scores or levels are none"
    if not _in_order(batch, n_features) or not _inside(batch.feature_index, n_features):
        return "its features are not those of the model"
    if batch.differences is not None and not _sensible(batch, batch.differences, n_features):
        return "its differences are none"
    if not _inside(batch.prototype_class, n_classes):
        return "its prototypes are of classes the model does not have"
    if (batch.row < 0).any():
        return "its row numbers are negative"
    if not (np.isfinite(batch.center).all() and np.isfinite(batch.prototypes).all()):
        return "its numbers are not finite"
    positive = (batch.feature_weight, batch.prototype_weight, batch.scale)
    if not all(bool((np.isfinite(values) & (values > 0)).all()) for values in positive):
        return "its weights are not positive"
    return None


def _in_order(batch: Batch, n_features: int) -> bool:
    """Whether the features ascend, of several forms of one in the order of `FORM_NAMES`, and differences after all."""
    form = len(FORM_NAMES) * batch.feature_index + np.array([kind for *_, kind in batch.forms], dtype=np.int64)
    if batch.differences is not None:
        places = batch.differences.places
        form[places] = (len(FORM_NAMES) + batch.feature_index[places]) * n_features + batch.differences.others[places]
    return bool((np.diff(form) > 0).all())


def _sensible(batch: Batch, differences: Differences, n_features: int) -> bool:
    """Whether each difference is of two features of the model, with a factor and values to show."""
    alone = differences.others == -1
    return (
        _inside(differences.others[~alone], n_features)
        and bool((differences.others[~alone] > batch.feature_index[~alone]).all())
        and not batch.scored[~alone].any()
        and bool(np.isfinite(differences.factor).all() and ((differences.factor == 0) == alone).all())
        and batch.compared is not None
        and batch.compared.shape[1] == len(differences.places)
        and bool(np.isfinite(batch.compared).all())
    )


def _monotone(knots: Knots) -> bool:
    """Whether the knots of each feature that has any ascend, and no other is a level."""
    pair = np.stack([knots.values, knots.scores])
    scored = np.isfinite(pair).all(axis=(0, 2))
    without = knots.levels is None or not knots.levels[~scored].any()
    return bool(np.isnan(pair[:, ~scored]).all() and (np.diff(pair[:, scored], axis=2) >= 0).all() and without)


def _without_unit(batch: Batch) -> bool:
    """Whether normal scores and levels are taken as they are."""
    return not batch.center[batch.scored].any() and bool((batch.scale[batch.scored] == 1).all())


def _inside(index: NDArray[Any], size: int) -> bool:
    return bool(((index >= 0) & (index < size)).all())


def model_fingerprint(model: FittedPrototypes) -> str:
    """Hash of what the model computes: batches, marginals, classes, features, precision; a calibration if it has, and
    the precision in which it reads tables, if that is another one.
    """
    parts: list[object] = [
        _digest(model),
        [value.hex() for value in model.marginals.tolist()],
        list(model.classes),
        list(model.feature_names),
        model.precision,
    ]
    if model.calibration is not None:
        parts.append(_describe_calibration(model.calibration))
    if model.row_precision != model.precision:
        parts.append({READ_AS: model.row_precision})
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
