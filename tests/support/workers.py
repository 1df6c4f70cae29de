"""Clusters of worker processes that start fast, on loopback alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import LocalCluster
from distributed.utils import get_mp_context


@contextmanager
def cluster_of_processes(n_workers: int, threads: int = 1, **options: Any) -> Iterator[LocalCluster]:
    """So many workers, which fork from one process that has imported what they need: that took each four seconds.

    By itself a worker has the environment of the process it forks from; these have that of this one.
    """
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = get_mp_context()  # at its first call it says itself what to import
        context.set_forkserver_preload(["distributed", "pandas", "protodask.prototypes.estimator"])
        with LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            memory_limit="1GiB",
            env=dict(os.environ),
            **options,
        ) as cluster:
            yield cluster
