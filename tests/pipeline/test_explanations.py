"""Explaining rows of data, and exporting models, as the commands ask for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.errors import refused

from protodask.data import Dataset, sample_data
from protodask.engine import Engine
from protodask.errors import Code, OutputExistsError
from protodask.explain import requests as module
from protodask.explain.contributions import explain_rows
from protodask.explain.requests import ExplainRequest, check_request, explain_data, export_model
from protodask.pipeline.telling.result import to_json
from protodask.prototypes import FitConfig, fit, load_model


@pytest.fixture(scope="module")
def request_for(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ExplainRequest]:
    folder = tmp_path_factory.mktemp("data")
    data = sample_data("checker", 400, folder / "d.zarr", engine=engine)
    fit(data, FitConfig.of("source", n_candidates=40, tolerance=1e-3), engine=engine).model.save(folder / "m.zarr")

    def make(*rows: int, **options: Any) -> ExplainRequest:
        return ExplainRequest(str(folder / "m.zarr"), str(folder / "d.zarr"), rows, **options)

    return make


Make = Callable[..., ExplainRequest]


def test_explain_data__is_explain_rows_of_the_rows_asked_for(request_for: Make, engine: Engine) -> None:
    request = request_for(390, 2, 390, most=3)
    model, features = load_model(request.model), Dataset.open(request.data).read(0)["features"]
    found = explain_data(request, engine)
    assert [entry.row for entry in found.explained] == [390, 2]
    for entry, expected in zip(found.explained, explain_rows(model, features[[390, 2]], most=3), strict=True):
        np.testing.assert_array_equal(entry.features, features[entry.row])
        assert entry.explanation.contributions == expected.contributions
        assert entry.originals == ()
    assert to_json(found.describe())


def test_explain_data__looks_up_each_contribution_in_the_training_data(request_for: Make, engine: Engine) -> None:
    request = request_for(5)
    (entry,) = explain_data(replace(request, training=request.data), engine).explained
    features = Dataset.open(request.data).read(0)["features"]
    for original, item in zip(entry.originals, entry.explanation.contributions, strict=True):
        assert (original.row, original.label, original.complete) == (item.row, item.label, True)
        values = np.array(list(original.values.values()), dtype=np.float32)
        np.testing.assert_array_equal(values, features[item.row])


def test_explain_data__compares_with_the_batches_it_explains(request_for: Make, engine: Engine) -> None:
    request = request_for(5, batches=0)
    found = explain_data(replace(request, reference=request.data), engine)
    assert found.reference is not None
    assert (found.reference.n_batches, found.reference.n_rows) == (0, 400)
    assert found.describe()["rows"][0]["familiarity_p_value"] == 1


@pytest.mark.parametrize(
    ("rows", "options", "code", "fact"),
    [
        ([], {}, "setting-missing", "--row"),
        ([3, -1], {}, "bad-setting", -1),
        ([1], {"most": -1}, "bad-setting", "most is -1"),
        ([1], {"batches": -1}, "bad-setting", "batches is -1"),
    ],
)
def test_check_request__refuses(
    request_for: Make, rows: list[int], options: dict[str, Any], code: Code, fact: object
) -> None:
    with refused(code, fact):
        check_request(request_for(*rows, **options))


def test_check_request__refuses_files_of_other_kinds(request_for: Make) -> None:
    with refused("bad-setting", "x.pdf", ".csv", ".parquet", ".xlsx"):
        check_request(request_for(1, out="x.pdf"))


def test_check_request__asks_for_the_output_before_anything_is_read(
    request_for: Make, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken.csv"
    taken.write_text("mine")
    monkeypatch.setattr(module, "load_model", lambda *_: pytest.fail("the model was read"))
    with refused("exists", taken, "overwrite=True", kind=OutputExistsError):
        explain_data(request_for(1, out=str(taken)), engine)
    assert taken.read_text() == "mine"


def test_export_model__refuses_before_it_reads(request_for: Make, engine: Engine, tmp_path: Path) -> None:
    model = request_for(1).model
    with refused("settings-conflict"):
        export_model(model, str(tmp_path / "w.csv"), what="weights", training="d.zarr", overwrite=False, engine=engine)
    assert list(tmp_path.iterdir()) == []
    written = export_model(
        model, str(tmp_path / "w.xlsx"), what="weights", training=None, overwrite=False, engine=engine
    )
    assert [table.name for table in written.tables] == ["feature weights"]
    assert to_json(written.describe())
