"""Candidates are evaluated side by side: by an engine, or by processes of our own."""

import pickle
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import torch

from cem.run import remote
from cem.run.candidate import Candidate, Fate
from cem.run.engines import Engine
from cem.run.remote import Task, add_note
from kernels.support.system import leave_stop_signals, start_resource_tracker

_POLL_SECONDS = 0.05  # The time from one look at a request to stop to the next.
_THREADS = "a concurrent.futures.ThreadPoolExecutor for workers"
_SPAWN = get_context("spawn")
_SOURCE = Path(remote.__file__).read_text(encoding="utf-8")
# What an engine raises if it cannot send a function, which no candidate can help.
_UNSENDABLE = (pickle.PicklingError, AttributeError, ImportError, TypeError)
_BROKEN = (
    "The engine takes no more candidates. Others go on without the candidate that ends a "
    "process: a number of workers, 'loky', 'dask', 'ray'."
)
_LOST = (
    "The engine lost candidate {0.number} of generation {0.generation} {0.losses} times: "
    "catch=Exception goes on without it."
)


ObjectiveOfOne = tuple[Callable[..., Any], int, tuple[type[BaseException], ...]]
"""A function of one candidate, the number of its arguments, and the exceptions by which a
candidate fails."""


def make_task(objective: ObjectiveOfOne, key: str = "") -> Task:
    """Return a task that takes its objective along; workers remember it by the key."""
    return Task(_SOURCE, key, objective)


class WorkerLostError(RuntimeError):
    """Says that a process of our own has ended while it evaluated a candidate."""


class Pool:
    """Evaluates candidates by an engine, and says what became of each of them.

    A candidate that the engine loses is submitted again. If the engine lost all that were
    running, or has run it again itself, it then runs alone: so the one that ends its worker
    costs only itself.

    Attributes:
        count: The candidates that were submitted and not taken.
    """

    def __init__(
        self,
        objective: ObjectiveOfOne,
        engine: Engine,
        retries: int,
    ) -> None:
        """Begin without a candidate.

        Args:
            objective: The function, the number of its arguments, and the exceptions by which a
                candidate fails.
            engine: What starts candidates.
            retries: How many times a candidate that was lost is submitted again.
        """
        self.count = 0
        self._engine = engine
        self._retries = retries
        self._catch = objective[2]
        key = uuid4().hex
        self._task = Task(_SOURCE, key)
        self._first_task = make_task(objective, key)
        # The objective is sent once to each worker, and again to one that does not know it.
        self._tasks_to_send = max(1, engine.workers)
        self._running: dict[int, tuple[Candidate, Any]] = {}
        self._arrived: SimpleQueue[tuple[Candidate, Any]] = SimpleQueue()
        self._settled: deque[Candidate] = deque()
        # Candidates that were lost together, and the one of them that runs alone.
        self._suspects: deque[Candidate] = deque()
        self._isolated: Candidate | None = None
        self._waiting: deque[Candidate] = deque()

    def submit(self, candidate: Candidate) -> None:
        """Begin to evaluate a candidate, whose number no other one has that runs."""
        self.count += 1
        self._waiting.append(candidate)
        self._start_waiting()

    def take_settled(self, most: int) -> list[Candidate]:
        """Return up to ``most`` candidates with their fate; wait 50 ms if there is none."""
        if not self._settled:
            with suppress(Empty):
                self._settle(*self._arrived.get(timeout=_POLL_SECONDS))
        while len(self._settled) < most and not self._arrived.empty():
            self._settle(*self._arrived.get())
        number = min(most, len(self._settled))
        self.count -= number
        return [self._settled.popleft() for _ in range(number)]

    def abandon(self) -> list[Candidate]:
        """Cancel all candidates; return those that have a fate, or run on for nobody."""
        abandoned = list(self._settled)
        for candidate, future in self._running.values():
            is_cancelled = False
            # Some engines raise an exception because they cannot cancel.
            with suppress(Exception):
                is_cancelled = future.cancel()
            if not is_cancelled:
                candidate.settle(Fate.ABANDONED)
                abandoned.append(candidate)
        self.count = 0
        for candidates in (self._running, self._settled, self._suspects, self._waiting):
            candidates.clear()
        # Futures that are done later still write to the old queue, which nobody reads.
        self._arrived = SimpleQueue()
        return abandoned

    def close(self) -> None:
        """Cancel what is not evaluated yet, and close the engine."""
        self.abandon()
        self._engine.close()

    def _start(self, candidate: Candidate, *, sends_objective: bool = False) -> None:
        """Submit a candidate to the engine, with the objective if the worker may lack it."""
        task = self._task
        if sends_objective or candidate.losses > 0 or self._tasks_to_send > 0:
            self._tasks_to_send -= 1
            task = self._first_task
        try:
            future = self._engine.submit(task, candidate.item)
        except BrokenExecutor as error:
            add_note(error, _BROKEN)
            candidate.settle(Fate.LOST, error=error)
            self._settled.append(candidate)
            return
        self._running[candidate.number] = candidate, future
        future.add_done_callback(partial(_deliver, self._arrived, candidate))

    def _settle(self, candidate: Candidate, future: Any) -> None:
        """Set the fate of a candidate that has arrived, unless it is evaluated again."""
        del self._running[candidate.number]
        if candidate is self._isolated:
            self._isolated = None
        try:
            word, value = future.result()
        except (Exception, CancelledError) as error:
            self._lose(candidate, error)
        else:
            if word == "UNKNOWN":
                self._start(candidate, sends_objective=True)
            else:
                candidate.settle_by(word, value)
                self._settled.append(candidate)
        self._start_waiting()

    def _lose(self, candidate: Candidate, error: BaseException) -> None:
        """Submit a candidate again that the engine has lost, or settle it as lost."""
        candidate.losses += 1
        if candidate.losses > self._retries:
            is_caught = isinstance(error, (WorkerLostError, *self._catch))
            is_caught = is_caught and not isinstance(error, _UNSENDABLE)
            if not is_caught:
                add_note(error, _LOST.format(candidate))
            candidate.settle(Fate.LOST, error=None if is_caught else error)
            self._settled.append(candidate)
        elif self._engine.runs_again or isinstance(error, BrokenExecutor):
            self._suspects.append(candidate)
        else:
            self._waiting.append(candidate)

    def _start_waiting(self) -> None:
        """Start one suspect alone, or, if there is none, all candidates that wait."""
        if self._suspects and not self._running:
            self._isolated = self._suspects.popleft()
            self._start(self._isolated)
        while self._waiting and not self._suspects and self._isolated is None:
            self._start(self._waiting.popleft())


def _deliver(queue: Any, candidate: Candidate, future: Any) -> None:
    """Put a candidate into a queue, when its future is done."""
    queue.put((candidate, future))


@dataclass
class _Worker:
    """A process that evaluates candidates, and this process's end of the pipe to it."""

    process: Any
    connection: Any
    is_busy: bool = False


class LocalProcesses:
    """Processes of this machine, which end if a candidate takes too long.

    Each has a thread that only waits for it, so it is known which candidate was evaluated when
    a process ended or hung.
    """

    def __init__(
        self, objective: ObjectiveOfOne, workers: int, timeout_s: float | None
    ) -> None:
        """Start the threads; a process starts with its first candidate.

        Args:
            objective: As for ``Pool``.
            workers: The number of processes.
            timeout_s: The seconds after which a candidate is given up. None: never.

        Raises:
            TypeError: If the function cannot be pickled for the processes.
        """
        try:
            self._pickled = pickle.dumps(make_task(objective))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"{error}: define the function in a module, or give {_THREADS}"
            ) from error
        self._timeout_s = timeout_s
        self._workers: list[_Worker] = []
        self._thread = threading.local()  # holds the worker of each thread
        self._is_closed = False
        # The threads block signals, and a process inherits that from its thread: this process
        # handles signals, and ends the others. The tracker of resources must have started
        # before, because its start would unblock them.
        start_resource_tracker()
        self._executor = ThreadPoolExecutor(workers, initializer=leave_stop_signals)

    def submit(self, _: Task, item: Any) -> Future[Any]:
        """Begin to evaluate a candidate; the processes have the task already."""
        return self._executor.submit(self._evaluate, item)

    def close(self) -> None:
        """End the processes, without waiting for them."""
        self._is_closed = True
        for worker in list(self._workers):
            if worker.is_busy:
                worker.process.kill()
            else:
                # An idle process ends when its connection is closed.
                worker.connection.close()
        self._executor.shutdown(wait=False)

    def _evaluate(self, item: Any) -> Any:
        """Return what the process of this thread answers about a candidate.

        A process that ends, or takes longer than the time limit, is removed, and the next
        candidate of this thread starts another.

        Raises:
            WorkerLostError: If it ends.
        """
        if not hasattr(self._thread, "worker"):
            try:
                self._thread.worker = self._start_process()
            except RuntimeError as error:
                return "RAISED", error
        worker = self._thread.worker
        worker.is_busy = True
        try:
            worker.connection.send(item)
            if not worker.connection.poll(self._timeout_s):
                self._remove(worker)
                return Fate.TIMED_OUT.name, None
            answer = worker.connection.recv()
        except (EOFError, OSError) as error:
            self._remove(worker)
            raise WorkerLostError("a worker process ended") from error
        worker.is_busy = False
        return answer

    def _remove(self, worker: _Worker) -> None:
        """End the process of this thread."""
        del self._thread.worker
        self._workers.remove(worker)
        worker.process.kill()
        worker.process.join()
        worker.connection.close()

    def _start_process(self) -> _Worker:
        """Start a process, and wait until it has imported the function.

        Raises:
            RuntimeError: If it ends before.
        """
        connection, child_connection = _SPAWN.Pipe()
        arguments = (child_connection, self._pickled)
        process = _SPAWN.Process(target=_serve_candidates, args=arguments)
        process.start()
        worker = _Worker(process, connection, is_busy=True)
        self._workers.append(worker)
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

    ``pickled`` is the task. The first message is None: the process is ready. Every other one is
    the answer of the task to a candidate.
    """
    leave_stop_signals()
    torch.set_num_threads(1)
    task = pickle.loads(pickled)
    connection.send(None)
    # The pool ends this loop by closing the connection.
    with suppress(EOFError, OSError):
        while True:
            connection.send(task(connection.recv()))
