"""Figures as text, read back by the parsers of Prometheus's own client."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from protodask.pipeline.telling.metrics import Family, to_text

SECONDS = Family("a_seconds", 'Seconds of "a" \\ b,\nin two lines.', "seconds")
ROWS = Family("b_rows", "Rows.")


def test_text__is_what_the_specification_has() -> None:
    samples = [
        (ROWS, {"step": "x", "kind": "fit"}, 5),
        (SECONDS, {"step": 'q"\\\n'}, 0.25),
        (ROWS, {"step": "y"}, math.nan),
        (ROWS, {"step": "x", "kind": "fit"}, 7),
        (ROWS, {"step": "z"}, math.inf),
    ]
    assert to_text((SECONDS, ROWS), samples) == (
        "# TYPE a_seconds gauge\n"
        "# UNIT a_seconds seconds\n"
        '# HELP a_seconds Seconds of \\"a\\" \\\\ b,\\nin two lines.\n'
        'a_seconds{step="q\\"\\\\\\n"} 0.25\n'
        "# TYPE b_rows gauge\n"
        "# HELP b_rows Rows.\n"
        'b_rows{step="x",kind="fit"} 7\n'
        'b_rows{step="y"} NaN\n'
        'b_rows{step="z"} +Inf\n'
        "# EOF\n"
    )


def test_text__without_figures_is_an_end() -> None:
    assert to_text((SECONDS, ROWS), []) == "# EOF\n"
    assert list(parse_open_metrics("# EOF\n")) == []  # type: ignore[no-untyped-call]


@given(
    st.dictionaries(
        st.tuples(
            st.text(alphabet=st.characters(), max_size=12), st.sampled_from(["", '"', "\\", "\n", "},", "# EOF"])
        ),
        st.floats(),
        max_size=5,
    )
)
def test_text__is_read_alike_by_both_parsers(values: dict[tuple[str, str], float]) -> None:
    samples = [(ROWS, {"step": step, "other": other}, value) for (step, other), value in values.items()]
    text = to_text((SECONDS, ROWS), samples)
    text.encode()
    expected = {
        tuple(
            (name, "".join(c if c.isprintable() or c == "\n" else "?" for c in label)) for name, label in labels.items()
        ): (
            repr(value + 0.0)  # there is one zero
        )
        for _, labels, value in samples
    }
    for parse in (parse_open_metrics, parse_prometheus):
        parsed = [each for family in parse(text) for each in family.samples]
        assert {tuple(each.labels.items()): repr(float(each.value)) for each in parsed} == expected
        assert len(parsed) == len(expected), "two figures with the same labels"
