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
from kernels.support.system import usable_cores

Workers = int | Executor | Callable[..., Iterable[Any]]

_FEW = 100  # values that Python adds up faster than torch
_MOST_NUMBERS = 10_000_000  # parameters of candidates that are remembered, of 8 bytes each
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
        remembered: Candidates evaluated one by one, shape (k, dim), and their fitness, shape
            (k,), NaN for one without a value, in the order in which they were done. None: they
            are more than ten million numbers.
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
        """Choose how ``function`` is called; processes start when a candidate needs one.

        Args:
            function: The objective, of a population (N, dim), or of one candidate (dim,) with
                ``vectorize`` or ``workers``.
            maximize: Whether a greater fitness is better.
            vectorize: True: tensors are evaluated by ``torch.func.vmap``; "loop": by one call
                for each candidate.
            with_generation: Whether the function also takes the number of the generation.
            workers: The number of processes, -1 for one on each core, an executor, or a
                function like ``map``.
            timeout_s: The seconds after which a candidate has failed; needs processes.
            catch: The exceptions that mean that a candidate failed.
            stop: A request to stop. None: there will be none.
        """
        if vectorize not in (False, True, "loop"):
            raise ValueError(f"expected False, True or 'loop' for vectorize, got {vectorize!r}")
        if timeout_s is not None and not isinstance(workers, int):
            raise ValueError(
                "expected a number of workers for timeout_s: only a process can be killed"
            )
        self.failures = 0
        self.evaluations = 0
        self.best: tuple[Any, float] | None = None
        self.remembered: list[tuple[Any, Any]] | None = []
        # Fitness times this sign is maximised.
        self._sign = 1.0 if maximize else -1.0
        self._catch = catch if isinstance(catch, tuple) else (catch,)
        self._stop = StopRequest() if stop is None else stop
        self._arity = 2 if with_generation else 1
        self._uses_vmap = vectorize is True
        self._population_function = function
        if self._uses_vmap:
            # vmap maps over the first dimension of the candidates, but not the generation.
            in_dims = (0, None)[: self._arity]
            self._population_function = torch.func.vmap(
                function, in_dims, randomness="different"
            )
        self._evaluate = partial(evaluate_candidate, function, self._arity, self._catch)
        self._map: Callable[..., Iterable[Any]] = map
        self._pool: Pool | None = None
        self._set_workers(workers, timeout_s)
        # Populations of these types are evaluated candidate by candidate; vmap takes no arrays.
        self._looped_types: tuple[type, ...] = ()
        if vectorize == "loop" or workers is not None:
            self._looped_types = (Tensor, np.ndarray)
        elif vectorize:
            self._looped_types = (np.ndarray,)
        # For ``in_any_order``: the candidates that are being evaluated, by number, each with
        # the search that asked for it.
        self._running: dict[int, tuple[Any, object]] = {}
        self._numbers = count()
        self._journal: Journal | None = None

    def _set_workers(self, workers: Workers | None, timeout_s: float | None) -> None:
        """Set what evaluates candidates, ``_pool`` or ``_map``, and the number of workers.

        ``workers`` are a number of processes (-1: one on each core), an executor, or a function
        like ``map``; None: this process evaluates. The number is 0 where it is not known.
        """
        if callable(workers):
            self._map = workers
        elif isinstance(workers, Executor):
            self._pool = Pool(self._evaluate, workers, None)
        elif workers is not None:
            workers = usable_cores() if workers == -1 else check_integer("workers", workers, 1)
            # A single worker is this process, unless it may have to be killed.
            if workers > 1 or timeout_s is not None:
                self._pool = Pool(self._evaluate, workers, timeout_s)
        # The executors of Python have their number in this private attribute.
        self.workers: int = getattr(workers, "_max_workers", 0)
        if isinstance(workers, int):
            self.workers = workers

    def open_journal(
        self, path: Path | None, search: Mapping[str, Any], generation: int = 0
    ) -> list[tuple[list[float], float | None]]:
        """Append evaluated candidates to a file, and do not evaluate again those that it has.

        All of them count as evaluated. A function of populations writes no file, because a
        checkpoint has all of its generation.

        Args:
            path: The file; None: no file is open any more.
            search: The first line, by which the search is recognised.
            generation: The number of generations that a checkpoint has.

        Returns:
            The candidates of these generations, with their fitness.
        """
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if path is not None and self._looped_types:
            self._journal = Journal(path, search, generation)
            self.evaluations += len(self._journal.values)
            self.failures += sum(map(self._has_failed, self._journal.values))
            for candidate, fitness in self._journal.earlier:
                self._remember([candidate], [math.nan if fitness is None else fitness])
            return self._journal.earlier
        return []

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
        self.open_journal(None, {})

    def __call__(self, candidates: Any, generation: Any, first_index: int = 0) -> Evaluation:
        """Return the fitness of a population, shape (N, dim), and count what failed.

        If a generation is evaluated in parts, ``first_index`` is the number of candidates in
        the parts before.

        If the function fails by an exception of ``catch``, all its candidates have: their
        fitness is NaN.

        Raises:
            Interrupted: If a stop is due.
            ValueError: If the function does not return N numbers.
        """
        if isinstance(candidates, self._looped_types):
            return self._evaluate_one_by_one(candidates, int(generation), first_index)
        arguments = (candidates, generation)[: self._arity]
        try:
            evaluation = as_evaluation(self._population_function(*arguments))
        except Interrupted:
            # A stop of the run is no failure, even if ``catch`` includes it.
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
        # Values on a GPU are not counted, because reading them would wait for the GPU.
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
        """Return how many of ``size`` values, a list, array or tensor, mean a failure.

        A sum takes less time than a look at every value: if it is finite, nothing has failed.
        """
        is_list = not hasattr(fitness, "tolist")
        values = None
        # Python adds up a few numbers faster than torch does.
        if is_list or size <= _FEW:
            values = fitness if is_list else fitness.tolist()
            total = sum(values)
        else:
            total = fitness.sum()
        if math.isfinite(total):
            return 0
        if values is None:
            values = fitness.tolist()
        return sum(map(self._has_failed, values))

    def in_any_order(self, ask: Callable[[int], Any]) -> Objective:
        """Return an objective that keeps all workers busy: it returns what is done first.

        It draws the candidates itself, by ``ask(1)``. While the last ones of a generation are
        evaluated, free workers begin with others, which count for a later generation.

        Raises:
            ValueError: If the number of workers is not known.
        """
        pool = self._pool
        if self.workers == 1 and pool is None:
            # One worker finishes candidates in order.
            return self
        if not self.workers or pool is None:
            raise ValueError(
                "expected workers, or an Executor that says how many, for asynchronous=True"
            )
        # It tells the candidates of this search from those of one before a restart.
        owner = object()

        def evaluate(population: Any, generation: int) -> Evaluation:
            """Return the first candidates that are done, in place of a population."""
            size = len(population)
            candidates, values = self._read_journal(population, generation)
            while len(values) < size:
                self._keep_busy(pool, ask, owner, generation)
                for key, value in pool.take_completed(size - len(values)):
                    candidate, asked_by = self._running.pop(key)
                    fitness = self._count(candidate, value)
                    self._remember([candidate.tolist()], [fitness])
                    if asked_by is not owner:
                        continue
                    if self._journal is not None:
                        self._journal.write(generation, len(values), candidate, value)
                    candidates.append(candidate)
                    values.append(fitness)
                if len(values) < size:
                    self._stop.check()
            is_tensor = isinstance(population, Tensor)
            evaluated: Any = torch.stack(candidates) if is_tensor else np.stack(candidates)
            return Evaluation(torch.tensor(values, dtype=torch.float64), candidates=evaluated)

        return evaluate

    def _read_journal(self, population: Any, generation: int) -> tuple[list[Any], list[float]]:
        """Return the candidates of a generation that the journal has, and their fitness.

        They have the type of ``population``, and are those that were done first.
        """
        candidates: list[Any] = []
        values: list[float] = []
        known = {} if self._journal is None else self._journal.known
        while (generation, len(values)) in known:
            x, value = known[generation, len(values)]
            candidate = _row_like(population, x)
            candidates.append(candidate)
            values.append(self._count(candidate, value, is_known=True))
            self._remember([x], values[-1:])
        return candidates, values

    def _keep_busy(
        self, pool: Pool, ask: Callable[[int], Any], owner: object, generation: int
    ) -> None:
        """Draw candidates by ``ask(1)`` and submit them until all workers have one."""
        while len(self._running) < self.workers:
            candidate = ask(1)[0]
            if self._journal is not None and self._journal.take(candidate):
                # It was evaluated before the search was interrupted.
                continue
            key = next(self._numbers)
            row, device = _on_host(candidate)
            self._running[key] = candidate, owner
            pool.submit(key, generation, device, (key, row))

    def _evaluate_one_by_one(
        self, candidates: Any, generation: int, first_index: int
    ) -> Evaluation:
        """Return the fitness of a population, shape (N, dim), by a function of one candidate.

        Candidates that the journal has from before an interruption are not evaluated again.
        """
        rows, device = _on_host(candidates)
        journal = self._journal
        known: Any = {} if journal is None else journal.known
        fitness = np.full(len(rows), math.nan)
        done: list[int] = []
        unknown = []  # pairs of index and row
        for index, row in enumerate(rows):
            x, value = known.get((generation, first_index + index), (None, None))
            if x is not None and x == row.tolist():
                fitness[index] = self._count(candidates[index], value, is_known=True)
                done.append(index)
            else:
                unknown.append((index, row))
        try:
            for index, value in self._iterate(unknown, generation, device):
                if journal is not None:
                    journal.write(generation, first_index + index, rows[index], value)
                fitness[index] = self._count(candidates[index], value)
                done.append(index)
        finally:
            self._remember(rows[done], fitness[done])
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

    def _remember(self, candidates: Any, fitness: Any) -> None:
        """Add evaluations to those that are remembered, unless they become too many."""
        if self.remembered is None or not len(fitness):
            return
        self.remembered.append((np.asarray(candidates), np.asarray(fitness)))
        if self.evaluations * len(candidates[0]) > _MOST_NUMBERS:
            self.remembered = None

    def _has_failed(self, value: float | None) -> bool:
        """Return whether a fitness is None, NaN or the infinity on the bad side."""
        return value is None or not self._sign * value > -math.inf

    def _iterate(
        self, items: Sequence[tuple[int, Any]], generation: int, device: torch.device | None
    ) -> Iterator[tuple[int, float | None]]:
        """Evaluate candidates; yield the index and fitness of each, None if it failed.

        ``items`` are pairs of an index and an array of shape (dim,); the function gets tensors
        on ``device``, or arrays if that is None. A pool yields them in the order in which they
        are done.
        """
        if self._pool is not None:
            yield from self._iterate_pool(self._pool, items, generation, device)
            return
        values = self._map(partial(self._evaluate, generation, device), items)
        # A map that returns an iterator evaluates while it is read, and can be left between.
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
        """Evaluate the items of ``_iterate`` by a pool, which is closed if this ends early."""
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
