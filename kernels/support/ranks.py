"""Ranks: processes that share some work, on one host or many.

``torchrun``, ``mpirun`` or ``srun`` has started them.

One process alone is rank 0 of 1: all functions then work without a process group.
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
"""The variables of Open MPI, of MPICH and Intel MPI, and of a step of ``srun``: how many ranks
there are, which one this is, which one on its host, and how many are on its host."""
_TORCHRUN = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")

_Result = TypeVar("_Result")
_joined = False


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """Raised in the middle of some work, where it was asked to stop."""


class RanksError(ConnectionError):
    """Raised when other ranks have gone, or do not answer in time."""


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Connect this process with the other ranks, which share the work inside the block.

    Without a launcher and without a process group this does nothing. A process group that
    exists is used; otherwise one is made, and stays until the process ends.

    Raises:
        RanksError: If the others cannot be reached.
        ValueError: If ``CEM_TETRIS_RANK_TIMEOUT`` or a variable of the launcher is wrong.
    """
    global _joined
    has_group = dist.is_available() and dist.is_initialized()
    _translate_launcher()
    # torchrun sets these variables.
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    is_launched = world_size > 1 and "RANK" in os.environ
    has_others = has_group or is_launched
    if _joined or not has_others:
        yield
        return
    if not has_group:
        _make_group()
    _joined = True
    try:
        yield
    finally:
        _joined = False


def _translate_launcher() -> None:
    """Set the variables of ``torchrun`` by those of another launcher, if there are any.

    Raises:
        ValueError: If the ranks are on several hosts, and nobody says where rank 0 is.
    """
    for names in _LAUNCHERS:
        if "RANK" in os.environ or not all(name in os.environ for name in names[:2]):
            continue
        # SLURM writes 2(x3) for two ranks on each of three hosts.
        values = [os.environ.get(name, "0").split("(")[0] for name in names]
        size, *_, size_on_host = values
        if int(size) < 2:
            continue
        if size == size_on_host:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", "29500")
        elif not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
            raise ValueError(
                f"expected MASTER_ADDR and MASTER_PORT, the host of rank 0 and a free port on "
                f"it, for {size} ranks on several hosts ({names[0]}), got none"
            )
        os.environ.update(zip(_TORCHRUN, values, strict=True))


def _make_group() -> None:
    """Make a process group from ``torchrun``'s environment variables.

    A rank takes a GPU of its host and its share of the cores. The group stays until the process
    ends. Ctrl-C while the ranks wait for one another ends the process at once.
    """
    seconds = float(os.environ.get("CEM_TETRIS_RANK_TIMEOUT", TIMEOUT_S))
    if not 1 <= seconds <= 604_800:
        raise ValueError(
            f"expected CEM_TETRIS_RANK_TIMEOUT in seconds, from 1 to 604,800, got {seconds}"
        )
    timeout = datetime.timedelta(seconds=seconds)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    ranks_on_host = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "0")))
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local_rank % gpus)
    # torchrun sets this variable to 1 unless the user has set it.
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(max(1, usable_cores() // ranks_on_host))
    # NCCL needs a GPU of its own for every rank.
    backends = "cpu:gloo,cuda:nccl" if gpus >= ranks_on_host else "gloo"
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    # Python's own handler of Ctrl-C would not run while torch waits.
    with _named_errors(), handler_of_interrupts(signal.SIG_DFL):
        store, rank, world_size = next(rendezvous("env://", timeout=timeout))
        # If torchrun restarts the ranks, they must not read what the killed ones have stored.
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"start {restarts}", store)
        dist.init_process_group(
            backends, timeout=timeout, store=store, rank=rank, world_size=world_size
        )
    atexit.register(dist.destroy_process_group)


def count() -> int:
    """Return the number of ranks."""
    return dist.get_world_size() if _joined else 1


def rank() -> int:
    """Return the number of this rank, from 0."""
    return dist.get_rank() if _joined else 0


def share(total: int, of_rank: int | None = None) -> slice:
    """Return which of ``total`` rows a rank has: as many as the others, or one more."""
    number = rank() if of_rank is None else of_rank
    size, remainder = divmod(total, count())
    begin = number * size + min(number, remainder)
    return slice(begin, begin + size + (number < remainder))


def gather(rows: Tensor, total: int) -> Tensor:
    """Return the rows of all ranks in order, shape (total, ...), on the device of ``rows``.

    Args:
        rows: the rows of this rank, as many as its `share` of ``total``.
        total: the number of rows on all ranks.

    Raises:
        RanksError: If other ranks are gone; so do all that follow.
    """
    if not _joined:
        return rows
    # Only NCCL can gather tensors of GPUs.
    is_copied_to_cpu = rows.is_cuda and "nccl" not in str(dist.get_backend_config())
    device = "cpu" if is_copied_to_cpu else rows.device
    # All ranks send as many rows as rank 0, which has the most.
    largest_share = share(total, 0).stop
    padded = torch.zeros(largest_share, *rows.shape[1:], dtype=rows.dtype, device=device)
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in range(count())]
    with _named_errors():
        dist.all_gather(gathered, padded)
    parts = []
    for number, padded_part in enumerate(gathered):
        part = share(total, number)
        parts.append(padded_part[: part.stop - part.start])
    return torch.cat(parts).to(rows.device)


def broadcast(make: Callable[[], _Result]) -> _Result:
    """Call a function on rank 0 alone, and return its result on every rank.

    Raises:
        Exception: What the function raises, on every rank; on all but the first a `RanksError`
            is the cause.
    """
    if not _joined:
        return make()
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
    """Return the maximum over all ranks of each number."""
    if not _joined:
        return numbers
    maxima = torch.tensor(numbers)
    with _named_errors():
        dist.all_reduce(maxima, dist.ReduceOp.MAX)
    return [int(number) for number in maxima]


class Consensus(Protocol):
    """Two numbers on which ranks agree: the maximum over all of them."""

    @property
    def own_reason(self) -> tuple[int, int]:
        """The numbers of this rank."""

    def agree(self, reason: int, signum: int) -> None:
        """Take those of all."""


def run_collective(work: Callable[[], _Result], consensus: Consensus | None = None) -> _Result:
    """Do this rank's share of some work, wait for the other ranks, and return the result.

    With a consensus, all ranks agree on whether to stop: it has a reason and the number of a
    signal, 0 for none, and gets the maximum of both over all ranks.

    Raises:
        Interrupted: On every rank, if ``work`` raised it on one.
    """
    if not _joined:
        return work()
    results: list[_Result] = []
    # The others wait for this rank, so it raises the interrupt together with them below.
    with contextlib.suppress(Interrupted):
        results.append(work())
    own_reason = consensus.own_reason if consensus else (0, 0)
    # Without a result this rank was interrupted; then so are all.
    is_interrupted, reason, signum = all_reduce_max([not results, *own_reason])
    if consensus:
        consensus.agree(reason, signum)
    if is_interrupted:
        raise Interrupted("the work was asked to stop")
    return results[0]


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Raise `RanksError` where gloo or NCCL fails."""
    try:
        yield
    except RuntimeError as error:  # of gloo and NCCL, whose texts have many lines
        reason = str(error).strip().splitlines()[0][:300]
        raise RanksError(
            f"expected all ranks to answer, but one has gone or hangs: {reason}"
        ) from error
