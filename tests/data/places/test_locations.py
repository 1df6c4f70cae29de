"""What a place is called, however it is written."""

import os
from pathlib import Path

import pytest
from support.errors import refused

from protodask.data.places.locations import locate


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a b", "50%", "ü", "a:b", "[a]*", "~a", "$"])
def test_locate__takes_every_letter_of_a_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = str(tmp_path / name)
    assert {locate(form) for form in (name, f"{name}/", f"./{name}", Path(name), place)} == {place}
    for host in ("", "localhost"):
        assert locate(f"file://{host}{place}") == place
        assert locate(f"file://{host}{Path(place).as_uri()[len('file://') :]}") == place


def test_locate__refuses_what_is_no_place_of_this_machine() -> None:
    for place in ("file://data.zarr", "file://host/data.zarr"):
        with refused("not-local", place, "host", "absolute path"):
            locate(place)
    for place in ("", " "):
        with refused("setting-missing", "empty"):
            locate(place)
    for place in ("~", "~/m.zarr", "$HOME/m.zarr"):
        with refused("bad-setting", place, "expanduser", f"./{place.partition('/')[0]}"):
            locate(place)
    assert locate("./~/m.zarr") == os.path.abspath("~/m.zarr")
