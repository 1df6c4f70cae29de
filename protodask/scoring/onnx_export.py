"""A model as an ONNX graph: the formula of `protodask.scoring.formula`, and before it what rows become.

Columns that are all numbers come as one input `rows` (N, columns), in the precision in which the model reads them.
Where there are categories, each column is an input of its own name (N, 1): numbers, or categories as text, whole
numbers or truth values. The answers are those of `predict_proba(rows, unseen="zero")`, where a missing number is NaN
and a missing category the empty text, unless that is one; categories that are numbers or truth values are never
missing. A graph has no errors: where categories have an order, one that was not there in training counts as missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask._version import __version__
from protodask.data.format.schema import Column, Label
from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.data.tables.encoding import MISSING, UNSEEN
from protodask.errors import InputError, needed
from protodask.prototypes.fitted import FittedPrototypes
from protodask.prototypes.kernel import FARTHEST
from protodask.prototypes.splines import Spline
from protodask.prototypes.tiles import Precision
from protodask.scoring.formula import Forms, Formula, Ramps

OPSET = 17
ML_OPSET = 3
IR_VERSION = 8
"""What runtimes since 2022 read."""

ROWS = "rows"
"""The input of a model of numbers alone."""

LABEL, PROBABILITIES, FAMILIARITY = OUTPUTS = ("label", "probabilities", "familiarity")


def write_onnx(
    model: FittedPrototypes,
    path: str | os.PathLike[str],
    *,
    n_batches: int | None = None,
    calibrated: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a model to a file for ONNX runtimes, whole or not at all.

    Its outputs are `label` (N,), `probabilities` (N, K) in the order of `classes` in its metadata, and `familiarity`
    (N,), in float64.
    """
    with needed("Graphs for ONNX runtimes are written by the package onnx.", "Install protodask[onnx]."):
        import onnx
    del onnx
    where = os.fspath(path)
    check_file_free(where, overwrite)
    try:
        content = onnx_graph(model, n_batches, calibrated).SerializeToString()
    except InputError:
        raise
    except Exception as error:  # of names and labels that a graph cannot have, whatever the library makes of them
        raise InputError(
            "unsupported",
            f"The model cannot be written as a graph ({error}).",
            "Columns need names of their own, classes and categories valid text or whole numbers of 64 bits.",
        ) from error
    replace_file(where, [content])


def onnx_graph(model: FittedPrototypes, n_batches: int | None = None, calibrated: bool = False) -> Any:
    """The graph of a model, an `onnx.ModelProto`."""
    from onnx import checker, helper

    count = model.scored_batches(n_batches, calibrated)
    graph = _Graph(model.row_precision)
    features = _features(graph, model)
    unscaled = _unscaled(graph, Formula.of(model, count), features)
    total = graph.add("ReduceSum", unscaled, graph.axis(1), keepdims=1)
    graph.add("Sub", graph.add("Squeeze", total, graph.axis(1)), graph.number(1.0), out=FAMILIARITY)
    probability = graph.add("Div", unscaled, total)
    if calibrated and model.calibration is not None:
        probability = _calibrated(graph, probability, model.calibration.splines)
    graph.add("Identity", probability, out=PROBABILITIES)
    first = graph.add("ArgMax", probability, axis=1, keepdims=0)
    graph.add("Gather", graph.labels(model.classes), first, out=LABEL)
    double, label = graph.types["float64"], graph.label_type(model.classes)
    shapes = ((LABEL, label, ["N"]), (PROBABILITIES, double, ["N", model.n_classes]), (FAMILIARITY, double, ["N"]))
    outputs = [helper.make_tensor_value_info(*shape) for shape in shapes]
    told = {"classes": model.classes, "columns": [column.name for column in model.columns]}
    made = helper.make_model(
        helper.make_graph(graph.nodes, "protodask", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="protodask",
        producer_version=__version__,
    )
    helper.set_model_props(made, {name: json.dumps(list(values)) for name, values in told.items()})
    checker.check_model(made)
    return made


class _Graph:
    """Nodes one after the other, whose results have names of their own."""

    def __init__(self, precision: Precision) -> None:
        from onnx import TensorProto

        self.precision = precision
        self.types = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
        self.own = self.types[precision]
        """The type in which the model reads features."""
        self.text, self.whole, self.flag = TensorProto.STRING, TensorProto.INT64, TensorProto.BOOL
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"/{self._names}"

    def input(self, name: str, kind: int, width: int) -> str:
        from onnx import helper

        self.inputs.append(helper.make_tensor_value_info(name, kind, ["N", width]))
        return name

    def add(self, operation: str, *operands: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """One more node; returns the name of its result."""
        from onnx import helper

        name = out or self._name()
        self.nodes.append(helper.make_node(operation, list(operands), [name], domain=domain, **attributes))
        return name

    def array(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = self._name()
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def number(self, value: float) -> str:
        return self.array(np.array(value))

    def filling(self, columns: Sequence[Column]) -> str:
        """What missing values of some columns count as (1, columns), as the model reads it."""
        values = [0.0 if column.filled is None else column.filled for column in columns]
        return self.array(np.array([values], dtype=self.precision).astype(np.float64))

    def axis(self, *axes: int) -> str:
        return self.array(np.array(axes, dtype=np.int64))

    def label_type(self, labels: Sequence[Label]) -> int:
        kinds = {type(label) for label in labels}
        return self.flag if kinds == {bool} else self.whole if kinds == {int} else self.text

    def labels(self, labels: Sequence[Label]) -> str:
        kind = self.label_type(labels)
        if kind == self.text:
            return self.array(np.array([str(label) for label in labels], dtype=object))
        return self.array(np.array(labels, dtype=np.bool_ if kind == self.flag else np.int64))

    def double(self, value: str) -> str:
        return self.add("Cast", value, to=self.types["float64"])

    def joined(self, parts: Sequence[str]) -> str:
        """Columns side by side."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)


def _features(graph: _Graph, model: FittedPrototypes) -> str:
    """The raw features (N, F) in float64, of inputs that are columns."""
    columns = model.forgiving_columns
    if all(column.kind == "numeric" for column in columns):
        rows = graph.input(ROWS, graph.own, len(columns))
        if not any(column.marked for column in columns):
            return _filled(graph, graph.double(rows), columns)
        split = [graph.add("Gather", rows, graph.axis(place), axis=1) for place in range(len(columns))]
        return graph.joined([_of_column(graph, column, one) for column, one in zip(columns, split, strict=True)])
    for column in columns:
        if column.name in ("", *OUTPUTS) or column.name.startswith("/"):
            raise InputError(
                "unsupported",
                f"The column {column.name!r} cannot be an input: {', '.join(OUTPUTS)} and what begins with / are the "
                "graph's own names.",
                "Rename it, and fit the model again.",
            )
    return graph.joined([_of_column(graph, column, _input(graph, column)) for column in columns])


def _input(graph: _Graph, column: Column) -> str:
    kind = graph.own if column.kind == "numeric" else graph.label_type(column.categories)
    return graph.input(column.name, kind, 1)


def _filled(graph: _Graph, values: str, columns: Sequence[Column]) -> str:
    return graph.add("Where", graph.add("IsNaN", values), graph.filling(columns), values)


def _of_column(graph: _Graph, column: Column, value: str) -> str:
    """The features of a column (N, 1 and more) in float64."""
    if column.kind == "numeric":
        number = graph.double(value)
        feature = _filled(graph, number, [column])
        return graph.joined([feature, graph.double(graph.add("IsNaN", number))]) if column.marked else feature
    code = _code(graph, column.categories, value)
    if column.kind == "nominal":
        features = graph.double(graph.add("Equal", code, graph.array(np.arange(len(column.categories))[None])))
        if not column.marked:
            return features
        missing = graph.add("Equal", code, graph.array(np.array([[MISSING]])))
    else:
        missing = graph.add("Less", code, graph.array(np.array([[0]])))
        features = graph.add("Where", missing, graph.filling([column]), graph.double(code))
    return graph.joined([features, graph.double(missing)]) if column.marked else features


def _code(graph: _Graph, categories: Sequence[Label], value: str) -> str:
    """Positions of categories (N, 1), or what says that there is none."""
    kind, codes = graph.label_type(categories), list(range(len(categories)))
    if kind == graph.text:
        texts = [str(category) for category in categories]
        keys, codes = ([*texts, ""], [*codes, MISSING]) if "" not in texts else (texts, codes)
        known: dict[str, Any] = {"keys_strings": keys}
    else:
        if kind == graph.flag:
            value = graph.add("Cast", value, to=graph.whole)
        known = {"keys_int64s": [int(category) for category in categories]}
    return graph.add("LabelEncoder", value, domain="ai.onnx.ml", values_int64s=codes, default_int64=UNSEEN, **known)


def _unscaled(graph: _Graph, formula: Formula, features: str) -> str:
    """`q` of the features (N, K)."""
    # Infinite ones are as far away as can be.
    largest = float(np.finfo(graph.precision).max)
    features = graph.add("Clip", features, graph.number(-largest), graph.number(largest))
    forms, marginals = formula.forms, graph.array(formula.marginals)
    if not formula.operand.shape[1]:
        nothing = graph.array(np.zeros((forms.n_features, len(formula.marginals))))
        return graph.add("Add", graph.add("MatMul", features, nothing), marginals)
    z = _forms(graph, forms, features)
    lengths = graph.add("MatMul", graph.add("Mul", z, z), graph.array(formula.squares))
    crossed, own, last = np.split(formula.operand, [len(forms), len(formula.operand) - 1])
    exponent = graph.add("Add", graph.add("MatMul", z, graph.array(crossed)), graph.array(last))
    exponent = graph.add("Add", exponent, graph.add("MatMul", lengths, graph.array(own)))
    kernel = graph.add("Exp", graph.add("Min", exponent, graph.number(0.0)))
    return graph.add("Add", graph.add("MatMul", kernel, graph.array(formula.weight)), marginals)


def _forms(graph: _Graph, forms: Forms, features: str) -> str:
    """`z` of the features (N, D)."""
    values = graph.add("Gather", features, graph.array(forms.feature), axis=1)
    if forms.differ:
        others = graph.add("Gather", features, graph.array(forms.other), axis=1)
        values = graph.add("Sub", values, graph.add("Mul", others, graph.array(forms.factor)))
    z = graph.add("Div", graph.add("Sub", values, graph.array(forms.center)), graph.array(forms.scale))
    z = graph.add("Clip", z, graph.number(-FARTHEST), graph.number(FARTHEST))
    if not len(forms.scored):
        return z
    # All forms that are scored after all that are not, and then each to its place.
    plain = np.setdiff1d(np.arange(len(forms)), forms.scored)
    order = np.argsort(np.concatenate([plain, forms.scored]))
    raw = graph.add("Gather", values, graph.array(forms.scored), axis=1)
    if forms.precision != graph.precision:
        raw = graph.add("Cast", graph.add("Cast", raw, to=graph.types[forms.precision]), to=graph.types["float64"])
    parts = [graph.add("Gather", z, graph.array(plain), axis=1), _ramps(graph, forms.scores, raw)]
    return graph.add("Gather", graph.joined(parts), graph.array(order), axis=1)


def _ramps(graph: _Graph, ramps: Ramps, values: str) -> str:
    """Each function of its own column of some values (N, S)."""
    above = graph.add("Sub", graph.add("Unsqueeze", values, graph.axis(2)), graph.array(ramps.start[None]))
    shares = graph.add("Div", graph.add("Max", above, graph.number(0.0)), graph.array(ramps.width[None]))
    scaled = graph.add("Mul", graph.add("Min", shares, graph.number(1.0)), graph.array(ramps.rise[None]))
    return graph.add("Add", graph.add("ReduceSum", scaled, graph.axis(2), keepdims=0), graph.array(ramps.first))


def _calibrated(graph: _Graph, probability: str, splines: Sequence[Spline]) -> str:
    """Calibrated probabilities (N, K), see `protodask.prototypes.splines.apply_splines`."""
    if len(splines) == 1:
        second = _spline(graph, splines[0], graph.add("Gather", probability, graph.axis(1), axis=1))
        return graph.joined([graph.add("Sub", graph.number(1.0), second), second])
    columns = [graph.add("Gather", probability, graph.axis(place), axis=1) for place in range(len(splines))]
    values = graph.joined([_spline(graph, *pair) for pair in zip(splines, columns, strict=True)])
    total = graph.add("ReduceSum", values, graph.axis(1), keepdims=1)
    something = graph.add("Greater", total, graph.number(0.0))
    shares = graph.add("Div", values, graph.add("Where", something, total, graph.number(1.0)))
    return graph.add("Where", something, shares, probability)


def _spline(graph: _Graph, spline: Spline, values: str) -> str:
    """`psi` of some values (N, 1), as `Spline.apply` does it, which comes to the control points exactly."""
    last = len(spline.score) - 1
    if last == 0:
        return graph.add("Add", graph.add("Mul", values, graph.number(0.0)), graph.number(float(spline.outcome[0])))
    ends = [graph.number(float(spline.score[place])) for place in (0, last)]
    x = graph.add("Clip", values, *ends)
    passed = graph.add("GreaterOrEqual", x, graph.array(spline.score[None]))
    count = graph.add("ReduceSum", graph.add("Cast", passed, to=graph.whole), graph.axis(1), keepdims=1)
    right = graph.add("Clip", count, *(graph.array(np.array(place)) for place in (1, last)))
    left = graph.add("Sub", right, graph.array(np.array(1)))
    scores, outcomes = graph.array(spline.score), graph.array(spline.outcome)
    below, above = (graph.add("Gather", scores, side) for side in (left, right))
    first, then = (graph.add("Gather", outcomes, side) for side in (left, right))
    share = graph.add("Div", graph.add("Sub", x, below), graph.add("Sub", above, below))
    between = graph.add("Add", first, graph.add("Mul", share, graph.add("Sub", then, first)))
    between = graph.add("Max", graph.add("Min", between, graph.add("Max", first, then)), graph.add("Min", first, then))
    return graph.add("Where", graph.add("Equal", share, graph.number(1.0)), then, between)
