"""The fitness of a population by a user's function: at once, by candidate, or by workers."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.evaluation import Evaluation, Objective, as_evaluation
from cem.run import remote
from cem.run.candidate import Candidate, Fate
from cem.run.engines import Engine, connect
from cem.run.journal import Journal
from cem.run.remote import add_note
from cem.run.stopping import Interrupted, StopRequest
from cem.run.workers import LocalProcesses, Pool, make_task
from kernels.support.checks import check_integer
from kernels.support.system import usable_cores

Workers = Any
"""A number of processes, the name of an engine or an object of its library, an ``Executor``, or
a function like ``map``; see ``cem.run.engines``."""

_OUTSIDE = -1  # the generation of candidates that belong to a search before a restart
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
        evaluations: The candidates evaluated, failed ones, abandoned ones and those of an
            interrupted generation included.
        is_spent: Whether an asynchronous search has ended because the budget is spent.
        best: The fittest of them and its fitness; None before the first, and for a function of
            populations.
        workers: The candidates evaluated side by side; 0 where that is not known.
        remembered: Candidates evaluated one by one, arrays of shape (dim,), and their fitness,
            NaN for one without a value, in the order in which they were done. None: they are
            more than ten million numbers.
    """

    def __init__(  # noqa: PLR0913 - the options of ``minimize`` about evaluation
        self,
        function: Callable[..., Any],
        *,
        maximize: bool,
        vectorize: bool | str = False,
        with_generation: bool = False,
        workers: Workers | None = None,
        running: int | None = None,
        budget: float = math.inf,
        retries: int = 1,
        drain_s: float = 0.0,
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
            workers: The number of processes, -1 for one on each core, an engine of
                ``cem.run.engines``, or a function like ``map``.
            running: The candidates that run side by side. None: as many as the engine says.
            budget: The most candidates that an asynchronous search begins to evaluate.
            retries: How many times a candidate is evaluated again after its worker was lost.
            drain_s: The seconds that ``drain`` waits.
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
        self.remembered: list[tuple[Any, float]] | None = []
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
        self._objective_of_one = (function, self._arity, self._catch)
        self._task: Callable[..., Any] = partial(remote.evaluate, self._objective_of_one)
        self._map: Callable[..., Any] = map
        self._pool: Pool | None = None
        self.workers = 0
        if workers is not None:
            self._set_workers(workers, timeout_s, retries)
        if running is not None:
            self.workers = check_integer("running", running, 1)
        self._budget = budget
        self._drain_s = drain_s
        self.is_spent = False
        # Populations of these types are evaluated candidate by candidate; vmap takes no arrays.
        self._looped_types: tuple[type, ...] = ()
        if vectorize == "loop" or workers is not None:
            self._looped_types = (Tensor, np.ndarray)
        elif vectorize:
            self._looped_types = (np.ndarray,)
        # For ``in_any_order``: the search that asks for candidates, which have numbers.
        self._owner: object = None
        self._numbers = count()
        self._journal: Journal | None = None

    def _set_workers(self, workers: Workers, timeout_s: float | None, retries: int) -> None:
        """Set what evaluates candidates, ``_pool`` or ``_map``, and the number of workers.

        The number is 0 where it is not known.
        """
        engine = connect(workers)
        if engine is None and callable(workers):
            self._task = make_task(self._objective_of_one)
            self._map = workers
            return
        if engine is None:
            number = usable_cores() if workers == -1 else check_integer("workers", workers, 1)
            # A single worker is this process, unless it may have to be killed.
            if number == 1 and timeout_s is None:
                self.workers = 1
                return
            processes = LocalProcesses(self._objective_of_one, number, timeout_s)
            engine = Engine(processes.submit, number, processes.close)
        self.workers = engine.workers
        self._pool = Pool(self._objective_of_one, engine, retries)

    def open_journal(
        self, path: Path | None, search: Mapping[str, Any], generation: int = 0
    ) -> Journal | None:
        """Append evaluated candidates to a file, and do not evaluate again those that it has.

        All of them but abandoned ones count as evaluated. A function of populations writes no
        file, because a checkpoint has all of its generation.

        Args:
            path: The file; None: no file is open any more.
            search: The first line, by which the search is recognised.
            generation: The number of generations that a checkpoint has.
        """
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if path is not None and self._looped_types:
            journal = self._journal = Journal(path, search, generation)
            self.evaluations += len(journal.fitness)
            self.failures += sum(map(self._has_failed, journal.fitness.tolist()))
        return self._journal

    def take_up(self, evaluated: Sequence[tuple[Any, float]], like: Any) -> None:
        """Compare and remember candidates of the journal, and their fitness.

        They count as evaluated already. ``like`` is a candidate of the search, whose type and
        dtype they get.
        """
        for row, fitness in evaluated:
            self._count(_row_like(like, row), row, fitness, is_known=True)

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
                "expected workers, or an engine and how many are running=, for "
                "asynchronous=True"
            )
        # It tells the candidates of this search from those of one before a restart.
        self._owner = owner = object()

        def evaluate(population: Any, generation: int) -> Evaluation:
            """Return the first candidates that are done, in place of a population."""
            size = len(population)
            candidates, values = self._read_journal(population, generation)
            while len(values) < size:
                self._keep_busy(pool, ask, generation)
                if not pool.count:
                    self.is_spent = True
                    raise Interrupted("the budget is spent")
                settled = pool.take_settled(size - len(values))
                self._record(settled, generation)
                for candidate in settled:
                    if candidate.owner is owner:
                        candidates.append(candidate.x)
                        values.append(candidate.fitness)
                if len(values) < size:
                    self._stop.check()
            is_tensor = isinstance(population, Tensor)
            evaluated: Any = torch.stack(candidates) if is_tensor else np.stack(candidates)
            return Evaluation(torch.tensor(values, dtype=torch.float64), candidates=evaluated)

        return evaluate

    def drain(self) -> None:
        """Wait for the candidates that still run, at most ``drain_s``, and record all of them.

        A stop that is due ends the wait. What has not ended then is abandoned.
        """
        pool = self._pool
        if pool is None:
            return
        deadline = time.monotonic() + self._drain_s
        while pool.count and time.monotonic() < deadline and not self._stop.own_reason[0]:
            self._record(pool.take_settled(pool.count))
        self._record(pool.abandon())

    def _read_journal(self, population: Any, generation: int) -> tuple[list[Any], list[float]]:
        """Return the candidates of a generation that the journal has, and their fitness.

        They have the type of ``population``, and are those that were done first.
        """
        known = [] if self._journal is None else self._journal.known[generation]
        candidates = [_row_like(population, x) for x, _ in known]
        values = [fitness for _, fitness in known]
        for candidate, (row, value) in zip(candidates, known, strict=True):
            self._count(candidate, row, value, is_known=True)
        return candidates[: len(population)], values[: len(population)]

    def _keep_busy(self, pool: Pool, ask: Callable[[int], Any], generation: int) -> None:
        """Draw candidates and submit them until all workers have one, or the budget is spent.

        Raises:
            Interrupted: If a stop is due.
        """
        while True:
            left = self._budget - self.evaluations - pool.count
            missing = int(min(self.workers - pool.count, left))
            if missing <= 0:
                return
            candidates = ask(missing)
            rows, device = _on_host(candidates)
            for x, row in zip(candidates, rows, strict=True):
                self._stop.check()
                if self._journal is not None and self._journal.take(row) is not None:
                    # It was evaluated before the search was interrupted.
                    continue
                number = next(self._numbers)
                pool.submit(Candidate(number, generation, x, row, device, self._owner))

    def _evaluate_one_by_one(
        self, candidates: Any, generation: int, first_index: int
    ) -> Evaluation:
        """Return the fitness of a population, shape (N, dim), by a function of one candidate.

        Candidates that the journal has from before an interruption are not evaluated again.
        """
        rows, device = _on_host(candidates)
        fitness = np.full(len(rows), math.nan)
        unknown = []
        for index, (x, row) in enumerate(zip(candidates, rows, strict=True)):
            value = None if self._journal is None else self._journal.take(row)
            if value is None:
                unknown.append(Candidate(index, generation, x, row, device, self._owner))
            else:
                self._count(x, row, value, is_known=True)
                fitness[index] = value
        for settled in self._iterate(unknown):
            self._record(settled, generation, first_index)
            for candidate in settled:
                fitness[candidate.number] = candidate.fitness
        if device is None:
            return Evaluation(fitness)  # type: ignore[arg-type]
        return Evaluation(torch.from_numpy(fitness).to(device))

    def _record(
        self, settled: Sequence[Candidate], generation: int | None = None, first_index: int = 0
    ) -> None:
        """Count candidates that have a fate, and write them to the journal.

        Args:
            settled: The candidates.
            generation: The generation that they count for. None: that in which each was drawn.
            first_index: The number of candidates of their generation before them.

        Raises:
            Exception: That of the first candidate that ends the search, after this.
        """
        for candidate in settled:
            if candidate.error is not None:
                continue
            if self._journal is not None:
                number = candidate.generation if generation is None else generation
                if candidate.owner is not self._owner:
                    number = _OUTSIDE
                self._journal.write(number, first_index + candidate.number, candidate)
            if candidate.fate is Fate.ABANDONED:
                self.evaluations += 1
            else:
                self._count(candidate.x, candidate.row, candidate.fitness)
        for candidate in settled:
            if candidate.error is not None:
                raise candidate.error

    def _count(self, x: Any, row: Any, fitness: float, *, is_known: bool = False) -> None:
        """Count an evaluation, unless it was known, compare it with the best, and remember it.

        ``row`` is the candidate ``x`` as an array.
        """
        self._remember(row, fitness)
        if not is_known:
            self.evaluations += 1
        if self._has_failed(fitness):
            self.failures += not is_known
        elif self.best is None or self._sign * fitness > self._sign * self.best[1]:
            self.best = x, fitness

    def _remember(self, row: Any, fitness: float) -> None:
        """Add a candidate, an array, to those that are remembered, unless they are too many."""
        if self.remembered is None:
            return
        self.remembered.append((row, fitness))
        if len(self.remembered) * len(row) > _MOST_NUMBERS:
            self.remembered = None

    def _has_failed(self, fitness: float) -> bool:
        """Return whether a fitness is NaN or the infinity on the bad side."""
        return not self._sign * fitness > -math.inf

    def _iterate(self, candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
        """Evaluate candidates; yield those that have a fate, until all of them have one.

        A pool yields them in the order in which they are done.
        """
        if self._pool is not None:
            yield from self._iterate_pool(self._pool, candidates)
            return
        answers = self._map(self._task, [candidate.item for candidate in candidates])
        # A map that returns an iterator evaluates while it is read, and can be left between.
        is_lazy = not isinstance(answers, Sequence)
        iterator = iter(answers)
        for candidate in candidates:
            if is_lazy:
                self._stop.check()
            candidate.settle_by(*next(iterator))
            yield (candidate,)

    def _iterate_pool(
        self, pool: Pool, candidates: Sequence[Candidate]
    ) -> Iterator[Sequence[Candidate]]:
        """Evaluate candidates by a pool, which is closed if this ends early."""
        missing = len(candidates)
        try:
            for candidate in candidates:
                self._stop.check()
                pool.submit(candidate)
            while missing:
                settled = pool.take_settled(missing)
                missing -= len(settled)
                yield settled
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
