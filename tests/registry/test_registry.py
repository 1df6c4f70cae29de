"""Registries on a disk: what publishing, promoting, rolling back and pruning leave, whatever the order."""

import errno
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disk import files_below as disk_files_below
from support.disk import small_files_only, watch_disk
from support.errors import refused

from protodask import load_model
from protodask.data.places.references import resolve
from protodask.data.places.registry_state import RegistryState
from protodask.errors import Code, FormatError, ProtodaskError, StorageError
from protodask.prototypes.persistence import model_fingerprint
from protodask.prototypes.scoring import predict_features
from protodask.registry import Registry, changing
from protodask.registry import registry as registry_module
from protodask.registry.versions import Version
from protodask.robust import RobustConfig, RobustModel, load_robust_model
from protodask.robust.model import robust_fingerprint

Models = Callable[[int], str]
AtOnce = Callable[[str, list[list[str]]], list[int]]


def files_below(folder: str | Path) -> dict[str, bytes]:
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def assert_clean(place: str | Path) -> None:
    """Nothing lies there but what the registry lists."""
    registry = Registry.open(place)
    assert set(os.listdir(place)) <= {"registry.json", "versions"}
    listed = {Path(version.path).parent.name for version in registry.versions() if version.unreadable is None}
    versions = Path(place) / "versions"
    assert (set(os.listdir(versions)) if versions.exists() else set()) == listed


# ---------------------------------------------------------------------------------------------------------------------
# Any order, beside an oracle


@dataclass
class Oracle:
    """What a registry is to be, kept in plain dicts by rules said anew."""

    contents: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    aliases: dict[str, int] = field(default_factory=dict)
    given_out: int = 0

    def set(self, alias: str, number: int) -> None:
        old = self.aliases.get(alias)
        self.aliases[alias] = number
        if alias == "champion" and old not in (None, number):
            self.aliases["previous"] = old

    def publish(self, model: int, alias: str | None, file: str | None, retain: int | None) -> int:
        same = [number for number, content in self.contents.items() if content == (model, file)]
        if alias is None:
            usable = same
        elif self.aliases.get(alias) in same:
            usable = [self.aliases[alias]]
        else:
            usable = [number for number in same if number not in self.aliases.values()]
        if usable:
            number = max(usable)
        else:
            self.given_out += 1
            number = self.given_out
            self.contents[number] = (model, file)
        if alias is not None:
            self.set(alias, number)
        if retain is not None:
            self.prune(retain, number)
        return number

    def rollback(self) -> bool:
        both = self.aliases.get("champion"), self.aliases.get("previous")
        match both:
            case (int(champion), int(previous)) if champion != previous:
                self.aliases |= {"champion": previous, "previous": champion}
                return True
            case _:
                return False

    def prune(self, keep: int, also: int | None = None) -> None:
        newest = sorted(self.contents, reverse=True)[:keep]
        for number in list(self.contents):
            if number not in newest and number not in self.aliases.values() and number != also:
                del self.contents[number]


ALIASES = st.sampled_from(["champion", "champion", "trial", "previous"])
OPERATIONS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.integers(0, 3),
        st.one_of(st.none(), ALIASES),
        st.sampled_from([None, None, "x", "y"]),
        st.sampled_from([None, None, 1, 2]),
    ),
    st.tuples(st.just("promote"), ALIASES, st.one_of(ALIASES, st.integers(1, 6).map(str))),
    st.tuples(st.just("rollback")),
    st.tuples(st.just("prune"), st.integers(1, 3)),
    st.tuples(st.just("unalias"), ALIASES),
    st.tuples(st.just("remove"), st.integers(1, 6)),
)


@settings(max_examples=25)
@given(operations=st.lists(OPERATIONS, max_size=10))
def test_registry__is_what_the_oracle_says(operations: list[tuple], model_at: Models) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        contents = {"x": "first", "y": "second"}
        for name, text in contents.items():
            Path(folder, f"{name}.txt").write_text(text)
        place = os.path.join(folder, "reg")
        registry, oracle = Registry.create(place), Oracle()
        for operation in operations:
            match operation:
                case ("publish", model, alias, file, retain):
                    files = {"note": os.path.join(folder, f"{file}.txt")} if file else {}
                    before = set(oracle.contents)
                    number = oracle.publish(model, alias, file, retain)
                    found = registry.publish(model_at(model), alias=alias, files=files, retain=retain)
                    assert found.version.number == number
                    assert found.added == (number not in before)
                    assert set(found.removed) == before - set(oracle.contents)
                case ("promote", alias, target):
                    meant = oracle.aliases.get(target) if not target.isdigit() else int(target)
                    if meant in oracle.contents:
                        assert registry.promote(alias, target) == oracle.aliases.get(alias)
                        oracle.set(alias, meant)
                    else:
                        with refused("unknown-name", registry.path, target):
                            registry.promote(alias, target)
                case ("rollback",):
                    if oracle.rollback():
                        assert registry.rollback().number == oracle.aliases["champion"]
                    else:
                        with refused("nothing-yet", "`Registry.promote()`"):
                            registry.rollback()
                case ("prune", keep):
                    before = set(oracle.contents)
                    oracle.prune(keep)
                    assert set(registry.prune(keep)) == before - set(oracle.contents)
                case ("unalias", alias):
                    if alias in oracle.aliases:
                        assert registry.unalias(alias) == oracle.aliases.pop(alias)
                    else:
                        with refused("unknown-name", registry.path, alias):
                            registry.unalias(alias)
                case ("remove", number):
                    named = number in oracle.aliases.values()
                    if number in oracle.contents and not named:
                        assert registry.remove(number) == number
                        del oracle.contents[number]
                    else:
                        with refused("settings-conflict" if named else "unknown-name", registry.path, number):
                            registry.remove(number)
            assert registry.aliases == dict(sorted(oracle.aliases.items()))
            assert [version.number for version in registry.versions()] == sorted(oracle.contents)
            assert_clean(place)
        for version in registry.versions():
            model, file = oracle.contents[version.number]
            assert files_below(version.path) == files_below(model_at(model)), "bit for bit"
            assert version.fingerprint == model_fingerprint(load_model(f"{place}@{version.number}"))
            attached = {name: Path(path).read_text() for name, path in version.files.items()}
            assert attached == ({"note": contents[file]} if file else {})
        check_history(registry)


def check_history(registry: Registry) -> None:
    """The moves, one after the other, lead to where the aliases are."""
    aliases: dict[str, int] = {}
    for move in registry.moves:
        assert aliases.pop(move.alias, None) == move.before != move.after
        if move.after is not None:
            aliases[move.alias] = move.after
    assert aliases == registry.aliases


# ---------------------------------------------------------------------------------------------------------------------
# What a version has


def test_publish__keeps_what_is_known_of_a_model(tmp_path: Path, model_at: Models) -> None:
    (tmp_path / "p.json").write_text("{}")
    registry = Registry.create(tmp_path / "reg")
    metrics = {"log_loss": 0.25, "drift": {"largest": 0.1}, "labels": ["a"]}
    found = registry.publish(
        model_at(1), alias="champion", metrics=metrics, files={"profile": str(tmp_path / "p.json")}, note="first"
    )
    assert (found.added, found.replaced, found.removed, found.alias) == (True, None, (), "champion")
    version = found.version
    assert version == registry.version("champion") == registry.version(1) == registry.versions()[0]
    assert version.metrics == metrics
    assert version.data == ("data-1",)
    assert version.rows == 101
    assert version.settings == {"n_batches": 1, "seed": 1}
    assert version.code == {"protodask": "0.1.0", "python": "3.11.0", "numpy": "2.1.0"}
    assert version.sizes == {"batches": 1, "prototypes": 3}
    assert version.features == ("a", "c")
    assert (version.note, version.aliases, version.kind) == ("first", ("champion",), "model")
    assert version.files == {"profile": resolve(f"{registry.path}@1:profile")}
    assert version.files["profile"].endswith("profile.json")
    json.dumps(version.describe())


def test_publish__takes_robust_models_too(tmp_path: Path) -> None:
    from protodask.data.format.schema import Column

    model = RobustModel(
        weights=np.array([[1.0, 0.0]]),
        intercept=np.array([0.5]),
        classes=("no", "yes"),
        features=("x", "y"),
        columns=tuple(Column(f"{name}.{part}") for name in "xy" for part in ("low", "high")),
        config=RobustConfig(),
        objective=np.array([1.0]),
        lower_bound=np.array([1.0]),
        passes=(3,),
        provenance={"dataset": "d", "rows": 7, "config": {"eps": 0.1}},
    )
    model.save(tmp_path / "robust.zarr")
    registry = Registry.create(tmp_path / "reg")
    version = registry.publish(tmp_path / "robust.zarr", alias="champion").version
    assert (version.kind, version.features, version.data, version.rows) == ("robust model", ("x",), ("d",), 7)
    again = load_robust_model(f"{registry.path}@champion")
    assert robust_fingerprint(again) == version.fingerprint == robust_fingerprint(model)
    with refused("wrong-kind", version.path, "`protodask robust predict`", kind=FormatError):
        load_model(f"{registry.path}@champion")


def test_publish__from_another_registry(tmp_path: Path, model_at: Models) -> None:
    (tmp_path / "p.html").write_text("x")
    staging, registry = Registry.create(tmp_path / "a@b"), Registry(str(tmp_path / "reg"))
    staging.publish(model_at(3), alias="best", files={"page": str(tmp_path / "p.html")})
    found = registry.publish(f"{staging.path}@best", alias="champion", files={"report": f"{staging.path}@1:page"})
    assert files_below(found.version.path) == files_below(model_at(3))
    assert Path(found.version.files["report"]).name == "report.html"


def test_publish__says_how_the_last_training_of_several_went(tmp_path: Path, model_at: Models) -> None:
    model = load_model(model_at(1))
    (first,) = model.provenance["fits"]
    environment = {"protodask": "0.2.0", "python": "3.13.0", "numpy": "2.3.0"}
    last = {"dataset": "later", "rows": 7, "config": {"seed": 9}, "environment": environment}
    replace(model, provenance={"fits": [first, last]}).save(tmp_path / "m.zarr")
    version = Registry.create(tmp_path / "reg").publish(tmp_path / "m.zarr").version
    assert version.data == ("data-1", "later")
    assert (version.rows, version.settings, version.code) == (7, {"seed": 9}, environment)


def test_publish__flushes_a_version_before_it_counts(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.create(tmp_path / "reg")
    (tmp_path / "p.json").write_text("{}")
    events = watch_disk(monkeypatch)
    found = registry.publish(model_at(1), alias="champion", files={"profile": str(tmp_path / "p.json")})
    counts = max(n for n, event in enumerate(events) if event == ("name", str(tmp_path / "reg" / "registry.json")))
    flushed = {path for what, path in events[:counts] if what == "flush"}
    folder = Path(found.version.path).parent
    assert {str(folder / name) for name in disk_files_below(folder)} <= flushed
    assert {str(folder), str(folder.parent), str(tmp_path / "reg")} <= flushed
    assert events[-1] == ("flush", str(tmp_path / "reg"))


def test_publish__reuses_what_no_alias_names(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    registry.publish(model_at(0), alias="champion")
    assert registry.publish(model_at(1)).version.number == 2, "as of a process that ended before it moved the alias"
    found = registry.publish(model_at(1), alias="champion")
    assert (found.version.number, found.added, found.replaced) == (2, False, 1)
    registry.rollback()
    again = registry.publish(model_at(1), alias="champion")
    assert (again.version.number, again.added) == (3, True), "a version that an alias names stays what it was"


def test_publish__keeps_the_version_that_it_reuses_however_few_it_retains(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    registry.publish(model_at(1))
    registry.publish(model_at(0))
    found = registry.publish(model_at(1), retain=1)
    assert (found.version.number, found.added) == (1, False)
    assert 1 in registry.numbers
    assert model_fingerprint(load_model(found.version.path)) == model_fingerprint(load_model(model_at(1)))


def test_publish__leaves_an_alias_on_the_version_of_this_very_model(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    registry.publish(model_at(1), alias="champion")
    registry.publish(model_at(1), alias="trial")
    registry.publish(model_at(0), alias="trial")
    found = registry.publish(model_at(1), alias="champion")
    assert (found.version.number, found.added, found.replaced) == (1, False, None), "though no alias names version 2"
    assert registry.publish(model_at(1), alias="other").version.number == 2


def test_rollback__restores_predictions_bit_for_bit(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)

    def predictions() -> bytes:
        model = load_model(f"{registry.path}@champion")
        ((probability, familiarity),) = predict_features(rows, model, [1])
        return probability.tobytes() + familiarity.tobytes()

    registry.publish(model_at(1), alias="champion")
    first = predictions()
    registry.publish(model_at(3), alias="champion", retain=1)
    second = predictions()
    assert first != second
    assert registry.rollback().number == 1
    assert predictions() == first
    assert registry.rollback().number == 2
    assert predictions() == second


def test_diff__shows_data_settings_metrics_and_features(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    registry.publish(model_at(0), metrics={"log_loss": 0.5, "gone": 1, "deep": {"x": 1}, "text": "a", "flag": True})
    registry.publish(model_at(1), metrics={"log_loss": 0.25, "deep": {"x": 3}})
    found = registry.diff(1, 2)
    assert [(entry.name, entry.first, entry.second, entry.rise) for entry in found.metrics] == [
        ("log_loss", 0.5, 0.25, -0.25),
        ("gone", 1, None, None),
        ("deep.x", 1, 3, 2),
    ]
    assert {entry.name: (entry.first, entry.second) for entry in found.settings} == {
        "n_batches": (0, 1),
        "seed": (0, 1),
    }
    assert {entry.name: (entry.first, entry.second) for entry in found.model} == {
        "data": ("data-0", "data-1"),
        "rows": (100, 101),
        "batches": (0, 1),
        "prototypes": (0, 3),
        "features used": (0, 2),
    }
    assert (found.gained, found.lost, found.same) == (("a", "c"), (), False)
    back = registry.diff(2, 1)
    assert (back.gained, back.lost) == ((), ("a", "c"))
    same = registry.diff(2, 2)
    assert same.same
    assert (same.model, same.settings, same.gained, same.lost) == ((), (), (), ())
    json.dumps(found.describe())


# ---------------------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize("name", ["", "7", "a b", "a/b", "../x", "ä", "x" * 65, "a.b", "a@b", "a:b"])
def test_names__are_checked(name: str, tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    registry.publish(model_at(0))
    with refused("bad-setting", repr(name), "alias", 64):
        registry.publish(model_at(1), alias=name)
    with refused("bad-setting", repr(name), "file", 64):
        registry.publish(model_at(1), files={name: __file__})
    with refused("bad-setting", repr(name), "alias", 64):
        registry.promote(name, 1)
    assert [version.number for version in registry.versions()] == [1]


def test_registry__needs_a_folder_of_its_own(tmp_path: Path, model_at: Models) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    with refused("wrong-kind", tmp_path / "full", "'mine.txt'"):
        Registry.create(tmp_path / "full")
    assert os.listdir(tmp_path / "full") == ["mine.txt"]
    with refused("wrong-kind", tmp_path / "full" / "mine.txt", "folder"):
        Registry.create(tmp_path / "full" / "mine.txt")
    with refused("not-found", tmp_path / "none", "`Registry.publish()`"):
        Registry.open(tmp_path / "none")
    with refused("not-found", tmp_path / "none", "`Registry.publish()`"):
        Registry(str(tmp_path / "none")).prune(1)
    assert not (tmp_path / "none").exists()


def test_publish__of_nothing_leaves_nothing(tmp_path: Path, model_at: Models) -> None:
    registry = Registry(str(tmp_path / "reg"))
    with refused("not-found", tmp_path / "none.zarr", kind=StorageError):
        registry.publish(tmp_path / "none.zarr")
    with refused("not-found", tmp_path / "none.json", kind=StorageError):
        registry.publish(model_at(0), files={"profile": str(tmp_path / "none.json")})
    with refused("wrong-kind", tmp_path):
        registry.publish(model_at(0), files={"profile": str(tmp_path)})
    with refused("bad-setting", 0):
        registry.publish(model_at(0), retain=0)
    assert not (tmp_path / "reg").exists()


def test_publish__that_finds_no_space_names_the_registry(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(registry_module, "make_durable", full)
    with refused("disk-full", f"writing to the registry {tmp_path / 'reg'}.", kind=StorageError):
        Registry(str(tmp_path / "reg")).publish(model_at(0))


@pytest.mark.parametrize("to_folder", [False, True])
@pytest.mark.parametrize("place", ["extra", "deep/extra"])
def test_publish__of_a_model_with_a_link_in_it_is_refused(
    place: str, to_folder: bool, tmp_path: Path, model_at: Models
) -> None:
    shutil.copytree(model_at(1), tmp_path / "m.zarr")
    link = tmp_path / "m.zarr" / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(Path(__file__).parent if to_folder else __file__)
    registry = Registry.create(tmp_path / "reg")
    with refused("wrong-kind", link, "symbolic link", kind=FormatError):
        registry.publish(tmp_path / "m.zarr")
    assert registry.versions() == ()
    assert_clean(registry.path)


def test_publish__into_a_registry_inside_of_the_model_is_refused(tmp_path: Path, model_at: Models) -> None:
    model = tmp_path / "m.zarr"
    shutil.copytree(model_at(1), model)
    before = files_below(model)
    with refused("places-overlap", model / "reg", model):
        Registry(str(model / "reg")).publish(model)
    assert files_below(model) == before


def test_version__that_is_damaged_says_so(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    path = Path(registry.publish(model_at(1), alias="champion").version.path)
    record = path.parent / "version.json"
    whole = record.read_text()
    changes: tuple[tuple[str, Code], ...] = (
        (whole.replace("data-1", "data-2"), "damaged"),
        (whole[:50], "damaged"),
        ("[]", "wrong-kind"),
    )
    for text, code in changes:
        record.write_text(text)
        with refused(code, record, "the model again", kind=FormatError):
            registry.version(1)
    record.unlink()
    with refused("damaged", record, "publish the model again", kind=FormatError):
        registry.version(1)
    (path / "zarr.json").write_text("{}")
    with refused("wrong-kind", path, "`fit()`", kind=FormatError):
        load_model(f"{registry.path}@champion")


@pytest.mark.parametrize("content", [None, "", "[]", '{"format": "protodask-registry-version", "version": 99}'])
def test_versions__has_one_that_is_damaged_beside_the_others(
    content: str | None, tmp_path: Path, model_at: Models
) -> None:
    registry = Registry.create(tmp_path / "reg")
    whole = [registry.publish(model_at(number), alias="champion", note="a note").version for number in range(3)]
    record = Path(whole[1].path).parent / "version.json"
    record.unlink() if content is None else record.write_text(content)
    found = registry.versions()
    assert (found[0], found[2]) == (replace(whole[0], aliases=()), whole[2])
    with pytest.raises(FormatError) as refusal:
        registry.version(2)
    of_registry = Version(2, whole[1].path, "model", whole[1].fingerprint, whole[1].published, ("previous",), {})
    assert found[1] == replace(of_registry, unreadable=str(refusal.value))
    assert str(record) in str(found[1].unreadable)
    for name_damaged in (lambda: registry.promote("champion", 2), registry.rollback):
        with pytest.raises(FormatError, match=re.escape(str(refusal.value))):
            name_damaged()
    assert registry.version("champion") == whole[2], "no alias was moved to it"


@pytest.mark.parametrize("damage", ["chunk", "other", "gone"])
def test_rollback__to_a_model_that_is_damaged_is_refused(damage: str, tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    paths = [Path(registry.publish(model_at(number), alias="champion").version.path) for number in (1, 3)]
    if damage == "chunk":
        chunk = next(path for path in sorted(paths[0].rglob("c/**/*")) if path.is_file())
        chunk.write_bytes(bytes(byte ^ 1 for byte in chunk.read_bytes()))
    else:
        shutil.rmtree(paths[0])
        if damage == "other":
            shutil.copytree(model_at(5), paths[0])
    for name_damaged in (lambda: registry.promote("other", 1), registry.rollback):
        with pytest.raises(ProtodaskError, match=re.escape(str(paths[0]))):
            name_damaged()
    assert registry.aliases == {"champion": 2, "previous": 1}, "no alias was moved to it"


@pytest.mark.parametrize("lost", ["model.zarr/zarr.json", "model.zarr", "version.json", "files/note.txt", "."])
@pytest.mark.parametrize("alias", ["champion", None])
def test_publish__mends_what_is_damaged(alias: str | None, lost: str, tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "r")
    (tmp_path / "note.txt").write_text("as it was")
    files = {"note": str(tmp_path / "note.txt")}
    broken = Path(registry.publish(model_at(0), alias=alias, files=files).version.path).parent / lost
    shutil.rmtree(broken) if broken.is_dir() else broken.unlink()
    found = registry.publish(model_at(0), alias="champion", files=files)
    assert (found.version.number, found.added, registry.aliases["champion"]) == (2, True, 2)
    assert model_fingerprint(load_model(found.version.path)) == found.version.fingerprint
    assert not registry.publish(model_at(0), alias="champion", files=files).added


def test_publish__of_a_damaged_champion_leaves_the_way_back(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "r")
    registry.publish(model_at(0), alias="champion")
    shutil.rmtree(registry.publish(model_at(1), alias="champion").version.path)
    registry.publish(model_at(1), alias="champion")
    assert registry.aliases == {"champion": 3, "previous": 1}
    load_model(registry.rollback().path)


def test_publish__takes_a_version_that_cannot_be_looked_at_for_none_that_is_damaged(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.create(tmp_path / "r")
    registry.publish(model_at(0), alias="champion")

    def fails(*_: object) -> None:
        raise StorageError("unreadable", "Reading failed.", "Repeat it.")

    monkeypatch.setattr("protodask.registry.registry.read_version", fails)
    with refused("unreadable", kind=StorageError):
        registry.publish(model_at(0), alias="champion")
    assert registry.aliases == {"champion": 1}


def test_publish__of_a_model_that_cannot_be_read_names_it(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unreadable(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    registry = Registry.create(tmp_path / "r")
    monkeypatch.setattr("protodask.registry.copying.open_inside", lambda *_: Unreadable())
    with refused("unreadable", f"Reading {model_at(0)} failed", kind=StorageError):
        registry.publish(model_at(0))
    assert registry.numbers == ()


def test_version__that_is_not_there_any_more_says_so(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    for number in (0, 1):
        registry.publish(model_at(number), alias="champion")
    path = registry.version("champion").path
    shutil.rmtree(Path(path).parent)
    with refused("not-found", f"{registry.path}@champion", path, "`Registry.promote()`", kind=FormatError):
        load_model(f"{registry.path}@champion")
    assert registry.rollback().number == 1
    load_model(f"{registry.path}@champion")
    assert registry.numbers == (1, 2)


def test_publish__of_a_file_that_is_too_large_is_refused(
    tmp_path: Path, model_at: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.txt").write_text("four")
    monkeypatch.setattr("protodask.registry.copying.MOST_BYTES", 3)
    with refused("over-limit", tmp_path / "p.txt", 3):
        Registry(str(tmp_path / "reg")).publish(model_at(0), files={"p": str(tmp_path / "p.txt")})


# ---------------------------------------------------------------------------------------------------------------------
# Several at once, and ends at any point


def test_publish__by_several_at_once(tmp_path: Path, model_at: Models, publish_at_once: AtOnce) -> None:
    place = str(tmp_path / "reg")
    models = [[model_at(10 * writer + turn) for turn in range(3)] for writer in range(4)]
    assert sorted(publish_at_once(place, models)) == list(range(1, 13))
    registry = Registry.open(place)
    assert registry.aliases == {"champion": 12, "previous": 11}
    check_history(registry)
    assert_clean(place)


def test_writing__waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.create(tmp_path / "reg")
    monkeypatch.setattr(changing, "LOCK_SECONDS", 0.1)
    with changing.writing(registry.path), refused("written-by-another", registry.path, kind=StorageError):
        registry.prune(1)


def test_publish__names_the_registry_where_there_is_no_place_for_a_copy(model_at: Models, tmp_path: Path) -> None:
    model, registry = model_at(1), tmp_path / "registry"
    with small_files_only(1), refused("unwritable", registry, kind=StorageError):
        Registry(str(registry)).publish(model)


class EndedError(BaseException):
    """The process ends here."""


POINTS = [
    (registry_module, "copy_group"),
    (registry_module, "load_any"),
    (registry_module, "write_file"),
    (registry_module, "make_durable"),
    (registry_module, "flush"),
    (changing, "write_whole"),
    (changing, "remove_folder"),
]


def ending_at(point: int, patch: pytest.MonkeyPatch, late: bool) -> list[int]:
    """Have the process end at, or just after, the call of that number to anything that writes."""
    calls = [0]

    def ending(function: Callable[..., object]) -> Callable[..., object]:
        def run(*values: object) -> object:
            calls[0] += 1
            if calls[0] == point and not late:
                raise EndedError
            result = function(*values)
            if calls[0] == point:
                raise EndedError
            return result

        return run

    for module, name in POINTS:
        patch.setattr(module, name, ending(getattr(module, name)))
    return calls


@pytest.mark.parametrize("late", [False, True])
def test_publish__ended_anywhere_is_whole_or_not_at_all(late: bool, tmp_path: Path, model_at: Models) -> None:
    (tmp_path / "p.json").write_text("{}")
    files = {"profile": str(tmp_path / "p.json")}
    point, done = 0, False
    while not done:
        point += 1
        registry = Registry.create(tmp_path / f"reg{point}")
        for number in (0, 1):
            registry.publish(model_at(number), alias="champion", files=files)
        before = registry.aliases, [version.number for version in registry.versions()]
        with pytest.MonkeyPatch.context() as patch:
            ending_at(point, patch, late)
            try:
                registry.publish(model_at(3), alias="champion", files=files, retain=1)
                done = True
            except EndedError:
                pass
        state = registry.aliases, [version.number for version in registry.versions()]
        after = {"champion": 3, "previous": 2}, [2, 3]
        assert state in (before, after)
        load_model(f"{registry.path}@champion")
        again = registry.publish(model_at(3), alias="champion", files=files, retain=1)
        assert again.added == (state == before)
        assert (registry.aliases, [version.number for version in registry.versions()]) == after
        assert_clean(registry.path)
    assert point > 8, "there were many points to end at"


@pytest.mark.parametrize("late", [False, True])
def test_create__ended_anywhere_can_be_repeated(late: bool, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        ending_at(1, patch, late)
        with pytest.raises(EndedError):
            Registry.create(tmp_path / "reg")
    assert Registry.create(tmp_path / "reg").versions() == ()
    assert_clean(tmp_path / "reg")


def test_prune__ended_before_the_removal_is_completed_by_the_next_writer(tmp_path: Path, model_at: Models) -> None:
    registry = Registry.create(tmp_path / "reg")
    for number in range(3):
        registry.publish(model_at(number), alias="champion")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changing, "_remove_unlisted", lambda *_: None)
        assert registry.prune(1) == (1,)
    assert len(os.listdir(tmp_path / "reg" / "versions")) == 3
    with refused("unknown-name", "Version 1", registry.path, "removed", "2, 3"):
        load_model(f"{registry.path}@1")
    assert registry.promote("trial", 3) is None
    assert_clean(registry.path)
    assert registry.publish(model_at(0), alias="champion").version.number == 4, "numbers are not used again"


def test_change__makes_room_before_anything_is_written(tmp_path: Path) -> None:
    registry = Registry.create(tmp_path / "reg")
    (tmp_path / "reg" / "versions" / "1-0123abcd").mkdir(parents=True)
    there = []

    def look(state: RegistryState) -> RegistryState:
        there.extend(os.listdir(tmp_path / "reg" / "versions"))
        return state

    changing.change(registry.path, look)
    assert there == []
