"""References to versions in a registry: what is one, and what it means."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.errors import refused

from protodask.data.places.references import (
    Reference,
    check_no_version,
    follow,
    has_alias,
    is_reference,
    reference_fingerprint,
    resolve,
    split_reference,
)
from protodask.data.places.registry_state import AttachedFile, Entry, Move, RegistryState, parse_state, to_bytes
from protodask.errors import FormatError, StorageError

FIRST = Entry(1, "1-00000000", "model", "abc", "2026-01-01T00:00:00+00:00", {})
SECOND = Entry(
    2,
    "2-0123abcd",
    "model",
    "def",
    "2026-01-02T00:00:00+00:00",
    {"profile": AttachedFile("profile.json", 2, "d1"), "report": AttachedFile("report.html", 3, "d2")},
)


def write(place: Path, state: RegistryState) -> None:
    place.mkdir(exist_ok=True)
    (place / "registry.json").write_bytes(to_bytes(state.describe()))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions; the second is the champion."""
    monkeypatch.chdir(tmp_path)
    state = RegistryState().with_entry(FIRST).with_entry(SECOND).moved("champion", 1, "t1", "first")
    write(tmp_path / "models", state.moved("champion", 2, "t2", "second"))
    return Path("models")


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        ("models@champion", Reference("models", "champion")),
        ("a/b.c/models@7", Reference("a/b.c/models", "7")),
        ("models@champion:profile", Reference("models", "champion", "profile")),
        ("a@b@previous", Reference("a@b", "previous")),
        ("s3://bucket/models@champion", Reference("s3://bucket/models", "champion")),
        ("s3://bucket/@3:scores", Reference("s3://bucket", "3", "scores")),
        ("s3://key:secret@bucket/models@3", Reference("s3://key:secret@bucket/models", "3")),
        ("file:///a/models@3", Reference("/a/models", "3")),
        ("s3://key:secret@bucket/x", None),
        ("s3://key:secret@bucket", None),
        ("s3://key:sec/ret@bucket", None),
        ("s3://bucket@champion", None),
        ("https://user@host", None),
        ("data/2024@home.csv", None),
        ("someone@example.org", None),
        ("models@", None),
        ("models@a:", None),
        ("models@a/b", None),
        ("@champion", None),
        ("models", None),
        ("", None),
    ],
)
def test_split_reference__tells_references_from_other_places(place: str, reference: Reference | None) -> None:
    assert split_reference(place) == reference
    assert is_reference(place) == (reference is not None)


def test_resolve__gives_models_and_files(registry: Path) -> None:
    second = os.path.join("models", "versions", "2-0123abcd")
    assert resolve("models@champion") == resolve("models@2") == os.path.join(second, "model.zarr")
    assert resolve("models@previous") == os.path.join("models", "versions", "1-00000000", "model.zarr")
    assert resolve("models@champion:profile") == os.path.join(second, "files", "profile.json")
    assert resolve(f"{registry.absolute()}@2:report").endswith("report.html")


def test_resolve__leaves_other_places_alone(registry: Path) -> None:
    for place in ("models", "nothing@champion", "s3://key:secret@bucket/x", "data.csv", "x@y.z"):
        assert resolve(place) == place
    Path("models@champion").mkdir()
    assert resolve("models@champion") == "models@champion", "there is such a folder"


@pytest.mark.parametrize(
    ("place", "facts"),
    [
        ("models@best", ("alias", "'best'", "champion, previous")),
        ("models@7", ("version 7", "1, 2")),
        ("models@99999999999999999999999", ("version 99999999999999999999999", "1, 2")),
        ("models@0", ("version 0", "1, 2")),
        ("models@champion:scores", ("Version 2", "file 'scores'", "profile, report")),
        ("models@1:scores", ("Version 1", "file 'scores'")),
    ],
)
def test_resolve__says_what_there_is(registry: Path, place: str, facts: tuple[str, ...]) -> None:
    with refused("unknown-name", "models", *facts):
        resolve(place)
    assert not has_alias(place)
    assert reference_fingerprint(place) is None


def test_resolve__says_that_a_version_was_removed(registry: Path) -> None:
    state = RegistryState().with_entry(FIRST).with_entry(SECOND).moved("champion", 2, "t", "")
    write(registry, state.pruned(1))
    with refused("unknown-name", "Version 1", "removed", "2."):
        resolve("models@1")


def test_has_alias__and_fingerprints(registry: Path) -> None:
    assert has_alias("models@champion")
    assert has_alias("models@1")
    assert not has_alias("nothing@champion")
    assert has_alias("model.zarr"), "no reference, so nothing to say against it"
    assert reference_fingerprint("models@champion") == reference_fingerprint("models@2") == "def"
    assert reference_fingerprint("models@previous") == "abc"
    assert reference_fingerprint("models@champion:profile") == "d1"
    assert reference_fingerprint("nothing@champion") is None
    assert reference_fingerprint("model.zarr") is None


def test_follow__looks_again_when_the_version_is_gone(registry: Path) -> None:
    seen = []

    def read(place: str) -> str:
        seen.append(place)
        if len(seen) == 1:  # meanwhile the champion moves back, and the version is removed
            write(registry, RegistryState(2, {1: FIRST}, {"champion": 1}))
            raise StorageError("changed-meanwhile", "It is gone.", "Look.")
        return place

    assert follow("models@champion", read) == resolve("models@1")
    assert len(seen) == 2


def test_follow__says_that_the_version_was_removed_meanwhile(registry: Path) -> None:
    def read(place: str) -> str:
        write(registry, RegistryState(2, {1: FIRST}, {"champion": 1}))
        raise StorageError("changed-meanwhile", "It is gone.", "Look.")

    with refused("unknown-name", "Version 2", "removed", "models"):
        follow("models@2", read)


def test_follow__leaves_errors_of_what_stays_as_they_are(registry: Path) -> None:
    def read(place: str) -> str:
        raise StorageError("unreadable", "It is broken.", "Mend it.")

    Path(resolve("models@champion")).mkdir(parents=True)
    for place in ("models@champion", "elsewhere.zarr"):
        with refused("unreadable", kind=StorageError):
            follow(place, read)
    with refused("not-found", "models@1", "`Registry.promote()`", kind=FormatError):
        follow("models@1", read)
    with refused("not-found", "nothing@champion", "`Registry.publish()`"):
        follow("nothing@champion", read)


def test_check_no_version__keeps_references_from_being_written(registry: Path) -> None:
    with refused("not-local", "models@champion", "`Registry.publish()`"):
        check_no_version("models@champion")
    check_no_version("other@champion")
    check_no_version("models")


def test_state__comes_back_as_it_was() -> None:
    state = RegistryState().with_entry(FIRST).with_entry(SECOND).moved("champion", 2, "t", "why")
    assert parse_state(to_bytes(state.describe()), "here") == state
    assert parse_state(to_bytes(RegistryState().describe()), "here") == RegistryState(0, {}, {}, ())


def test_state__remembers_the_newest_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protodask.data.places.registry_state.MOST_MOVES", 3)
    state = RegistryState().with_entry(FIRST).with_entry(SECOND)
    for turn in range(6):
        state = state.moved("trial", 1 + turn % 2, f"t{turn}", "")
    assert state.moves == tuple(Move(f"t{turn}", "trial", 2 - turn % 2, 1 + turn % 2, "") for turn in (3, 4, 5))


DESCRIBED = RegistryState().with_entry(FIRST).describe()["versions"][0]
WRONG: list[dict[str, object]] = [
    {"folder": "../../other"},
    {"folder": "2-00000000"},
    {"folder": "1"},
    {"number": 0},
    {"number": "1"},
    {"kind": None},
    {"files": []},
]
BAD_FILES: list[object] = [["a.json", -1, "d"], ["a.json", "1", "d"], ["../a.json", 1, "d"], ["a.json", 1], "a.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"last": 1},
        {"last": -1},
        {"aliases": {"champion": 7}},
        {"aliases": {"champion": True}},
        {"aliases": {"12": 1}},
        {"aliases": []},
        {"moves": [["t", "a", 1]]},
        {"moves": {}},
        *({"aliases": {}, "versions": [{**DESCRIBED, **wrong}]} for wrong in WRONG),
        {"versions": "none"},
        *({"aliases": {}, "versions": [{**DESCRIBED, "files": {"a": file}}]} for file in BAD_FILES),
    ],
)
def test_state__of_damaged_files_is_refused(registry: Path, change: dict[str, object]) -> None:
    from protodask.data.places.records import seal

    record = {**json.loads((registry / "registry.json").read_text()), **change}
    del record["checksum"]
    (registry / "registry.json").write_text(json.dumps(seal(record, "registry")))
    with refused("damaged", registry / "registry.json", kind=FormatError):
        resolve("models@champion")


def test_state__of_changed_torn_and_foreign_files_is_refused(registry: Path) -> None:
    path = registry / "registry.json"
    whole = path.read_text()
    for text in (whole.replace('"def"', '"dee"'), whole[:100], "", "[]"):
        path.write_text(text)
        with refused("wrong-kind" if text == "[]" else "damaged", path, kind=FormatError):
            resolve("models@champion")
    record = json.loads(whole)
    path.write_text(json.dumps({**record, "version": 2}))
    with refused("newer-format", path, "version 2", kind=FormatError):
        resolve("models@champion")


def test_state__with_a_path_out_of_its_folder_is_refused(registry: Path) -> None:
    for file in ("../secret", "a/b", "..", "x.json/.."):
        entry = Entry(1, "1-00000000", "model", "", "", {"profile": AttachedFile(file, 1, "")})
        write(registry, RegistryState(1, {1: entry}))
        with refused("damaged", registry / "registry.json", kind=FormatError):
            resolve("models@1")


def test_resolve__is_light_to_import(registry: Path) -> None:
    code = (
        "import sys; from protodask.registry import has_alias, reference_fingerprint, resolve; "
        "print(resolve('models@champion'), has_alias('models@1'), reference_fingerprint('models@2')); "
        "print(sorted({'numpy', 'zarr', 'dask', 'distributed', 'pandas', 'pyarrow', 'sklearn'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.splitlines() == [f"{resolve('models@2')} True def", "[]"]
