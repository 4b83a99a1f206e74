"""Engines evaluate candidates in parallel, in processes or on the machines of a cluster.

An engine takes a function and its argument, and returns a future, as an ``Executor`` of
``concurrent.futures`` does. The engine decides where a function runs, how it is sent there, and
whether it is retried. Each function of this file wraps the engine of a library, which is
imported only when that engine is used.
"""

import importlib
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kernels.support.names import unknown_name
from kernels.support.system import usable_cores


def _do_nothing() -> None:
    """Close an engine that belongs to the user: it stays open."""


@dataclass(frozen=True)
class Engine:
    """What evaluates candidates in parallel.

    Attributes:
        submit: Starts a call of a function with one argument, and returns a future. The future
            has ``result()``, ``add_done_callback(function)`` and ``cancel()``, which may fail.
            ``result()`` raises the engine's errors, for example that a worker has died.
        workers: How many candidates run in parallel; 0 if this is unknown.
        close: Ends everything that was started for the search.
        runs_again: Whether the engine itself runs a candidate again after its worker has died.
    """

    submit: Callable[..., Any]
    workers: int = 0
    close: Callable[[], object] = _do_nothing
    runs_again: bool = False


def connect_dask(client: Any = None) -> Engine:
    """Return an engine that submits candidates to a ``dask.distributed.Client``.

    Args:
        client: The client, which stays open when the engine is closed. None: make a client for
            the cluster in Dask's configuration. The engine's ``close`` then closes it.
    """
    close = _do_nothing
    if client is None:
        client = importlib.import_module("distributed").Client()
        close = client.close
    # Dask's local cluster restarts a worker that died. If the restart takes longer than this
    # timeout, the cluster does not wait for the worker any more. The default of 15 seconds is
    # too short if a candidate kills all workers, one after another.
    if type(client.cluster).__name__ == "LocalCluster":
        dask = importlib.import_module("dask")
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1000 days"})
    # With ``pure=False`` Dask evaluates equal candidates separately. By default it may reuse
    # the result of an equal one.
    executor = client.get_executor(pure=False)
    workers = sum(client.nthreads().values())
    # If a worker dies, Dask itself runs its candidates again on another worker.
    return Engine(executor.submit, workers, close, runs_again=True)


def connect_ray(_: Any = None) -> Engine:
    """Use the tasks of the cluster that ``ray.init`` finds."""
    ray = importlib.import_module("ray")
    ray.init(ignore_reinit_error=True)

    # Ray sends the code of a nested function, so that a worker need not import this file.
    @ray.remote(max_retries=0)  # type: ignore[untyped-decorator]
    def call(task: Any, item: Any) -> Any:
        return task(item)

    def submit(task: Any, item: Any) -> Any:
        return call.remote(task, item).future()

    return Engine(submit, int(ray.cluster_resources().get("CPU", 0)))


def connect_mpi() -> Engine:
    """Use the processes that ``mpirun -n N python -m mpi4py.futures`` started."""
    executor = importlib.import_module("mpi4py.futures").MPIPoolExecutor()
    return Engine(executor.submit, executor.num_workers, executor.shutdown)


def connect_parsl(_: Any = None) -> Engine:
    """Use the configuration that ``parsl.load`` has loaded."""
    concurrent = importlib.import_module("parsl.concurrent")
    kernel = importlib.import_module("parsl").dfk()
    return Engine(concurrent.ParslPoolExecutor(dfk=kernel).submit)


def connect_loky(executor: Any = None) -> Engine:
    """Use the reusable executor of loky, which loky replaces after a process has died."""
    workers = usable_cores() if executor is None else executor._max_workers
    return _reuse_loky("loky", workers)


def connect_joblib(parallel: Any = None) -> Engine:
    """Use processes of joblib, as many as the ``joblib.Parallel`` has."""
    workers = usable_cores() if parallel is None else parallel._effective_n_jobs()
    return _reuse_loky("joblib.externals.loky", workers)


def _reuse_loky(module: str, workers: int) -> Engine:
    """Return an engine that uses loky's reusable executor, with ``workers`` processes."""
    loky = importlib.import_module(module)

    def submit(task: Any, item: Any) -> Any:
        return loky.get_reusable_executor(max_workers=workers).submit(task, item)

    return Engine(submit, workers)


# The functions that connect engines, by the engine's name or by the package of an object.
_CONNECT: dict[str, Callable[..., Engine]] = {
    "dask": connect_dask,
    "distributed": connect_dask,  # the package of Dask's client
    "ray": connect_ray,
    "mpi": connect_mpi,
    "parsl": connect_parsl,
    "loky": connect_loky,
    "joblib": connect_joblib,
}


def connect(workers: Any) -> Engine | None:
    """Return the engine for an argument ``workers``.

    Args:
        workers: The name of an engine, an object of an engine's library, such as a Dask client,
            an engine's library as a module, such as ``ray``, or an ``Executor``.

    Returns:
        The engine; None if ``workers`` is none of these.

    Raises:
        ValueError: If there is no engine of that name.
    """
    if isinstance(workers, ModuleType):
        workers = workers.__name__.split(".")[0]  # The name of the library.
    if isinstance(workers, str):
        if workers not in _CONNECT:
            raise unknown_name("engine", workers, sorted(_CONNECT))
        return _CONNECT[workers]()
    # An object belongs to the library whose package defines its class.
    package = type(workers).__module__.split(".")[0]
    is_executor = isinstance(workers, Executor)
    # An executor needs no connection. But an executor of loky is not reusable after a process
    # has died, so ``connect_loky`` replaces it.
    needs_connection = not is_executor or package == "loky"
    if package in _CONNECT and needs_connection:
        return _CONNECT[package](workers)
    if not is_executor:
        return None
    # The number of workers is a public attribute in mpi4py, and a private one in Python. An
    # executor of another library may have neither; 0 means that the number is unknown.
    count = getattr(workers, "num_workers", None) or getattr(workers, "_max_workers", None)
    return Engine(workers.submit, count or 0)
