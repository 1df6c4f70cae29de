import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.passes import NoiseSource

from protodask.engine import Layout, Source, array_source, zip_sources
from protodask.engine.sources import leaves


@given(st.integers(1, 100), st.integers(0, 6).map(lambda exponent: 2**exponent))
def test_array_source__is_the_arrays_block_by_block(n_rows: int, block_rows: int) -> None:
    x, y = np.arange(3.0 * n_rows).reshape(n_rows, 3), np.arange(n_rows)
    source = array_source({"x": x, "y": y}, block_rows)
    blocks = [source.read(number) for number in range(source.layout.n_blocks)]
    np.testing.assert_array_equal(np.concatenate([block["x"] for block in blocks]), x)
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), y)
    assert [block.number for block in blocks] == list(range(len(blocks)))


def test_array_source__makes_no_copy_of_what_is_contiguous() -> None:
    x = np.arange(40.0)
    assert np.shares_memory(array_source({"x": x}, 8).read(2)["x"], x)
    assert array_source({"x": np.arange(40.0)[::2]}, 8).read(1)["x"].tolist() == [16, 18, 20, 22, 24, 26, 28, 30]


def test_array_source__chooses_blocks_by_the_data() -> None:
    assert array_source({"x": np.zeros((100_000, 4))}).layout == Layout(100_000, 4096)
    assert array_source({"x": np.zeros((5000, 4000))}).layout == Layout(5000, 1024)
    assert array_source({"x": np.zeros((10**6, 1))}).layout == Layout(10**6, 8192)


def test_array_source__refuses_arrays_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="one length"):
        array_source({"x": np.zeros(3), "y": np.zeros(4)})


def test_array_source__of_each_call_has_a_key_of_its_own() -> None:
    x = np.zeros(3)
    assert array_source({"x": x}).key != array_source({"x": x}).key


def test_zip_sources__joins_the_arrays_of_all() -> None:
    arrays, noise = array_source({"x": np.arange(10.0)}, 4), NoiseSource(Layout(10, 4), "n")
    zipped = zip_sources(arrays, noise)
    for number in range(3):
        block = zipped.read(number)
        assert sorted(block.arrays) == ["noise", "x"]
        assert (block.number, block.start) == (number, 4 * number)
        np.testing.assert_array_equal(block["noise"], noise.read(number)["noise"])
    assert zipped.layout == Layout(10, 4)
    assert not zipped.resident
    assert zip_sources(arrays, array_source({"y": np.zeros(10)}, 4)).resident


def test_zip_sources__of_zipped_sources_is_flat() -> None:
    parts: list[Source] = [NoiseSource(Layout(8, 4), str(number), name=f"x{number}") for number in range(3)]
    zipped = zip_sources(zip_sources(parts[0], parts[1]), parts[2])
    assert leaves(zipped) == tuple(parts)
    assert leaves(parts[0]) == (parts[0],)
    assert zip_sources(parts[0]) is parts[0]


def test_zip_sources__have_different_keys_for_different_parts() -> None:
    a, b, c = (NoiseSource(Layout(8, 4), key, name=key) for key in "abc")
    assert len({zip_sources(a, b).key, zip_sources(b, c).key, zip_sources(a, c).key, a.key}) == 4


def test_zip_sources__refuses_other_layouts() -> None:
    with pytest.raises(ValueError, match="different layouts"):
        zip_sources(array_source({"x": np.zeros(8)}, 4), array_source({"y": np.zeros(8)}, 8))


def test_zip_sources__refuses_shared_names_when_read() -> None:
    zipped = zip_sources(array_source({"x": np.zeros(8)}, 4), array_source({"x": np.zeros(8)}, 4))
    with pytest.raises(ValueError, match="share the array names"):
        zipped.read(0)


def test_source__that_names_a_store_is_small_to_pickle() -> None:
    source = NoiseSource(Layout(2**40, 2**20), "n")
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert len(pickle.dumps(source)) < 1000
