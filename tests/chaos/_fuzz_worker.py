"""`python _fuzz_worker.py BASE FIRST LAST`: uses damaged stores one after the other, and prints JSON about each.

A process of its own, so that a crash, a hang or memory without bounds ends it and not the tests. The number of a
mutation is its seed, and says which kind of store it is of.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from chaos._fuzz_mutations import MUTATIONS, SIGNED, Scene, draw_mutation
from chaos._fuzz_stores import KINDS

from protodask.errors import ProtodaskError

HANG_SECONDS = 30
"""What takes longer has hung; everything here takes a fraction of a second."""

MOST_BYTES = 2**30
"""Address space that using a store may take on top of what the process has."""

SHARES = ("dataset",) * 4 + ("model",) * 4 + ("run",) * 3 + ("finished", "predictions", "pipeline", "pipeline")
"""Kinds of stores in turn."""

LONGEST_MESSAGE = 4000


def main(base: Path, first: int, last: int) -> None:
    warnings.simplefilter("ignore")
    expected = {
        (which, name): kind.use(_copy(base / which / name), base)
        for which in ("one", "other")
        for name, kind in KINDS.items()
        if (which, name) != ("other", "run")  # it is one of another dataset
    }
    _limit_memory()
    for number in range(first, last):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        print(json.dumps(_try(base, number, expected)), flush=True)
        faulthandler.cancel_dump_traceback_later()


def _copy(store: Path) -> Path:
    place = Path(tempfile.mkdtemp()) / store.name
    shutil.copytree(store, place)
    return place


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _try(base: Path, number: int, expected: dict[tuple[str, str], Any]) -> dict[str, Any]:
    kind = KINDS[SHARES[number % len(SHARES)]]
    random = np.random.default_rng([20, number])
    name = draw_mutation(random)
    store = _copy(base / "one" / kind.name)
    outside = store.parent / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"{}")
    said = {"number": number, "kind": kind.name, "mutation": name}
    print(json.dumps({"begun": said}), flush=True)
    MUTATIONS[name][0](Scene(random, kind.name, store, base / "other" / kind.name, outside))
    which = "other" if _is_other(store, base / "other" / kind.name) else "one"
    wanted: Any = expected.get((which, kind.name))
    if kind.name == "finished" and not (store / "history.json").exists():
        wanted = json.dumps({**json.loads(wanted), "finished": False, "batches": []})  # as before its end
    before = time.monotonic()
    try:
        found = kind.use(store, base)
        free = kind.free or name == SIGNED
        outcome = "same" if found == wanted else "other" if free else "WRONG"
    except ProtodaskError as error:
        outcome = "refused" if _is_clear(error) else f"UNCLEAR {str(error)[:LONGEST_MESSAGE]}"
        said["message"] = str(error)[:300]
    except BaseException:
        outcome = f"CRASHED {traceback.format_exc()[-LONGEST_MESSAGE:]}"
    if (outside / "precious").read_bytes() != b"{}" or (outside / "made").exists():
        outcome = "WROTE OUTSIDE"
    shutil.rmtree(store.parent)
    return {**said, "outcome": outcome, "seconds": time.monotonic() - before}


def _is_other(store: Path, other: Path) -> bool:
    """Whether so many files came from the other store that it is that one, for all that its description says."""
    return store.name in ("finished", "predictions") and all(
        (store / path.name).is_file()
        and (store / path.name).stat().st_size == path.stat().st_size
        and (store / path.name).read_bytes() == path.read_bytes()
        for path in other.glob("*.json")
    )


def _is_clear(error: ProtodaskError) -> bool:
    sentences = (error.seen, error.remedy)
    return all(text.strip().endswith(".") and len(text) < LONGEST_MESSAGE for text in sentences)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
