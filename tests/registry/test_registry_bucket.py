"""Registries in object stores: the same as on a disk, without its locks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.errors import refused
from support.object_stores import keys_of

from protodask import load_model
from protodask.data.places import conditional, generations
from protodask.data.places import locations as locations_module
from protodask.data.places.locations import list_names, write_object
from protodask.data.places.references import has_alias, reference_fingerprint, resolve
from protodask.data.places.registry_state import read_state, to_bytes
from protodask.errors import FormatError, StorageError
from protodask.prototypes.persistence import model_fingerprint, save_model
from protodask.registry import Registry, changing
from protodask.registry import copying as copying_module
from protodask.registry import registry as registry_module

Models = Callable[[int], str]
AtOnce = Callable[[str, list[list[str]]], list[int]]


def objects_of(registry: Registry, prefix: str) -> set[str]:
    """The keys there are to be: the file, and everything of the versions that it lists."""
    found = {f"{prefix}registry.json"}
    for version in registry.versions():
        folder = version.path.partition("/versions/")[2].partition("/")[0]
        found |= {key for key in keys_of(registry.path) if key.startswith(f"{prefix}versions/{folder}/")}
    return found


def test_registry__in_a_bucket_does_as_on_a_disk(bucket: str, tmp_path: Path, model_at: Models) -> None:
    place = f"{bucket}/deep/models"
    (tmp_path / "p.json").write_text("{}")
    assert not has_alias(f"{place}@champion")
    assert reference_fingerprint(f"{place}@champion") is None
    registry = Registry.create(place)
    for number in range(3):
        found = registry.publish(model_at(2 * number), alias="champion", files={"profile": str(tmp_path / "p.json")})
        assert (found.version.number, found.added) == (number + 1, True)
    assert not registry.publish(model_at(4), alias="champion", files={"profile": str(tmp_path / "p.json")}).added
    assert registry.aliases == {"champion": 3, "previous": 2}
    assert registry.rollback().number == 2
    assert registry.prune(1) == (1,)
    assert [version.number for version in registry.versions()] == [2, 3]
    assert set(keys_of(place)) == objects_of(registry, "deep/models/")
    model = load_model(f"{place}@champion")
    assert model_fingerprint(model) == reference_fingerprint(f"{place}@champion") == registry.version(2).fingerprint
    assert resolve(f"{place}@champion:profile").startswith(f"{place}/versions/2-")
    assert registry.publish(model_at(0), alias="champion").version.number == 4, "numbers are not used again"
    with refused("unknown-name", "Version 1", place, "removed", "2, 3, 4"):
        load_model(f"{place}@1")
    with refused("not-local", f"{place}@champion", "`Registry.publish()`"):
        save_model(model, f"{place}@champion")


def test_registry__in_the_root_of_a_bucket(bucket: str, tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(bucket)
    registry.publish(model_at(2), alias="champion")
    assert load_model(f"{bucket}/@champion").n_prototypes == 0
    local = Registry.create(tmp_path / "reg")
    copied = local.publish(f"{bucket}/@champion", alias="champion").version
    assert copied.fingerprint == registry.version(1).fingerprint


@pytest.mark.slow
def test_publish__of_a_model_in_a_bucket(bucket: str, tmp_path: Path, model_at: Models) -> None:
    for number in (0, 1):  # the second replaces the first: it lies in a generation of its own
        save_model(load_model(model_at(number)), f"{bucket}/m.zarr", overwrite=True)
        found = Registry(str(tmp_path / "models")).publish(f"{bucket}/m.zarr", alias="champion")
        assert (found.version.number, found.added) == (number + 1, True)
        assert found.version.fingerprint == model_fingerprint(load_model(model_at(number)))
    model = Path(Registry.open(tmp_path / "models").version(2).path)
    assert {path.name for path in model.iterdir()} == {"zarr.json", "batch-1"}


def test_registry__needs_a_place_of_its_own(bucket: str, model_at: Models) -> None:
    write_object(f"{bucket}/full", "mine.txt", b"")
    with refused("wrong-kind", f"{bucket}/full", "'mine.txt'"):
        Registry.create(f"{bucket}/full")
    write_object(f"{bucket}/bad", "registry.json", b"{}")
    with refused("wrong-kind", f"{bucket}/bad/registry.json", "`Registry.publish()`", kind=FormatError):
        Registry.open(f"{bucket}/bad")


@pytest.mark.slow
def test_publish__by_several_at_once(bucket: str, model_at: Models, publish_at_once: AtOnce) -> None:
    place = f"{bucket}/models"
    models = [[model_at(2 * (2 * writer + turn)) for turn in range(2)] for writer in range(2)]
    assert sorted(publish_at_once(place, models)) == [1, 2, 3, 4]
    registry = Registry.open(place)
    assert registry.aliases == {"champion": 4, "previous": 3}
    fingerprints = {version.fingerprint for version in registry.versions()}
    assert fingerprints == {model_fingerprint(load_model(path)) for paths in models for path in paths}
    champions = [move.after for move in registry.moves if move.alias == "champion"]
    assert champions == [1, 2, 3, 4], "nobody's move was lost"


def interrupted_once(action: Callable[[], object], patch: pytest.MonkeyPatch) -> None:
    """Have something happen while a version is written."""
    copy, left = copying_module.copy_group, [action]

    def copying(source: str, target: str) -> None:
        copy(source, target)
        if left:
            left.pop()()

    patch.setattr(registry_module, "copy_group", copying)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bucket", "memory"])
def test_publish__that_another_one_overtook_begins_again(
    kind: str, s3_server: str, model_at: Models, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = request.getfixturevalue("bucket") if kind == "bucket" else "memory://overtaken"
    registry = Registry.create(f"{root}/models")
    interrupted_once(lambda: Registry.open(registry.path).publish(model_at(2), alias="champion"), monkeypatch)
    assert registry.publish(model_at(0), alias="champion").version.number == 2
    assert registry.aliases == {"champion": 2, "previous": 1}
    assert [version.number for version in registry.versions()] == [1, 2]
    assert len(list_names(registry.path, "versions")) == 2


@pytest.mark.slow
def test_change__leaves_alone_what_another_one_is_writing(
    bucket: str, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.create(f"{bucket}/models")
    registry.publish(model_at(0), alias="champion")
    seen: list[tuple[list[str], list[str]]] = []

    def look_and_promote() -> None:
        before = list_names(registry.path, "versions")
        Registry.open(registry.path).promote("trial", 1)
        seen.append((before, list_names(registry.path, "versions")))

    interrupted_once(look_and_promote, monkeypatch)
    assert registry.publish(model_at(2), alias="champion").version.number == 2
    [(before, after)] = seen
    assert len(before) == 2
    assert after == before
    assert registry.aliases == {"champion": 2, "previous": 1, "trial": 1}


@pytest.mark.parametrize("first", [True, False], ids=["before the tag", "after it"])
def test_change__of_what_another_one_changed_while_it_was_read_loses_nothing(
    bucket: str, model_at: Models, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    registry = Registry.create(f"{bucket}/models")
    registry.publish(model_at(0), alias="champion")
    read_tag, others = conditional.tag_of, [lambda: Registry.open(registry.path).publish(model_at(2), alias="trial")]

    def reading(place: str, name: str) -> object:
        tag = None if first else read_tag(place, name)
        if others:
            others.pop()()
        return read_tag(place, name) if first else tag

    monkeypatch.setattr(changing, "tag_of", reading)
    assert registry.publish(model_at(4), alias="champion").version.number == 3
    assert registry.aliases == {"champion": 3, "previous": 1, "trial": 2}
    assert len(list_names(registry.path, "versions")) == 3


def test_change__that_another_one_wrote_over_begins_again(model_at: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without conditional writes: somebody who did not see a change writes after it."""
    registry = Registry.create("memory://written/over")
    registry.publish(model_at(0), alias="champion")
    write, others = locations_module.write_object, [1]

    def writing(place: str, name: str, content: bytes) -> None:
        before = read_state(place)
        write(place, name, content)
        if others and before is not None:
            write(place, name, to_bytes(before.moved("trial", others.pop(), "now", "somebody else").describe()))

    monkeypatch.setattr(conditional, "write_object", writing)
    assert registry.publish(model_at(2), alias="champion").version.number == 2
    assert registry.aliases == {"champion": 2, "previous": 1, "trial": 1}
    assert len(list_names(registry.path, "versions")) == 2


def test_registry__in_memory(model_at: Models) -> None:
    registry = Registry.create("memory://somewhere/models")
    for number in range(3):
        registry.publish(model_at(number), alias="champion", retain=1)
    assert registry.aliases == {"champion": 3, "previous": 2}
    assert registry.rollback().number == 2
    assert len(list_names(registry.path, "versions")) == 2
    assert load_model("memory://somewhere/models@champion").n_prototypes == 3


def test_publish__reads_no_attached_file_that_is_too_large_or_missing_from_a_url(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protodask.registry.copying.MOST_BYTES", 3)
    write_object("memory://attached", "three.txt", b"abc")
    write_object("memory://attached", "four.txt", b"abcd")
    registry = Registry.create(tmp_path / "models")
    with refused("over-limit", "memory://attached/four.txt", 3):
        registry.publish(model_at(0), files={"notes": "memory://attached/four.txt"})
    with refused("not-found", "memory://attached/none.txt", kind=StorageError):
        registry.publish(model_at(0), files={"notes": "memory://attached/none.txt"})
    assert not registry.numbers
    assert registry.publish(model_at(0), files={"notes": "memory://attached/three.txt"}).version.number == 1


class EndedError(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_publish__ended_anywhere_is_whole_or_not_at_all(late: bool, bucket: str, model_at: Models) -> None:
    point, done = 0, False
    while not done:
        point += 1
        place = f"{bucket}/models{point}"
        registry = Registry.create(place)
        for number in (0, 2):
            registry.publish(model_at(number), alias="champion")
        with pytest.MonkeyPatch.context() as patch:
            calls = [0]

            def ending(function: Callable[..., object], calls: list[int] = calls, at: int = point) -> object:
                def run(*values: object) -> object:
                    calls[0] += 1
                    if calls[0] == at and not late:
                        raise EndedError
                    result = function(*values)
                    if calls[0] == at:
                        raise EndedError
                    return result

                return run

            patch.setattr(registry_module, "copy_group", ending(copying_module.copy_group))
            patch.setattr(registry_module, "write_file", ending(copying_module.write_file))
            patch.setattr(changing, "replace_object", ending(conditional.replace_object))
            patch.setattr(generations, "delete_below", ending(locations_module.delete_below))
            try:
                registry.publish(model_at(4), alias="champion", retain=1)
                done = True
            except EndedError:
                pass
        aliases = registry.aliases
        assert aliases in ({"champion": 2, "previous": 1}, {"champion": 3, "previous": 2})
        load_model(f"{place}@champion")
        again = registry.publish(model_at(4), alias="champion", retain=1)
        assert again.added == (aliases["champion"] == 2)
        assert registry.aliases == {"champion": 3, "previous": 2}
        assert [version.number for version in registry.versions()] == [2, 3]
        left = {key for key in keys_of(place) if key.startswith(f"models{point}/")}
        assert left == {key for key in objects_of(registry, f"models{point}/") if key.startswith(f"models{point}/")}
    assert point >= 4


def test_publish__to_a_bucket_that_is_not_there_says_so(s3_server: str, model_at: Models) -> None:
    with refused("unwritable", "s3://no-such-bucket-here/models", kind=StorageError):
        Registry("s3://no-such-bucket-here/models").publish(model_at(0))
