import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from reference.spread import SIGMAS, excess, nu_by_brute_force
from support.errors import refused

from protodask.robust.spread import LEAST_TOLERANCE, TOLERANCE, nu

TABLE = np.loadtxt(__file__.replace("test_spread.py", "spread_table.csv"), delimiter=",", skiprows=1)

NOISE = 2e-6
"""How far `nu^2` by brute force may be off: differences of order 1e-16 over `t^2`, and the width of the last grid."""

places = st.tuples(
    st.one_of(st.floats(0.01, 1.0), st.just(1.0)),
    st.one_of(st.floats(-1.0, 1.0), st.sampled_from([-1.0, 0.0, 1.0])),
    st.one_of(st.floats(-1.0, 1.0), st.floats(0.9, 1.0), st.sampled_from([-1.0, 0.0, 1.0])),
).map(lambda drawn: (*sorted((drawn[0] * drawn[1], drawn[0] * drawn[2])), drawn[0]))
"""`(m-, m+, sigma)` that agree."""


def test_spread__table_of_means() -> None:
    sigma, low, high, expected = TABLE.T
    assert set(sigma) == set(SIGMAS)
    assert len(TABLE) == len(SIGMAS) * 10 * 11 / 2
    np.testing.assert_allclose(np.square(nu(low, high, sigma)), np.square(expected), rtol=2 * TOLERANCE, atol=NOISE)


@pytest.mark.slow
def test_spread__every_third_line_of_the_table_is_what_its_command_writes() -> None:
    lines = TABLE[::3]
    brute = [nu_by_brute_force(low, high, sigma) for sigma, low, high, _ in lines]
    np.testing.assert_allclose(np.square(brute), np.square(lines[:, 3]), rtol=1e-6, atol=NOISE)


@settings(max_examples=8)
@example((-0.984375, 0.984375, 0.984375))  # a coarser grid of means passed its top by
@given(places)
def test_spread__brute_force(place: tuple[float, float, float]) -> None:
    low, high, _ = place
    assume(low == high or max(abs(low), abs(high)) < 1 - 1e-9)  # the reference loses its digits there
    brute = nu_by_brute_force(*place) ** 2
    found = float(nu(*place)) ** 2
    assert brute - NOISE <= found <= brute * (1 + 2 * TOLERANCE) + NOISE


@settings(max_examples=50)
@given(places, st.sampled_from([1e-5, 1e-3, 1e-1]))
def test_spread__coarser_is_above_and_within_its_tolerance(place: tuple[float, float, float], tolerance: float) -> None:
    exact = float(nu(*place))
    coarse = float(nu(*place, tolerance))
    assert exact / (1 + TOLERANCE) <= coarse <= exact * (1 + tolerance) + 1e-6


@settings(max_examples=60)
@given(places, st.floats(0.0, 1.0), st.floats(-30.0, 30.0).filter(lambda t: abs(t) > 0.05))
def test_spread__bounds_every_mean_and_argument(place: tuple[float, float, float], share: float, t: float) -> None:
    low, high, sigma = place
    mean = np.clip(low + (high - low) * share, low, high)
    assume(abs(mean) < 1 - 1e-6)  # the reference has no limits
    asked = float(excess(np.array(mean), np.array(t), low, high, sigma))
    assert asked <= float(nu(low, high, sigma, 1e-2)) ** 2 + 1e-9


@settings(max_examples=50)
@given(places)
def test_spread__mirror_image(place: tuple[float, float, float]) -> None:
    low, high, sigma = place
    assert nu(low, high, sigma) == nu(-high, -low, sigma)


@settings(max_examples=50)
@given(places)
def test_spread__lies_between_the_bounds_of_the_source(place: tuple[float, float, float]) -> None:
    low, high, sigma = place
    least = sigma**2 - min(low**2, high**2)
    assert least - 1e-12 <= float(nu(low, high, sigma)) ** 2 <= 1


@settings(max_examples=50)
@given(places, st.floats(0.0, 1.0))
def test_spread__grows_with_the_second_moment(place: tuple[float, float, float], share: float) -> None:
    low, high, sigma = place
    larger = sigma + share * (1 - sigma)
    assert nu(low, high, sigma) <= nu(low, high, larger) * (1 + TOLERANCE) + 1e-6


def test_spread__means_around_zero_need_not_give_sigma() -> None:
    # With the least square of the mean, 0, in the lower bound, this would have to be 1; Bernoulli's is known.
    assert nu(-0.5, 0.5, 1.0) == pytest.approx(np.sqrt(0.75), rel=1e-9)
    assert nu(-1.0, 1.0, 1.0) == 0


def test_spread__wider_means_may_give_less() -> None:
    assert nu(0.0, 0.0, 1.0) == pytest.approx(1.0)
    assert nu(-0.9, 0.9, 1.0) < 0.44


def test_spread__means_between_the_ends_matter() -> None:
    # At the end sigma the point is known; means below it have a spread beyond the slack.
    assert nu(0.5, 0.5, 0.5) == 0
    assert nu(0.0, 0.5, 0.5) == pytest.approx(nu_by_brute_force(0.0, 0.5, 0.5), rel=1e-5)
    assert nu(0.1, 0.5, 0.5) > 0.2


@pytest.mark.parametrize("mean", [-1.0, -0.3, 0.0, 0.7, 1.0])
def test_spread__point_has_none(mean: float) -> None:
    assert nu(mean, mean, abs(mean)) == 0


def test_spread__next_to_the_limits() -> None:
    # Almost a point: 1.5 is the distance to the far end, and the variance is the distance of sigma from the mean.
    sigma = np.nextafter(0.5, 1.0)
    assert nu(0.5, 0.5, sigma) == pytest.approx(1.5 / np.sqrt(2 * np.log(2.25 / 2**-53)), rel=1e-9)
    tiny = 1e-200
    low = [tiny, 0.0, -1.0, 0.5, 1 - 1e-16, -1 + 1e-9]
    high = [tiny, tiny, 1.0, 1.0, 1.0, 1 - 1e-9]
    found = nu(low, high, [2 * tiny, tiny, 1, 1, 1, 1])
    assert np.isfinite(found).all()
    assert found[0] > 0
    assert (found <= 1).all()


def test_spread__shapes_broadcast() -> None:
    low = np.full((3, 1), -0.2)
    found = nu(low, np.array([0.1, 0.4]), 0.7)
    assert found.shape == (3, 2)
    assert (found == found[0]).all()
    assert nu(np.empty((0, 2)), np.empty((0, 2)), 1.0).shape == (0, 2)
    assert nu(0.1, 0.2, 0.3).shape == ()


def test_spread__many_places_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    sigma = rng.uniform(size=9000)
    low, high = np.sort(rng.uniform(-1, 1, size=(2, 9000)), axis=0) * sigma
    together = nu(low, high, sigma, 1e-3)
    for place in range(0, 9000, 1000):
        assert together[place] == nu(low[place], high[place], sigma[place], 1e-3)


@pytest.mark.parametrize(
    ("low", "high", "sigma"),
    [(0.2, 0.1, 0.5), (-0.6, 0.1, 0.5), (0.1, 0.6, 0.5), (0.1, 0.2, 1.1), (np.nan, 0.1, 0.5), (0.1, 0.2, np.nan)],
)
def test_spread__numbers_that_disagree(low: float, high: float, sigma: float) -> None:
    with refused(
        "bad-value", "(1,)", f"{low:g} and {high:g}", f"{sigma:g}", "-sigma <= mean_low <= mean_high <= sigma <= 1"
    ):
        nu([0.0, low], [0.0, high], [0.5, sigma])


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan])
def test_spread__no_tolerance(tolerance: float) -> None:
    with refused("bad-setting", f"{tolerance:g}", f"{LEAST_TOLERANCE:g}"):
        nu(0.0, 0.1, 0.5, tolerance)
