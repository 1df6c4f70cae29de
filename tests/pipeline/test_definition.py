"""Pipeline files."""

import os
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.errors import refused

from protodask.errors import Code, FormatError, ProtodaskError, StorageError
from protodask.pipeline.file import places
from protodask.pipeline.file.definition import parse_settings, read_pipeline
from protodask.pipeline.file.values import as_written, convert
from protodask.pipeline.state.staleness import planned
from protodask.pipeline.steps.evaluate import EvaluateStep
from protodask.pipeline.steps.fit import FitStep
from protodask.pipeline.steps.ingest import IngestStep, SampleDataStep

SAMPLE = "steps:\n  - sample-data: {kind: checker, rows: 5, out: a}\n"


def _write(folder: Path, text: str) -> str:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return str(path)


def test_read__steps_in_order_with_their_settings(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        description: An example.
        variables: {folder: out, rows: 100, penalty: 1e-3}
        steps:
          - sample-data: {kind: xor, rows: "${rows}", out: "${folder}/data", features: 3}
          - ingest:
              sources: [a.csv, b.csv]
              out: other
              ordinal: {size: [small, large]}
              drop: name
          - fit: {data: "${folder}/data", out: m, lambda-v: "${penalty}", alpha_v: 1, standardize: false, seed: null}
          - evaluate: {model: m, data: "${folder}/data", roc-auc: false}
        """,
    )
    found = read_pipeline(path)
    assert found.steps == (
        SampleDataStep("xor", 100, "out/data", features=3),
        IngestStep(("a.csv", "b.csv"), "other", ordinal={"size": ("small", "large")}, drop=("name",)),
        FitStep("out/data", "m", lambda_v=1e-3, alpha_v=1.0, standardize=False),
        EvaluateStep(model="m", data="out/data", roc_auc=False),
    )


def test_read__set_replaces_defaults_and_what_follows_from_them(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "variables: {root: a, out: '${root}/b', rows: 1}\n"
        "steps:\n  - sample-data: {kind: checker, rows: '${rows}', out: '${out}/c'}\n",
    )
    assert read_pipeline(path).steps == (SampleDataStep("checker", 1, "a/b/c"),)
    settings = parse_settings(["root=z", "rows=7"])
    assert read_pipeline(path, settings).steps == (SampleDataStep("checker", 7, "z/b/c"),)


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ("", "setting-missing", "steps:"),
        ("steps: []", "setting-missing", "steps:"),
        ("stages: []", "unknown-key", "description, variables, state, overlap, notify, steps"),
        ("- a", "wrong-kind", "name: value"),
        ("steps: [sample-data]", "bad-setting", "step 1"),
        ("steps: [{train: {}}]", "unknown-name", "'train'"),
        ("steps: [{fit: {}, predict: {}}]", "bad-setting", "sample-data, ingest"),
        ("steps: [{fit: }]", "bad-setting", "data, out, config"),
        ("steps: [{fit: {data: a}}]", "setting-missing", "out:"),
        ("steps: [{fit: {data: a, out: b, lambda: 1}}]", "unknown-key", "data, out, config"),
        ("steps: [{fit: {data: a, out: b, lambda-v: x}}]", "bad-setting", "lambda-v is 'x'"),
        ("steps: [{fit: {data: a, out: b, batches: 1.0}}]", "bad-setting", "batches is 1.0"),
        ("steps: [{fit: {data: a, out: b, batches: true}}]", "bad-setting", "batches is True"),
        ("steps: [{fit: {data: a, out: b, overwrite: 1}}]", "bad-setting", "overwrite is 1"),
        ("steps: [{fit: {data: [a], out: b}}]", "bad-setting", "data is ['a']"),
        ("steps: [{fit: {data: true, out: b}}]", "bad-setting", "data is True"),
        ("steps: [{fit: {data: a, out: b, alpha-v: 1, alpha_v: 1}}]", "named-twice", "'alpha-v'"),
        ("steps: [{sample-data: {kind: chess, rows: 5, out: a}}]", "unknown-name", "checker, xor, digits or blobs"),
        ("steps: [{ingest: {sources: a, out: b, ordinal: [x]}}]", "bad-setting", "ordinal is ['x']"),
        ("steps: [{ingest: {sources: a, out: b, ordinal: {1: [x], '1': [x]}}}]", "named-twice", "ordinal"),
        ("steps: [{fit: {data: '${a}', out: b}}]", "unknown-name", "'a'"),
        ("variables: {b: 1}\nsteps: [{fit: {data: 'x${a}', out: b}}]", "unknown-name", "known there are b"),
        ("variables: {b: '${c}', c: 1}\n" + SAMPLE, "unknown-name", "'c'"),
        ("variables: {b: [1]}\n" + SAMPLE, "bad-setting", "b is [1]"),
        ("variables: {b-c: 1}\n" + SAMPLE, "bad-setting", "'b-c'"),
        ("variables: [b]\n" + SAMPLE, "bad-setting", "['b']"),
        ("description: 1\n" + SAMPLE, "bad-setting", "description is 1"),
        ("steps: [\n", "unreadable", "line 2"),
        (SAMPLE + SAMPLE, "unreadable", "second time, line 3"),
        ("steps: !!python/object/apply:os.system [ls]", "unreadable", "os.system"),
        ('steps: [{fit: {data: "a\\0", out: b}}]', "unreadable", "line 1"),
        ('steps: [{fit: {data: "a\\ud800", out: b}}]', "unreadable", "line 1"),
        ('"a\\0": 1', "unreadable", "line 1"),
    ],
)
def test_read__refuses_with_the_file_and_a_remedy(text: str, code: Code, fact: str, tmp_path: Path) -> None:
    path = _write(tmp_path, text)
    with refused(code, fact) as caught:
        read_pipeline(path)
    assert path in caught.value.seen


@pytest.mark.parametrize("key", ["url", "command"])
@pytest.mark.parametrize("value", ["[https://host.example/hidden]", "{a: https://host.example/hidden}"])
def test_notify__never_shows_an_address_that_is_no_text(key: str, value: str, tmp_path: Path) -> None:
    path = _write(tmp_path, f"notify: {{{key}: {value}}}\n{SAMPLE}")
    with refused("bad-setting", "line 1", key) as caught:
        read_pipeline(path)
    assert "hidden" not in str(caught.value)


def test_read__names_step_and_key(tmp_path: Path) -> None:
    path = _write(tmp_path, SAMPLE + "  - fit: {data: a, out: b, max-iteration: 5}\n")
    with refused("unknown-key", "step 2 (fit)", "'max-iteration'"):
        read_pipeline(path)


def test_read__missing_file(tmp_path: Path) -> None:
    with refused("not-found", tmp_path / "none.yaml", kind=StorageError):
        read_pipeline(str(tmp_path / "none.yaml"))


def test_read__file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_bytes(b"\xff\xfe\x00steps")
    with refused("unreadable", path, "UTF-8"):
        read_pipeline(str(path))


def test_read__unknown_setting(tmp_path: Path) -> None:
    path = _write(tmp_path, "variables: {rows: 5}\n" + SAMPLE)
    with refused("unknown-name", "'row'", "Its variables are rows"):
        read_pipeline(path, {"row": "5"})


TRICKY = [
    "01",
    "2024_10",
    "12:30",
    "on",
    "no",
    "1.10",
    "0x1F",
    "010",
    "1e3",
    "+5",
    "true",
    "null",
    "~",
    "2026-06-31",
    "",
]
"""Text that YAML 1.1 takes for something else."""


@pytest.mark.parametrize("text", TRICKY)
def test_variables__stay_text_as_they_are_written(text: str, tmp_path: Path) -> None:
    file = "variables: {{month: {}}}\nsteps: [{{fit: {{data: 'data-${{month}}.zarr', out: m}}}}]"
    path = _write(tmp_path, file.format("x"))
    wanted = (FitStep(f"data-{text}.zarr", "m"),)
    assert read_pipeline(path, parse_settings([f"month={text}"])).steps == wanted
    assert read_pipeline(path, environment={"PROTODASK_VAR_month": text}).steps == wanted
    if text not in ("null", "~", ""):
        assert read_pipeline(_write(tmp_path, file.format(text))).steps == wanted


@given(value=st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text()))
def test_settings__stay_text(value: object) -> None:
    assert parse_settings([f"name={value}"]) == {"name": str(value)}


@given(value=st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)))
def test_values__are_converted_by_the_field_they_land_in(value: int | float) -> None:
    for text in {str(value), as_written(value)}:
        found = convert(text, type(value), "it")
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("batches", "01", 1),
        ("batches", "1_000", 1000),
        ("lambda-v", "1e-3", 1e-3),
        ("lambda-v", ".5", 0.5),
        ("standardize", "off", False),
        ("standardize", "Yes", True),
        ("standardize", "true", True),
        ("run-dir", "1.50", "1.50"),
        ("run-dir", "1.5", "1.5"),
        ("run-dir", "08", "08"),
    ],
)
def test_read__of_values_as_they_are_written(setting: str, text: str, value: object, tmp_path: Path) -> None:
    path = _write(tmp_path, f"variables: {{a: 0}}\nsteps: [{{fit: {{data: a, out: b, {setting}: {text}}}}}]")
    (step,) = read_pipeline(path).steps
    assert getattr(step, setting.replace("-", "_")) == value
    given = _write(tmp_path, f"variables: {{a: 0}}\nsteps: [{{fit: {{data: a, out: b, {setting}: '${{a}}'}}}}]")
    assert read_pipeline(given, {"a": text}).steps == (step,)


@pytest.mark.parametrize(("setting", "text"), [("batches", "12:30"), ("batches", "0x1F"), ("standardize", "1")])
def test_read__of_values_that_are_none_of_the_field(setting: str, text: str, tmp_path: Path) -> None:
    path = _write(tmp_path, f"steps: [{{fit: {{data: a, out: b, {setting}: {text}}}}}]")
    with refused("bad-setting", f"{setting} is"):
        read_pipeline(path)


def test_read__merges_mappings_and_names_lines_of_what_replaces_them(tmp_path: Path) -> None:
    text = (
        "steps:\n"
        "  - fit: &base {data: a, out: b, lambda-v: 0.1, batches: 2}\n"
        "  - fit: &more\n      <<: *base\n      out: c\n      batches: 3\n"
        "  - fit:\n      <<: *more\n      out: d\n"
    )
    found = read_pipeline(_write(tmp_path, text))
    assert found.steps == (
        FitStep("a", "b", lambda_v=0.1, batches=2),
        FitStep("a", "c", lambda_v=0.1, batches=3),
        FitStep("a", "d", lambda_v=0.1, batches=3),
    )
    with refused("bad-setting", "line 6, step 2 (fit): batches is 'x'"):
        read_pipeline(_write(tmp_path, text.replace("batches: 3", "batches: x")))
    with refused("unreadable", "'out' stands here a second time, line 6"):
        read_pipeline(_write(tmp_path, text.replace("batches: 3", "out: c")))


@pytest.mark.parametrize(
    ("settings", "code", "fact"),
    [(["rows"], "bad-setting", "'rows'"), (["=5"], "bad-setting", "'=5'"), (["a=1", "a=2"], "named-twice", "'a'")],
)
def test_settings__refused(settings: list[str], code: Code, fact: str) -> None:
    with refused(code, fact):
        parse_settings(settings)


def test_settings__an_address_that_sets_nothing_is_not_shown() -> None:
    with refused("bad-setting", "rows=1000") as caught:
        parse_settings(["https://host.example/hidden"])
    assert "hidden" not in str(caught.value)


def test_settings__text_with_equals_signs() -> None:
    assert parse_settings(["where=a=b"]) == {"where": "a=b"}


LETTERS = list(pairwise("abcdefghij"))
NINE = ", ".join(["*?"] * 9)

BOMBS: dict[str, tuple[str, Code, object]] = {
    "aliases": (
        "a: &a [x]\n" + "".join(f"{b}: &{b} [{NINE.replace('?', a)}]\n" for a, b in LETTERS),
        "unreadable",
        2**20,
    ),
    "merges": (
        "a: &a {x: 1}\n" + "".join(f"{b}: &{b} {{<<: [{NINE.replace('?', a)}]}}\n" for a, b in LETTERS),
        "unreadable",
        1048576,
    ),
    "variables": (
        "variables:\n  a: xxxxxxxx\n"
        + "".join(f"  {b}: '{f'${{{a}}}' * 50}'\n" for a, b in LETTERS)
        + "steps:\n- fit: {data: '${j}', out: y}",
        "over-limit",
        65536,
    ),
    "base 60": ("steps: !!int " + "1:" * 10_000 + "1", "unreadable", "number is too long, line 1"),
    "long number": ("steps: " + "1" * 5000, "unreadable", "number is too long, line 1"),
    "hexadecimal": ("steps: !!int 0x" + "f" * 10_000, "unreadable", "number is too long, line 1"),
    "deep": ("steps: " + "[" * 600, "unreadable", "recursion"),
    "large": ("steps: " + "x" * 2**18, "over-limit", 2**18),
    "itself": ("steps: &a [*a]", "unreadable", "contains itself, line 1"),
}
"""Files, the code of their error, and what they have too much of."""


@pytest.mark.parametrize("name", BOMBS)
def test_read__refuses_files_that_stand_for_more_than_they_hold(name: str, tmp_path: Path) -> None:
    text, code, too_much = BOMBS[name]
    path = _write(tmp_path, text)
    tracemalloc.start()
    try:
        with refused(code, path, too_much, kind=ProtodaskError) as caught:
            read_pipeline(path)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("!!bool maybe", "unreadable"),
        ("!!int ''", "unreadable"),
        ("!!float ''", "unreadable"),
        ("!!timestamp 2026-06-31", "unreadable"),
        ("!!timestamp x", "unreadable"),
        ("!!binary '*'", "bad-setting"),
        ("? [a]", "unreadable"),
        ("!!set [1]", "unreadable"),
    ],
)
def test_read__of_values_that_do_not_fit_their_tag(value: str, code: Code, tmp_path: Path) -> None:
    path = _write(tmp_path, f"description: {value}\nsteps: []")
    with refused(code, path):
        read_pipeline(path)


def test_read__of_a_pipe_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipeline.yaml")
    with refused("wrong-kind", tmp_path / "pipeline.yaml", kind=FormatError):
        read_pipeline(str(tmp_path / "pipeline.yaml"))


def test_read__through_a_link(tmp_path: Path) -> None:
    path = _write(tmp_path, SAMPLE)
    (tmp_path / "link.yaml").symlink_to(path)
    assert read_pipeline(str(tmp_path / "link.yaml")).steps == read_pipeline(path).steps


def test_names__stand_for_outputs_of_steps_above(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        """
        variables: {folder: made}
        steps:
          - {name: rows, sample-data: {kind: checker, rows: 5, out: "${folder}/rows.zarr"}}
          - name: model
            fit: {data: "${rows}", out: "${folder}/m.zarr"}
          - evaluate: {data: "${rows.out}", model: "${model}", out: "${model}.json"}
        """,
    )
    found = read_pipeline(path)
    assert found.steps == (
        SampleDataStep("checker", 5, "made/rows.zarr"),
        FitStep("made/rows.zarr", "made/m.zarr"),
        EvaluateStep("made/m.zarr", "made/rows.zarr", out="made/m.zarr.json"),
    )
    assert found.names == ("rows", "model", "")
    assert [found.name(number) for number in (1, 2, 3)] == ["rows", "model", "evaluate-3"]
    assert found.lines == (4, 5, 7)


MISSPELT = "steps:\n  - fit:\n      data: a\n      out: b\n      bacthes: 3\n"


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("steps:\n  - {name: a b, fit: {data: a, out: b}}", "bad-setting", ["line 2, step 1", "'a b'"]),
        ("steps:\n  - {name: 5, fit: {data: a, out: b}}", "bad-setting", ["line 2, step 1", "name 5"]),
        ("variables: {a: 1}\nsteps:\n  - {name: a, fit: {data: a, out: b}}", "named-twice", ["line 3, step 1", "'a'"]),
        ("steps:\n" + "  - {name: a, fit: {data: a, out: b}}\n" * 2, "named-twice", ["line 3, step 2", "'a'"]),
        ("steps:\n  - {name: a, fit: {data: '${a}', out: b}}", "unknown-name", ["'a'", "variables:"]),
        (
            "steps:\n  - {name: a, evaluate: {data: d, model: m}}\n  - fit: {data: '${a}', out: b}",
            "unknown-name",
            ["'a'"],
        ),
        ("steps:\n  - {name: a}", "bad-setting", ["sample-data, ingest"]),
        ("steps:\n  - fti: {data: a, out: b}", "unknown-name", ["'fti'", "Did you mean fit?"]),
        (MISSPELT, "unknown-key", ["line 5, step 1 (fit)", "'bacthes'", "Did you mean batches?", "data, out"]),
        (
            "steps:\n  - fit:\n      data: a\n      out: b\n\n      batches: x\n",
            "bad-setting",
            ["line 6, step 1 (fit): batches is 'x'"],
        ),
        ("steps:\n  - fit:\n      data: a\n      out: ${o}\n", "unknown-name", ["line 4, step 1 (fit): out", "'o'"]),
        (
            "variables:\n  folder: a\nsteps:\n  - fit: {data: '${foldr}', out: b}",
            "unknown-name",
            ["'foldr'", "Did you mean folder?"],
        ),
        ("variables:\n  a: 1\n  b: [1]\nsteps: []", "bad-setting", ["line 3: variables: b is [1]"]),
        ("\nstep: []", "unknown-key", ["line 2", "'step'", "Did you mean steps?"]),
        (
            "steps:\n  - ingest:\n      sources: a.csv\n      append: true\n      out: b\n",
            "unknown-key",
            ["line 4, step 1 (ingest)", "'append'", "Write `new: true`"],
        ),
        ("overlap: never\n" + SAMPLE, "unknown-name", ["line 1: overlap is 'never'", "refuse, wait or leave"]),
        ("state: s3://bucket/state\n" + SAMPLE, "not-local", ["s3://bucket/state"]),
        ("state: 5\n" + SAMPLE, "bad-setting", ["state is 5"]),
        ("steps: [{sample-data: {kind: xor, rows: 1, out: ''}}]", "setting-missing", ["line 1, step 1", "empty"]),
        ("steps: [{fit: {data: 'file://d.zarr', out: m}}]", "not-local", ["line 1, step 1", "file://d.zarr"]),
        ("state: ~/state\n" + SAMPLE, "bad-setting", ["line 1", "state", "~/state", "./~"]),
        ("notify: {when: failure}\n" + SAMPLE, "setting-missing", ["line 1: notify", "url and command"]),
        ("notify: {url: https://a, command: mail}\n" + SAMPLE, "settings-conflict", ["line 1: notify"]),
        ("notify: {url: ftp://a}\n" + SAMPLE, "bad-setting", ["line 1: notify", "https://"]),
        (
            "notify:\n  url: https://a\n  when: sometimes\n" + SAMPLE,
            "unknown-name",
            ["line 3: notify: when is 'sometimes'"],
        ),
        (
            "steps:\n  - gate: {results: a, limits: {x: {leest: 1}}}",
            "unknown-key",
            ["'leest'", "Did you mean least?", "least, most"],
        ),
    ],
)
def test_read__says_where_and_what_there_is(text: str, code: Code, facts: list[str], tmp_path: Path) -> None:
    path = _write(tmp_path, text)
    with refused(code, *facts) as caught:
        read_pipeline(path)
    assert path in caught.value.seen


@pytest.mark.parametrize(
    "step",
    [
        "evaluate: {data: d, model: m, batches: -1}",
        "prune: {data: d, model: m, out: o, prototypes: 0}",
        "publish: {model: m, registry: r, retain: 0}",
    ],
)
def test_read__refuses_what_is_less_than_the_least(step: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"steps:\n  - {step}\n")
    with refused("bad-setting", "line 2", step.rpartition(", ")[2].rstrip("}").replace(": ", " is "), "or more"):
        read_pipeline(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ingest: {sources: [inbox], out: a.zarr}", "predict: {model: m, data: a.zarr, out: inbox/scores.parquet}"),
        ("evaluate: {data: d, model: m}", "predict: {model: m, data: inbox, out: inbox/scores.parquet}"),
        ("monitor: {model: m, data: 'in*/*.csv', out: m.json}", "decide: {predictions: p, out: inbox/chosen.csv}"),
    ],
)
def test_read__refuses_tables_that_the_next_run_would_read(first: str, second: str, tmp_path: Path) -> None:
    path = _write(tmp_path, f"steps:\n  - {first}\n  - {second}\n")
    with refused("places-overlap", "line 3, step 2", "the next run", "another folder"):
        read_pipeline(path)
    if "data: inbox" not in second:
        read_pipeline(_write(tmp_path, f"steps:\n  - {second}\n  - {first}\n"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fit: {data: a, out: m}", "fit: {data: b, out: ./m/, overwrite: true}"),
        ("evaluate: {data: d, model: m, out: s}", "gate: {results: t, limits: {a: {most: 1}}, out: s}"),
        ("split: {data: d, out: a, held-out: b}", "subsample: {data: e, budget: 9, out: b, overwrite: true}"),
        ("ingest: {sources: t, out: d, new: true}", "ingest: {sources: u, out: d, overwrite: true}"),
        ("fit: {data: a, out: m}", "evaluate: {data: b, model: m, out: m/scores.json}"),
        ("ingest: {sources: t, out: d, new: true}", "evaluate: {data: d, model: m, out: d/scores.json}"),
        ("predict: {model: m, data: i, out: p, each-file: true}", "monitor: {data: p, model: m, out: p/seen.json}"),
        ("evaluate: {data: b, model: m, out: out/scores.json}", "fit: {data: a, out: out}"),
    ],
)
def test_read__refuses_steps_that_write_over_those_above(first: str, second: str, tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        f"steps:\n  - {{name: above, {first}}}\n  - sample-data: {{kind: xor, rows: 1, out: x}}\n  - {second}\n",
    )
    with refused("places-overlap", "line 4, step 3", "above", "a place of its own"):
        read_pipeline(path)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ingest: {sources: t, out: d}", "ingest: {sources: u, out: d, new: true}"),
        ("publish: {model: m, registry: r}", "publish: {model: n, registry: r, alias: other}"),
        ("publish: {model: m, registry: r}", "evaluate: {data: b, model: r@champion, out: r/scores.json}"),
        ("fit: {data: a, out: m}", "calibrate: {model: m, data: b, out: m, overwrite: true}"),
        (
            "predict: {model: m, data: i, out: p, each-file: true}",
            "predict: {model: m, data: j, out: p, each-file: true}",
        ),
    ],
)
def test_read__of_steps_that_add_to_a_place_or_make_it_of_itself(first: str, second: str, tmp_path: Path) -> None:
    assert len(read_pipeline(_write(tmp_path, f"steps:\n  - {first}\n  - {second}\n")).steps) == 2


def test_variables__of_the_environment_give_way_to_the_command_line(tmp_path: Path) -> None:
    path = _write(
        tmp_path, "variables: {rows: 1, out: a}\nsteps: [{sample-data: {kind: xor, rows: '${rows}', out: '${out}'}}]"
    )
    environment = {"PROTODASK_VAR_rows": "7", "PROTODASK_VAR_other": "of another file", "rows": "9"}
    assert read_pipeline(path, environment=environment).steps == (SampleDataStep("xor", 7, "a"),)
    assert read_pipeline(path, {"rows": "3"}, environment).steps == (SampleDataStep("xor", 3, "a"),)
    with refused("bad-setting", "step 1 (sample-data)", "'many'"):
        read_pipeline(path, environment={"PROTODASK_VAR_rows": "many"})


def test_notify__may_come_from_a_variable_and_be_left_empty(tmp_path: Path) -> None:
    path = _write(tmp_path, "variables: {hook: ''}\nnotify: {url: '${hook}', when: [failure, success]}\n" + SAMPLE)
    assert read_pipeline(path, environment={}).notify is None
    told = read_pipeline(path, environment={"PROTODASK_VAR_hook": "https://example.org/secret"}).notify
    assert told is not None
    assert told.when == ("failure", "success")
    assert "secret" not in repr(told)
    path = _write(tmp_path, "variables: {hook: '', mail: cat}\nnotify: {url: '${hook}', command: '${mail}'}\n" + SAMPLE)
    told = read_pipeline(path, environment={}).notify
    assert told is not None
    assert (told.url, told.command) == (None, "cat")


def test_state__is_named_by_the_file_or_by_itself(tmp_path: Path) -> None:
    assert read_pipeline(_write(tmp_path, SAMPLE)).state_folder == os.path.join(".protodask", "pipeline")
    found = read_pipeline(_write(tmp_path, "variables: {a: b}\nstate: ${a}/remembered\noverlap: wait\n" + SAMPLE))
    assert found.state_folder == "b/remembered"
    assert found.overlap == "wait"


def test_places__are_resolved_once_for_each_step_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str] = []

    def absolute(place: str) -> str:
        resolved.append(place)
        return os.path.abspath(place)

    monkeypatch.setattr(places, "absolute", absolute)
    steps = "".join(f"  - fit: {{data: d{number}, out: m{number}}}\n" for number in range(50))
    planned(read_pipeline(_write(tmp_path, f"steps:\n{steps}")))
    assert max(Counter(resolved).values()) <= 3
