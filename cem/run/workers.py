"""Parallel evaluation of candidates, by an engine or by processes of this machine."""

import pickle
import threading
from collections import deque
from concurrent.futures import BrokenExecutor, CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

import torch

from cem.core.checks import warn
from cem.run import remote
from cem.run.candidate import Candidate, Fate, describe_error
from cem.run.engines import Engine
from cem.run.remote import Task, add_note
from kernels.support.system import (
    kill_session,
    leave_stop_signals,
    start_resource_tracker,
    start_session,
)

_POLL_SECONDS = 0.05  # The longest wait for a result: then stop requests are checked again.
_THREADS = "a concurrent.futures.ThreadPoolExecutor for workers"
_SPAWN = get_context("spawn")
_SOURCE = Path(remote.__file__).read_text(encoding="utf-8")
# An engine raises these if it cannot send the objective, which is not a candidate's failure.
# They may be the cause of another error: Dask raises RuntimeError.
_UNSENDABLE = (pickle.PicklingError, AttributeError, ImportError, TypeError)
_BROKEN = (
    "The engine takes no more candidates. Others go on without the candidate that ends a "
    "process: a number of workers, 'loky', 'dask', 'ray', 'parsl'."
)
_LOST = (
    "The engine lost candidate {0.number} of generation {0.generation} {0.losses} times: "
    "catch=Exception goes on without it."
)
_WARNING = (
    "candidate {0.number} of generation {0.generation} was lost with its worker, attempt "
    "{0.losses} of {1}: {2} ({0.message})"
)


# An objective of one candidate, with its constraints: see ``remote.evaluate``.
ObjectiveOfOne = tuple[Any, ...]


def make_task(objective: ObjectiveOfOne, key: str = "") -> Task:
    """Return a task that contains its objective, which workers keep under the key."""
    return Task(_SOURCE, key, objective)


class WorkerLostError(RuntimeError):
    """A process of ``LocalProcesses`` has ended while it evaluated a candidate."""


class Pool:
    """Evaluates candidates by an engine, and sets the outcome of each.

    A candidate is lost if its worker dies, and is then submitted again. The worker's death may
    have broken the engine, so that all other running candidates are lost, too. Then every lost
    candidate is a suspect. Suspects run one at a time, so that the candidate that kills its
    worker does no more harm to others. A candidate is also a suspect if the engine itself has
    already retried it.

    Attributes:
        count: The number of candidates that were submitted and not yet taken.
    """

    def __init__(
        self,
        objective: ObjectiveOfOne,
        engine: Engine,
        retries: int,
    ) -> None:
        """Create a pool without candidates.

        Args:
            objective: A function of one candidate, and its constraints: see
                ``remote.evaluate``.
            engine: The engine that runs candidates in its workers.
            retries: How many times a lost candidate is submitted again.
        """
        self.count = 0  # candidates that were submitted and not yet taken
        self._engine = engine
        self._retries = retries
        _, _, catch, *_ = objective
        self._catch = catch

        # Only the first tasks contain the objective. Workers keep it under the key, so that the
        # other tasks are small.
        key = uuid4().hex
        self._full_task = make_task(objective, key)
        self._small_task = Task(_SOURCE, key, objective=None)
        # How many more full tasks to send: one for each worker. A worker that still lacks the
        # objective answers "UNKNOWN", and gets another full task.
        self._full_tasks_left = max(1, engine.workers)

        # Candidates that wait for the engine.
        self._waiting: deque[Candidate] = deque()
        # Candidates in the engine and their futures, by the number of the candidate.
        self._running: dict[int, tuple[Candidate, Any]] = {}
        # Candidates whose futures are done; the engine's threads append to this queue.
        self._arrived: SimpleQueue[tuple[Candidate, Any]] = SimpleQueue()
        # Candidates with an outcome, which ``take_settled`` returns.
        self._settled: deque[Candidate] = deque()
        # Lost candidates, each of which may have killed the worker: they run one at a time.
        self._suspects: deque[Candidate] = deque()
        # The suspect that is running.
        self._isolated: Candidate | None = None

    def submit(self, candidate: Candidate) -> None:
        """Start to evaluate a candidate. No other running candidate may have its number."""
        self.count += 1
        self._waiting.append(candidate)
        self._start_waiting()

    def take_settled(self, most: int) -> list[Candidate]:
        """Remove and return up to ``most`` candidates with an outcome.

        If there is none, wait for one, but at most 50 ms.
        """
        if not self._settled:
            with suppress(Empty):
                self._settle(*self._arrived.get(timeout=_POLL_SECONDS))
        while len(self._settled) < most and not self._arrived.empty():
            self._settle(*self._arrived.get())
        number = min(most, len(self._settled))
        self.count -= number
        return [self._settled.popleft() for _ in range(number)]

    def abandon(self) -> list[Candidate]:
        """Cancel all candidates, and leave the pool empty.

        Returns:
            The candidates whose outcome was not taken yet, and those that could not be
            cancelled. The latter continue to run, but their results are ignored.
        """
        abandoned = list(self._settled)
        for candidate, future in self._running.values():
            is_cancelled = False
            # An engine that cannot cancel may raise an exception.
            with suppress(Exception):
                is_cancelled = future.cancel()
            if not is_cancelled:
                candidate.settle(Fate.ABANDONED)
                abandoned.append(candidate)
        self.count = 0
        for candidates in (self._running, self._settled, self._suspects, self._waiting):
            candidates.clear()
        # Futures that finish later write to the old queue, which is no longer read.
        self._arrived = SimpleQueue()
        return abandoned

    def close(self) -> None:
        """Cancel all candidates and close the engine."""
        self.abandon()
        self._engine.close()

    def _start(self, candidate: Candidate, *, sends_objective: bool = False) -> None:
        """Submit a candidate to the engine.

        The task contains the objective if the worker may not have it yet: in the first tasks,
        as many as there are workers; for a candidate whose worker has died; and with
        ``sends_objective``, which means that a worker has asked for it.
        """
        task = self._small_task
        is_first_task = self._full_tasks_left > 0
        if is_first_task:
            self._full_tasks_left -= 1
        if is_first_task or candidate.losses > 0 or sends_objective:
            task = self._full_task
        try:
            future = self._engine.submit(task, candidate.item)
        except BrokenExecutor as error:
            # The engine accepts no more candidates: the error ends the search.
            add_note(error, _BROKEN)
            candidate.settle(Fate.LOST, error=error)
            self._settled.append(candidate)
            return
        self._running[candidate.number] = candidate, future
        arrived = self._arrived  # ``abandon`` replaces it.
        future.add_done_callback(lambda done: arrived.put((candidate, done)))

    def _settle(self, candidate: Candidate, future: Any) -> None:
        """Set the outcome of a candidate from its future, or start the candidate again."""
        del self._running[candidate.number]
        if candidate is self._isolated:
            self._isolated = None
        try:
            word, *values = future.result()
        except (Exception, CancelledError) as error:
            # The engine raised this exception. Those of the objective are returned as a value.
            self._lose(candidate, error)
        else:
            if word == "UNKNOWN":
                # The worker does not have the objective.
                self._start(candidate, sends_objective=True)
            else:
                candidate.settle_by(word, *values)
                self._settled.append(candidate)
        self._start_waiting()

    def _lose(self, candidate: Candidate, error: BaseException) -> None:
        """Queue a lost candidate again or, after its last retry, settle it as lost.

        A candidate is lost if the engine, not the objective, raises an exception, ``error``.
        """
        candidate.losses += 1
        candidate.message = describe_error(error)
        if isinstance(error, _UNSENDABLE) or isinstance(error.__cause__, _UNSENDABLE):
            # The engine cannot send the objective, so no candidate can ever be evaluated.
            candidate.settle(Fate.LOST, error=error)
            self._settled.append(candidate)
        elif candidate.losses > self._retries:
            self._give_up(candidate, error)
        elif self._engine.runs_again or isinstance(error, BrokenExecutor):
            # Another candidate may have killed the worker. Suspects run one at a time, so that
            # the one that kills its worker is found.
            self._suspects.append(candidate)
            self._warn(candidate, "it is evaluated again, alone")
        else:
            self._waiting.append(candidate)
            self._warn(candidate, "it is evaluated again")

    def _give_up(self, candidate: Candidate, error: BaseException) -> None:
        """Settle a candidate as lost after its last retry.

        The exception ends the search, unless it is a WorkerLostError or is in ``catch``, the
        exceptions that mean that a candidate failed.
        """
        self._settled.append(candidate)
        if isinstance(error, (WorkerLostError, *self._catch)):
            candidate.settle(Fate.LOST)
            self._warn(candidate, "it has failed")
        else:
            add_note(error, _LOST.format(candidate))
            candidate.settle(Fate.LOST, error=error)

    def _warn(self, candidate: Candidate, consequence: str) -> None:
        """Warn that a candidate was lost, and of the consequence."""
        message = _WARNING.format(candidate, self._retries + 1, consequence)
        warn(message)

    def _start_waiting(self) -> None:
        """Start one suspect alone or, if there are no suspects, all waiting candidates."""
        if self._suspects and not self._running:
            self._isolated = self._suspects.popleft()
            self._start(self._isolated)
        while self._waiting and not self._suspects and self._isolated is None:
            self._start(self._waiting.popleft())


@dataclass
class _Worker:
    """A process that evaluates candidates, and this process's end of the pipe to it.

    It is busy while it starts, and while it evaluates a candidate.
    """

    process: Any
    connection: Any
    is_busy: bool = False


class LocalProcesses:
    """Processes of this machine that evaluate candidates.

    Each process has a thread of its own, which waits for it. So it is known which candidate a
    process was evaluating when it ended or took too long.
    """

    def __init__(
        self, objective: ObjectiveOfOne, workers: int, timeout_s: float | None
    ) -> None:
        """Start the threads. A thread starts its process when it gets its first candidate.

        Args:
            objective: The objective, as for ``Pool``.
            workers: The number of processes.
            timeout_s: A candidate fails after this time, in seconds. None: there is no limit.

        Raises:
            TypeError: If the function cannot be pickled, and so cannot be sent to processes.
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
        # The threads block the stop signals, and a process inherits this from its thread. So
        # only this process handles these signals, and then it ends the worker processes.
        # Starting Python's resource tracker would unblock the signals, so it is started first.
        start_resource_tracker()
        self._executor = ThreadPoolExecutor(workers, initializer=leave_stop_signals)

    def submit(self, _: Task, item: Any) -> Future[Any]:
        """Start to evaluate a candidate. The task is not used: the processes have their own."""
        return self._executor.submit(self._evaluate, item)

    def close(self) -> None:
        """End the processes without waiting for them."""
        self._is_closed = True
        for worker in list(self._workers):
            if worker.is_busy:
                kill_session(worker.process)
            else:
                # An idle process ends when its connection is closed.
                worker.connection.close()
        self._executor.shutdown(wait=False)

    def _evaluate(self, item: Any) -> Any:
        """Evaluate a candidate in the process of this thread, and return its answer.

        The answer is a tuple, as that of ``remote.evaluate``. A process that ends or exceeds
        the time limit is removed. The thread's next candidate then starts another. ``item``
        describes the candidate: see ``Candidate.item``.

        Raises:
            WorkerLostError: If the process ends.
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
            has_answered = worker.connection.poll(self._timeout_s)
            if not has_answered:
                self._remove(worker)
                return Fate.TIMED_OUT.name, TimeoutError(f"more than {self._timeout_s:g} s")
            answer = worker.connection.recv()
        except (EOFError, OSError) as error:
            self._remove(worker)
            code = worker.process.exitcode
            raise WorkerLostError(f"a worker process ended with exit code {code}") from error
        worker.is_busy = False
        return answer

    def _remove(self, worker: _Worker) -> None:
        """End the process of this thread, and the programs that it runs."""
        del self._thread.worker
        self._workers.remove(worker)
        kill_session(worker.process)
        worker.process.join()
        worker.connection.close()

    def _start_process(self) -> _Worker:
        """Start a process, and wait until it has unpickled the objective.

        Raises:
            RuntimeError: If the process ends before that.
        """
        connection, child_connection = _SPAWN.Pipe()
        arguments = (child_connection, self._pickled)
        process = _SPAWN.Process(target=_serve_candidates, args=arguments)
        process.start()
        worker = _Worker(process, connection, is_busy=True)
        self._workers.append(worker)
        # Another thread may have called ``close`` before this process was in the list.
        if self._is_closed:
            process.kill()
        child_connection.close()
        try:
            # The process sends None when it is ready. Waiting here excludes the start of the
            # process from the candidate's time limit.
            connection.recv()
        except (EOFError, OSError):
            raise RuntimeError(
                "a worker process ended at its start, its error is above: a script with "
                "workers needs if __name__ == '__main__', "
                f"a function of a notebook needs {_THREADS}"
            ) from None
        return worker


def _serve_candidates(connection: Any, pickled: bytes) -> None:
    """Evaluate candidates from a connection until it is closed; a worker process runs this.

    ``pickled`` is the task. The first message to the connection is None: the process is ready.
    Every further message is the task's answer about a candidate.
    """
    start_session()
    torch.set_num_threads(1)
    task = pickle.loads(pickled)
    # This ends when the connection is closed, by ``LocalProcesses.close`` or the death of its
    # process.
    with suppress(EOFError, OSError):
        connection.send(None)
        while True:
            connection.send(task(connection.recv()))
