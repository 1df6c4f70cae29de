"""The page as a file: what is in it, and that nothing in it comes from elsewhere or runs uninvited."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from support import models
from support.models import looking_at_differences, looking_at_scores

from protodask.engine import array_source, thread_engine
from protodask.explain.explanation import visible
from protodask.explain.report import Content, Rows, make_content, render
from protodask.explain.report import page as page_module
from protodask.explain.report.figures import Figures
from protodask.explain.report.inside import prototype_data, strongest_prototypes
from protodask.explain.report.page import render_section
from protodask.prototypes.fitted import familiarity
from protodask.prototypes.model import PrototypeSet
from protodask.selection.results import SearchResult

MakeModel = Callable[..., PrototypeSet]
MakeContent = Callable[..., Content]

VOID = {"meta", "wbr", "br", "input", "link", "img"}


class Page(HTMLParser):
    """All elements with their attributes, and the text outside of scripts and styles."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.code: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.code:
            self.code[self._open[-1]].append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second or so, and some tests do not look at figures."""
    monkeypatch.setattr(page_module, "figures", lambda content, styles: Figures())


def test_render__shows_hostile_names_as_text(page: str, hostile_model: PrototypeSet) -> None:
    found = Page(page)
    for label in hostile_model.classes:
        assert visible(label) in found.text
    assert [tag for tag, _ in found.elements].count("script") == 2
    assert [tag for tag, _ in found.elements].count("style") == 1
    assert not [tag for tag, _ in found.elements if tag in ("img", "iframe", "object", "link", "base", "b")]


def test_render__shows_the_class_of_a_batch_as_text(make_model: MakeModel, content_of: MakeContent) -> None:
    model = make_model(0, prototypes=(1,), classes=("<b>one</b>", "<script>", "</table>"))
    found = Page(render_section("features", content_of(model)))
    assert f"Batch 1, {model.label_of(model.batches[0])}" in found.text
    assert {tag for tag, _ in found.elements}.isdisjoint({"b", "script"})


def test_render__loads_nothing_and_has_no_inline_code_or_style(page: str) -> None:
    for tag, attributes in Page(page).elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            assert key != "style", tag
            if key in ("src", "href", "xlink:href", "action"):
                assert (value or "").startswith(("#", "data:")), (tag, value)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_render__policy_allows_this_script_and_style_and_nothing_else(page: str) -> None:
    found = Page(page)
    (policy,) = (a["content"] for tag, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(part.strip().split(" ", 1) for part in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    for kind, source in (("style-src", found.code["style"][0]), ("script-src", found.code["script"][-1])):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"


def test_render__ids_are_unique_and_references_have_their_target(page: str) -> None:
    elements = Page(page).elements
    ids = [value for _, attributes in elements if (value := attributes.get("id")) is not None]
    assert len(ids) == len(set(ids))
    for _, attributes in elements:
        for key, value in attributes.items():
            if key == "href" and (value or "").startswith("#"):
                assert (value or "")[1:] in ids
            for wanted in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert wanted in ids
            if key in ("aria-labelledby", "aria-controls"):
                assert value in ids


def test_render__every_figure_has_a_text_alternative(page: str) -> None:
    figures = [attributes for tag, attributes in Page(page).elements if attributes.get("role") == "img"]
    assert len(figures) == 5
    assert all(len(attributes["aria-label"] or "") > 40 for attributes in figures)


@pytest.mark.slow
def test_render__is_the_same_file_for_the_same_content(
    make_model: MakeModel, content_of: MakeContent, search: SearchResult
) -> None:
    model = make_model(prototypes=(5,), n_features=2, n_classes=2)
    first, second = (render(replace(content_of(model, drift=0.5), search=search)) for _ in range(2))
    assert first == second
    assert first.count("<svg") >= 4


def test_render__colours_of_figures_are_variables(page: str) -> None:
    style = Page(page).code["style"][0]
    rules = style[style.index(".s0{") :]
    assert "var(--ink)" in rules
    assert set(re.findall(r"#[0-9a-f]{6}", rules)) <= {"#000000"}, "black is what nothing was set for"


def test_render__data_of_the_prototypes_is_what_the_model_holds(page: str, hostile_model: PrototypeSet) -> None:
    data = json.loads(Page(page).code["script"][0])
    assert data["classes"] == [visible(label) for label in hostile_model.classes]
    for stored, batch in zip(data["batches"], hostile_model.batches, strict=True):
        assert stored["row"] == batch.row.tolist()
        np.testing.assert_allclose(
            np.array(stored["values"]).reshape(batch.prototypes.shape), batch.prototypes, rtol=1e-5
        )


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(("n_classes", "weighted"), [(2, True), (30, False), (100, True)])
def test_render__any_number_of_classes(
    n_classes: int, weighted: bool, make_model: MakeModel, content_of: MakeContent
) -> None:
    model = make_model(n_classes, prototypes=(40,), n_classes=n_classes)
    found = Page(render(content_of(model, weighted=weighted, drift=0.0)))
    assert f" of {n_classes}" in found.text
    assert ("Effective rows" in found.text) == weighted


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("prototypes", [(), (0,), (1,), (0, 3)])
def test_render__models_with_next_to_nothing_in_them(
    prototypes: tuple[int, ...], make_model: MakeModel, content_of: MakeContent
) -> None:
    found = Page(render(content_of(make_model(0, prototypes=prototypes))))
    assert ("no prototypes" in found.text) == (sum(prototypes) == 0)
    assert "Nothing was compared" in found.text
    assert "The model does not say how its training went." in found.text


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    "provenance",
    [
        {"fits": 3},
        {"fits": [None, {"batches": 4, "config": [], "rows": "many"}]},
        {"fits": [{"batches": [{}]}]},
        {"fits": [{"batches": [{"kept": False}, {"batch": "<i>", "kept": False, "batches": []}]}]},
    ],
)
def test_render__provenance_may_hold_anything(
    provenance: dict[str, Any], make_model: MakeModel, content_of: MakeContent
) -> None:
    assert "Settings" in Page(render(content_of(replace(make_model(0), provenance=provenance)))).text


@pytest.mark.usefixtures("without_figures")
def test_render__tells_rounds_from_batches_and_which_are_not_in_the_model(
    make_model: MakeModel, content_of: MakeContent
) -> None:
    """A round of several batches was called one of them, also where the model had none of it."""
    records = [{"batch": 1, "batches": 21, "kept": False}, {"batch": 2, "batches": 1}, {"batch": 3, "kept": False}]
    found = Page(render(content_of(replace(make_model(0), provenance={"fits": [{"batches": records}]}))))
    assert "Costs by round" in found.text
    assert "Not in the model, as other draws lose clearly less on rows held out: round 1, 3." in found.text
    kept = Page(render(content_of(replace(make_model(0), provenance={"fits": [{"batches": records[1:2]}]}))))
    assert "Not in the model" not in kept.text


@pytest.mark.usefixtures("without_figures")
def test_render__says_so_where_the_model_was_trained_on_these_rows(
    make_model: MakeModel, content_of: MakeContent
) -> None:
    content = content_of(replace(make_model(0), provenance={"fits": [{"dataset": "abc"}]}))
    assert "the model was trained on" not in Page(render(content)).text
    assert "the rows the model was trained on" in Page(render(replace(content, data_key="abc"))).text


@pytest.mark.usefixtures("without_figures")
def test_render__uses_as_many_batches_as_asked_for(make_model: MakeModel, content_of: MakeContent) -> None:
    model = make_model(0, prototypes=(5, 9))
    content = content_of(model, n_batches=1)
    assert len(prototype_data(content)["batches"]) == 1
    assert "1 of 2" in Page(render(content)).text


@pytest.mark.parametrize("title", [None, "", " \n"])
def test_make_content__always_has_a_headline(title: str | None, make_model: MakeModel, content_of: MakeContent) -> None:
    assert content_of(make_model(0), title=title).title == "Model report"


@pytest.mark.usefixtures("without_figures")
def test_make_content__counts_used_features_and_names_the_rows_of_its_sample(
    make_model: MakeModel, content_of: MakeContent
) -> None:
    model = make_model(0)
    content = content_of(model, n_batches=0, weighted=True)
    assert f"0 used of {model.n_features}" in Page(render(content)).text
    reference = content_of(model, weighted=True).reference
    features = np.random.default_rng(1).normal(0, 1, size=(400, model.n_features))
    expected = familiarity(model.scores(features[reference.rows], [model.n_batches])[0])
    np.testing.assert_allclose(reference.familiarity, expected, rtol=1e-9)
    assert (np.diff(reference.familiarity) >= 0).all()


def test_strongest_prototypes__fit_the_page(make_model: MakeModel, content_of: MakeContent) -> None:
    model = make_model(0, prototypes=(50, 60))
    width = model.batches[0].n_features + 4
    kept = strongest_prototypes(model.batches, 20 * width)
    assert sum(map(len, kept)) == 20
    weights = np.concatenate([batch.prototype_weight for batch in model.batches])
    chosen = np.concatenate([batch.prototype_weight[kept[k]] for k, batch in enumerate(model.batches)])
    np.testing.assert_array_equal(np.sort(chosen), np.sort(weights)[-20:])
    assert "room for the 20 of largest weight" in render_section(
        "prototypes", content_of(model), most_values=20 * width
    )


def test_render__draws_figures_of_a_model_without_batches(make_model: MakeModel, content_of: MakeContent) -> None:
    found = Page(render(content_of(make_model(0, prototypes=()), n_rows=5)))
    assert [attributes.get("role") for _, attributes in found.elements].count("img") == 2


@pytest.mark.usefixtures("without_figures")
def test_render__is_the_same_for_any_number_of_threads(make_model: MakeModel) -> None:
    model = make_model(3, prototypes=(20, 5))
    rng = np.random.default_rng(0)
    arrays = {"features": rng.normal(size=(900, 4)), "target": rng.integers(0, 3, 900)}
    pages = []
    for threads in (1, 3):
        rows = Rows(array_source(arrays, 64), "rows", model.classes)
        with thread_engine(threads) as engine:
            pages.append(render(make_content(model, "model", rows, np.arange(3), engine, training=rows)))
    assert pages[0] == pages[1]


@pytest.mark.usefixtures("without_figures")
def test_render__says_so_where_other_data_is_called_the_training_data(
    make_model: MakeModel, content_of: MakeContent
) -> None:
    model = replace(make_model(0), provenance={"fits": [{"dataset": "abc"}, {"dataset": "def"}]})
    content = content_of(model, drift=0.0)
    for key, expected in ((None, False), ("def", False), ("xyz", True)):
        page = Page(render(replace(content, training_key=key)))
        assert ("is not the dataset that the model was trained on" in page.text) == expected


def test_report__lists_both_forms_and_shows_each_value_once(content_of: MakeContent) -> None:
    model = looking_at_scores(models.make_model(1, n_active=4))
    content = content_of(model)
    assert "x0 (normal score)" in render_section("features", content)
    assert "The model looks at every feature" in render_section("features", content)
    batch, shown = model.batches[0], prototype_data(content)["batches"][0]
    assert shown["features"] == [0, 1, 2, 3]
    assert shown["weights"][0] == pytest.approx(batch.feature_weight[:2].max(), rel=1e-3)
    assert len(shown["values"][0]) == 4
    assert render_section("prototypes", content).count("x0") == sum(batch.n_prototypes for batch in model.batches)


def test_report__lists_differences_by_themselves(content_of: MakeContent) -> None:
    model = looking_at_differences(models.make_model(1, n_active=4), [(0, 1, 0.5), (0, 3, -2.0)])
    content, batch = content_of(model), model.batches[-1]
    assert "x0 - 0.5 x1" in render_section("features", content)
    data = prototype_data(content)
    assert data["features"] == ["x0", "x1", "x2", "x3", "x0 - 0.5 x1", "x0 + 2 x3"]
    shown = data["batches"][-1]
    assert shown["features"] == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(shown["values"], batch.prototypes, rtol=1e-3)
    assert render_section("prototypes", content).count("x0 + 2 x3") == batch.n_prototypes


def test_report__tells_features_apart_that_are_called_alike(content_of: MakeContent) -> None:
    names = ("x", "x (normal score)", "x - 0.5 y", "y")
    model = looking_at_scores(models.make_model(1, n_active=4, feature_names=names))
    model = looking_at_differences(model, [(0, 3, 0.5)])
    listed = render_section("features", content_of(model))
    for label, times in (("x", 1), ("x (normal score)", 2), ("x - 0.5 y", 2), ("y", 1)):
        assert listed.count(f'data-sort="{label}"') == times
    assert prototype_data(content_of(model))["batches"][-1]["features"] == [0, 1, 2, 3, 4]
