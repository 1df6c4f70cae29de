"""Files of costs: what they mean, and what is refused."""

import json
import math
from pathlib import Path

import pytest
from support.errors import refused

from protodask.errors import Code, StorageError
from protodask.pipeline.work.budget import read_costs

FILE = """
sizes: [1, 1000]
features:
  age: [2, 0.5]
  place: {columns: [x, y], cost: [1, 0, 1e-3]}
  7: 3
  colour: {cost: 0}
without: [note]
"""


def test_read_costs__knows_features_sizes_and_what_is_left_out(tmp_path: Path) -> None:
    place = tmp_path / "costs.yaml"
    place.write_text(FILE)
    found = read_costs(str(place))
    assert found.sizes == (1.0, 1000.0)
    assert found.without == ("note",)
    assert found.features == {
        "age": (("age",), (2.0, 0.5)),
        "place": (("x", "y"), (1.0, 0.0, 0.001)),
        "7": (("7",), (3.0,)),
        "colour": (("colour",), (0.0,)),
    }


def test_read_costs__reads_json_and_needs_no_sizes_where_no_cost_depends_on_them(tmp_path: Path) -> None:
    place = tmp_path / "costs.json"
    place.write_text(json.dumps({"features": {"age": [2], "size": 1}, "without": "note"}))
    found = read_costs(str(place))
    assert found.sizes == (0.0, math.inf)
    assert found.without == ("note",)


@pytest.mark.parametrize(
    ("content", "code", "fact"),
    [
        ("sizes: [1, 2]", "setting-missing", "features:"),
        ("features: [a, b]", "setting-missing", "features:"),
        ("features: {a: [1, 2]}", "setting-missing", "sizes: [smallest, largest]"),
        ("sizes: [1]\nfeatures: {a: [1]}", "bad-setting", "sizes is [1.0]"),
        ("sizes: 5\nfeatures: {a: [1]}", "bad-setting", "sizes is [5.0]"),
        ("features: {a: }", "bad-setting", "features: a"),
        ("features: {a: []}", "bad-setting", "features: a"),
        ("features: {a: .nan}", "bad-setting", "nan"),
        ("features: {a: dear}", "bad-setting", "'dear'"),
        ("features: {a: {columns: [x]}}", "setting-missing", "'cost'"),
        ("features: {a: {cost: 1, price: 2}}", "unknown-key", "'price'"),
        ("features: {a: 1, 'a': 2}", "unreadable", "'a'"),
        ("features: {1: 1, '1': 2}", "named-twice", "'1'"),
        ("features: {a: 1}\nextra: 1", "unknown-key", "features, sizes, without"),
    ],
)
def test_read_costs__refuses_what_makes_no_sense(content: str, code: Code, fact: str, tmp_path: Path) -> None:
    place = tmp_path / "costs.yaml"
    place.write_text(content)
    with refused(code, place, fact):
        read_costs(str(place))


def test_read_costs__of_no_file_is_a_matter_of_the_path(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "costs.yaml", kind=StorageError):
        read_costs(str(tmp_path / "costs.yaml"))
