"""The arrays of models: what was written comes back, anything else is damage with a name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.errors import refused

from protodask.data.arrays.model_arrays import damage_named, digest_arrays, read_array, write_array
from protodask.errors import FormatError, StorageError

ARRAYS = hnp.arrays(
    st.sampled_from([np.float64, np.int64]), hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=4)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arrays") / "m.zarr"


@settings(max_examples=25)
@given(values=ARRAYS)
def test_read_array__gives_back_what_was_written(place: Path, values: Any) -> None:
    group = zarr.open_group(place, mode="w", zarr_format=3)
    write_array(group, "inside/numbers", values, str(values.dtype))
    found = read_array(str(place), "inside/numbers", str(values.dtype), values.shape)
    assert (found.shape, found.dtype, found.tobytes()) == (values.shape, values.dtype, values.tobytes())
    with (
        refused("damaged", "The planes of the model m", "Do something.", kind=FormatError),
        damage_named("The planes of the model", "m", "Do something."),
    ):
        read_array(str(place), "inside/numbers", str(values.dtype), (*values.shape[:-1], values.shape[-1] + 1))


def test_damage_named__tells_what_may_pass_from_damage() -> None:
    def fail(error: Exception) -> None:
        raise error

    with refused("unreadable", "m", kind=StorageError), damage_named("It", "m", "Do something."):
        fail(PermissionError("no"))
    with pytest.raises(MemoryError), damage_named("It", "m", "Do something."):
        fail(MemoryError())


@given(values=ARRAYS)
def test_digest_arrays__tells_names_shapes_and_bits_apart(values: Any) -> None:
    kind = str(values.dtype)
    first = digest_arrays([("a", values, kind)])
    assert digest_arrays([("a", values.copy(order="F"), kind)]) == first
    assert digest_arrays([("b", values, kind)]) != first
    assert digest_arrays([("a", values[None], kind)]) != first
    if values.size:
        changed = values.copy()
        changed.view(np.uint8).reshape(-1)[0] ^= 1
        assert digest_arrays([("a", changed, kind)]) != first
