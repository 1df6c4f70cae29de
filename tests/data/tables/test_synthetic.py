"""Sample data: what it is, and that blocks, engines and order do not matter."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from support.errors import refused

from protodask.data import Dataset, sample_data, synthetic_source
from protodask.data.tables.synthetic import GRANULE_ROWS, MARGIN, distort
from protodask.engine import Engine, Source
from protodask.errors import Code, OutputExistsError

NAMES = ["checker", "xor", "digits", "blobs"]


@settings(max_examples=20)
@given(
    name=st.sampled_from(NAMES),
    start=st.integers(0, 3 * GRANULE_ROWS),
    length=st.integers(1, GRANULE_ROWS + 500),
    exponent=st.integers(9, 13),
)
def test_rows__do_not_depend_on_blocks(name: str, start: int, length: int, exponent: int) -> None:
    source = synthetic_source(name, 20_000, seed=3, block_rows=2**exponent)
    rows = source.rows(start, start + length)
    block = source.read(start // 2**exponent)
    shared = min(start + length, block.stop) - start
    for key in ("features", "target"):
        np.testing.assert_array_equal(rows[key][:shared], block[key][start - block.start :][:shared])


def test_source__is_small_and_seeded() -> None:
    source = synthetic_source("digits", 10**8)
    assert isinstance(source, Source)
    assert source.layout.n_rows == 10**8
    assert not source.resident
    assert len(pickle.dumps(source)) < 1000
    same = pickle.loads(pickle.dumps(source))
    assert same.key == source.key
    far = 10**8 - 10
    np.testing.assert_array_equal(same.rows(far, far + 10)["features"], source.rows(far, far + 10)["features"])
    other = synthetic_source("digits", 10**8, seed=1)
    assert other.key != source.key
    assert (other.rows(0, 10)["features"] != source.rows(0, 10)["features"]).any()
    assert (source.rows(0, 10)["features"] != source.rows(GRANULE_ROWS, GRANULE_ROWS + 10)["features"]).any()


def test_checker__is_a_board_of_eight_by_eight() -> None:
    rows = synthetic_source("checker", 20_000, dtype="float64").rows(0, 20_000)
    points: Any = rows["features"]
    assert points.min() >= 0
    assert points.max() < 1
    for (x, y), label in zip(points[:500], rows["target"][:500], strict=True):
        assert label == (int(x * 8) + int(y * 8)) % 2
    assert abs(rows["target"].mean() - 0.5) < 0.02


def test_xor__is_the_sign_of_the_product() -> None:
    for width in (6, 3):
        rows = synthetic_source("xor", 5000, n_features=width, dtype="float64").rows(0, 5000)
        assert rows["features"].shape == (5000, width)
        np.testing.assert_array_equal(rows["target"], rows["features"].prod(axis=1) > 0)
        assert rows["features"].min() > -1
        assert rows["features"].std() == pytest.approx(1 / np.sqrt(3), abs=0.02)


def test_blobs__are_normal_around_their_centres() -> None:
    rows = synthetic_source("blobs", 20_000, n_features=3, n_classes=4).rows(0, 20_000)
    for label in range(4):
        part = rows["features"][rows["target"] == label]
        assert 4000 < len(part) < 6000
        np.testing.assert_allclose(part.std(axis=0), 1, atol=0.05)


def test_digits__are_distinct_and_look_like_their_originals() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    rows = synthetic_source("digits", 3000).rows(0, 3000)
    pixels = rows["features"]
    assert pixels.shape == (3000, 64)
    assert pixels.min() >= 0
    assert pixels.max() <= 16
    assert len(np.unique(pixels, axis=0)) == 3000
    assert np.bincount(rows["target"], minlength=10).min() > 200
    model = KNeighborsClassifier(5).fit(*load_digits(return_X_y=True))
    assert 0.6 < model.score(pixels, rows["target"]) < 0.99


def padded(image: Any) -> Any:
    return np.pad(image.astype(np.float32), MARGIN)[None]


def test_distort__leaves_an_image_alone_without_distortion() -> None:
    images = np.stack([padded(image)[0] for image in load_digits().images[:5]])
    still = np.zeros(5)
    out = distort(images, np.arange(5), still, still + 1, np.zeros((2, 5)))
    np.testing.assert_allclose(out, load_digits().data[:5], atol=2e-5)


def test_distort__moves_and_turns_as_said() -> None:
    image = np.zeros((8, 8))
    image[2, 3] = 16
    one, nothing = np.ones(1), np.zeros(1)
    moved = distort(padded(image), np.array([0]), nothing, one, np.array([[1.0], [-2.0]])).reshape(8, 8)
    assert moved[3, 1] == pytest.approx(16, abs=1e-4)
    half = distort(padded(image), np.array([0]), nothing, one, np.array([[0.5], [0.0]])).reshape(8, 8)
    assert half[2, 3] == pytest.approx(8, abs=1e-4)
    assert half[3, 3] == pytest.approx(8, abs=1e-4)
    around = distort(padded(image), np.array([0]), np.array([np.pi]), one, np.zeros((2, 1))).reshape(8, 8)
    assert around[5, 4] == pytest.approx(16, abs=1e-3)
    # A pixel half a step off the centre stays half a step off when the image is twice as large.
    image = np.zeros((8, 8))
    image[3:5, 3:5] = 16
    large = distort(padded(image), np.array([0]), nothing, 2 * one, np.zeros((2, 1))).reshape(8, 8)
    assert large.sum() == pytest.approx(4 * image.sum(), rel=0.01)


def test_sample_data__writes_what_the_source_has(engine: Engine, tmp_path: Path) -> None:
    for name in NAMES:
        dataset = sample_data(name, 5000, tmp_path / name, seed=2, engine=engine)
        source = synthetic_source(name, 5000, seed=2)
        for number in range(dataset.layout.n_blocks):
            start, stop = dataset.layout.bounds(number)
            np.testing.assert_array_equal(dataset.read(number)["features"], source.rows(start, stop)["features"])
            np.testing.assert_array_equal(dataset.read(number)["target"], source.rows(start, stop)["target"])
        assert dataset.classes == source.classes
        assert Dataset.open(tmp_path / name).notes[0] == f"Sample data {name}, seed 2."
    with refused("exists", "overwrite=True", kind=OutputExistsError):
        sample_data("xor", 10, tmp_path / "xor", engine=engine)
    assert sample_data("xor", 10, tmp_path / "xor", engine=engine, overwrite=True).n_rows == 10


@pytest.mark.slow
def test_sample_data__needs_no_memory_for_rows(engine: Engine, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        tracemalloc.start()
        sample_data("checker", rows, tmp_path / "data", engine=engine, block_rows=2**13, overwrite=True)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    # What other threads of this process hold, such as those of a cluster that ended, counts, too: one of three will do.
    size, least = 2**19 * (2 * 4 + 4), peak(2**16)
    assert any(peak(2**19) - least < size / 3 for _ in range(3))


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ({"name": "spirals"}, "unknown-name", ("spirals", "checker, xor, digits, blobs")),
        ({"rows": 0}, "bad-setting", ("0 rows",)),
        ({"seed": -1}, "bad-setting", ("seed", "-1")),
        ({"n_features": 3}, "bad-setting", ("n_features",)),
        ({"n_classes": 3}, "bad-setting", ("n_classes",)),
        ({"dtype": "float16"}, "bad-setting", ("float32", "float64")),
        ({"block_rows": 3}, "bad-setting", ("block_rows", "3")),
    ],
)
def test_source__refuses_what_it_cannot_make(arguments: dict[str, Any], code: Code, facts: tuple[str, ...]) -> None:
    with refused(code, *facts):
        synthetic_source(**{"name": "checker", "rows": 10, **arguments})
