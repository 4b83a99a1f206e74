"""The fitness of a population by a user's function: at once, by candidate, or by workers."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation
from cem.run.journal import Journal
from cem.run.stopping import Interrupted, StopRequest
from cem.run.workers import Pool, add_note, evaluate_candidate
from kernels.support.checks import check_integer
from kernels.support.cores import usable_cores

Workers = int | Executor | Callable[..., Iterable[Any]]

_FEW = 100  # values that Python adds up faster than torch
_HINT = "a function of one candidate needs vectorize=True or vectorize='loop'"


@dataclass(eq=False)
class WithArguments:
    """A function that gets further arguments after those that an objective gets."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, *candidate: Any) -> Any:
        """Call the function."""
        return self.function(*candidate, *self.arguments)


class Evaluator:
    """Evaluates a population, a tensor or an array, by a function; an ``Objective``.

    The options are those of ``minimize``. A lazy map is left between two items, another one
    not.

    Attributes:
        failures: The candidates that failed: by an exception, a time out, a worker that died,
            NaN, or the infinity on the bad side. Nothing waits for values of populations on a
            GPU: those are not counted.
        evaluations: The candidates evaluated, failed ones and those of an interrupted
            generation included.
        best: The fittest of them and its fitness; None before the first, and for a function of
            populations.
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
        if timeout_s is not None and not isinstance(workers, int):
            raise ValueError(
                "expected a number of workers for timeout_s: only a process can be killed"
            )
        self.failures = self.evaluations = 0
        self.best: tuple[Any, float] | None = None
        self._sign = 1.0 if maximize else -1.0
        self._catch = catch if isinstance(catch, tuple) else (catch,)
        self._stop = StopRequest() if stop is None else stop
        self._arity = 1 + with_generation
        self._uses_vmap = vectorize is True
        self._at_once = function
        if self._uses_vmap:
            in_dims = (0, None)[: self._arity]
            self._at_once = torch.func.vmap(function, in_dims, randomness="different")
        self._evaluate = partial(evaluate_candidate, function, self._arity, self._catch)
        self._map: Callable[..., Iterable[Any]] = map
        self._pool: Pool | None = None
        self._set_workers(workers, timeout_s)
        self._types_by_one: tuple[
            type, ...
        ] = ()  # populations evaluated candidate by candidate
        if vectorize == "loop" or workers is not None:
            self._types_by_one = (Tensor, np.ndarray)
        elif vectorize:
            self._types_by_one = (np.ndarray,)
        self._running: dict[
            int, tuple[Any, object]
        ] = {}  # candidates asked in any order, and by whom
        self._numbers = count()
        self._journal: Journal | None = None

    def _set_workers(self, workers: Workers | None, timeout_s: float | None) -> None:
        if callable(workers):
            self._map = workers
        elif isinstance(workers, Executor):
            self._pool = Pool(self._evaluate, workers, None)
        elif workers is not None:
            workers = usable_cores() if workers == -1 else check_integer("workers", workers, 1)
            if workers > 1 or timeout_s is not None:  # otherwise this process is the worker
                self._pool = Pool(self._evaluate, workers, timeout_s)
        self.workers: int = getattr(workers, "_max_workers", 0)
        if isinstance(workers, int):
            self.workers = workers

    def open_journal(
        self, path: Path | None, search: Mapping[str, Any], generation: int = 0
    ) -> None:
        """Append evaluated candidates to a file, and do not evaluate again those that it has.

        Those count as evaluated. The first line is ``search``; ``generation`` is the number of
        those that a checkpoint has. A function of populations writes none, for a checkpoint has
        all of its generation.
        """
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if path is not None and self._types_by_one:
            self._journal = Journal(path, search, generation)
            self.evaluations += len(self._journal.values)
            self.failures += sum(map(self._has_failed, self._journal.values))

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
        self.open_journal(None, {})

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the fitness of candidates, (N, dim), or raise Interrupted if a stop is due."""
        if isinstance(candidates, self._types_by_one):
            return self._evaluate_one_by_one(candidates, int(generation))
        arguments = (candidates, generation)[: self._arity]
        try:
            evaluation = as_evaluation(self._at_once(*arguments))
        except Interrupted:
            raise
        except self._catch:
            evaluation = Evaluation(candidates[:, 0] * math.nan)
        except Exception as error:
            self._add_hint(error, candidates)
            raise
        fitness = evaluation.fitness
        size = candidates.shape[0]  # faster than len()
        shape = fitness.shape if hasattr(fitness, "shape") else np.shape(fitness)
        if shape != (size,):
            hint = "one number for each candidate" if self._uses_vmap else _HINT
            raise ValueError(f"expected fitness of shape ({size},), got {tuple(shape)}: {hint}")
        self.evaluations += size
        if not getattr(fitness, "is_cuda", False):
            self.failures += self._count_failures(fitness, size)
        return evaluation

    def _add_hint(self, error: Exception, candidates: Any) -> None:
        """Add to an exception of the function what the user may have forgotten."""
        if self._uses_vmap:
            add_note(error, "What torch.func.vmap does not take needs vectorize='loop'.")
        elif not self.evaluations:
            kind = "a tensor" if isinstance(candidates, Tensor) else "an array"
            shape = tuple(candidates.shape)
            add_note(error, f"The function got a population, {kind} of shape {shape}: {_HINT}.")

    def _count_failures(self, fitness: Any, size: int) -> int:
        """Count the failures of a population; its fitness is a list, an array or a tensor."""
        # A sum takes less time than a look at every value, and shows that nothing has failed.
        # Python adds up a few numbers faster than torch does.
        is_list = not hasattr(fitness, "tolist")
        if is_list or size <= _FEW:
            values = fitness if is_list else fitness.tolist()
            total = sum(values)
        else:
            values = None
            total = fitness.sum()
        if math.isfinite(total):
            return 0
        if values is None:
            values = fitness.tolist()
        return sum(map(self._has_failed, values))

    def in_any_order(self, ask: Callable[[int], Any]) -> Objective:
        """Return an objective that keeps all workers busy: it returns what is done first.

        It draws the candidates itself, by ``ask(1)``; some are of earlier generations than that
        in which they are done.
        """
        pool = self._pool
        if self.workers == 1 and pool is None:
            return self  # one worker finishes candidates in order
        if not self.workers or pool is None:
            raise ValueError(
                "expected workers, or an Executor that says how many, for asynchronous=True"
            )
        # It tells the candidates of this search from those of one before a restart.
        owner = object()

        def evaluate(population: Any, generation: int) -> Evaluation:
            candidates: list[Any] = []
            values: list[float] = []
            known = {} if self._journal is None else self._journal.known
            while (generation, len(values)) in known:
                x, value = known[generation, len(values)]
                candidate = _row_like(population, x)
                candidates.append(candidate)
                values.append(self._count(candidate, value, is_known=True))
            while len(values) < len(population):
                while len(self._running) < self.workers:
                    candidate = ask(1)[0]
                    if self._journal is not None and self._journal.take(candidate):
                        # it was asked in this generation before the search was interrupted
                        continue
                    key = next(self._numbers)
                    row, device = _on_host(candidate)
                    self._running[key] = candidate, owner
                    pool.submit(key, generation, device, (key, row))
                for key, value in pool.take_completed(len(population) - len(values)):
                    candidate, asked_by = self._running.pop(key)
                    fitness = self._count(candidate, value)
                    if asked_by is not owner:
                        continue
                    if self._journal is not None:
                        self._journal.write(generation, len(values), candidate, value)
                    candidates.append(candidate)
                    values.append(fitness)
                if len(values) < len(population):
                    self._stop.check()
            is_tensor = isinstance(population, Tensor)
            evaluated: Any = torch.stack(candidates) if is_tensor else np.stack(candidates)
            return Evaluation(torch.tensor(values, dtype=torch.float64), candidates=evaluated)

        return evaluate

    def _evaluate_one_by_one(self, candidates: Any, generation: int) -> Evaluation:
        rows, device = _on_host(candidates)
        journal = self._journal
        fitness = np.full(len(rows), math.nan)
        items = []
        for index, row in enumerate(rows):
            x, value = None, None
            if journal is not None:
                x, value = journal.known.get((generation, index), (None, None))
            if x is not None and x == row.tolist():
                fitness[index] = self._count(candidates[index], value, is_known=True)
            else:
                items.append((index, row))
        for index, value in self._iterate(items, generation, device):
            if journal is not None:
                journal.write(generation, index, rows[index], value)
            fitness[index] = self._count(candidates[index], value)
        if device is None:
            return Evaluation(fitness)  # type: ignore[arg-type]
        return Evaluation(torch.from_numpy(fitness).to(device))

    def _count(self, candidate: Any, value: float | None, *, is_known: bool = False) -> float:
        """Count an evaluation, unless it was known; return the fitness, NaN for no value."""
        if not is_known:
            self.evaluations += 1
        if value is None or self._has_failed(value):
            self.failures += not is_known
        elif self.best is None or self._sign * value > self._sign * self.best[1]:
            self.best = candidate, value
        return math.nan if value is None else value

    def _has_failed(self, value: float | None) -> bool:
        """Return whether a fitness is None, NaN or the infinity on the bad side."""
        return value is None or not self._sign * value > -math.inf

    def _iterate(
        self, items: Sequence[tuple[int, Any]], generation: int, device: torch.device | None
    ) -> Iterator[tuple[int, float | None]]:
        """Yield the index and fitness of each candidate; None: it failed."""
        if self._pool is not None:
            yield from self._iterate_pool(self._pool, items, generation, device)
            return
        values = self._map(partial(self._evaluate, generation, device), items)
        is_lazy = not isinstance(values, Sequence)
        iterator = iter(values)
        for index, _ in items:
            if is_lazy:
                self._stop.check()
            yield index, next(iterator)

    def _iterate_pool(
        self,
        pool: Pool,
        items: Sequence[tuple[int, Any]],
        generation: int,
        device: torch.device | None,
    ) -> Iterator[tuple[int, float | None]]:
        missing = len(items)
        try:
            for item in items:
                pool.submit(item[0], generation, device, item)
            while missing:
                completed = pool.take_completed(missing)
                missing -= len(completed)
                yield from completed
                if missing:
                    self._stop.check()
        finally:
            if missing:
                pool.close()


def _row_like(population: Any, values: Sequence[float]) -> Any:
    """Return values as a candidate of the kind, dtype and device of a population."""
    if isinstance(population, Tensor):
        return population.new_tensor(values)
    return np.array(values, dtype=population.dtype)


def _on_host(candidates: Any) -> tuple[Any, torch.device | None]:
    """Return candidates as an array, not to be changed, and the device of a tensor."""
    if isinstance(candidates, Tensor):
        return candidates.detach().cpu().numpy(), candidates.device
    return candidates, None
