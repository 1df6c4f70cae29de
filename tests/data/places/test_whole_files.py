"""Whether a single file may be written, and where it is written."""

import os
from pathlib import Path

import pytest
from support.errors import refused

from protodask.data.places.whole_files import check_file_free, replace_file
from protodask.errors import OutputExistsError


def test_check_file_free__refuses_what_is_there(tmp_path: Path) -> None:
    place = tmp_path / "a.json"
    check_file_free(str(place), overwrite=False)
    place.symlink_to("nowhere")
    with refused("exists", "overwrite=True", place, kind=OutputExistsError):
        check_file_free(str(place), overwrite=False)
    check_file_free(str(place), overwrite=True)
    with refused("wrong-kind", tmp_path, kind=OutputExistsError):
        check_file_free(str(tmp_path), overwrite=True)
    with refused("wrong-kind", tmp_path, kind=OutputExistsError):
        check_file_free(f"file://{tmp_path}", overwrite=True)


def test_check_file_free__removes_what_killed_processes_left(tmp_path: Path) -> None:
    (tmp_path / ".a.json.partial-00000000").write_text("torn")
    check_file_free(str(tmp_path / "a.json"), overwrite=False)
    assert os.listdir(tmp_path) == []


def test_check_file_free__refuses_other_stores_and_hides_their_secrets() -> None:
    with refused("not-local", "s3://***@bucket/a.json") as raised:
        check_file_free("s3://key:secret@bucket/a.json", overwrite=True)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("through_a_link", [False, True])
def test_replace_file__never_puts_a_file_in_place_of_a_pipe_or_device(through_a_link: bool, tmp_path: Path) -> None:
    pipe = place = tmp_path / "pipe"
    os.mkfifo(pipe)
    if through_a_link:
        place = tmp_path / "link"
        place.symlink_to(pipe)
    with refused("wrong-kind", place, kind=OutputExistsError):
        check_file_free(str(place), overwrite=True)
    with refused("wrong-kind", place, kind=OutputExistsError):
        replace_file(str(place), "text")
    assert pipe.is_fifo()


def test_replace_file__takes_a_file_url_for_the_place_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replace_file(f"file://{tmp_path}/b/a%20b.json", "new")
    replace_file(f"file://{tmp_path}/b/parts", [b"one", b"two"])
    assert (tmp_path / "b" / "a b.json").read_text() == "new"
    assert (tmp_path / "b" / "parts").read_bytes() == b"onetwo"
    assert os.listdir(tmp_path) == ["b"]
