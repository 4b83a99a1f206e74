"""Ranks: processes that share some work, on one host or several.

``torchrun``, ``mpirun`` or ``srun`` starts them. A single process is rank 0 of 1, for which all
functions work without a process group.
"""

import atexit
import contextlib
import datetime
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from kernels.support.interrupts import handler_of_interrupts
from kernels.support.system import usable_cores

TIMEOUT_S = 600.0
"""How long a rank waits for the others, in seconds.

The variable ``CEM_TETRIS_RANK_TIMEOUT`` changes it.
"""

_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""The variables of torchrun: the number of ranks, the number of this rank, its number among the
ranks of its host, and how many ranks its host has."""
_LAUNCHERS = (
    (
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
"""The same variables of Open MPI, of MPICH and Intel MPI, and of a step of ``srun``."""

_Result = TypeVar("_Result")
_joined = False


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """Raised in the middle of some work that was asked to stop."""


class RanksError(ConnectionError):
    """Raised if another rank has exited or does not answer in time."""


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Connect this process with the other ranks, so that they share the ``with`` block's work.

    If the process has a process group, it is used. Otherwise the launcher's environment
    variables describe the ranks. If there are several, a process group is made, which lasts
    until the process ends. A single process is not connected, and the inner one of two nested
    blocks has no effect.

    Raises:
        RanksError: If the other ranks cannot be reached.
        ValueError: If ``CEM_TETRIS_RANK_TIMEOUT`` or a variable of the launcher is invalid.
    """
    global _joined
    has_group = dist.is_available() and dist.is_initialized()
    # The variables of launchers such as mpirun have other names. Copy them to torchrun's names.
    _set_torchrun_variables()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    is_launched = world_size > 1 and "RANK" in os.environ
    is_single_process = not has_group and not is_launched
    if _joined or is_single_process:
        yield
        return
    if not has_group:
        _make_group()
    _joined = True
    try:
        yield
    finally:
        _joined = False


def _set_torchrun_variables() -> None:
    """Set torchrun's environment variables from those of another launcher, if there is one.

    Raises:
        ValueError: If the ranks are on several hosts, and the variables with the address of
            rank 0 are not set.
    """
    if "RANK" in os.environ:
        return  # The launcher is torchrun.
    # A launcher has four variables: the number of ranks, the number of this rank, its number on
    # this host, and the number of ranks on this host. The first two are always set.
    for names in _LAUNCHERS:
        has_launcher = all(name in os.environ for name in names[:2])
        if not has_launcher:
            continue
        # SLURM writes "2(x3)" for two ranks on each of three hosts.
        values = [os.environ.get(name, "0").split("(")[0] for name in names]
        num_ranks, _, _, num_ranks_on_host = values
        # A single process needs no process group.
        if int(num_ranks) < 2:
            continue
        # If all ranks are on this host, so is rank 0, and its address is known.
        if num_ranks == num_ranks_on_host:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", "29500")
        elif not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
            raise ValueError(
                f"expected MASTER_ADDR and MASTER_PORT, the host of rank 0 and a free port on "
                f"it, for {num_ranks} ranks on several hosts ({names[0]}), got none"
            )
        os.environ.update(zip(_TORCHRUN, values, strict=True))
        return


def _make_group() -> None:
    """Make a process group from torchrun's environment variables.

    This also selects one of the host's GPUs for the rank, and limits it to its share of the
    cores. The group lasts until the process ends. While the ranks wait for each other, Ctrl-C
    ends the process at once.
    """
    timeout = _read_timeout()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    ranks_on_host = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "0")))
    num_gpus = torch.cuda.device_count()
    if num_gpus:
        torch.cuda.set_device(local_rank % num_gpus)
    # If the user has not set this variable, torchrun sets it to 1, and each rank would use one
    # core only. Instead the ranks of a host share all of its cores.
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(max(1, usable_cores() // ranks_on_host))
    # NCCL needs a separate GPU for every rank.
    backends = "cpu:gloo,cuda:nccl" if num_gpus >= ranks_on_host else "gloo"
    # While torch waits, Python's handler of Ctrl-C does not run. So use the system's handler.
    with _named_errors(), handler_of_interrupts(signal.SIG_DFL):
        _connect(backends, timeout)
    atexit.register(dist.destroy_process_group)


def _read_timeout() -> datetime.timedelta:
    """Return how long a rank waits for the others."""
    seconds = float(os.environ.get("CEM_TETRIS_RANK_TIMEOUT", TIMEOUT_S))
    if not 1 <= seconds <= 604_800:
        raise ValueError(
            f"expected CEM_TETRIS_RANK_TIMEOUT in seconds, from 1 to 604,800, got {seconds}"
        )
    return datetime.timedelta(seconds=seconds)


def _connect(backends: str, timeout: datetime.timedelta) -> None:
    """Connect the ranks by torch's process group."""
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    # If torchrun has restarted the ranks, the prefix hides the keys of the killed ranks.
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"start {restarts}", store)
    dist.init_process_group(
        backends, timeout=timeout, store=store, rank=rank, world_size=world_size
    )


def count() -> int:
    """Return the number of ranks."""
    return dist.get_world_size() if _joined else 1


def rank() -> int:
    """Return the number of this rank, counted from 0."""
    return dist.get_rank() if _joined else 0


def share(total: int, of_rank: int | None = None) -> slice:
    """Return the slice of ``total`` rows that a rank has; shares differ by at most one row."""
    number = rank() if of_rank is None else of_rank
    size, remainder = divmod(total, count())
    # The first `remainder` ranks have one row more than the others.
    begin = number * size + min(number, remainder)
    return slice(begin, begin + size + (number < remainder))


def gather(rows: Tensor, total: int) -> Tensor:
    """Return the rows of all ranks in order, shape (total, ...), on the device of ``rows``.

    Args:
        rows: the rows of this rank, as many as its `share` of ``total``.
        total: the number of rows on all ranks.

    Raises:
        RanksError: If another rank has exited. Later calls then fail, too.
    """
    if not _joined:
        return rows  # A single process has all rows.
    # Only NCCL can gather tensors on a GPU.
    is_copied_to_cpu = rows.is_cuda and "nccl" not in str(dist.get_backend_config())
    device = "cpu" if is_copied_to_cpu else rows.device
    # `all_gather` needs tensors of equal size. So the rows are padded to the share of rank 0,
    # which is the largest. (A share is a slice of the `total` rows.)
    largest_share = share(total, 0).stop
    padded = torch.zeros(largest_share, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in range(count())]
    with _named_errors():
        dist.all_gather(gathered, padded)
    parts = []
    for other_rank, padded_part in enumerate(gathered):
        # Remove the padding.
        part = share(total, other_rank)
        parts.append(padded_part[: part.stop - part.start])
    return torch.cat(parts).to(rows.device)


def broadcast(make: Callable[[], _Result]) -> _Result:
    """Call a function on rank 0 alone, and return its result on every rank.

    Raises:
        Exception: If the function raises an error, every rank raises the same error. On all
            ranks except rank 0 the cause of the error is a `RanksError`.
    """
    if not _joined:
        return make()
    # Rank 0 fills this list, and the broadcast copies it to the other ranks.
    result_and_error: list[Any] = [None, None]
    if rank() == 0:
        try:
            result_and_error[0] = make()
        except Exception as error:
            result_and_error[1] = error
    with _named_errors():
        dist.broadcast_object_list(result_and_error, src=0, device=torch.device("cpu"))
    result, failure = result_and_error
    if failure is not None:
        if rank() > 0:
            failure.__cause__ = RanksError("rank 0 has raised it")
        raise failure
    return result  # type: ignore[no-any-return]


def all_reduce_max(numbers: list[int]) -> list[int]:
    """Return the maximum of each number over all ranks."""
    if not _joined:
        return numbers
    maxima = torch.tensor(numbers)
    with _named_errors():
        dist.all_reduce(maxima, dist.ReduceOp.MAX)
    return [int(number) for number in maxima]


class Consensus(Protocol):
    """Two numbers on which the ranks agree: the maxima over all ranks."""

    @property
    def own_reason(self) -> tuple[int, int]:
        """The reason to stop of this rank, and the number of its signal; 0 means none."""

    def agree(self, reason: int, signum: int) -> None:
        """Take the maxima over all ranks."""


def run_collective(work: Callable[[], _Result], consensus: Consensus | None = None) -> _Result:
    """Do this rank's share of some work, wait for the other ranks, and return the result.

    Args:
        work: does the share of this rank, and returns its result.
        consensus: contains two numbers: this rank's reason to stop, and the number of the
            signal that it received. 0 means none. Both are replaced by their maxima over all
            ranks, so that either all ranks stop or none.

    Raises:
        Interrupted: If ``work`` raises it on any rank, every rank raises it.
    """
    if not _joined:
        return work()
    # If the work of this rank is interrupted, the list remains empty. The error is raised at
    # the end, because the other ranks are waiting for this one in `all_reduce_max`.
    results: list[_Result] = []
    with contextlib.suppress(Interrupted):
        results.append(work())
    was_interrupted = not results
    own_reason = consensus.own_reason if consensus else (0, 0)
    any_interrupted, reason, signum = all_reduce_max([was_interrupted, *own_reason])
    if consensus:
        consensus.agree(reason, signum)
    if any_interrupted:
        raise Interrupted("the work was asked to stop")
    return results[0]


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Raise `RanksError` if gloo or NCCL fails."""
    try:
        yield
    except RuntimeError as error:
        # The messages of gloo and NCCL have many lines.
        reason = str(error).strip().splitlines()[0][:300]
        raise RanksError(
            f"expected all ranks to answer, but one has gone or hangs: {reason}"
        ) from error
