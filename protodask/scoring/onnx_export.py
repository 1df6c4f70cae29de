"""A model as an ONNX graph: the formula of `protodask.scoring.formula`, and before it what rows become.

Columns that are all numbers come as one input `rows` (N, columns), in the precision in which the model reads them.
Where there are categories, each column is an input of its own name (N, 1): numbers, or categories as text, whole
numbers or truth values. The answers are those of `predict_proba(rows, unseen="zero")`: a missing number is NaN, a
missing category the empty text, unless that is one, and a category that was not there in training is none of those that
were; where they have an order, it counts as missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protodask._version import __version__
from protodask.data.encoding import MISSING, UNSEEN
from protodask.data.schema import Column, Label
from protodask.data.storage import check_file_free, replace_file
from protodask.errors import InputError
from protodask.prototypes.kernel import FARTHEST
from protodask.prototypes.model import PrototypeSet
from protodask.prototypes.tiles import Precision
from protodask.scoring.formula import Formula, Ramps

OPSET = 17
ML_OPSET = 3
IR_VERSION = 8
"""What runtimes since 2022 read."""

ROWS = "rows"
"""The input of a model of numbers alone."""

LABEL, PROBABILITIES, FAMILIARITY = OUTPUTS = ("label", "probabilities", "familiarity")


def write_onnx(
    model: PrototypeSet,
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
    check_onnx()
    where = os.fspath(path)
    check_file_free(where, overwrite)
    replace_file(where, [onnx_graph(model, n_batches, calibrated).SerializeToString()])


def check_onnx() -> None:
    """Refuse where the library that writes graphs is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise InputError(
            "package-missing", "Graphs for ONNX runtimes are written by the package onnx.", "Install protodask[onnx]."
        ) from error
    del onnx


def onnx_graph(model: PrototypeSet, n_batches: int | None = None, calibrated: bool = False) -> Any:
    """The graph of a model, an `onnx.ModelProto`."""
    from onnx import checker, helper

    count = model.scored_batches(n_batches, calibrated)
    graph = _Graph(model.precision)
    features = _features(graph, model)
    unscaled = _unscaled(graph, Formula.of(model, count), features)
    total = graph.add("ReduceSum", unscaled, graph.axis(1), keepdims=1)
    graph.add("Sub", graph.add("Squeeze", total, graph.axis(1)), graph.number(1.0), out=FAMILIARITY)
    probability = graph.add("Div", unscaled, total)
    if calibrated and model.calibration is not None:
        ramps = [Ramps.of_spline(spline) for spline in model.calibration.splines]
        probability = _calibrated(graph, probability, ramps)
    graph.add("Identity", probability, out=PROBABILITIES)
    first = graph.add("ArgMax", probability, axis=1, keepdims=0)
    graph.add("Gather", graph.labels(model.classes), first, out=LABEL)
    double, label = graph.types["float64"], graph.label_type(model.classes)
    shapes = ((LABEL, label, ["N"]), (PROBABILITIES, double, ["N", model.n_classes]), (FAMILIARITY, double, ["N"]))
    outputs = [helper.make_tensor_value_info(*shape) for shape in shapes]
    made = helper.make_model(
        helper.make_graph(graph.nodes, "protodask", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="protodask",
        producer_version=__version__,
    )
    helper.set_model_props(
        made, {"classes": json.dumps(list(model.classes)), "features": json.dumps(list(model.feature_names))}
    )
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

    def ramps(self, values: str, ramps: Ramps) -> str:
        """Each function of its own column of some values (N, S)."""
        if ramps.start.shape[1] == 0:
            return self.add("Add", self.add("Mul", values, self.number(0.0)), self.array(ramps.first))
        above = self.add("Sub", self.add("Unsqueeze", values, self.axis(2)), self.array(ramps.start[None]))
        pieces = self.add("Min", self.add("Max", above, self.number(0.0)), self.array(ramps.width[None]))
        scaled = self.add("Mul", pieces, self.array(ramps.slope[None]))
        return self.add("Add", self.add("ReduceSum", scaled, self.axis(2), keepdims=0), self.array(ramps.first))


def _features(graph: _Graph, model: PrototypeSet) -> str:
    """The raw features (N, F) in float64, of inputs that are columns."""
    columns = model.forgiving_columns
    if all(column.kind == "numeric" for column in columns):
        rows = graph.input(ROWS, graph.own, len(columns))
        if not any(column.marked for column in columns):
            return _filled(graph, graph.double(rows), columns)
        split = [graph.add("Gather", rows, graph.axis(place), axis=1) for place in range(len(columns))]
        return _joined(graph, [_of_column(graph, column, one) for column, one in zip(columns, split, strict=True)])
    for column in columns:
        if column.name in ("", *OUTPUTS) or column.name.startswith("/"):
            raise InputError(
                "unsupported",
                f"The column {column.name!r} cannot be an input: {', '.join(OUTPUTS)} and what begins with / are the "
                "graph's own names.",
                "Rename it, and fit the model again.",
            )
    return _joined(graph, [_of_column(graph, column, _input(graph, column)) for column in columns])


def _input(graph: _Graph, column: Column) -> str:
    kind = graph.own if column.kind == "numeric" else graph.label_type(column.categories)
    return graph.input(column.name, kind, 1)


def _joined(graph: _Graph, parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _filled(graph: _Graph, values: str, columns: Sequence[Column]) -> str:
    return graph.add("Where", graph.add("IsNaN", values), graph.filling(columns), values)


def _of_column(graph: _Graph, column: Column, value: str) -> str:
    """The features of a column (N, 1 and more) in float64."""
    if column.kind == "numeric":
        number = graph.double(value)
        feature = _filled(graph, number, [column])
        return _joined(graph, [feature, graph.double(graph.add("IsNaN", number))]) if column.marked else feature
    code = _code(graph, column.categories, value)
    if column.kind == "nominal":
        features = graph.double(graph.add("Equal", code, graph.array(np.arange(len(column.categories))[None])))
    else:
        unknown = graph.add("Less", code, graph.array(np.array([[0]])))
        features = graph.add("Where", unknown, graph.filling([column]), graph.double(code))
    if not column.marked:
        return features
    return _joined(graph, [features, graph.double(graph.add("Equal", code, graph.array(np.array([[MISSING]]))))])


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
    if not formula.operand.shape[1]:
        nothing = graph.add("MatMul", features, graph.array(np.zeros((formula.n_features, len(formula.marginals)))))
        return graph.add("Add", nothing, graph.array(formula.marginals))
    values = graph.add("Gather", features, graph.array(formula.feature), axis=1)
    if formula.factor.any():
        others = graph.add("Gather", features, graph.array(formula.other), axis=1)
        values = graph.add("Sub", values, graph.add("Mul", others, graph.array(formula.factor)))
    z = graph.add("Div", graph.add("Sub", values, graph.array(formula.center)), graph.array(formula.scale))
    z = graph.add("Clip", z, graph.number(-FARTHEST), graph.number(FARTHEST))
    if len(formula.scored):
        # All forms that are scored after all that are not, and then each to its place.
        plain = np.setdiff1d(np.arange(len(formula.feature)), formula.scored)
        order = np.argsort(np.concatenate([plain, formula.scored]))
        raw = graph.add("Gather", values, graph.array(formula.scored), axis=1)
        parts = [graph.add("Gather", z, graph.array(plain), axis=1), graph.ramps(raw, formula.scores)]
        z = graph.add("Gather", _joined(graph, parts), graph.array(order), axis=1)
    n_forms = len(formula.feature)
    lengths = graph.add("MatMul", graph.add("Mul", z, z), graph.array(formula.squares))
    operand = formula.operand
    exponent = graph.add("Add", graph.add("MatMul", z, graph.array(operand[:n_forms])), graph.array(operand[-1:]))
    exponent = graph.add("Add", exponent, graph.add("MatMul", lengths, graph.array(operand[n_forms:-1])))
    kernel = graph.add("Exp", graph.add("Min", exponent, graph.number(0.0)))
    return graph.add("Add", graph.add("MatMul", kernel, graph.array(formula.weight)), graph.array(formula.marginals))


def _calibrated(graph: _Graph, probability: str, ramps: Sequence[Ramps]) -> str:
    """Calibrated probabilities (N, K), see `protodask.prototypes.splines.apply_splines`."""
    if len(ramps) == 1:
        second = graph.ramps(graph.add("Gather", probability, graph.axis(1), axis=1), ramps[0])
        return _joined(graph, [graph.add("Sub", graph.number(1.0), second), second])
    columns = [graph.add("Gather", probability, graph.axis(place), axis=1) for place in range(len(ramps))]
    values = _joined(graph, [graph.ramps(column, ramp) for column, ramp in zip(columns, ramps, strict=True)])
    total = graph.add("ReduceSum", values, graph.axis(1), keepdims=1)
    something = graph.add("Greater", total, graph.number(0.0))
    shares = graph.add("Div", values, graph.add("Where", something, total, graph.number(1.0)))
    return graph.add("Where", something, shares, probability)
