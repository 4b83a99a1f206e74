"""From a user's function to the fitness of a population: at once, by candidate, or by workers."""

from __future__ import annotations

import json
import math
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing import get_context, resource_tracker
from numbers import Real
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation
from cem.optimizer import CrossEntropyMethod
from cem.run.checkpoint import CheckpointError, check_same_run
from cem.run.stopping import _SIGNALS, Interrupted, StopRequest
from kernels.support.checks import check_integer
from kernels.support.cores import usable_cores
from kernels.support.files import check_own

Workers = int | Executor | Callable[..., Iterable[Any]]

_POLL_SECONDS = 0.05  # from one look at the stop request to the next
_THREADS = "a concurrent.futures.ThreadPoolExecutor for workers"
_HINT = "a function of one candidate needs vectorize=True or vectorize='loop'"
_JOURNAL = ("generation", "index", "x", "fitness")
_SPAWN = get_context("spawn")


class WithArguments:
    """A function that gets more arguments after a candidate, or a population, and the generation."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Set both."""
        self.function, self._arguments = function, arguments
        self.with_generation = getattr(function, "with_generation", False)

    def __call__(self, *candidate: Any) -> Any:
        """Return what the function says."""
        return self.function(*candidate, *self._arguments)


class Evaluator:
    """Evaluates a population, a tensor or an array, by a function; an ``Objective`` of ``Trainer``.

    The options are those of ``minimize``. A lazy map is left between two items, another one not.

    Attributes:
        failures: The candidates that failed: by an exception, a time out, a worker that died, NaN, or the
            infinity on the bad side. Nothing waits for values of populations on a GPU: those are not counted.
        evaluations: The candidates evaluated, failed ones and those of an interrupted generation included.
        best: The fittest of them and its fitness; None before the first, and for a function of populations.
        workers: The candidates evaluated side by side; 0 where that is not known.
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
        catch: type[BaseException] | tuple[type[BaseException], ...] = (),
        stop: StopRequest | None = None,
    ) -> None:
        """Set the function; a process starts when a candidate waits for it."""
        if vectorize not in (False, True, "loop"):
            raise ValueError(f"expected False, True or 'loop' for vectorize, got {vectorize!r}")
        self.failures = self.evaluations = 0
        self.best: tuple[Any, float] | None = None
        self._sign = 1.0 if maximize else -1.0
        self._catch = catch if isinstance(catch, tuple) else (catch,)
        self._stop = StopRequest() if stop is None else stop
        self._arity = 1 + with_generation
        self._vmap = vectorize not in (False, "loop")
        self._at_once = function
        if self._vmap:
            self._at_once = torch.func.vmap(function, (0, None)[: self._arity], randomness="different")
        self._evaluate = partial(_evaluate, function, self._arity, self._catch)
        self._map: Callable[..., Iterable[Any]] = map
        self._pool: _Pool | None = None  # for workers
        if timeout_s is not None and not isinstance(workers, int):
            raise ValueError("expected a number of workers for timeout_s: only a process can be killed")
        if callable(workers):
            self._map = workers
        elif workers is not None:
            if not isinstance(workers, Executor):
                workers = usable_cores() if workers == -1 else check_integer("workers", workers, 1)
            if workers != 1 or timeout_s is not None:  # otherwise this process is the worker
                self._pool = _Pool(self._evaluate, workers, timeout_s)
        self.workers = workers if isinstance(workers, int) else getattr(workers, "_max_workers", 0)
        by_one = vectorize == "loop" or workers is not None
        self._by_one = (Tensor, np.ndarray) if by_one else (np.ndarray,) if vectorize else ()
        self._running: dict[int, tuple[Any, CrossEntropyMethod]] = {}  # asked in any order
        self._numbers = count()
        self._journal: _Journal | None = None

    def open_journal(self, path: Path | None, search: Mapping[str, Any], generation: int = 0) -> None:
        """Append each evaluated candidate to a file from now on, and do not evaluate those that are there.

        Those count as evaluated. The first line is ``search``; ``generation`` is the number of those that a
        checkpoint has. A function of populations writes none, for a checkpoint has all of its generation.
        """
        if self._journal is not None:
            self._journal.file.close()
        self._journal = None if path is None or not self._by_one else _Journal(path, search, generation)
        if self._journal is not None:
            self.evaluations += len(self._journal.values)
            self.failures += sum(map(self._has_failed, self._journal.values))

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
        self.open_journal(None, {})

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the fitness of candidates, shape (N, dim), or raise Interrupted if a stop is due."""
        if isinstance(candidates, self._by_one):
            return self._each(candidates, int(generation))
        try:
            found = self._at_once(*(candidates, generation)[: self._arity])
        except Interrupted:
            raise
        except self._catch:
            found = candidates[:, 0] * math.nan
        except Exception as error:
            if self._vmap:
                _add_note(error, "What torch.func.vmap does not take needs vectorize='loop'.")
            elif not self.evaluations:
                kind = "a tensor" if isinstance(candidates, Tensor) else "an array"
                shape = tuple(candidates.shape)
                _add_note(error, f"The function got a population, {kind} of shape {shape}: {_HINT}.")
            raise
        evaluation = as_evaluation(found)
        fitness, size = evaluation.fitness, candidates.shape[0]  # faster than len()
        given = np.shape(fitness)
        if given != (size,):
            hint = "one number for each candidate" if self._vmap else _HINT
            raise ValueError(f"expected fitness of shape ({size},), got {tuple(given)}: {hint}")
        self.evaluations += size
        if not getattr(fitness, "is_cuda", False):
            total = fitness.sum() if hasattr(fitness, "sum") else sum(fitness)
            if not math.isfinite(total):  # a sum takes less time than a look at every value
                values = fitness.tolist() if hasattr(fitness, "tolist") else fitness
                self.failures += sum(map(self._has_failed, values))
        return evaluation

    def in_any_order(self, search: CrossEntropyMethod) -> Objective:
        """Return an objective that keeps all workers at work: it returns the first population that is done.

        It draws the candidates itself; some are of earlier generations than that in which they are done.
        """
        pool = self._pool
        if self.workers == 1 and pool is None:
            return self  # one worker finishes candidates in order
        if not self.workers or pool is None:
            raise ValueError("expected workers, or an Executor that says how many, for asynchronous=True")

        def evaluate(candidates: Any, generation: int) -> Evaluation:
            done: list[Any] = []
            values: list[float] = []
            is_tensor = isinstance(candidates, Tensor)
            row_of: Any = candidates.new_tensor if is_tensor else partial(np.array, dtype=candidates.dtype)
            known = self._journal.known if self._journal is not None else {}
            while (generation, len(done)) in known:
                x, value = known[generation, len(done)]
                done.append(row_of(x))
                values.append(self._counted(done[-1], value, known=True))
            while len(done) < len(candidates):
                while len(self._running) < self.workers:
                    candidate = search.ask(1)[0]
                    if self._journal is not None and self._journal.had(candidate):
                        continue  # it was asked in this generation before the search was interrupted
                    key, (row, device) = next(self._numbers), _on_host(candidate)
                    self._running[key] = candidate, search
                    pool.submit(key, generation, device, (key, row))
                for key, found in pool.completed(len(candidates) - len(done)):
                    candidate, asked_by = self._running.pop(key)
                    value = self._counted(candidate, found)
                    if asked_by is not search:  # but the search before a restart
                        continue
                    if self._journal is not None:
                        self._journal.write(generation, len(done), candidate, found)
                    done.append(candidate)
                    values.append(value)
                if len(done) < len(candidates):
                    self._stop.check()
            evaluated: Any = torch.stack(done) if is_tensor else np.stack(done)
            return Evaluation(torch.tensor(values, dtype=torch.float64), candidates=evaluated)

        return evaluate

    def _each(self, candidates: Any, generation: int) -> Evaluation:
        rows, device = _on_host(candidates)
        journal, fitness, items = self._journal, np.full(len(rows), math.nan), []
        known = {} if journal is None else journal.known
        for index, row in enumerate(rows):
            x, value = known.get((generation, index), (None, None))
            if x is not None and x == row.tolist():
                fitness[index] = self._counted(candidates[index], value, known=True)
            else:
                items.append((index, row))
        for index, value in self._evaluated(items, generation, device):
            if journal is not None:
                journal.write(generation, index, rows[index], value)
            fitness[index] = self._counted(candidates[index], value)
        found: Any = fitness if device is None else torch.from_numpy(fitness).to(device)
        return Evaluation(found)

    def _counted(self, candidate: Any, value: float | None, *, known: bool = False) -> float:
        """Count an evaluation, unless it was known; return the fitness of the candidate, maybe the best."""
        if not known:
            self.evaluations += 1
        if value is None or self._has_failed(value):
            self.failures += not known
        elif self.best is None or self._sign * value > self._sign * self.best[1]:
            self.best = candidate, value
        return math.nan if value is None else value

    def _has_failed(self, value: float | None) -> bool:
        """Return whether a fitness, None for no value, is NaN or the infinity on the bad side."""
        return value is None or not self._sign * value > -math.inf

    def _evaluated(
        self, items: list[Any], generation: int, device: Any
    ) -> Iterator[tuple[int, float | None]]:
        """Yield the index and the fitness of each candidate as it is evaluated."""
        if self._pool is None:
            found = self._map(partial(self._evaluate, generation, device), items)
            is_lazy, values = not isinstance(found, Sequence), iter(found)
            for index, _ in items:
                if is_lazy:
                    self._stop.check()
                yield index, next(values)
            return
        left = len(items)
        try:
            for item in items:
                self._pool.submit(item[0], generation, device, item)
            while left:
                done = self._pool.completed(left)
                left -= len(done)
                yield from done
                if left:
                    self._stop.check()
        finally:
            if left:
                self._pool.close()


def _evaluate(function: Any, arity: int, catch: Any, generation: int, device: Any, item: Any) -> float | None:
    """Evaluate a candidate, as a tensor on a device or as an array; None: it failed."""
    index, row = item
    try:
        candidate = row.copy() if device is None else torch.tensor(row, device=device)
        value = function(*(candidate, generation)[:arity])
    except Interrupted:
        raise
    except catch:
        return None
    except Exception as error:
        _add_note(error, f"The candidate was number {index} of generation {generation}.")
        raise
    value = value.item() if isinstance(value, (Tensor, np.ndarray)) and value.shape == () else value
    if not isinstance(value, Real):
        raise TypeError(f"expected a number as the fitness of a candidate, got {value!r}")
    return float(value)


def _on_host(candidates: Any) -> tuple[Any, torch.device | None]:
    """Return candidates as an array, not to be changed, and the device of a tensor."""
    if isinstance(candidates, Tensor):
        return candidates.detach().cpu().numpy(), candidates.device
    return candidates, None


class _Pool:
    """Evaluates candidates by an executor, or by threads, each with a process of its own.

    So it is known which candidate a process ended by, or hangs in.
    """

    def __init__(self, evaluate: Any, workers: int | Executor, timeout_s: float | None) -> None:
        self._evaluate, self._timeout_s = evaluate, timeout_s
        self._running: dict[Future[float | None], Any] = {}
        self._done: SimpleQueue[Future[float | None]] = SimpleQueue()
        self._processes: set[tuple[Any, Any]] = set()  # with the connections to them
        self._of_thread = threading.local()
        self._closed = False
        if isinstance(workers, Executor):
            self._executor = workers
            return
        try:
            self._pickled = pickle.dumps(evaluate)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(f"{error}: define the function in a module, or give {_THREADS}") from error
        # A process inherits the mask of its thread: signals are for this process, which ends the others.
        resource_tracker.ensure_running()  # its start would change the mask
        mask = signal.SIG_BLOCK, _SIGNALS
        self._executor = ThreadPoolExecutor(workers, initializer=signal.pthread_sigmask, initargs=mask)
        self._evaluate = self._in_process

    def submit(self, key: Hashable, *candidate: Any) -> None:
        """Begin to evaluate a candidate, which is given as ``_evaluate`` takes it."""
        future = self._executor.submit(self._evaluate, *candidate)
        self._running[future] = key
        future.add_done_callback(self._done.put)

    def completed(self, most: int) -> list[tuple[Any, float | None]]:
        """Wait a moment for candidates; return keys and fitness (None: it failed) of those that are done."""
        found = []
        with suppress(Empty):
            found.append(self._done.get(timeout=_POLL_SECONDS))
            while len(found) < most:
                found.append(self._done.get_nowait())
        return [(self._running.pop(future), future.result()) for future in found]

    def close(self) -> None:
        """Drop what is not evaluated, and end the processes, without waiting for them."""
        self._closed = True
        for future in list(self._running):
            future.cancel()
        for process, connection in list(self._processes):
            if self._running:
                process.kill()
            else:
                connection.close()
        if self._evaluate == self._in_process:
            self._executor.shutdown(wait=False)
        self._running.clear()
        self._done = SimpleQueue()  # what is still to come goes to the old one

    def _in_process(self, *candidate: Any) -> float | None:
        """Evaluate a candidate in the process of this thread; None if it ends or takes too long."""
        if not hasattr(self._of_thread, "process"):
            self._of_thread.process = self._started()
        process, connection = self._of_thread.process
        try:
            connection.send(candidate)
            if not connection.poll(self._timeout_s):
                raise TimeoutError
            found = connection.recv()
        except (EOFError, OSError):  # it ended, or hangs
            del self._of_thread.process
            self._processes.remove((process, connection))
            process.kill()
            process.join()
            connection.close()
            return None
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def _started(self) -> tuple[Any, Any]:
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(theirs, self._pickled))
        process.start()
        self._processes.add((process, ours))
        if self._closed:  # meanwhile
            process.kill()
        theirs.close()
        try:
            ours.recv()  # it has imported the function: the time of a candidate begins now
        except (EOFError, OSError):
            raise RuntimeError(
                "a worker process ended at its start, its error is above: a script with workers needs "
                f"if __name__ == '__main__', a function of a notebook needs {_THREADS}"
            ) from None
        return process, ours


def _work(connection: Any, pickled: bytes) -> None:
    torch.set_num_threads(1)
    evaluate = pickle.loads(pickled)
    connection.send(None)
    with suppress(EOFError, OSError):  # the pool closed the connection, or has gone
        while True:
            candidate = connection.recv()
            try:
                found = evaluate(*candidate)
            except Exception as error:
                found = _sendable(error)
            connection.send(found)


def _sendable(error: Exception) -> Exception:
    text = traceback.format_exc()
    _add_note(error, text)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # it would not arrive
        return RuntimeError(text)
    return error


class _Journal:
    """Evaluations in the order of their ends, a line of JSON each; the fitness of a failed one is null.

    Attributes:
        known: Candidate and fitness by generation and index, of the generations that no checkpoint has.
        values: The fitness of all candidates.
    """

    def __init__(self, path: Path, search: Mapping[str, Any], generation: int) -> None:
        check_own(path)
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be torn
        self.known: dict[tuple[int, int], tuple[list[float], float | None]] = {}
        self.values: list[float | None] = []
        first, *lines = whole.splitlines() or [b""]
        expected = json.dumps(search).encode()
        if whole:
            try:
                found = dict(json.loads(first))
            except (ValueError, TypeError) as error:
                raise CheckpointError(
                    f"{path}: expected a search in its first line, got {first!r}"
                ) from error
            check_same_run(path, json.loads(expected), found)
        for line in lines:
            try:
                number, index, x, value = (json.loads(line)[name] for name in _JOURNAL)
                value = None if value is None else float(value)
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}: expected an evaluation, got {line!r}") from error
            self.values.append(value)
            if number >= generation:
                self.known[number, index] = x, value
        self._had = {tuple(x) for x, _ in self.known.values()}
        self.file = path.open("ab")
        self.file.truncate(len(whole))
        if not whole:
            self.file.write(expected + b"\n")

    def had(self, candidate: Any) -> bool:
        """Return whether the file had a candidate, once for each."""
        x = tuple(candidate.tolist())
        found = x in self._had
        self._had.discard(x)
        return found

    def write(self, generation: int, index: int, candidate: Any, value: float | None) -> None:
        fitness = value if value is None or math.isfinite(value) else str(value)  # JSON has no NaN
        values = (generation, index, candidate.tolist(), fitness)
        self.file.write(json.dumps(dict(zip(_JOURNAL, values, strict=True))).encode() + b"\n")
        self.file.flush()


def _add_note(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(note)
