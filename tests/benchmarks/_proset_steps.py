"""proset's own search with each of its steps kept in a file, so that a search of an hour that was stopped goes on.

A step is one fit of its cross-validation: one lambda_v on one fold. proset draws the seeds of all steps before it takes
the first, and a step looks at nothing that another one did, so that scores read from a file are those that the step
would give again. What a step took is kept beside its scores: a search that was stopped takes what all its parts did.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from benchmarks import _common as common
else:
    import _common as common

PrivateStep = Mapping[str, Any]
"""An entry of proset's plan; `trial` and `fold` are its place in the search."""
StepResult = tuple[int, int, NDArray[np.floating]]
"""Trial, fold, and the score for each number of batches."""


@dataclass(frozen=True)
class StepRecord:
    """What is kept of a step."""

    scores: list[float]
    seconds: float
    processor: float
    """Seconds of all threads together."""


class KeptSteps:
    """The steps of one search, in a folder that other searches may share."""

    def __init__(self, folder: str, search: str) -> None:
        """`search` names the dataset and the split: it begins the name of each file."""
        self._prefix = os.path.join(folder, search)
        self.seconds = 0.0
        """Of the steps that were read: what they took when they were done."""
        self.processor = 0.0
        os.makedirs(folder, exist_ok=True)

    @contextmanager
    def used_by_proset(self) -> Iterator[None]:
        """Have proset's searches read the steps that are kept and keep those that they take."""
        take: Callable[[PrivateStep], StepResult] = common.peer("proset.utility.fit")._fit_step
        with mock.patch("proset.utility.fit._fit_step", lambda step: self._find_or_take(step, take)):
            yield

    def _find_or_take(self, step: PrivateStep, take: Callable[[PrivateStep], StepResult]) -> StepResult:
        trial, fold = int(step["trial"]), int(step["fold"])
        path = f"{self._prefix}-{trial}-{fold}.json"
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = StepRecord(**json.load(file))
            self.seconds += kept.seconds
            self.processor += kept.processor
            return trial, fold, np.array(kept.scores)
        began, worked = time.perf_counter(), time.process_time()
        _, _, scores = take(step)
        done = StepRecord(scores.tolist(), time.perf_counter() - began, time.process_time() - worked)
        part = f"{path}.{os.getpid()}.part"
        with open(part, "w", encoding="utf-8") as file:
            json.dump(asdict(done), file)
        os.replace(part, path)
        return trial, fold, scores
