"""Candidates are evaluated side by side: by an executor, or by processes of our own."""

import pickle
import threading
import traceback
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from numbers import Real
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.run.stopping import Interrupted
from kernels.support.system import leave_stop_signals, start_resource_tracker

_POLL_SECONDS = 0.05  # The time from one look at a request to stop to the next.
_THREADS = "a concurrent.futures.ThreadPoolExecutor for workers"
_SPAWN = get_context("spawn")


def evaluate_candidate(
    function: Callable[..., Any],
    arity: int,
    catch: tuple[type[BaseException], ...],
    generation: int,
    device: torch.device | None,
    item: tuple[int, Any],
) -> float | None:
    """Return the fitness of one candidate, or None if the function raises one of ``catch``.

    Args:
        function: Maps a candidate, and perhaps the generation, to a number.
        arity: 1 if it takes the candidate only, 2 with the generation.
        catch: The exceptions that mean that a candidate failed.
        generation: The number of the generation.
        device: The function gets a tensor on this device. None: it gets an array.
        item: The index of the candidate in its population, and its values, an array of shape
            (dim,).

    Raises:
        TypeError: If the function returns no number.
    """
    index, row = item
    try:
        candidate = row.copy() if device is None else torch.tensor(row, device=device)
        arguments = (candidate, generation)[:arity]
        value = function(*arguments)
    except Interrupted:
        # A stop of the run is no failure of the candidate, even if ``catch`` includes it.
        raise
    except catch:
        return None
    except Exception as error:
        add_note(error, f"The candidate was number {index} of generation {generation}.")
        raise
    if isinstance(value, (Tensor, np.ndarray)) and value.shape == ():
        value = value.item()
    if not isinstance(value, Real):
        raise TypeError(f"expected a number as the fitness of a candidate, got {value!r}")
    return float(value)


class _Worker(NamedTuple):
    """A process that evaluates candidates, and this process's end of the pipe to it."""

    process: Any
    connection: Any


class Pool:
    """Evaluates candidates by a user's executor, or by threads with one process each.

    The threads only wait for their processes, so it is known which candidate was evaluated
    when a process ended or hung.
    """

    def __init__(
        self,
        evaluate: Callable[..., float | None],
        workers: int | Executor,
        timeout_s: float | None,
    ) -> None:
        """Start an executor of ``workers`` threads, or take the user's executor.

        Args:
            evaluate: Returns the fitness, or None if the candidate failed; its arguments are
                those of ``submit``.
            workers: The number of processes, or an executor.
            timeout_s: The seconds after which a candidate of a process has failed. None: never.

        Raises:
            TypeError: If the function cannot be pickled for the processes.
        """
        self._evaluate = evaluate
        self._timeout_s = timeout_s
        # The keys of submitted candidates by their futures, which are queued when done.
        self._running: dict[Future[float | None], Any] = {}
        self._done: SimpleQueue[Future[float | None]] = SimpleQueue()
        self._workers: set[_Worker] = set()
        self._thread = threading.local()  # holds the worker of each thread
        self._is_closed = False
        self._owns_executor = not isinstance(workers, Executor)
        if isinstance(workers, Executor):
            self._executor = workers
            return
        try:
            self._pickled = pickle.dumps(evaluate)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"{error}: define the function in a module, or give {_THREADS}"
            ) from error
        # The threads block signals, and a process inherits that from its thread: this process
        # handles signals, and ends the others. The tracker of resources must have started
        # before, because its start would unblock them.
        start_resource_tracker()
        self._executor = ThreadPoolExecutor(workers, initializer=leave_stop_signals)
        self._evaluate = self._evaluate_in_process

    def submit(self, key: Hashable, *candidate: Any) -> None:
        """Begin to evaluate a candidate: ``evaluate(*candidate)``, identified by ``key``."""
        future = self._executor.submit(self._evaluate, *candidate)
        self._running[future] = key
        future.add_done_callback(self._done.put)

    def take_completed(self, most: int) -> list[tuple[Any, float | None]]:
        """Return the keys and fitness of up to ``most`` candidates that are evaluated.

        The fitness of one that failed is None. If none is ready, this waits 50 ms for one.
        """
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=_POLL_SECONDS))
            while len(done) < most:
                done.append(self._done.get_nowait())
        return [(self._running.pop(future), future.result()) for future in done]

    def close(self) -> None:
        """Cancel what is not evaluated yet, and end our processes, without waiting for them."""
        self._is_closed = True
        for future in list(self._running):
            future.cancel()
        for process, connection in list(self._workers):
            if self._running:
                process.kill()
            else:
                # An idle process ends when its connection is closed.
                connection.close()
        if self._owns_executor:
            self._executor.shutdown(wait=False)
        self._running.clear()
        # Futures that are done later still write to the old queue, which nobody reads.
        self._done = SimpleQueue()

    def _evaluate_in_process(self, *candidate: Any) -> float | None:
        """Return the fitness of a candidate by the process that belongs to this thread.

        It is None if the process ends, or takes longer than the time limit. That process is
        removed, and the next candidate of this thread starts another.
        """
        if not hasattr(self._thread, "worker"):
            self._thread.worker = self._start_process()
        worker = self._thread.worker
        process, connection = worker
        try:
            connection.send(candidate)
            if not connection.poll(self._timeout_s):
                raise TimeoutError
            answer = connection.recv()
        except (EOFError, OSError):
            # The process has ended, or exceeds its time: TimeoutError is an OSError.
            del self._thread.worker
            self._workers.remove(worker)
            process.kill()
            process.join()
            connection.close()
            return None
        # The process sends back what the function raised.
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _start_process(self) -> _Worker:
        """Start a process, and wait until it has imported the function.

        Raises:
            RuntimeError: If it ends before.
        """
        connection, child_connection = _SPAWN.Pipe()
        arguments = (child_connection, self._pickled)
        process = _SPAWN.Process(target=_serve_candidates, args=arguments)
        process.start()
        worker = _Worker(process, connection)
        self._workers.add(worker)
        # Another thread may have closed the pool without seeing this process.
        if self._is_closed:
            process.kill()
        child_connection.close()
        try:
            # The process sends None when it is ready: the time of a candidate begins now.
            connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(
                "a worker process ended at its start, its error is above: a script with "
                "workers needs if __name__ == '__main__', "
                f"a function of a notebook needs {_THREADS}"
            ) from None
        return worker


def _serve_candidates(connection: Any, pickled: bytes) -> None:
    """Evaluate candidates from a connection until it is closed: the main of a worker process.

    ``pickled`` is the function. The first message is None: the process is ready. Every other
    one answers a candidate: its fitness, None if it failed, or the exception of the function.
    """
    leave_stop_signals()
    torch.set_num_threads(1)
    evaluate = pickle.loads(pickled)
    connection.send(None)
    # The pool ends this loop by closing the connection.
    with suppress(EOFError, OSError):
        while True:
            candidate = connection.recv()
            try:
                answer = evaluate(*candidate)
            except Exception as error:
                answer = _make_sendable(error)
            connection.send(answer)


def _make_sendable(error: Exception) -> Exception:
    """Return an exception with its traceback as a note, or one of that text if unpicklable."""
    text = traceback.format_exc()
    add_note(error, text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    return error


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, where Python, from 3.11 on, can."""
    if hasattr(error, "add_note"):
        error.add_note(note)
