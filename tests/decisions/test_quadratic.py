import pytest

from protodask.decisions import Loss, as_loss
from protodask.decisions.losses import LinearFractional
from protodask.decisions.quadratic import MOST_SPREAD, spread, whole_denominator


def whole(loss: Loss) -> tuple[int, int, int, int] | None:
    assert isinstance(loss.form, LinearFractional)
    return whole_denominator(loss.form)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f1", (0, 0, 1, 1)),
        ("f2", (0, 0, 1, 4)),
        ("f0.5", (0, 0, 4, 1)),
        ("f1.5", (0, 0, 4, 9)),
        ("f0.1", (0, 0, 100, 1)),
        ("jaccard", (0, -1, 1, 1)),
    ],
)
def test_whole_denominator__of_named_losses(name: str, expected: tuple[int, ...]) -> None:
    assert whole(as_loss(name)) == expected


def test_whole_denominator__reads_fractions_and_signs() -> None:
    assert whole(Loss.linear_fractional((0, -1, 0, 0), (0.3, 0, -0.1, 0.2))) == (3, 0, -1, 2)
    assert whole(Loss.linear_fractional((0, 4, -2, -2), (0, 2, -2, -2))) == (0, -1, 1, 1)
    assert whole(Loss.linear_fractional((0, -1, 0, 0), (1e-7, 0, 0, 3e-7))) == (1, 0, 0, 3)
    assert whole(Loss.f_beta(2**0.5)) == (0, 0, 1, 2)


def test_whole_denominator__none_where_numbers_are_large_or_irrational() -> None:
    assert whole(Loss.f_beta(1.2345)) is None
    assert whole(Loss.f_beta(20)) is None
    assert whole(Loss.linear_fractional((0, -1, 0, 0), (1, 0, 2**0.5, 0))) is None


def test_spread__of_what_an_item_adds() -> None:
    assert spread((0, 0, 1, 1)) == 2  # a true positive is selected and positive
    assert spread((0, -1, 1, 1)) == 1
    assert spread((5, 0, 0, 0)) == 0
    assert spread((0, 0, 1, 100)) < MOST_SPREAD
