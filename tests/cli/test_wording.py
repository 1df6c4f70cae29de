import pytest

from protodask.pipeline.telling.result import describe_seconds, number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (99.9, "99.9 s"), (100, "1 min 40 s"), (3600, "1 h 0 min"), (7325, "2 h 2 min")],
)
def test_describe_seconds__is_short(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.0, "2"), (0.12344, "0.1234"), (999.96, "1,000"), (20_176.4, "20,176"), (1e9 + 0.5, "1,000,000,000")],
)
def test_number__never_has_an_exponent_of_what_may_be_counted(value: float, text: str) -> None:
    assert number(value) == text
