"""Evaluation of a population by a user's function: at once, one by one, or by workers."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import as_real, mixes_rows
from cem.core.evaluation import Evaluation, Objective, as_evaluation, copy_of
from cem.core.state import MEAN
from cem.optimizer import CrossEntropyMethod
from cem.run import remote
from cem.run.candidate import Candidate, Failure, Fate
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

CHECK = 2
"""The number of evaluations that ``Evaluator.check_rows`` may need."""

_OUTSIDE = -1  # in the journal, the generation of candidates from before a restart
_FEW = 100  # up to this many values Python adds up faster than torch
MOST_NUMBERS = 10_000_000  # the most numbers that are remembered, of 8 bytes each
_MOST_FAILED = 1_000  # the limit of ``failed``
_HINT = "a function of one candidate needs vectorize=True or vectorize='loop'"


class PopulationError(Exception):
    """The first call of an objective failed; the objective may take single candidates only."""


@dataclass(eq=False)
class WithArguments:
    """A function that takes further arguments after those of an objective."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, *candidate: Any) -> Any:
        """Call the function."""
        return self.function(*candidate, *self.arguments)


class Evaluator:
    """An ``Objective`` that evaluates a population, a tensor or array, by a user's function.

    The options are those of ``minimize``. A stop request can interrupt the evaluation between
    two candidates, except if ``workers`` is a function like ``map`` that returns a list.

    Attributes:
        failures: The number of candidates that failed: by an exception, a timeout, a worker
            that died, NaN, or the infinity on the bad side. The values of a population on a GPU
            are not counted, because nothing waits for the GPU.
        failed: The last of the candidates that were evaluated one by one, and for which an
            exception was caught, a worker died, or time ran out.
        evaluations: The number of candidates evaluated. Failed and abandoned candidates and
            those of an interrupted generation are included.
        is_spent: Whether an asynchronous search has ended because the budget is spent.
        best: The fittest candidate and its fitness. None before the first candidate, and if the
            function takes populations.
        checks_first: Whether the first call does what ``check_rows`` does.
        workers: The number of candidates evaluated in parallel; 0 if it is unknown.
        remembered: The candidates evaluated one by one, arrays of shape (dim,), and their
            fitness, NaN if a candidate failed, in the order in which their evaluations ended.
            None: they would have more than ten million numbers.
    """

    def __init__(  # noqa: PLR0913 - the options of ``minimize`` about evaluation
        self,
        function: Callable[..., Any],
        *,
        maximize: bool,
        vectorize: bool | str | None = False,
        with_generation: bool = False,
        workers: Workers | None = None,
        running: int | None = None,
        budget: float = math.inf,
        retries: int = 1,
        drain_s: float = 0.0,
        timeout_s: float | None = None,
        catch: type[BaseException] | tuple[type[BaseException], ...] = (),
        stop: StopRequest | None = None,
        checks_first: bool = False,
        constraints: Any = None,
    ) -> None:
        """Choose how ``function`` is called. Processes start with their first candidate.

        Args:
            function: The objective. It takes a population, shape (N, dim), or with
                ``vectorize`` or ``workers`` one candidate, shape (dim,).
            maximize: Whether a greater fitness is better.
            vectorize: True: ``torch.func.vmap`` vectorises the function. "loop": the function
                is called for each candidate. None: it takes a population, unless its first call
                raises PopulationError.
            with_generation: Whether the function also takes the number of the generation.
            workers: The number of processes (-1: one per core), an engine of
                ``cem.run.engines``, or a function like ``map``.
            running: The number of candidates that run in parallel. None: the engine's number.
            budget: The maximum number of candidates that an asynchronous search evaluates.
            retries: How many times a candidate is evaluated again after its worker has died.
            drain_s: How many seconds to wait at the end, or after a stop request, for the
                candidates that still run.
            timeout_s: A candidate fails after this time, in seconds; only with processes.
            catch: The exceptions that mean that a candidate failed.
            stop: A stop request. None: nothing will stop the evaluation.
            checks_first: The attribute.
            constraints: The ``Constraints`` of the search, or None. Those of one candidate are
                evaluated where a function of one candidate is, directly after it.
        """
        if vectorize not in (None, False, True, "loop"):
            raise ValueError(f"expected False, True or 'loop' for vectorize, got {vectorize!r}")
        if timeout_s is not None and not isinstance(workers, int):
            raise ValueError(
                "expected a number of workers for timeout_s: only a process can be killed"
            )
        self._catch = catch if isinstance(catch, tuple) else (catch,)
        if not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in self._catch
        ):
            # Otherwise the first failure would show it, perhaps after hours.
            raise TypeError(f"expected exceptions, a type or a tuple, for catch, got {catch!r}")
        self.failures = 0
        self.failed: deque[Failure] = deque(maxlen=_MOST_FAILED)
        self.evaluations = 0
        self.best: tuple[Any, float] | None = None
        self.remembered: list[tuple[Any, float]] | None = []
        # Fitness times this sign is maximised.
        self._sign = 1.0 if maximize else -1.0
        self._stop = StopRequest() if stop is None else stop
        self._arity = 2 if with_generation else 1
        # If it is None, the first call decides whether populations are taken.
        self._vectorize = vectorize
        self.checks_first = checks_first
        self._population_function = function
        if vectorize is True:
            # vmap maps over the first dimension of the candidates, but not over the generation.
            in_dims = (0, None)[: self._arity]
            self._population_function = torch.func.vmap(
                function, in_dims, randomness="different"
            )
        self._constraints = constraints
        of_one = constraints.of_one if constraints else []
        self._objective_of_one = (function, self._arity, self._catch, *of_one)
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
        self._stopped_at: float | None = None  # the time at which a stop was noticed
        self.is_spent = False
        # Populations of these types are evaluated one candidate at a time.
        self._looped_types: tuple[type, ...] = ()
        if vectorize == "loop" or workers is not None:
            self._looped_types = (Tensor, np.ndarray)
        elif vectorize:
            # vmap does not accept arrays.
            self._looped_types = (np.ndarray,)
        # For ``in_any_order``: the search that draws candidates, and their numbers.
        self._owner: object = None
        self._numbers = count()
        self._journal: Journal | None = None

    def _set_workers(self, workers: Workers, timeout_s: float | None, retries: int) -> None:
        """Choose what evaluates single candidates.

        There are three cases:

        - ``workers`` is a function like ``map``: replace ``_map``, the built-in ``map``, and
          ``_task``, the function that ``_map`` applies to candidates;
        - ``workers`` is 1, without a timeout: this process evaluates them by ``_map``;
        - otherwise, ``_pool`` evaluates them, by an engine or by processes of this machine.

        Also set the attribute ``workers``, the number of candidates evaluated in parallel. It
        remains 0 in the first case, and if the engine does not know the number. The arguments
        are those of ``__init__``.
        """
        engine = connect(workers)
        if engine is None and callable(workers):
            # The function may use other processes. They need not import this package, because
            # the task contains the source of ``remote.evaluate``.
            self._task = make_task(self._objective_of_one)
            self._map = workers
            return
        if engine is None:
            num_processes = workers
            if workers == -1:
                num_processes = usable_cores()
            num_processes = check_integer("workers", num_processes, 1)
            # A timeout needs another process, because only a process can be killed.
            if num_processes == 1 and timeout_s is None:
                self.workers = 1
                return
            processes = LocalProcesses(self._objective_of_one, num_processes, timeout_s)
            engine = Engine(processes.submit, num_processes, processes.close)
        self.workers = engine.workers
        self._pool = Pool(self._objective_of_one, engine, retries)

    def open_journal(
        self, path: Path, search: Mapping[str, Any], generation: int = 0
    ) -> Journal | None:
        """Append evaluated candidates to a file, and reuse the evaluations that are in it.

        The candidates in the file count as evaluated, except abandoned ones. A function of
        populations has no journal: its checkpoints already contain complete generations.

        Args:
            path: The file.
            search: The content of the first line, which identifies the search.
            generation: The number of generations that are in a checkpoint.
        """
        self._close_journal()
        if self._looped_types:
            journal = self._journal = Journal(path, search, generation)
            self.evaluations += len(journal.fitness)
            self.failures += sum(map(self._has_failed, journal.fitness.tolist()))
        return self._journal

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def restore(self, evaluated: Sequence[tuple[Any, float]], like: Any) -> None:
        """Remember the candidates of a journal, and find the best of them.

        They already count as evaluated.

        Args:
            evaluated: The candidates, arrays of shape (dim,), and their fitness.
            like: A candidate of the search; ``best`` gets its type and dtype.
        """
        for row, fitness in evaluated:
            self._count(_row_like(like, row), row, fitness, is_known=True)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
        self._close_journal()

    def __call__(self, candidates: Any, generation: Any, first_index: int = 0) -> Evaluation:
        """Return the fitness of a population, and count evaluations and failures.

        The objective takes the whole population or, with workers or ``vectorize="loop"``, a
        single candidate. If an objective of populations raises one of the exceptions
        ``catch``, the whole population has failed: every fitness is NaN.

        Args:
            candidates: The population, shape (N, dim).
            generation: The number of the generation.
            first_index: If a generation is evaluated in parts, the number of candidates in the
                parts before this one.

        Raises:
            Interrupted: If a stop is due.
            ValueError: If the function does not return N numbers.
            PopulationError: If ``vectorize`` is None, and the first call of the function raises
                an error or returns no row for each candidate.
        """
        if isinstance(candidates, self._looped_types):
            return self._evaluate_one_by_one(candidates, int(generation), first_index)
        size, dim = candidates.shape  # this is faster than len(candidates)
        if size == dim > 1 and self._may_take_one:
            # A function of one candidate could take the population for one, and return a number
            # for each of its columns. With one candidate less that is seen.
            return self._evaluate_in_parts([candidates[:-1], candidates[-1:]], generation)
        is_checked = self.checks_first and self._may_take_one
        # The function may change its argument.
        first_row = copy_of(candidates[:1]) if is_checked else None
        evaluation = self._call_function(candidates, generation)
        fitness = evaluation.fitness
        self._check_shape(fitness, size)
        if first_row is not None:
            self.check_rows(first_row, generation, fitness)
        self.evaluations += size
        # Failures on a GPU are not counted: reading the values would wait for the GPU.
        if not getattr(fitness, "is_cuda", False):
            self.failures += self._count_failures(fitness, size)
        return evaluation

    @property
    def _may_take_one(self) -> bool:
        """Whether the function may take one candidate: its first call has not ended yet."""
        return self._vectorize is None and not self.evaluations

    def _evaluate_in_parts(self, parts: Sequence[Any], generation: Any) -> Evaluation:
        """Evaluate a population in several calls, one for each part."""
        evaluations = []
        for part in parts:
            evaluation = self(part, generation)
            # The function may return the same memory in every call.
            fitness = as_real("fitness", evaluation.fitness).clone()
            evaluations.append(replace(evaluation, fitness=fitness))
        joined = replace(evaluations[-1], fitness=torch.cat([e.fitness for e in evaluations]))
        if joined.candidates is not None:
            candidates = [as_real("candidates", e.candidates) for e in evaluations]
            joined = replace(joined, candidates=torch.cat(candidates))
        return joined

    def check_rows(self, candidates: Any, generation: Any, fitness: Any) -> None:
        """Raise PopulationError if the function mixes candidates, and may take one.

        A function of one candidate may return N numbers for a population, but they are wrong:
        ``x @ w + x.sum()`` adds the sum of all candidates to each. So the first candidate is
        evaluated alone. If its fitness differs, it is evaluated alone once more: with noise, it
        changes again. These evaluations are not counted.

        Args:
            candidates: The population, shape (N, dim).
            generation: The number of the generation.
            fitness: Its fitness, shape (N,).
        """
        if self._vectorize is not None or getattr(fitness, "is_cuda", False):
            return  # On a GPU, comparing numbers would wait for it.
        together = as_real("fitness", fitness).clone()

        def evaluate_first() -> Tensor:
            evaluation = self._call_function(copy_of(candidates[:1]), generation)
            self._check_shape(evaluation.fitness, 1)
            return as_real("fitness", evaluation.fitness)

        if mixes_rows(together, evaluate_first):
            raise PopulationError(f"the fitness of a candidate depends on the others: {_HINT}")

    def _call_function(self, candidates: Any, generation: Any) -> Evaluation:
        """Call the function of populations, and return its evaluation.

        If it raises one of the exceptions ``catch``, every candidate has failed. The function
        takes one or two arguments: candidates, shape (N, dim), and the generation.
        """
        arguments = (candidates, generation)[: self._arity]
        try:
            return as_evaluation(self._population_function(*arguments))
        except Interrupted:
            # A stop of the run is not a failure, even if ``catch`` includes Interrupted.
            raise
        except Exception as error:
            if self._may_take_one:
                # Perhaps the function takes one candidate, even if ``catch`` has the error.
                self._add_hint(error, candidates)
                raise PopulationError(*error.args) from error
            if isinstance(error, self._catch):
                # Multiplying a column by NaN returns N numbers NaN of its dtype and device.
                return Evaluation(candidates[:, 0] * math.nan)
            self._add_hint(error, candidates)
            raise

    def _check_shape(self, fitness: Any, size: int) -> None:
        """Raise an error if a function of populations did not return ``size`` numbers."""
        shape = fitness.shape if hasattr(fitness, "shape") else np.shape(fitness)
        if shape == (size,):
            return
        hint = "one number for each candidate" if self._vectorize is True else _HINT
        message = f"expected fitness of shape ({size},), got {tuple(shape)}: {hint}"
        has_rows = tuple(shape[:1]) == (size,)
        if self._may_take_one and not has_rows:
            raise PopulationError(message)
        raise ValueError(message)

    def _add_hint(self, error: Exception, candidates: Any) -> None:
        """Add a note to an exception of the function: which option may be missing."""
        if self._vectorize is True:
            add_note(error, "What torch.func.vmap does not take needs vectorize='loop'.")
        elif not self.evaluations:
            kind = "a tensor" if isinstance(candidates, Tensor) else "an array"
            shape = tuple(candidates.shape)
            add_note(error, f"The function got a population, {kind} of shape {shape}: {_HINT}.")

    def _count_failures(self, fitness: Any, size: int) -> int:
        """Count the fitness values that mean a failure: NaN, and the worse infinity.

        ``fitness`` is a list, array or tensor of ``size`` numbers.
        """
        # If the sum is finite, every value is finite, so that none means a failure. Computing
        # the sum is faster than testing each value. Python adds up a few numbers faster than
        # torch, and torch many numbers.
        if hasattr(fitness, "tolist"):
            if size > _FEW and math.isfinite(fitness.sum()):
                return 0
            fitness = fitness.tolist()
        if math.isfinite(sum(fitness)):
            return 0
        return sum(map(self._has_failed, fitness))

    def in_any_order(self, optimizer: CrossEntropyMethod) -> Objective:
        """Return an objective for an asynchronous search, which keeps all workers busy.

        In place of the N candidates of a population, the objective returns the N candidates
        whose evaluations end first. While the last candidates of a generation are evaluated,
        free workers start further candidates, which count for a later generation.

        Args:
            optimizer: The search, which draws the candidates.

        Raises:
            ValueError: If the number of workers is unknown.
        """
        pool = self._pool
        if self.workers == 1 and pool is None:
            # A single worker finishes the candidates in order.
            return self
        if not self.workers or pool is None:
            raise ValueError(
                "expected workers, or an engine and how many are running=, for "
                "asynchronous=True"
            )
        # After a restart the pool still evaluates candidates of the previous search. The owner
        # of a candidate shows which search drew it.
        self._owner = object()

        def evaluate(population: Any, generation: int) -> Evaluation:
            """Return the candidates whose evaluations end first, in place of a population.

            Only the size, type and dtype of ``population`` count.
            """
            size = len(population)
            mean = optimizer.state.distribution[MEAN]
            # Begin with the evaluations of this generation from before an interruption.
            arrived = self._read_journal(population, generation, mean)
            while len(arrived) < size:
                self._keep_busy(pool, optimizer, generation)
                # Wait for a short time, and take the candidates of this search that are ready.
                arrived += self._take_own(pool, generation, size - len(arrived))
                if len(arrived) < size:
                    self._stop.check()
            return self._join(arrived, mean)

        return evaluate

    def drain(self) -> None:
        """Wait at most ``drain_s`` for the candidates that still run, and record all of them.

        Candidates that still run after it are abandoned.
        """
        pool = self._pool
        if pool is None:
            return
        deadline = time.monotonic() + self._drain_s
        while pool.count and time.monotonic() < deadline:
            self._record(pool.take_settled(pool.count))
        self._record(pool.abandon())

    def _read_journal(self, population: Any, generation: int, mean: Tensor) -> list[Candidate]:
        """Return the candidates of a generation that are in the journal.

        If they are more than a population, only the candidates whose evaluations ended first
        are returned.

        Args:
            population: Candidates of the same size, type and dtype.
            generation: The number of the generation.
            mean: The present mean. It stands in for the mean of the distribution from which a
                candidate was drawn, which the journal does not contain.
        """
        if self._journal is None:
            return []
        known = []
        for row, fitness in self._journal.known[generation]:
            x = _row_like(population, row)
            self._count(x, row, fitness, is_known=True)
            # It is not evaluated again, so it needs no number.
            known.append(Candidate(-1, generation, x, row, None, origin=mean, fitness=fitness))
        return known[: len(population)]

    def _take_own(self, pool: Pool, generation: int, most: int) -> list[Candidate]:
        """Wait for candidates in the pool, record them, and return the ones of this search.

        Raises:
            Interrupted: If the pool is empty, because the budget is spent.
        """
        if not pool.count:
            self.is_spent = True
            raise Interrupted("the budget is spent")
        settled = pool.take_settled(most)
        self._record(settled, generation)
        return [candidate for candidate in settled if candidate.owner is self._owner]

    def _join(self, candidates: Sequence[Candidate], mean: Tensor) -> Evaluation:
        """Return the evaluation of the population that consists of these candidates.

        Its lag is how far the mean, shape (d,), has moved since a candidate was drawn, on
        average. The lag of a failed candidate counts as 0: if all fail, the mean must not move.
        """
        x = [candidate.x for candidate in candidates]
        population: Any = torch.stack(x) if isinstance(x[0], Tensor) else np.stack(x)
        origins = [
            mean if self._has_failed(candidate.fitness) else candidate.origin
            for candidate in candidates
        ]
        lag = (mean - torch.stack(origins)).mean(0)
        fitness = [candidate.fitness for candidate in candidates]
        return Evaluation(
            torch.tensor(fitness, dtype=torch.float64), candidates=population, lag=lag
        )

    def _keep_busy(self, pool: Pool, optimizer: CrossEntropyMethod, generation: int) -> None:
        """Draw and submit candidates until every worker has one or the budget is spent.

        Args:
            pool: The pool that evaluates the candidates.
            optimizer: The search, which draws the candidates.
            generation: The number of the current generation.

        Raises:
            Interrupted: If a stop is due.
        """
        while True:
            # The candidates in the pool are not counted as evaluations yet, but will be.
            budget_left = self._budget - self.evaluations - pool.count
            num_missing = int(min(self.workers - pool.count, budget_left))
            if num_missing <= 0:
                return
            candidates = optimizer.ask(num_missing)
            # Workers get the rows of an array; ``device`` is that of the original tensor.
            rows, device = on_host(candidates)
            for x, row in zip(candidates, rows, strict=True):
                self._stop.check()
                if self._journal is not None and self._journal.take(row) is not None:
                    # The candidate was evaluated before an interruption, so do not submit it.
                    # The next pass of ``while`` draws another one in its place.
                    continue
                number = next(self._numbers)
                origin = optimizer.state.distribution[MEAN]
                candidate = Candidate(number, generation, x, row, device, self._owner, origin)
                pool.submit(candidate)

    def _evaluate_one_by_one(
        self, candidates: Any, generation: int, first_index: int
    ) -> Evaluation:
        """Return the fitness of a population by a function of one candidate.

        Candidates that were evaluated before an interruption are in the journal, and are not
        evaluated again. The arguments are those of ``__call__``.
        """
        # The function gets rows of an array, or with a device tensors on that device.
        rows, device = on_host(candidates)
        fitness = np.full(len(rows), math.nan)
        # The candidates that are not in the journal.
        unknown = []
        for index, (x, row) in enumerate(zip(candidates, rows, strict=True)):
            known = None if self._journal is None else self._journal.take(row)
            if known is None:
                candidate = Candidate(index, generation, x, row, device, owner=self._owner)
                unknown.append(candidate)
            else:
                value, constraints = known
                self._count(x, row, value, is_known=True)
                fitness[index] = value
                if self._constraints:
                    self._constraints.remember(row, constraints)
        for settled in self._iterate(unknown):
            self._record(settled, generation, first_index)
            for candidate in settled:
                fitness[candidate.number] = candidate.fitness
        if device is None:
            return Evaluation(fitness)  # type: ignore[arg-type]
        # On the CPU, where the fitness is: the trainer then knows that it waits for it.
        return Evaluation(torch.from_numpy(fitness))

    def _record(
        self, settled: Sequence[Candidate], generation: int | None = None, first_index: int = 0
    ) -> None:
        """Count candidates that have an outcome, and write them to the journal.

        Args:
            settled: The candidates.
            generation: The generation for which they count. None: the one in which each was
                drawn.
            first_index: If a generation is evaluated in parts, the number of candidates in the
                parts before this one.

        Raises:
            Exception: The error of the first candidate that has one. It is raised after all
                candidates without an error are recorded, and ends the search.
        """
        for candidate in settled:
            if candidate.error is not None:
                continue
            number = first_index + candidate.number
            if self._constraints:
                candidate.constraints = self._constraints.remember(
                    candidate.row, candidate.constraints
                )
            self._write_journal(candidate, number, generation)
            if candidate.fate is Fate.ABANDONED:
                # An abandoned candidate has no fitness, but it counts against the budget.
                self.evaluations += 1
                continue
            self._count(candidate.x, candidate.row, candidate.fitness)
            if candidate.fate is not Fate.DONE:
                self.failed.append(candidate.describe_failure(number))
        for candidate in settled:
            if candidate.error is not None:
                raise candidate.error

    def _write_journal(self, candidate: Candidate, number: int, generation: int | None) -> None:
        """Write a candidate to the journal, if there is one; ``_record`` has the arguments."""
        if self._journal is None:
            return
        if candidate.owner is not self._owner:
            # The candidate was drawn before a restart, so it belongs to no generation of the
            # present search.
            generation = _OUTSIDE
        elif generation is None:
            generation = candidate.generation
        self._journal.write(generation, number, candidate)

    def _count(self, x: Any, row: Any, fitness: float, *, is_known: bool = False) -> None:
        """Count a candidate's evaluation, remember it, and compare it with the best.

        Args:
            x: The candidate, in the type of the population.
            row: The candidate as an array.
            fitness: Its fitness.
            is_known: Whether the journal has it, so that it is counted already.
        """
        self._remember(row, fitness)
        if not is_known:
            self.evaluations += 1
        if self._has_failed(fitness):
            self.failures += not is_known
        elif self.best is None or self._sign * fitness > self._sign * self.best[1]:
            self.best = x, fitness

    def _remember(self, row: Any, fitness: float) -> None:
        """Add a candidate to ``remembered``, which is given up when it becomes too large."""
        if self.remembered is None:
            return
        self.remembered.append((row, fitness))
        if len(self.remembered) * len(row) > MOST_NUMBERS:
            self.remembered = None

    def _has_failed(self, fitness: float) -> bool:
        """Return whether a fitness is NaN or the infinity on the bad side."""
        # Any comparison with NaN is False.
        return not self._sign * fitness > -math.inf

    def _iterate(self, candidates: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
        """Evaluate candidates, and yield groups of them as soon as they have an outcome.

        A pool yields them in the order in which their evaluations end. Otherwise, each group is
        one candidate, and they keep their order.
        """
        if self._pool is not None:
            yield from self._iterate_pool(self._pool, candidates)
            return
        # ``_map`` is Python's ``map`` or a function like it. The answer about a candidate is a
        # tuple, such as ("DONE", fitness).
        answers = self._map(self._task, [candidate.item for candidate in candidates])
        # If the map returns an iterator, a candidate is evaluated when its answer is read. Then
        # the evaluation can be stopped between two candidates.
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
        """Evaluate candidates by a pool, and yield groups of them as soon as they are done.

        If the loop ends early, by an exception or because the caller stops iterating, the pool
        is closed.
        """
        num_unsettled = len(candidates)
        try:
            for candidate in candidates:
                self._stop.check()
                pool.submit(candidate)
            while num_unsettled:
                settled = pool.take_settled(num_unsettled)
                num_unsettled -= len(settled)
                yield settled
                if num_unsettled:
                    self._check_stop()
        finally:
            if num_unsettled:
                pool.close()

    def _check_stop(self) -> None:
        """Raise Interrupted if a stop has been due for ``drain_s`` seconds."""
        if not self._stop.own_reason[0]:
            return
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        if time.monotonic() - self._stopped_at >= self._drain_s:
            self._stop.check()


def _row_like(population: Any, values: Sequence[float]) -> Any:
    """Return a candidate's values with the type, dtype and device of a population."""
    if isinstance(population, Tensor):
        return population.new_tensor(values)
    return np.array(values, dtype=population.dtype)


def on_host(candidates: Any) -> tuple[Any, torch.device | None]:
    """Return candidates as an array, which must not be modified, and the device of a tensor.

    For an array the device is None.
    """
    if isinstance(candidates, Tensor):
        return candidates.detach().cpu().numpy(), candidates.device
    return candidates, None
