"""Engines: what starts candidates side by side, in processes or on the machines of a cluster.

An engine takes a function and its argument, and returns a future, as an ``Executor`` of
``concurrent.futures`` does. Placement, transport and its own retries remain its business. A
function of this file wraps a library's engine; that library is imported when it is asked for.
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
    """Close an engine that belongs to the user."""


@dataclass(frozen=True)
class Engine:
    """What starts candidates.

    Attributes:
        submit: Begins to call a function with an argument, and returns a future: it has
            ``result()``, ``add_done_callback(function)`` and ``cancel()``, which may fail. The
            result raises what the engine has to say, for example that a worker has died.
        workers: How many candidates run side by side; 0 if that is not known.
        close: Ends what was started for the search.
        runs_again: Whether it runs a candidate again by itself when its worker has died.
    """

    submit: Callable[..., Any]
    workers: int = 0
    close: Callable[[], object] = _do_nothing
    runs_again: bool = False


def connect_dask(client: Any = None) -> Engine:
    """Use a ``dask.distributed.Client``, or one of the cluster in Dask's own settings."""
    close = _do_nothing
    if client is None:
        client = importlib.import_module("distributed").Client()
        close = client.close
    # Dask's local cluster closes a worker for good that is absent this long after it died, 15
    # seconds by default. A candidate that ends workers can make all of them be restarted then.
    if type(client.cluster).__name__ == "LocalCluster":
        dask = importlib.import_module("dask")
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1000 days"})
    executor = client.get_executor(pure=False)
    workers = sum(client.nthreads().values())
    return Engine(executor.submit, workers, close, runs_again=True)


def connect_ray(ray: Any = None) -> Engine:
    """Use the tasks of the cluster that ``ray.init`` finds."""
    if ray is None:
        ray = importlib.import_module("ray")
    ray.init(ignore_reinit_error=True)

    # Ray sends a function inside another one as code: a worker need not import this file.
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
    """Use the reusable executor of loky, which is another one after a process has died."""
    workers = usable_cores() if executor is None else executor._max_workers
    return _reuse_loky("loky", workers)


def connect_joblib(parallel: Any = None) -> Engine:
    """Use the processes of joblib, as many as a ``joblib.Parallel`` has."""
    workers = usable_cores() if parallel is None else parallel._effective_n_jobs()
    return _reuse_loky("joblib.externals.loky", workers)


def _reuse_loky(module: str, workers: int) -> Engine:
    loky = importlib.import_module(module)

    def submit(task: Any, item: Any) -> Any:
        return loky.get_reusable_executor(max_workers=workers).submit(task, item)

    return Engine(submit, workers)


_CONNECT: dict[str, Callable[..., Engine]] = {
    "dask": connect_dask,
    "distributed": connect_dask,  # the package of Dask's client
    "ray": connect_ray,
    "mpi": connect_mpi,
    "parsl": connect_parsl,
    "loky": connect_loky,
    "joblib": connect_joblib,
}
"""How to use an engine, by its name or by the package of an object."""


def connect(workers: Any) -> Engine | None:
    """Return an engine by its name, by an object of its library, or for an ``Executor``.

    It is None for anything else.

    Raises:
        ValueError: If there is no engine of that name.
    """
    if isinstance(workers, str):
        if workers not in _CONNECT:
            raise unknown_name("engine", workers, sorted(_CONNECT))
        return _CONNECT[workers]()
    is_module = isinstance(workers, ModuleType)
    name: str = workers.__name__ if is_module else type(workers).__module__
    package = name.split(".")[0]
    if package in _CONNECT and (package == "loky" or not isinstance(workers, Executor)):
        return _CONNECT[package](workers)
    if not isinstance(workers, Executor):
        return None
    # Python's executors have their number in a private attribute, that of mpi4py is public.
    count = getattr(workers, "num_workers", None) or getattr(workers, "_max_workers", 0)
    return Engine(workers.submit, count or 0)
