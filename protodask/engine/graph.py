"""How Dask spells a task: the one place that reaches into it.

Since 2024.12 graphs consist of `Task` objects, for which Dask has no public name yet.
"""

from __future__ import annotations

from typing import Any

import dask
from dask._task_spec import Alias, Task, TaskRef, convert_legacy_graph, cull

__all__ = ["Task", "TaskRef", "compute_key", "graph_of"]


def graph_of(collection: Any) -> dict[Any, Any]:
    """The tasks of a collection by their keys; values that are in memory already, as after persist(), are wrapped."""
    graph = convert_legacy_graph(dict(collection.__dask_graph__()))
    # Some that stand for others, as of a slice of whole partitions, have the key of these: a graph around them would
    # take such for a circle.
    others = {key: task.target for key, task in graph.items() if isinstance(task, Alias) and task.key != key}
    return {**graph, **{key: Alias(key, target) for key, target in others.items()}}


def compute_key(graph: dict[Any, Any], key: Any) -> Any:
    """What one task of a graph computes, in this thread."""
    task = graph.get(key)
    # The task of a file partition stands alone after fusing; only then is there no need to look for its inputs.
    alone = {key: task} if task is not None and not task.dependencies else cull(graph, [key])
    return dask.get(alone, key)
