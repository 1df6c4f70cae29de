"""Reports on made-up models, with names that no page should trip over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protodask.data.format.schema import Column
from protodask.engine import Engine, array_source
from protodask.explain.report import Content, Rows, make_content, render
from protodask.prototypes.model import PrototypeSet
from protodask.selection.results import SearchResult, Trial

MakeModel = Callable[..., PrototypeSet]
MakeContent = Callable[..., Content]

HOSTILE = (
    "<script>window.broken = 1</script>",
    "</script><img src=x onerror='window.broken=2'>",
    "\"quoted\" & 'single' &amp; <!-- comment",
    "$x_1$ and \\alpha",
    "line one\nline two\ttab\x00nul\x1b[31m",
    "\u202eright to left\u202c \u05e9\u05dc\u05d5\u05dd",
    "]]> </style><style>body{display:none}</style>",
    "a_name_of_sixty_characters_without_any_place_to_break_it_at_a",
    "\ud800 lone surrogate \ufffe",
    "javascript:window.broken=3",
)


@pytest.fixture(scope="session")
def hostile_model(make_model: MakeModel) -> PrototypeSet:
    """A model whose every name is hostile, with a history that is, too."""
    model = make_model(5, prototypes=(30, 0, 12), n_features=len(HOSTILE), n_classes=len(HOSTILE))
    batch = {"batch": 1, "status": HOSTILE[0], "seconds": 1.5, "iterations": 3, "evaluations": 4, "value": 0.5}
    fit = {
        "dataset": HOSTILE[1],
        "rows": 1000,
        "config": {HOSTILE[2]: HOSTILE[3]},
        "environment": {"processor": HOSTILE[4]},
        "batches": [
            {**batch, "values": [3.0, 2.0, 1.0]},
            "no record",
            {**batch, "batch": 3, "values": [0.9, "x", 0.8]},
        ],
    }
    return replace(
        model,
        classes=HOSTILE,
        feature_names=HOSTILE,
        columns=tuple(Column(name) for name in HOSTILE),
        target_name=HOSTILE[5],
        provenance={"fits": [fit]},
    )


@pytest.fixture(scope="session")
def content_of(engine: Engine) -> MakeContent:
    """What a page on some made-up rows shows; `drift` shifts other rows by so much."""

    def make(
        model: PrototypeSet, *, n_rows: int = 400, drift: float | None = None, weighted: bool = False, **options: Any
    ) -> Content:
        rng = np.random.default_rng(1)

        def rows(name: str, shift: float = 0.0) -> Rows:
            arrays: dict[str, Any] = {
                "features": rng.normal(shift, 1, size=(n_rows, model.n_features)),
                "target": rng.integers(0, model.n_classes, n_rows).astype(np.int32),
            }
            if weighted:
                arrays["weight"] = rng.uniform(0, 2, n_rows)
            return Rows(array_source(arrays, 128), name, model.classes)

        other = None if drift is None else rows("other & later", drift)
        codes = np.arange(model.n_classes)
        return make_content(model, "a <model>", rows("some rows"), codes, engine, other=other, **options)

    return make


@pytest.fixture(scope="session")
def search() -> SearchResult:
    """A search whose rule has a hostile name."""
    trials = tuple(Trial(1, 10.0**-power, 1e-8, 1, (0.5, 0.6 + power / 10)) for power in range(4))
    return SearchResult("joint", trials, 0, 1, "one standard error, <b>said</b>")


@pytest.fixture(scope="session")
def page(content_of: MakeContent, hostile_model: PrototypeSet, search: SearchResult) -> str:
    """A report whose names are hostile, with every section filled, under a long title."""
    title = (
        "A title with <b>markup</b> & of more than just sixty characters_without_a_break_in_it_at_all"
        f" {hostile_model.classes[1]}"
    )
    return render(replace(content_of(hostile_model, drift=0.5, title=title), search=search))


@pytest.fixture(scope="session")
def page_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on the disk."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path
