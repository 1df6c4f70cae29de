"""Subsamples by the values of a column, and what they say of a policy."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.errors import refused

from protodask.data import Dataset
from protodask.data.format.schema import INCLUSION
from protodask.data.tables.ingest import ingest
from protodask.errors import Code
from protodask.evaluation import policy_value, subsample
from protodask.evaluation.strata import of_values

ROWS = 3000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """A log of actions whose rewards are mostly zero, with columns of every kind."""
    random = np.random.default_rng(5)
    reward = np.where(random.random(ROWS) < 0.1, random.choice([0.5, 1.0, 2.0, 0.1], ROWS), 0.0)
    return pd.DataFrame(
        {
            "action": random.choice(["a", "b"], ROWS),
            "place": random.choice(["x", "y", "z"], ROWS),
            "reward": reward,
            "size": pd.Categorical(random.choice(["small", "large"], ROWS), ["small", "large"], ordered=True),
            "propensity": random.choice([0.25, 0.5], ROWS),
            "match": random.random(ROWS) < 0.3,
        }
    )


@pytest.fixture(scope="module", params=["float32", "float64"])
def log(request: pytest.FixtureRequest, frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    place = tmp_path_factory.mktemp("log") / "log.zarr"
    ingest(
        frame,
        place,
        target="action",
        categorical=["place"],
        ordinal={"size": ["small", "large"]},
        dtype=request.param,
        block_rows=256,
    )
    return Dataset.open(place)


@pytest.mark.parametrize(
    ("by", "rates"),
    [
        ("reward", {0: 0.1}),
        ("reward", {"0": 0.2, "0.5": 0.5, 0.1: 0.6}),
        ("place", {"x": 0.3, "z": 0.7}),
        ("size", {"small": 0.25}),
        ("action", {"b": 0.5}),
    ],
)
def test_subsample__by_a_column_keeps_its_values_at_their_rates(
    by: str, rates: dict[str | float, float], log: Dataset, frame: pd.DataFrame, tmp_path: Path
) -> None:
    found = subsample(log, tmp_path / "part", rates=rates, by=by, seed=1)
    blocks = [found.read(number) for number in range(found.layout.n_blocks)]
    inclusion = np.concatenate([block[INCLUSION.name] for block in blocks])
    wanted = np.ones(ROWS)
    for value, rate in rates.items():
        wanted[(frame[by].astype(float) == float(value)) if by == "reward" else (frame[by] == value)] = rate
    for rate in np.unique(wanted):
        rows, kept = int((wanted == rate).sum()), int((inclusion == rate).sum())
        assert abs(kept - rate * rows) <= 4 * np.sqrt(rows * rate * (1 - rate))
    assert len(inclusion) == np.isin(inclusion, np.unique(wanted)).sum()
    # The rows that are whole are all there, in their order.
    features = np.concatenate([block["features"] for block in blocks])
    everything = np.concatenate([log.read(number)["features"] for number in range(log.layout.n_blocks)])
    np.testing.assert_array_equal(features[inclusion == 1], everything[wanted == 1])
    # Who is kept at a rate is kept at a higher one, and the draw is that of the rows' numbers.
    again = subsample(log, tmp_path / "more", rates=dict.fromkeys(rates, 1.0) | {next(iter(rates)): 0.9}, by=by, seed=1)
    assert again.n_rows > found.n_rows


def test_subsample__by_the_target_is_that_by_class(log: Dataset, tmp_path: Path) -> None:
    by_class = subsample(log, tmp_path / "one", rates={"a": 0.25}, seed=3)
    assert subsample(log, tmp_path / "two", rates={"a": 0.25}, by="action", seed=3).key == by_class.key


def test_subsample__of_a_budget_by_categories(log: Dataset, frame: pd.DataFrame, tmp_path: Path) -> None:
    found = subsample(log, tmp_path / "part", budget=600, by="place")
    place = np.concatenate([found.read(number)["features"][:, :3] for number in range(found.layout.n_blocks)])
    assert np.abs(place.sum(axis=0) - 200).max() < 4 * np.sqrt(200)
    assert found.summary.weight == pytest.approx(ROWS, rel=0.2)


def test_subsample__without_most_zero_rewards_says_what_a_policy_is_worth(
    log: Dataset, frame: pd.DataFrame, tmp_path: Path
) -> None:
    part = subsample(log, tmp_path / "part", rates={0: 0.05}, by="reward", seed=2)
    columns = {name: index for index, name in enumerate(part.feature_names)}

    inclusion = np.concatenate([part.read(number)[INCLUSION.name] for number in range(part.layout.n_blocks)])
    whole = policy_value(frame["match"].to_numpy(float), frame.reward.to_numpy(), frame.propensity.to_numpy())
    features = np.concatenate([part.read(number)["features"] for number in range(part.layout.n_blocks)]).astype(float)
    match, reward, propensity = (features[:, columns[name]] for name in ("match", "reward", "propensity"))
    found = policy_value(match, reward, propensity, inclusion)
    assert len(inclusion) < ROWS / 5
    assert found.value == pytest.approx(whole.value, rel=0.1)
    counted = policy_value(match, reward, propensity, dropped_zeros=ROWS - len(inclusion))
    assert counted.value == pytest.approx(whole.value, rel=1e-6)


def test_strata__what_is_left_is_a_part(log: Dataset, frame: pd.DataFrame) -> None:
    strata = of_values(log, "reward", ["0", 2.0, 0])
    assert strata.labels == (0.0, 2.0)
    codes = np.concatenate([strata.codes(log.read(number)) for number in range(log.layout.n_blocks)])
    np.testing.assert_array_equal(codes, np.select([frame.reward == 0, frame.reward == 2], [0, 1], 2))


def test_strata__what_is_missing_is_of_no_category(tmp_path: Path) -> None:
    table = pd.DataFrame({"place": ["x", None, "y", "x"] * 5, "target": [0, 1] * 10})
    ingest(table, tmp_path / "gaps", target="target", categorical=["place"])
    data = Dataset.open(tmp_path / "gaps")
    strata = of_values(data, "place", [])
    assert strata.labels == ("x", "y")
    np.testing.assert_array_equal(strata.codes(data.read(0)), [0, 2, 1, 0] * 5)


def test_strata__what_is_missing_is_no_value_even_where_the_mean_is(tmp_path: Path) -> None:
    """Missing numbers stand there as the mean of the others, which may be one that is named."""
    table = pd.DataFrame(
        {
            "reward": [-1.0, 0.0, 1.0, None] * 6,
            "size": pd.Series(["s", "m", "l", None] * 6),
            "target": [0, 1] * 12,
        }
    )
    ingest(table, tmp_path / "gaps", target="target", ordinal={"size": ["s", "m", "l"]})
    data = Dataset.open(tmp_path / "gaps")
    np.testing.assert_array_equal(of_values(data, "reward", [0]).codes(data.read(0)), [1, 0, 1, 1] * 6)
    np.testing.assert_array_equal(of_values(data, "size", ["m"]).codes(data.read(0)), [0, 1, 2, 3] * 6)


@pytest.mark.parametrize(
    ("options", "code", "facts"),
    [
        ({"by": "rewards", "rates": {0: 0.5}}, "column-missing", ["'rewards'", "reward"]),
        ({"by": "reward", "rates": {"none": 0.5}}, "bad-setting", ["'none'", "'reward'"]),
        ({"by": "reward", "rates": {"nan": 0.5}}, "bad-setting", ["'nan'", "'reward'"]),
        ({"by": "reward", "rates": {np.inf: 0.5}}, "bad-setting", ["inf", "'reward'"]),
        ({"by": "reward", "rates": {7: 0.5}}, "unknown-name", ["value of 'reward'", "7"]),
        ({"by": "reward", "rates": {0: 0.5, "0": 0.4}}, "named-twice", ["value of 'reward'", "0"]),
        ({"by": "reward", "budget": 100}, "settings-conflict", ["budget", "'reward'"]),
        ({"by": "reward", "rates": [0.5, 0.5]}, "wrong-shape", ["2 rates"]),
        ({"by": "place", "rates": {"w": 0.5}}, "unknown-name", ["value of 'place'", "'w'", "'x'"]),
        ({"by": "place", "rates": {"x": 1e-12}}, "too-few", ["value of 'place'", "'x'"]),
    ],
)
def test_subsample__refuses_columns_and_values(
    options: dict[str, object], code: Code, facts: list[str], log: Dataset, tmp_path: Path
) -> None:
    with refused(code, *facts):
        subsample(log, tmp_path / "part", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
