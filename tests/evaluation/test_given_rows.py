from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.engine import Block, Engine, Source, array_source
from protodask.errors import Code
from protodask.evaluation.given_rows import check_rows, reading, require, source_of, usable_weights

NEEDED = {"label": "Give a label for each row."}


def test_source_of__arrays_stand_side_by_side_without_those_that_are_none() -> None:
    source = source_of({"score": [0.5, 1.0], "label": [0, 1], "weight": None}, NEEDED)
    assert {name: array.tolist() for name, array in source.read(0).arrays.items()} == {
        "score": [0.5, 1.0],
        "label": [0, 1],
    }


def test_source_of__a_source_is_taken_as_it_is() -> None:
    source = array_source({"score": np.ones(3)})
    assert source_of({"score": source, "label": None}, NEEDED) is source
    with refused("settings-conflict", "label", "weight"):
        source_of({"score": source, "label": [1], "weight": [1]}, NEEDED)


def test_source_of__says_what_is_missing() -> None:
    with refused("setting-missing", "score", "label"):
        source_of({"score": [1.0], "label": None}, NEEDED)


def test_reading__forgets_what_was_made_of_arrays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[Source] = []
    monkeypatch.setattr(Engine, "forget", lambda _, source: forgotten.append(source))
    made, own = array_source({"score": np.ones(3)}), array_source({"score": np.ones(3)})
    for source, given in ((made, np.ones(3)), (own, own)):
        with reading(source, given, None) as engine:
            assert engine.collect(source, lambda block: dict(block.arrays))["score"].tolist() == [1.0, 1.0, 1.0]
    assert [source is made for source in forgotten] == [True]


def test_check_rows__refuses_none() -> None:
    some = array_source({"score": np.ones(1)})
    assert check_rows(some) is some
    with refused("no-rows"):
        check_rows(array_source({"score": np.ones(0)}))


def test_require__names_the_first_row_that_does_not_fit() -> None:
    block = Block(3, 70, {"score": np.zeros(4)})
    require(block, np.ones(4, dtype=np.bool_), "Row {row} is odd.", "Mend it.")
    with refused("bad-value", 72):
        require(block, np.array([True, True, False, False]), "Row {row} is odd.", "Mend it.")


def test_usable_weights__are_weights_divided_by_inclusion() -> None:
    assert usable_weights(Block(0, 0, {"score": np.ones(2)})) is None
    weights = usable_weights(Block(0, 0, {"weight": np.array([3.0, 0.0]), "inclusion": np.array([0.5, 1.0])}))
    assert weights is not None
    assert weights.tolist() == [6.0, 0.0]


@pytest.mark.parametrize(
    ("arrays", "code", "facts"),
    [
        ({"weight": [1, -1]}, "bad-value", ("row 11", "weight")),
        ({"weight": [np.nan, 1]}, "bad-value", ("row 10", "weight")),
        ({"weight": [1, np.inf]}, "bad-value", ("row 11", "weight")),
        ({"inclusion": [1, 0]}, "bad-value", ("row 11", "above 0 and at most 1", "inclusion")),
        ({"inclusion": [1.5, 1]}, "bad-value", ("row 10", "above 0 and at most 1", "inclusion")),
        ({"inclusion": [np.nan, 1]}, "bad-value", ("row 10", "above 0 and at most 1", "inclusion")),
        ({"inclusion": [1, 1e-320]}, "bad-value", ("row 11", "weight")),
    ],
)
def test_usable_weights__refuses_what_is_none(arrays: dict[str, Any], code: Code, facts: tuple[object, ...]) -> None:
    given = {name: np.array(values, dtype=np.float64) for name, values in arrays.items()}
    with refused(code, *facts):
        usable_weights(Block(5, 10, given))
