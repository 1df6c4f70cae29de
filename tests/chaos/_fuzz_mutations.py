"""Damage to a store, drawn from a seed: what accidents do, and what somebody would who means harm."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from protodask.data.format.metadata import from_attributes, to_attributes
from protodask.data.places.records import seal

Random = np.random.Generator

LARGE = 70 * 2**20
SPARSE = 2**36


@dataclass(frozen=True)
class Scene:
    """A copy of a valid store to be damaged, another valid store of the same form, and a folder outside both."""

    random: Random
    kind: str
    store: Path
    other: Path
    outside: Path

    def pick(self, choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def files(self, suffix: str = "") -> list[Path]:
        return sorted(path for path in self.store.rglob("*") if path.is_file() and path.name.endswith(suffix))

    def file(self) -> Path:
        path: Path = self.pick(self.files())
        return path

    def folders(self) -> list[Path]:
        return sorted(path for path in self.store.rglob("*") if path.is_dir())

    def record(self) -> Path | None:
        found = self.files(".json")
        return self.pick(found) if found else None


# What accidents do


def _truncate(scene: Scene) -> None:
    file = scene.file()
    size = file.stat().st_size
    os.truncate(file, scene.pick([0, 1, size // 2, max(size - 1, 0), int(scene.random.integers(size + 1))]))


def _flip_bits(scene: Scene) -> None:
    file = scene.file()
    content = bytearray(file.read_bytes())
    for _ in range(scene.pick([1, 1, 2, 8])):
        content[int(scene.random.integers(len(content)))] ^= 1 << int(scene.random.integers(8))
    file.write_bytes(content)


def _swap_bytes(scene: Scene) -> None:
    file = scene.file()
    content = bytearray(file.read_bytes())
    length = int(scene.random.integers(1, max(len(content) // 4, 1) + 1))
    first, second = sorted(int(scene.random.integers(len(content) - length + 1)) for _ in range(2))
    content[first : first + length], content[second : second + length] = (
        content[second : second + length],
        content[first : first + length],
    )
    file.write_bytes(content)


def _append(scene: Scene) -> None:
    with scene.file().open("ab") as file:
        file.write(scene.random.bytes(int(scene.random.integers(1, 100))))


def _scramble(scene: Scene) -> None:
    file = scene.file()
    file.write_bytes(scene.random.bytes(file.stat().st_size))


def _repeat(scene: Scene) -> None:
    file = scene.file()
    content = file.read_bytes()
    file.write_bytes(content * scene.pick([2, 3]))


def _remove_file(scene: Scene) -> None:
    scene.file().unlink()


def _remove_folder(scene: Scene) -> None:
    if folders := scene.folders():
        shutil.rmtree(scene.pick(folders))


def _rename(scene: Scene) -> None:
    path = scene.pick(scene.files() + scene.folders())
    path.rename(path.with_name(scene.pick(["x", path.name + "~", path.name.upper() + "1", "new\nline", " ", "-rf"])))


def _copy_over(scene: Scene) -> None:
    one, other = scene.file(), scene.file()
    if one != other:
        shutil.copyfile(one, other)


def _exchange(scene: Scene) -> None:
    one = scene.file()
    alike = [path for path in scene.files() if path.name == one.name or path.stat().st_size == one.stat().st_size]
    other = scene.pick(alike if scene.random.random() < 0.7 else scene.files())
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _exchange_folders(scene: Scene) -> None:
    if folders := scene.folders():
        one = scene.pick(folders)
        beside = [path for path in folders if path.parent == one.parent]
        other = scene.pick(beside)
        if one != other:
            aside = one.with_name("aside")
            one.rename(aside)
            other.rename(one)
            aside.rename(other)


def _copy_folder(scene: Scene) -> None:
    if folders := scene.folders():
        one = scene.pick(folders)
        shutil.copytree(one, one.with_name(scene.pick(["copy", "batch-3", "weight2", "zarr.json.d"])))


def _take_file_of_other(scene: Scene) -> None:
    same = [path for path in scene.files() if (scene.other / path.relative_to(scene.store)).is_file()]
    for _ in range(scene.pick([1, 1, 2, 5])):
        file = scene.pick(same)
        shutil.copyfile(scene.other / file.relative_to(scene.store), file)


def _take_folder_of_other(scene: Scene) -> None:
    folders = [path for path in scene.folders() if (scene.other / path.relative_to(scene.store)).is_dir()]
    if folders:
        folder = scene.pick(folders)
        shutil.rmtree(folder)
        shutil.copytree(scene.other / folder.relative_to(scene.store), folder)


# What cannot be read as a file


def _link(scene: Scene) -> None:
    path = scene.pick(scene.files() + scene.folders())
    precious = scene.outside / "precious"
    target = scene.pick(
        [precious, scene.outside / path.name, path, Path("/dev/zero"), Path("../../../.."), Path("gone")]
    )
    if target == scene.outside / path.name:  # the very same content, but elsewhere
        shutil.move(path, target)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


def _special(scene: Scene) -> None:
    path = scene.file()
    path.unlink()
    match scene.pick(["pipe", "device", "socket", "folder"]):
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:
                os.mknod(path, 0o666 | 0o020000, os.makedev(1, 5))  # /dev/zero
            except PermissionError:
                path.symlink_to("/dev/zero")
        case "socket":
            before = Path.cwd()
            os.chdir(path.parent)  # the name of a socket may be 108 characters long
            try:
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(path.name)
            finally:
                os.chdir(before)
        case _:
            path.mkdir()


def _stray(scene: Scene) -> None:
    """What does not belong there: pipes and links under names that may be looked at or written to."""
    names = [
        "run.json.partial", "history.json.partial", "history.json", "_protodask.json", ".zattrs", ".zgroup",
        "batch-3-float32.log", "scores-1.zarr", "batch-2-float64.log", "x" * 250, "a\nb", "\x01", "zarr.json.partial",
    ]  # fmt: skip
    path = scene.store / scene.pick(names)
    if path.exists():
        return
    match scene.pick(["pipe", "link", "dangling", "folder", "file", "array"]):
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(scene.outside / "precious")
        case "dangling":
            path.symlink_to(scene.outside / "made")
        case "folder":
            path.mkdir()
        case "file":
            path.write_bytes(scene.random.bytes(50))
        case _:
            path.mkdir()
            os.mkfifo(path / "zarr.json")


def _sparse(scene: Scene) -> None:
    os.truncate(scene.file(), SPARSE)


# Files of people


PIECES = [
    b"[" * 1200,
    b'{"a":' * 1200,
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"1" * 5000,
    b"\xff\xfe",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"&a [*a]",
    b"!!python/object/apply:os.getcwd []",
    b"<<: *a",
    b"${root}" * 500,
    b": ",
    b"- ",
    b"\t",
    b"'",
    b"1:1:1:1",
    b"!!int ''",
    b"2026-06-31",
    b"%YAML 9.9\n",
    b"---\n",
    b"...\n",
]


def _text(scene: Scene) -> None:
    """Pieces of text put into any text file."""
    texts = [path for path in scene.files() if path.suffix in (".json", ".yaml")]
    if not texts:
        return
    file = scene.pick(texts)
    content = file.read_bytes()
    piece = scene.pick(PIECES)
    place = scene.pick([0, 0, len(content), int(scene.random.integers(len(content) + 1))])
    file.write_bytes(content[:place] + piece + content[place:])


def _encode(scene: Scene) -> None:
    texts = [path for path in scene.files() if path.suffix in (".json", ".yaml")]
    if texts:
        file = scene.pick(texts)
        text = file.read_text()
        file.write_bytes(text.encode(scene.pick(["utf-16", "utf-8-sig", "utf-32", "utf-7"])))


def _oversize(scene: Scene) -> None:
    texts = [path for path in scene.files() if path.suffix in (".json", ".yaml")]
    if not texts:
        return
    file = scene.pick(texts)
    content = file.read_bytes()
    match scene.pick(["spaces", "list", "string", "objects", "keys"]):
        case "spaces":
            content = content + b" " * LARGE
        case "list":
            content = b'{"a": [' + b"0," * (LARGE // 2) + b"0]}"
        case "string":
            content = content[: content.rfind(b"}")] + b', "a": "' + b"x" * LARGE + b'"}'
        case "objects":
            content = b'{"a": [' + b"[],{}," * (LARGE // 8) + b"0]}"
        case _:
            content = b"{" + b",".join(b'"%d": 0' % number for number in range(LARGE // 80)) + b"}"
    file.write_bytes(content)


# JSON


def _hostile(scene: Scene, before: Any) -> Any:
    nested: Any = []
    for _ in range(scene.pick([10, 70, 300])):
        nested = scene.pick([[nested], {"a": nested}])
    return scene.pick(
        [
            None,
            True,
            -1,
            0,
            1,
            2**31,
            2**62,
            2**63,
            2**64,
            -(2**70),
            10**300,
            1.5,
            1e308,
            -1e-320,
            "",
            "x" * 100_000,
            [],
            {},
            [before],
            {"a": before},
            [before] * 1000,
            nested,
            "../../../../etc/passwd",
            "/etc/passwd",
            "a\x00b",
            "a\nb",
            "\ud800",
            str(before),
            [0] * 50_000,
            "\x1b[2J",
            "file:///etc/passwd",
            {"name": "gzip", "configuration": {"level": 9}},
            before * 2
            if isinstance(before, (str, list))
            else before + 1
            if isinstance(before, (int, float))
            else before,
        ]
    )


def _changed(scene: Scene, value: Any) -> Any:
    """The value with something in it replaced, taken out or put in."""
    if isinstance(value, (dict, list)) and value and scene.random.random() < 0.85:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = scene.pick(keys)
        copy: Any = value.copy()
        match scene.pick(["change"] * 6 + ["remove", "rename", "repeat"]):
            case "remove":
                del copy[key]
            case "rename" if isinstance(copy, dict):
                copy[scene.pick([f"{key}x", "", "must_understand", "format", "../x"])] = copy.pop(key)
            case "repeat" if isinstance(copy, list):
                copy.append(copy[key])
            case _:
                copy[key] = _changed(scene, copy[key])
        return copy
    return _hostile(scene, value)


def _edit_json(scene: Scene) -> None:
    if file := scene.record():
        file.write_text(json.dumps(_changed(scene, json.loads(file.read_text())), indent=scene.pick([None, 2])))


def _repeat_key(scene: Scene) -> None:
    if file := scene.record():
        record = json.loads(file.read_text())
        key = scene.pick(list(record))
        text = json.dumps(record)
        addition = json.dumps({key: _hostile(scene, record[key])})
        file.write_text(scene.pick([text[:-1] + ", " + addition[1:], addition[:-1] + ", " + text[1:]]))


ARRAY_EDITS: list[dict[str, Any]] = [
    {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
    {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}]},
    *(
        {
            "codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": name, "configuration": settings},
            ]
        }
        for name, settings in (
            ("gzip", {"level": 9}),
            ("zstd", {"level": 1, "checksum": False}),
            ("blosc", {"cname": "lz4", "clevel": 1, "shuffle": "shuffle", "typesize": 4, "blocksize": 2**31 - 1}),
            ("numcodecs.pickle", {}),
            ("numcodecs.zlib", {"level": 1}),
            ("../../x", {}),
            ("no-such", {}),
        )
    ),
    {
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [1],
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                    "index_location": "end",
                },
            }
        ]
    },
    {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes"}, {"name": "crc32c"}]},
    {"codecs": []},
    {"shape": [2**62, 2**62]},
    {"shape": [2**40]},
    {"shape": []},
    {"shape": [10**300]},
    {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2**40]}}},
    {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
    {"chunk_grid": {"name": "rectangular", "configuration": {}}},
    {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}},
    {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}}},
    {"chunk_key_encoding": {"name": "../../outside", "configuration": {}}},
    {"data_type": "float16"},
    {"data_type": "complex128"},
    {"data_type": "string"},
    {"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**31}}},
    {"data_type": {"name": "structured", "configuration": {"fields": [["a", "int8"]] * 1000}}},
    {"fill_value": "Infinity"},
    {"fill_value": 1},
    {"fill_value": "0x7fc00001"},
    {"zarr_format": 2},
    {"node_type": "group"},
    {"node_type": "array", "zarr_format": 3.0},
    {"storage_transformers": [{"name": "x", "configuration": {}}]},
    {"extension": {"must_understand": True}},
    {"extension": {"must_understand": False, "name": "x" * 1000}},
    {"attributes": {"a": [0] * 10_000}},
    {"dimension_names": ["../x", None]},
    {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {"features": {"shape": [1]}}}},
]


def _edit_zarr(scene: Scene) -> None:
    found = [path for path in scene.files("zarr.json") if scene.kind in ("dataset", "model", "predictions")]
    if found:
        file = scene.pick(found)
        edit = scene.pick(ARRAY_EDITS)
        file.write_text(json.dumps({**json.loads(file.read_text()), **edit}))
        if "gzip" in json.dumps(edit) and (
            chunks := sorted(path for path in (file.parent / "c").rglob("*") if path.is_file())
        ):
            scene.pick(chunks).write_bytes(gzip.compress(bytes(2**28), 1))


# With checksums that fit: somebody means it


def _signed(scene: Scene) -> None:
    match scene.kind:
        case "dataset":
            _sign_dataset(scene)
        case "model" | "predictions":
            _sign_record(scene, scene.store / "zarr.json", "attributes")
        case "run":
            _sign_record(scene, scene.store / "run.json")
        case "finished":
            _sign_record(scene, scene.store / scene.pick(["run.json", "history.json"]))
        case _:
            _text(scene)


def _sign_record(scene: Scene, file: Path, inside: str | None = None) -> None:
    whole = json.loads(file.read_text())
    record = dict(whole if inside is None else whole[inside])
    record.pop("checksum", None)
    changed = _changed(scene, record)
    with suppress(ValueError, TypeError):
        changed = seal(changed, "x")
    file.write_text(json.dumps(changed if inside is None else {**whole, inside: changed}))


def _sign_dataset(scene: Scene) -> None:
    file = scene.store / "zarr.json"
    whole = json.loads(file.read_text())
    metadata = from_attributes(whole["attributes"], "here")
    summary = metadata.summary
    extreme = scene.pick([1e308, 1e-308, 0.0, -1.0])
    field, value = scene.pick(
        [
            ("n_rows", 2**50),
            ("n_rows", 81),
            ("n_rows", 64),
            ("n_rows", 1),
            ("block_rows", 1),
            ("block_rows", 2**40),
            ("block_rows", 16),
            ("block_checks", b""),
            ("block_checks", bytes(24)),
            ("block_checks", bytes(8 * 100_000)),
            ("content", 0),
            ("classes", ("a",)),
            ("classes", ("b", "c", "d")),
            ("classes", (1, 2**63)),
            ("classes", tuple(range(1000))),
            ("classes", ("../..", "\x00")),
            ("classes", (True, 1)),
            ("columns", metadata.columns[:2]),
            ("columns", metadata.columns + metadata.columns),
            ("columns", (replace(metadata.columns[0], name="../../x"), *metadata.columns[1:])),
            ("columns", (replace(metadata.columns[0], name="\ud800\x00"), *metadata.columns[1:])),
            (
                "columns",
                (replace(metadata.columns[1], categories=("red", "red")), *metadata.columns[:1], metadata.columns[2]),
            ),
            ("weight_name", None),
            ("inclusion_name", None),
            ("weight_name", "../../features"),
            ("group_name", None),
            ("group_name", "../../features"),
            ("dtype", "float64"),
            ("dtype", "float16"),
            ("dropped", ("x",) * 10_000),
            ("notes", ("\x1b[31m",)),
            ("target_name", "x" * 100_000),
            ("summary", replace(summary, mean=summary.mean * extreme)),
            ("summary", replace(summary, squares=np.full_like(summary.squares, abs(extreme)))),
            ("summary", replace(summary, class_weight=summary.class_weight * extreme)),
            ("summary", replace(summary, weight=extreme)),
            ("summary", replace(summary, class_rows=summary.class_rows * 2**60)),
            ("summary", replace(summary, class_rows=summary.class_rows[::-1].copy())),
            ("summary", replace(summary, minimum=summary.maximum, maximum=summary.minimum)),
            ("summary", replace(summary, rows=0)),
        ]
    )
    changed: dict[str, Any] = {field: value}
    with suppress(ValueError, OverflowError):
        whole["attributes"] = to_attributes(replace(metadata, **changed))
    file.write_text(json.dumps(whole))


Mutation = Callable[[Scene], None]

MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "truncate": (_truncate, 3),
    "flip bits": (_flip_bits, 6),
    "swap bytes": (_swap_bytes, 2),
    "append": (_append, 2),
    "scramble": (_scramble, 1),
    "repeat": (_repeat, 1),
    "remove file": (_remove_file, 2),
    "remove folder": (_remove_folder, 1),
    "rename": (_rename, 2),
    "copy over": (_copy_over, 3),
    "exchange": (_exchange, 4),
    "exchange folders": (_exchange_folders, 2),
    "copy folder": (_copy_folder, 1),
    "file of another store": (_take_file_of_other, 5),
    "folder of another store": (_take_folder_of_other, 3),
    "link": (_link, 4),
    "special": (_special, 3),
    "stray": (_stray, 3),
    "sparse": (_sparse, 2),
    "text": (_text, 4),
    "encode": (_encode, 1),
    "oversize": (_oversize, 1),
    "edit JSON": (_edit_json, 6),
    "repeat key": (_repeat_key, 2),
    "edit Zarr": (_edit_zarr, 6),
    "signed": (_signed, 6),
}
"""Each with its share."""

SIGNED = "signed"


def draw_mutation(random: Random) -> str:
    """The name of a mutation."""
    names = list(MUTATIONS)
    shares = np.array([share for _, share in MUTATIONS.values()], dtype=float)
    return names[int(random.choice(len(names), p=shares / shares.sum()))]
