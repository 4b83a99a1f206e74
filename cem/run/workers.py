"""Candidates are evaluated side by side: by an executor, or by processes of our own."""

import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from numbers import Real
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.run.stopping import SIGNALS, Interrupted

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
    """Return the fitness of one candidate; None: it failed.

    Args:
        function: Maps a candidate to a number.
        arity: Its arguments: the candidate, and with 2 the generation.
        catch: The exceptions by which a candidate fails.
        generation: The number of the generation.
        device: Where the candidate is a tensor; None: it is an array.
        item: The index of the candidate in its population, and its values, an array of shape
            (dim,).
    """
    index, row = item
    try:
        candidate = row.copy() if device is None else torch.tensor(row, device=device)
        arguments = (candidate, generation)[:arity]
        value = function(*arguments)
    except Interrupted:
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


class Pool:
    """Evaluates candidates by an executor, or by threads of which each has a process.

    With processes of our own it is known in which candidate one ended or hangs.
    """

    def __init__(
        self,
        evaluate: Callable[..., float | None],
        workers: int | Executor,
        timeout_s: float | None,
    ) -> None:
        """Set the function, which takes what ``submit`` is given, and the workers.

        Raises:
            TypeError: If the function cannot be sent to a process.
        """
        self._evaluate = evaluate
        self._timeout_s = timeout_s
        self._running: dict[Future[float | None], Any] = {}
        self._done: SimpleQueue[Future[float | None]] = SimpleQueue()
        self._processes: set[tuple[Any, Any]] = set()  # with the connections to them
        self._of_thread = threading.local()
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
        # A process inherits the mask of its thread: signals are for this process, which ends
        # the others. The tracker of resources is started before, because its start would change
        # the mask.
        resource_tracker.ensure_running()
        self._executor = ThreadPoolExecutor(
            workers, initializer=signal.pthread_sigmask, initargs=(signal.SIG_BLOCK, SIGNALS)
        )
        self._evaluate = self._evaluate_in_process

    def submit(self, key: Hashable, *candidate: Any) -> None:
        """Begin to evaluate a candidate, given as the function takes it."""
        future = self._executor.submit(self._evaluate, *candidate)
        self._running[future] = key
        future.add_done_callback(self._done.put)

    def take_completed(self, most: int) -> list[tuple[Any, float | None]]:
        """Wait a moment; return key and fitness, None if it failed, of candidates done."""
        done = []
        with suppress(Empty):
            done.append(self._done.get(timeout=_POLL_SECONDS))
            while len(done) < most:
                done.append(self._done.get_nowait())
        return [(self._running.pop(future), future.result()) for future in done]

    def close(self) -> None:
        """Drop what is not evaluated, and end the processes, without waiting for them."""
        self._is_closed = True
        for future in list(self._running):
            future.cancel()
        for process, connection in list(self._processes):
            if self._running:
                process.kill()
            else:
                connection.close()
        if self._owns_executor:
            self._executor.shutdown(wait=False)
        self._running.clear()
        self._done = SimpleQueue()  # what is still to come goes to the old one

    def _evaluate_in_process(self, *candidate: Any) -> float | None:
        """Evaluate in the process of this thread; None if that ends or takes too long."""
        if not hasattr(self._of_thread, "process"):
            self._of_thread.process = self._start_process()
        process, connection = self._of_thread.process
        try:
            connection.send(candidate)
            if not connection.poll(self._timeout_s):
                raise TimeoutError
            answer = connection.recv()
        except (EOFError, OSError):  # it has ended, or hangs
            del self._of_thread.process
            self._processes.remove((process, connection))
            process.kill()
            process.join()
            connection.close()
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def _start_process(self) -> tuple[Any, Any]:
        """Return a process that has imported the function, and the connection to it."""
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_answer, args=(theirs, self._pickled))
        process.start()
        self._processes.add((process, ours))
        if self._is_closed:  # by another thread, meanwhile
            process.kill()
        theirs.close()
        try:
            ours.recv()  # The function is imported: the time of a candidate begins now.
        except (EOFError, OSError):
            raise RuntimeError(
                "a worker process ended at its start, its error is above: a script with "
                "workers needs if __name__ == '__main__', "
                f"a function of a notebook needs {_THREADS}"
            ) from None
        return process, ours


def _answer(connection: Any, pickled: bytes) -> None:
    """Answer every candidate of a connection, in a process of its own, until it is closed."""
    torch.set_num_threads(1)
    evaluate = pickle.loads(pickled)
    connection.send(None)
    with suppress(EOFError, OSError):  # the pool closed the connection, or has gone
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
