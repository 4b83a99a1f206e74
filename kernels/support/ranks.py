"""Ranks: processes that ``torchrun`` started, on one host or many, and that share some work.

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

from kernels.support.cores import usable_cores
from kernels.support.interrupts import handler_of_interrupts

TIMEOUT_S = 600.0
"""How long a rank waits for the others, in seconds.

The variable ``CEM_TETRIS_RANK_TIMEOUT`` changes it.
"""

_Result = TypeVar("_Result")
_joined = False


class Interrupted(Exception):  # noqa: N818 - a request, not an error
    """Raised in the middle of some work, where it was asked to stop."""


class RanksError(ConnectionError):
    """Raised when other ranks have gone, or do not answer in time."""


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Join the other ranks, which share the work inside the block.

    One process alone has nothing to join. A process group that exists already is taken.
    Otherwise one is made until the process ends: a rank takes the GPU of its number on the
    host, and its share of the cores. NCCL joins GPUs, gloo all else. Ctrl-C while it is made
    ends the process at once.

    Raises:
        RanksError: If the others cannot be reached.
        ValueError: If ``CEM_TETRIS_RANK_TIMEOUT`` or a variable of ``torchrun`` is wrong.
    """
    global _joined
    has_group = dist.is_available() and dist.is_initialized()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    is_launched = world_size > 1 and "RANK" in os.environ  # by torchrun
    if _joined or not (has_group or is_launched):
        yield
        return
    if not has_group:
        _make_group()
    _joined = True
    try:
        yield
    finally:
        _joined = False


def _make_group() -> None:
    """Make the process group of ``torchrun``'s variables, until the process ends."""
    seconds = float(os.environ.get("CEM_TETRIS_RANK_TIMEOUT", TIMEOUT_S))
    if not 1 <= seconds <= 604_800:
        raise ValueError(
            f"expected CEM_TETRIS_RANK_TIMEOUT in seconds, from 1 to 604,800, got {seconds}"
        )
    timeout = datetime.timedelta(seconds=seconds)
    local = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(local % gpus)
    if os.environ.get("OMP_NUM_THREADS") == "1":  # torchrun's default
        torch.set_num_threads(max(1, usable_cores() // max(1, local_size)))
    backends = "cpu:gloo,cuda:nccl" if gpus >= max(1, local_size) else "gloo"
    from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

    # SIGINT ends the process: Python's handlers do not run while torch waits.
    with _named_errors(), handler_of_interrupts(signal.SIG_DFL):
        store, number, world_size = next(rendezvous("env://", timeout=timeout))
        # Keys of this start, not those of ranks that were killed.
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(
            backends, timeout=timeout, store=store, rank=number, world_size=world_size
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

    Raises:
        RanksError: If other ranks are gone; so do all that follow.
    """
    if not _joined:
        return rows
    largest = -(-total // count())  # the rows of rank 0
    by_host = rows.is_cuda and "nccl" not in str(dist.get_backend_config())
    padded = torch.zeros(
        largest, *rows.shape[1:], dtype=rows.dtype, device="cpu" if by_host else rows.device
    )
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in range(count())]
    with _named_errors():
        dist.all_gather(gathered, padded)
    shares = (share(total, number) for number in range(count()))
    parts = [
        padded[: part.stop - part.start] for padded, part in zip(gathered, shares, strict=True)
    ]
    return torch.cat(parts).to(rows.device)


def broadcast(make: Callable[[], _Result]) -> _Result:
    """Return what rank 0 makes, on every rank.

    Raises:
        Exception: What ``make`` raises, on every rank; on all but the first a `RanksError` is
            the cause.
    """
    if not _joined:
        return make()
    values: list[Any] = [None, None]  # the result, the error
    if rank() == 0:
        try:
            values[0] = make()
        except Exception as error:
            values[1] = error
    with _named_errors():
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
    result, failure = values
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
    """Do this rank's share of some work, wait for the others, and reach a consensus.

    Raises:
        Interrupted: On every rank, if ``work`` raised it on one.
    """
    if not _joined:
        return work()
    done: list[_Result] = []
    with contextlib.suppress(Interrupted):
        done.append(work())
    reason = consensus.own_reason if consensus else (0, 0)
    is_interrupted, *agreed = all_reduce_max([not done, *reason])
    if consensus:
        consensus.agree(*agreed)
    if is_interrupted:
        raise Interrupted("the work was asked to stop")
    return done[0]


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
