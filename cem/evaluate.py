"""From a user's function to the fitness of a population: at once, or by candidate, also in parallel."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Real
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_real
from cem.core.evaluation import Evaluation
from cem.run.stopping import Interrupted, StopRequest
from kernels.support.checks import check_flags, check_integer
from kernels.support.files import check_own

_POLL_SECONDS = 0.05  # from one look at the stop request, and at processes that hang, to the next
_HINT = "for a function of one candidate give vectorize=True, or vectorize='loop'"
_OF_VMAP = re.compile("vmap|batching|doesn't have storage", re.IGNORECASE)  # errors of torch.func.vmap

Exceptions = type[BaseException] | tuple[type[BaseException], ...]
Workers = int | Executor | Callable[..., Iterable[Any]]


class Evaluator:
    """Evaluates a population by a function; an ``Objective`` of ``Trainer``.

    Examples:
        >>> import torch
        >>> from cem.evaluate import Evaluator
        >>> evaluate = Evaluator(lambda x: (x[0].item() - 1.0) ** 2, maximize=False, vectorize="loop")
        >>> evaluate(torch.tensor([[0.0], [1.0], [3.0]]), 0).fitness
        tensor([1., 0., 4.], dtype=torch.float64)
        >>> evaluate.best
        (tensor([1.]), 0.0)

    A candidate fails by an exception of ``catch``, by ``timeout_s``, or by the end of its process; it costs no
    other. Its fitness is NaN. As a context manager it ends its processes, those that work by a kill.

    Attributes:
        failures: The candidates that failed.
        evaluations: The candidates evaluated, failed ones and those of an interrupted generation included.
        best: The fittest of them, and its fitness. None before the first one, and for a function of the
            population: no stop divides its generations.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        maximize: bool,
        vectorize: bool | str = False,
        with_generation: bool = False,
        workers: Workers | None = None,
        timeout_s: float | None = None,
        catch: Exceptions = (),
        stop: StopRequest | None = None,
        journal: Path | None = None,
    ) -> None:
        """Set the function; processes are started when candidates wait for them.

        Args:
            function: Gets tensors, or arrays where the population is one.
            maximize: True if a greater value is better.
            vectorize: False: it maps candidates, shape (N, dim), to fitness, shape (N,), or an ``Evaluation``.
                True: it maps a candidate, shape (dim,), to a number; tensors go through ``torch.func.vmap``,
                with other random numbers for each. ``"loop"``: it is called with one candidate after the
                other, as it always is with arrays and by workers, and may take numbers out of tensors.
            with_generation: Whether it takes the number of the generation behind the candidates.
            workers: Who evaluates the candidates. None or 1: this process. Another int: processes, -1 for one
                a core, which import the function's module. An ``Executor``. A function like ``map``, which
                nothing stops between candidates. Tensors are on the CPU there.
            timeout_s: The most seconds of a candidate in a process that ``workers`` counts; None: no limit.
            catch: The exceptions by which a candidate fails; others end the search.
            stop: The request to stop between candidates; None: none.
            journal: As for ``open_journal``.

        Raises:
            TypeError: If an argument has the wrong type, or the function cannot be sent to a process.
            ValueError: If one is out of range, or as ``open_journal``.
        """
        check_flags(maximize=maximize, with_generation=with_generation)
        if vectorize not in (False, True, "loop"):
            raise ValueError(f"expected False, True or 'loop' for vectorize, got {vectorize!r}")
        self.failures = self.evaluations = 0
        self.best: tuple[Any, float] | None = None
        self._sign = 1.0 if maximize else -1.0
        self._catch = catch if isinstance(catch, tuple) else (catch,)
        self._stop = StopRequest() if stop is None else stop
        self._task = _Task(function, with_generation, self._catch)
        self._pool: _Pool | None = None
        self._map = workers if callable(workers) else None
        if isinstance(workers, Executor):
            self._pool = _Pool(self._task, self._stop, workers)
        elif workers is not None and self._map is None:
            count = len(os.sched_getaffinity(0)) if workers == -1 else check_integer("workers", workers, 1)
            if count > 1 or timeout_s is not None:
                self._pool = _Pool(self._task, self._stop, count, timeout_s)
        if timeout_s is not None and (self._pool is None or isinstance(workers, Executor)):
            raise ValueError("expected workers as a number for timeout_s: only a process can be ended")
        by_one = vectorize == "loop" or self._pool is not None or self._map is not None
        self._by_one = (Tensor, np.ndarray) if by_one else (np.ndarray,) if vectorize else ()
        self._vmap = vectorize is True
        if self._vmap:
            function = torch.func.vmap(function, (0, None)[: 1 + with_generation], randomness="different")
        self._function, self._with_generation = function, with_generation
        self._journal: _Journal | None = None
        self.open_journal(journal)

    def open_journal(self, path: Path | None) -> None:
        """Write each candidate evaluated to a file from now on, and evaluate none that is there.

        A line is JSON: generation, index, digest of the candidate's bytes, fitness (null: it failed). These
        say nothing of the function: the caller sees to it that the file is of this search. A function of the
        population is not concerned; a checkpoint after a generation has all of it.

        Args:
            path: The file, made if need be; a torn last line is removed. None: no journal.

        Raises:
            OSError: If it cannot be written, or is a link, a pipe or a device.
            ValueError: If it is no journal.
        """
        if self._journal is not None:
            self._journal.file.close()
        self._journal = None if path is None else _Journal(path)

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
        self.open_journal(None)

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the fitness of candidates, a tensor or an array of shape (N, dim).

        Raises:
            Interrupted: If a stop is due before all are evaluated; those that are have been counted.
            RuntimeError: If ``torch.func.vmap`` does not take the function, or no process starts.
            TypeError: If a value is no number.
            ValueError: If the fitness has the wrong shape.
        """
        if isinstance(candidates, self._by_one):
            return self._each(candidates, int(generation))
        try:
            found = self._call(candidates, generation)
        except Interrupted:
            raise
        except self._catch:
            self.failures += len(candidates)
            found = _like(candidates, np.full(len(candidates), math.nan))
        except Exception as error:
            if self._vmap and _OF_VMAP.search(str(error)):
                raise RuntimeError(
                    "torch.func.vmap, for vectorize=True, takes a function of PyTorch operations that returns a "
                    "tensor; vectorize='loop' takes any function of a candidate"
                ) from error
            if not (self._vmap or self.evaluations):
                _add_note(error, f"The function got a population, {tuple(candidates.shape)}: {_HINT}.")
            raise
        evaluation = found if isinstance(found, Evaluation) else Evaluation(found)
        self._check_shape(evaluation.fitness, candidates)
        if not (self.evaluations or self._vmap) and len(candidates) == candidates.shape[-1]:
            self._check_row(candidates[:1], generation)
        self.evaluations += len(candidates)
        return evaluation

    def _call(self, candidates: Any, generation: Any) -> Any:
        return self._function(candidates, generation) if self._with_generation else self._function(candidates)

    def _check_shape(self, fitness: Any, candidates: Any) -> None:
        shape, wanted = np.shape(fitness), candidates.shape[:-1]
        if shape != wanted:
            hint = "expected a number for each" if self._vmap else _HINT
            raise ValueError(f"expected fitness of shape {tuple(wanted)}, got {tuple(shape)}: {hint}")

    def _check_row(self, row: Any, generation: Any) -> None:
        """Check a function that returned (dim,) for (dim, dim): it may have taken columns for rows."""
        try:
            found = self._call(row, generation)
        except IndexError as error:
            raise ValueError(f"expected a function of the rows of a population: {_HINT}") from error
        except Exception:  # some functions need more than one candidate
            return
        self._check_shape(found.fitness if isinstance(found, Evaluation) else found, row)

    def _each(self, candidates: Any, generation: int) -> Evaluation:
        fitness = np.full(len(candidates), math.nan)
        journal, known, keys = self._journal, {}, []
        if journal is not None:
            keys = [(generation, index, _digest(row)) for index, row in enumerate(_array(candidates))]
            known = {key[1]: journal.known[key] for key in keys if key in journal.known}
        new = [index for index in range(len(candidates)) if index not in known]
        for index, value in chain(known.items(), self._evaluated(candidates, new, generation)):
            self.evaluations += 1
            self.failures += value is None
            if journal is not None and index not in known:
                journal.write(keys[index], value)
            if value is None or math.isnan(value):
                continue
            fitness[index] = value
            if self.best is None or self._sign * value > self._sign * self.best[1]:
                self.best = _copy(candidates[index]), value
        return Evaluation(_like(candidates, fitness))

    def _evaluated(
        self, candidates: Any, indices: list[int], generation: int
    ) -> Iterator[tuple[int, float | None]]:
        """Yield the index and the fitness of each candidate as it is evaluated; None: it failed."""
        if self._pool is None and self._map is None:
            for index in indices:
                self._stop.check()
                try:
                    value = self._task(_copy(candidates[index]), generation)
                except Exception as error:
                    _add_note(error, f"The candidate was {index} of generation {generation}.")
                    raise
                yield index, value
            return
        is_tensor, rows = isinstance(candidates, Tensor), [row.copy() for row in _array(candidates)[indices]]
        if self._map is not None:
            evaluate = partial(_evaluate, self._task, generation, is_tensor)
            yield from zip(indices, self._map(evaluate, rows), strict=True)
            return
        assert self._pool is not None
        left = len(indices)
        try:
            for index, row in zip(indices, rows, strict=True):
                self._pool.submit(index, generation, is_tensor, row)
            while left:
                self._stop.check()
                for key, value in self._pool.completed(_POLL_SECONDS):
                    yield key, value
                    left -= 1
        finally:
            if left:
                self._pool.close()


@dataclass(frozen=True)
class _Task:
    """Evaluates a candidate, in any thread or process; None: it failed."""

    function: Callable[..., Any]
    with_generation: bool
    catch: tuple[type[BaseException], ...]

    def __call__(self, candidate: Any, generation: int) -> float | None:
        try:
            value = self.function(candidate, generation) if self.with_generation else self.function(candidate)
        except Interrupted:
            raise
        except self.catch:
            return None
        if isinstance(value, (Tensor, np.ndarray)) and value.shape == ():
            value = value.item()
        if not isinstance(value, Real):
            raise TypeError(f"expected a number as the fitness of a candidate, got {value!r}")
        return float(value)


def _evaluate(task: _Task, generation: int, is_tensor: bool, row: Any) -> float | None:
    return task(torch.from_numpy(row) if is_tensor else row, generation)


_task: _Task  # of a worker process


def _start_worker(pickled: bytes) -> None:
    global _task
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _task = pickle.loads(pickled)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _evaluate_in_worker(generation: int, is_tensor: bool, row: Any) -> float | None:
    try:
        return _evaluate(_task, generation, is_tensor, row)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # the pool would take it for the end of the process
            raise RuntimeError(repr(error)) from None
        raise


class _Process(ProcessPoolExecutor):
    """One process: what it ends or hangs by is the one candidate that it has."""

    def __init__(self, pickled: bytes) -> None:
        spawn = multiprocessing.get_context("spawn")
        super().__init__(1, spawn, initializer=_start_worker, initargs=(pickled,))
        self.deadline = math.inf
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the process inherits it
        self.ready = self.submit(os.getpid)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self, *, busy: bool) -> None:
        if busy and self.ready.done() and not self.ready.exception():
            with suppress(ProcessLookupError):
                os.kill(self.ready.result(), signal.SIGKILL)
        self.shutdown(wait=False, cancel_futures=True)


class _Pool:
    """Evaluates candidates by so many processes, or by an executor."""

    def __init__(
        self, task: _Task, stop: StopRequest, workers: int | Executor, timeout_s: float | None = None
    ) -> None:
        self._stop, self._catch = stop, task.catch
        self._timeout_s = math.inf if timeout_s is None else check_real("timeout_s", timeout_s, 0.0)
        self._executor = workers if isinstance(workers, Executor) else None
        self._most = workers if isinstance(workers, int) else 0
        self._call = partial(_evaluate, task) if self._executor else _evaluate_in_worker
        self._pickled = b"" if self._executor else _pickled(task)
        self._processes: set[_Process] = set()
        self._idle: list[_Process] = []
        self._waiting: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self._running: dict[Future[Any], tuple[Any, _Process | None]] = {}
        self._done: SimpleQueue[Future[Any]] = SimpleQueue()

    def submit(self, key: Hashable, *candidate: Any) -> None:
        """Evaluate a candidate: its generation, whether it is a tensor, and its numbers as an array."""
        self._waiting.append((key, candidate))
        self._fill()

    def completed(self, timeout_s: float) -> list[tuple[Any, float | None]]:
        """Wait for a candidate; return key and fitness of none, one or several that are evaluated."""
        found: list[tuple[Any, float | None]] = []
        with suppress(Empty):
            future = self._done.get(timeout=timeout_s)
            if future in self._running:  # and not of a process that was killed
                found += self._result(future, *self._running.pop(future))
        now = time.monotonic()
        for future, (key, process) in list(self._running.items()):
            if process is not None and process.deadline < now and not future.done():
                del self._running[future]
                self._processes.remove(process)
                process.end(busy=True)
                found.append((key, None))
        self._fill()
        return found

    def close(self) -> None:
        """Drop all candidates and end the processes, without waiting; others are started by ``submit``."""
        busy = {process for _, process in self._running.values()}
        for future in list(self._running):
            future.cancel()
        for process in self._processes:
            process.end(busy=process in busy)
        for collection in (self._processes, self._idle, self._waiting, self._running):
            collection.clear()

    def _result(
        self, future: Future[Any], key: Any, process: _Process | None
    ) -> list[tuple[Any, float | None]]:
        error = future.exception()
        is_start = process is not None and future is process.ready
        if process is not None and isinstance(error, BrokenExecutor):
            self._stop.check()  # a signal to stop may have ended the process, too
            self._processes.remove(process)
            if is_start:
                raise RuntimeError(
                    "a worker process ended before its first candidate, see its error above: the function has "
                    "to be in a module or a script, which starts its work below if __name__ == '__main__'"
                ) from error
            return [(key, None)]
        if process is not None:
            process.deadline = math.inf
            self._idle.append(process)
        if isinstance(error, self._catch) and not isinstance(error, Interrupted):
            return [(key, None)]
        if error is not None:
            _add_note(error, f"The candidate was {key}.")
            raise error
        return [] if is_start else [(key, future.result())]

    def _fill(self) -> None:
        """Give waiting candidates to idle processes, and start one for those that still wait."""
        while self._waiting and (self._executor or self._idle):
            process = None if self._executor else self._idle.pop()
            executor = process or self._executor
            key, candidate = self._waiting[0]
            try:
                future = executor.submit(self._call, *candidate)
            except BrokenExecutor:
                if process is None:
                    raise
                self._processes.remove(process)  # it ended while it was idle
                continue
            self._waiting.popleft()
            if process is not None:
                process.deadline = time.monotonic() + self._timeout_s
            self._watch(future, key, process)
        if len(self._waiting) > 0 and len(self._processes) < self._most:
            process = _Process(self._pickled)
            self._processes.add(process)
            self._watch(process.ready, None, process)

    def _watch(self, future: Future[Any], key: Any, process: _Process | None) -> None:
        self._running[future] = key, process
        future.add_done_callback(self._done.put)


class _Journal:
    """Candidates evaluated, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        check_own(path)
        self.file = path.open("ab+")
        self.file.seek(0)
        content = self.file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self.file.truncate(len(whole))
        self.known: dict[tuple[int, int, str], float | None] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                entry = json.loads(line)
                value = entry["fitness"]
                key = entry["generation"], entry["index"], entry["x"]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}: line {number} is no evaluation: {error}") from error
            self.known[key] = None if value is None else float(value)

    def write(self, key: tuple[int, int, str], value: float | None) -> None:
        fitness = value if value is None or math.isfinite(value) else str(value)
        entry = dict(zip(("generation", "index", "x"), key, strict=True), fitness=fitness)
        self.file.write(json.dumps(entry).encode() + b"\n")
        self.file.flush()


def _pickled(task: _Task) -> bytes:
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            "expected a function that can be sent to worker processes: define it by def in a module, or give a "
            f"ThreadPoolExecutor as workers ({error})"
        ) from error


def _array(candidates: Any) -> Any:
    return candidates.detach().cpu().numpy() if isinstance(candidates, Tensor) else candidates


def _copy(candidate: Any) -> Any:
    return candidate.clone() if isinstance(candidate, Tensor) else candidate.copy()


def _like(candidates: Any, fitness: Any) -> Any:
    return torch.from_numpy(fitness).to(candidates.device) if isinstance(candidates, Tensor) else fitness


def _digest(row: Any) -> str:
    return hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest()


def _add_note(error: BaseException, note: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(note)
