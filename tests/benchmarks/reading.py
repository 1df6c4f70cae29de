"""Reading a dataset block by block, in one thread: from a disk, and from an object store that takes its time.

The dataset has `--rows` rows of `--features` features, made by the benchmark. From the disk, whose files are in the
system's cache: its blocks as a fit reads them (`blocks`), the same rows by slices of the Zarr arrays (`Zarr`), and the
bytes of the chunks alone (`files`). The object store is a stand-in in this process: an answer begins after `--latency`
milliseconds and arrives at `--rate`. Blocks as a fit reads them, chunks together, against one chunk after the other.
All are compared with `blocks`.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

BLOCKS = "blocks"
ONE_BY_ONE = "one chunk after the other"


@dataclass(frozen=True)
class Measured:
    """A way to read all rows once."""

    place: str
    how: str
    seconds: float
    mib_per_second: float
    ratio: float
    """Its time over that of blocks."""


def slow_store(latency: float, rate: float) -> None:
    """Have URLs that begin with `slow://` be files of this machine, each answer late and at a limited rate."""
    import fsspec
    from fsspec.asyn import AsyncFileSystem

    class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc]
        protocol = "slow"
        files: ClassVar[Any] = fsspec.filesystem("file")

        async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
            try:
                content: bytes = self.files.cat_file(self._strip_protocol(path), start, end)
            except IsADirectoryError as error:
                raise FileNotFoundError(path) from error
            await asyncio.sleep(latency + len(content) / rate)
            return content

        async def _info(self, path: str, **_: Any) -> dict[str, Any]:
            await asyncio.sleep(latency)
            found: dict[str, Any] = self.files.info(self._strip_protocol(path))
            return found

        async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
            await asyncio.sleep(latency)
            found: list[Any] = self.files.ls(self._strip_protocol(path), detail=detail)
            return found

    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)


def read_blocks(path: str) -> Callable[[], None]:
    from protodask.data import Dataset

    dataset = Dataset.open(path)

    def read() -> None:
        for number in range(dataset.layout.n_blocks):
            dataset.read(number)

    return read


def one_by_one(read: Callable[[], None]) -> Callable[[], None]:
    from protodask.data.arrays import plain_rows

    def alone() -> None:
        together, plain_rows.AT_ONCE_BYTES = plain_rows.AT_ONCE_BYTES, 0
        try:
            read()
        finally:
            plain_rows.AT_ONCE_BYTES = together

    return alone


def read_zarr(path: str) -> Callable[[], None]:
    import zarr

    from protodask.data import Dataset

    layout = Dataset.open(path).layout
    members = zarr.open_group(path, mode="r").members(max_depth=None)
    arrays = [member for _name, member in members if isinstance(member, zarr.Array)]

    def read() -> None:
        for number in range(layout.n_blocks):
            for array in arrays:
                array[slice(*layout.bounds(number))]

    return read


def read_files(path: str) -> Callable[[], None]:
    places = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]

    def read() -> None:
        for place in places:
            with open(place, "rb", buffering=0) as file:
                file.readall()

    return read


def main() -> None:
    parser = common.make_parser(__doc__)
    parser.add_argument("--rows", type=common.positive, default=1_000_000)
    parser.add_argument("--features", type=common.positive, default=30)
    parser.add_argument("--block-rows", type=common.numbers, default=[8_192, 262_144], help="rows of a block, several")
    parser.add_argument("--latency", type=float, default=30.0, help="milliseconds until an answer begins")
    parser.add_argument("--rate", type=common.byte_count, default="80MB", help="bytes in a second of one answer")
    parser.add_argument("--rounds", type=common.positive, default=5)
    parser.add_argument("--data", metavar="FOLDER", help="where the datasets are made")
    settings = parser.parse_args()
    measured_on = common.start("reading")
    slow_store(settings.latency / 1000, settings.rate)
    results: list[Measured] = []
    table = common.Table("A pass over all blocks in one thread", ("how", "seconds", "MiB/s", "x blocks"), 60)
    with common.scratch(settings.data) as folder:
        for block_rows in settings.block_rows:
            path = os.path.join(folder, f"rows-{block_rows}.zarr")
            common.make_blobs(settings.rows, path, block_rows, settings.features)
            mib = settings.rows * (4 * settings.features + 4) / common.MIB
            slow = read_blocks(f"slow://{path}")
            disk = {BLOCKS: read_blocks(path), "Zarr": read_zarr(path), "files": read_files(path)}
            store = {BLOCKS: slow, ONE_BY_ONE: one_by_one(slow)}
            for place, ways in (("disk", disk), ("object store", store)):
                rounds = settings.rounds if place == "disk" else 1
                seconds = [statistics.median(taken) for taken in common.alternate(list(ways.values()), rounds)]
                for how, taken in zip(ways, seconds, strict=True):
                    found = Measured(f"{place}, {block_rows} rows", how, taken, mib / taken, taken / seconds[0])
                    results.append(found)
                    table.row(f"{found.place}: {how}", taken, found.mib_per_second, found.ratio)
    common.finish("reading", settings, measured_on, results)


if __name__ == "__main__":
    main()
