"""The graph of a pipeline: which step reads what another one writes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.commands import check_failed, run_command

from protodask.pipeline.file.definition import read_pipeline
from protodask.pipeline.file.graph import graph_of, graph_svg, graph_text

TEXT = """
steps:
  - ingest: {sources: [a.csv, b.csv], out: data.zarr}
  - split: {data: data.zarr, out: t.zarr, held-out: h.zarr}
  - fit: {data: t.zarr, out: model.zarr}
  - {name: scores, evaluate: {model: model.zarr, data: h.zarr, out: "s<3>.json"}}
  - publish: {model: model.zarr, registry: "https://me:secret@host/models", metrics: "${scores}"}
  - predict: {model: "https://me:secret@host/models@champion", data: c.csv, out: p.csv}
"""

EXPECTED = """\
 1  ingest-1   a.csv, b.csv -> data.zarr
 2  split-2    data.zarr (of 1) -> t.zarr, h.zarr
 3  fit-3      t.zarr (of 2) -> model.zarr
 4  scores     model.zarr (of 3), h.zarr (of 2) -> s<3>.json
 5  publish-5  model.zarr (of 3), s<3>.json (of 4) -> https://***@host/models
 6  predict-6  https://***@host/models@champion (of 5), c.csv -> p.csv"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "p.yaml"
    place.write_text(TEXT)
    return place


def test_graph__says_of_which_step_things_are(path: Path) -> None:
    nodes = graph_of(read_pipeline(str(path)))
    assert graph_text(nodes) == EXPECTED
    assert [node.after for node in nodes] == [(), (1,), (2,), (3, 2), (3, 4), (5,)]


def test_graph__draws_each_step_below_those_that_it_comes_after(path: Path) -> None:
    nodes = graph_of(read_pipeline(str(path)))
    drawn = ElementTree.fromstring(graph_svg(nodes))
    boxes = [box for box in drawn.iter("{http://www.w3.org/2000/svg}rect") if box.get("rx")]
    heights = [int(box.get("y", "")) for box in boxes]
    assert len(boxes) == len(nodes)
    assert all(
        heights[number - 1] < height for node, height in zip(nodes, heights, strict=True) for number in node.after
    )
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}path"))) == sum(len(node.after) for node in nodes)
    assert "secret" not in graph_svg(nodes)


def test_run__draws_and_does_nothing(path: Path, tmp_path: Path) -> None:
    assert run_command("run", path, "--graph", "-").stdout == EXPECTED + "\n"
    assert len(json.loads(run_command("run", path, "--graph", "-", "--json").stdout)["steps"]) == 6
    done = run_command("run", path, "--graph", tmp_path / "p.svg")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    check_failed(run_command("run", path, "--graph", tmp_path / "p.svg"), 2, "exists", "p.svg")
    elsewhere = run_command("run", path, "--graph", "https://example.org/p.svg")
    check_failed(elsewhere, 2, "not-local", "https://example.org/p.svg")
    check_failed(run_command("run", path, "--graph", "-", "--dry-run"), 2, "settings-conflict", "--dry-run")
    check_failed(run_command("run", path, "--graph", tmp_path / "p.bmp"), 2, "bad-setting", "p.bmp", ".svg")
    assert {place.name for place in tmp_path.iterdir()} == {"p.yaml", "p.svg"}
