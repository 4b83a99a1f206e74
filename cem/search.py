"""``minimize`` and ``maximize``: a whole search in one call, with restarts, reasons to stop and a result."""

from __future__ import annotations

import json
import math
import random
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem import ranks
from cem._checks import as_real, check_real, outside
from cem.callbacks import Callback, GenerationRecord, MetricsWriter, ProgressBar, check_callbacks
from cem.checkpoint import Checkpointer
from cem.evaluation import Evaluation, Objective
from cem.optimizer import CrossEntropyMethod
from cem.sampling import mix_seed
from cem.stopping import Interrupted, StopRequest
from cem.termination import Termination, share_of, shift_of
from cem.trainer import Trainer
from kernels.support.checks import check_flags, check_integer

CHECKPOINT_SECONDS = 1.0
LARGEST_FULL = 200
"""The most parameters for which a full covariance is chosen."""
_LEAST_GENERATIONS = 20  # within a budget, of a population that is chosen
_TEXTBOOK = {"extra_variance", "noise", "smoothing", "std_smoothing", "variance_about", "relative_std_floor"}
_CONVERGED = ("std", "fitness_range")
_SAME = 1e-8  # of the range of fitness seen: two searches found the same
_FOLDER, _METRICS = "restart-{:03d}", "metrics.jsonl"
_RECORDED = tuple(
    name for name in GenerationRecord.__dataclass_fields__ if name not in ("metrics", "distribution")
)
_COLUMNS = ("evaluations", "best_fitness", "generation_best", "elite_mean", "std_mean", "population_size")


@dataclass(frozen=True)
class Result:
    """How a search ended.

    Attributes:
        x: The fittest candidate of all restarts, shape (dim,); an array where the mean was one. NaN where
            not one generation was made in time.
        fun: Its fitness.
        mean: The last mean of the restart that found it, averaged over generations as ``mean_averaging``
            says: the answer where the fitness is noisy.
        std: The last standard deviation of that restart, shape (dim,).
        reason: Why the last restart ended: a reason of ``cem.termination``, ``"budget"``, ``"time_limit"``,
            ``"signal"`` or ``"requested"``.
        evaluations: The candidates evaluated.
        restarts: The restarts made, 0 for a single search.
        settings: What was chosen, or given: ``covariance``, ``paths``, ``weights``, ``population_size`` (the
            first one), ``restarts`` (the most; None: those within the budget) and ``budget``.
        history: Lists of one entry a recorded generation: ``evaluations``, ``best_fitness`` of all restarts,
            ``generation_best``, ``elite_mean``, ``std_mean``, ``population_size``.
    """

    x: Any
    fun: float
    mean: Any
    std: Any
    reason: str
    evaluations: int
    restarts: int
    settings: dict[str, Any]
    history: dict[str, list[float]] = field(repr=False)


def minimize(objective: Callable[[Any], Any], mean: Any, std: Any, **options: Any) -> Result:
    """Search for the least value of a function.

    Examples:
        >>> import torch
        >>> from cem import minimize
        >>> f = lambda x: (x - 3.0).square().sum(-1)
        >>> result = minimize(f, torch.zeros(5), 1.0, budget=20_000, seed=1)
        >>> bool((result.x - 3.0).abs().max() < 1e-3)
        True

    With nothing else given it chooses what ``Result.settings`` says: a full covariance up to 200 parameters,
    a diagonal one above; evolution paths; 4 + 3 ln(dim) candidates, or fewer for twenty generations within a
    budget; restarts of two regimes. That is CMA-ES as of N. Hansen, The CMA Evolution Strategy: A
    Tutorial, arXiv:1604.00772, 2023, and R. Ros and N. Hansen, A Simple Modification in CMA-ES Achieving
    Linear Time and Space Complexity, PPSN 2008. Each part can be given instead. Who gives a part of the
    textbook's update (``extra_variance``, ``smoothing``, ``std_smoothing``, ``variance_about``,
    ``relative_std_floor`` or ``paths=False``), or a GPU, where a generation costs launches and not
    candidates, gets the textbook's: a diagonal, 10 dim candidates, no restarts.

    Args:
        objective: Maps candidates, shape (N, dim), to fitness, shape (N,): tensors, or arrays where ``mean``
            is one. With ``vectorize`` it maps one candidate, shape (dim,), to its fitness, shape ().
        mean: The first mean, shape (dim,).
        std: The first standard deviation, a number or shape (dim,).
        options: Those of ``search``, and of ``CrossEntropyMethod``.

    Raises:
        TypeError: As ``search``.
        ValueError: As ``search``.
    """
    return search(objective, mean, std, maximize=False, **options)


def maximize(objective: Callable[[Any], Any], mean: Any, std: Any, **options: Any) -> Result:
    """Search for the greatest value of a function; see ``minimize``."""
    return search(objective, mean, std, maximize=True, **options)


def search(
    objective: Callable[[Any], Any],
    mean: Any,
    std: Any,
    *,
    maximize: bool,
    budget: int | None = None,
    population_size: int | None = None,
    restarts: int | None = None,
    target: float | None = None,
    time_limit_s: float | None = None,
    vectorize: bool = False,
    with_generation: bool | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    checkpoint: str | Path | None = None,
    record_every: int = 1,
    graph: bool = False,
    distributed: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Result:
    """Search for the best value of a function.

    A search ends for a reason of ``cem.termination``, at the budget, at the time limit or on Ctrl-C; what is
    found by then is returned. A restart begins at the start again, in one of two regimes: with twice the
    population of the last such one, or with a small population and a smaller standard deviation, whichever
    has used fewer evaluations; see N. Hansen, Benchmarking a BI-population CMA-ES on the BBOB-2009 function
    testbed, GECCO 2009.

    Args:
        objective: As in ``minimize``.
        mean: The first mean, shape (dim,).
        std: The first standard deviation, a number or shape (dim,).
        maximize: True if a greater value is better.
        budget: The most evaluations; whole generations within it are made. None: 10,000 dim, and the search
            ends where two populations, one twice the other, have found the same.
        population_size: Candidates per generation; None: chosen, see ``minimize``.
        restarts: The most restarts, ``>= 0``; None: chosen, see ``minimize``.
        target: A value at which the search ends; None: none.
        time_limit_s: The most seconds; None: no limit.
        vectorize: Whether ``objective`` takes one candidate. ``torch.func.vmap`` makes it take a population,
            with other random numbers for each; it computes with tensors then, and takes no number out of
            one. With arrays it is called for each, and may return numbers.
        with_generation: Whether ``objective`` takes the number of the generation, an int from 0 in every
            restart, behind the candidates: for noise that is the same for all of a generation. None: where
            it has an attribute ``with_generation`` that is True.
        callbacks: A sequence of ``Callback``, called as by ``Trainer``; the generations are those of the
            current restart.
        progress: Whether to show a progress bar on stderr.
        checkpoint: A folder to save to and, where it holds this search, to resume from; None: no checkpoints.
        record_every: The generations from one test of the reasons, and entry of the history, to the next.
        graph: Whether generations run as a CUDA graph; needs ``device="cuda"`` and an objective of PyTorch
            operations.
        distributed: Whether the processes that ``torchrun`` started share the evaluation of each population,
            see ``cem.ranks``; every one of them makes this call, and gets the result of one process (with
            full covariance or paths, of one with as many threads). The objective has to give a candidate the
            same fitness in any population.
        seed: The seed of all restarts. None: that of the search that is resumed, or else one that torch's
            global generator draws.
        options: Others of ``CrossEntropyMethod``: ``bounds``, ``covariance``, ``paths``, ``device``, ...

    Raises:
        CheckpointError: If ``checkpoint`` holds another search.
        RanksError: If another rank has gone.
        TypeError: If an argument has the wrong type.
        ValueError: If one is out of range, or every candidate of a generation has failed.
    """
    if not callable(objective):
        raise TypeError(f"expected a function for objective, got {type(objective).__name__}")
    check_flags(vectorize=vectorize, progress=progress, graph=graph, distributed=distributed)
    callbacks = check_callbacks(callbacks)
    target = None if target is None else check_real("target", target)
    first_mean = as_real("mean", mean)
    if first_mean.dim() != 1 or len(first_mean) == 0:
        raise ValueError(f"expected mean of shape (dim,), dim >= 1, got {tuple(first_mean.shape)}")
    dim = len(first_mean)
    textbook = graph or "cuda" in str(options.get("device")) or not _TEXTBOOK.isdisjoint(options)
    paths = options.get("paths", not textbook)
    if paths:
        diagonal = dim > LARGEST_FULL
        options = {"covariance": "diagonal" if diagonal else "full", "paths": True} | options
    if population_size is None:
        population_size = 4 + int(3 * math.log(dim)) if paths else 10 * dim
        if paths and budget is not None:
            population_size = max(4, min(population_size, budget // _LEAST_GENERATIONS))
    if restarts is not None:
        restarts = check_integer("restarts", restarts, 0)
    elif not paths:
        restarts = 0
    first = check_integer("population_size", population_size, 2)
    most = left = check_integer("budget", 10_000 * dim if budget is None else budget, first)
    history = _History(maximize, target)
    best: CrossEntropyMethod | None = None
    if with_generation is None:
        with_generation = getattr(objective, "with_generation", False) is True
    evaluate = _population_objective(objective, vectorize, with_generation)
    regimes = _Regimes(first)
    with ExitStack() as stack:
        own_stop = stop = stack.enter_context(StopRequest())
        if distributed:
            stack.enter_context(ranks.joined())
        if ranks.count() > 1:
            if graph:
                raise ValueError("expected graph=False of a search that ranks share, got True")
            if first < ranks.count():
                raise ValueError(f"expected a candidate for each of {ranks.count()} ranks, got {first}")
            stop = agreed = ranks.StopConsensus(own_stop)
            evaluate = ranks.shared(evaluate, agreed)
        if time_limit_s is not None:
            stop.deadline = time.monotonic() + check_real("time_limit_s", time_limit_s, 0.0)
        for restart in range(sys.maxsize if restarts is None else restarts + 1):
            size, scale, cap = regimes.next(seed) if restart else (first, 1.0, None)
            if left < size:
                break
            optimizer = CrossEntropyMethod(
                mean,
                std if scale == 1.0 else as_real("std", std) * scale,
                size,
                maximize=maximize,
                seed=seed if seed is None or restart == 0 else mix_seed(seed, restart),
                **options,
            )
            folder = None if checkpoint is None else Path(checkpoint) / _FOLDER.format(restart)
            metrics = None if folder is None else MetricsWriter(folder / _METRICS, distribution=True)
            watch = _Watch(optimizer, history)
            trainer = Trainer(
                optimizer,
                _with_mean(evaluate, mean) if paths and not (restart or graph) else evaluate,
                generations=max(1, min(cap or left, left) // size),
                callbacks=[
                    *([] if metrics is None else [metrics]),
                    watch,
                    *([ProgressBar()] if progress else []),
                    *callbacks,
                    halt := _Halt(watch),
                ],
                checkpointer=None
                if folder is None
                else Checkpointer(
                    folder,
                    fingerprint={
                        "restart": restart,
                        "population_size": size,
                        "mean": first_mean.to(optimizer.dtype).tolist(),
                        "std": optimizer.std.tolist(),
                    },
                    interval_s=CHECKPOINT_SECONDS,
                ),
                stop=stop,
                record_every=record_every,
                graph=graph,
            )
            if folder is not None and metrics is not None:
                lines, state = ranks.broadcast(partial(_resumed, folder, trainer, metrics))
                if ranks.rank() > 0:
                    optimizer.load_state_dict(state)
                watch.replay(lines, metrics.path)
            halt.reason = watch.reason  # of a search that had ended
            ended = trainer.run().reason if halt.reason is None else "requested"
            if restart == 0:
                seed = optimizer.seed  # of the search that is resumed, if none was given
            spent = optimizer.generation * size
            left -= spent
            history.evaluations += spent
            made = restart + 1
            reason = halt.reason or ("budget" if ended == "finished" else ended)
            found, before = optimizer.best_fitness, math.nan if best is None else best.best_fitness
            if best is None or history.is_better(found, before):
                best = optimizer
            if reason in ("target", "time_limit", "signal", "requested"):
                break
            large = regimes.spent(spent)
            may_agree = budget is None and restarts is None and restart and large and reason in _CONVERGED
            if may_agree and abs(found - before) <= _SAME * history.range:
                break
    assert best is not None
    return Result(
        x=best.best,
        fun=best.best_fitness,
        mean=best.averaged_mean,
        std=best.std,
        reason=reason,
        evaluations=history.evaluations,
        restarts=made - 1,
        settings={
            "covariance": best.state.settings.covariance,
            "paths": best.state.settings.rates is not None,
            "weights": best.weights,
            "population_size": first,
            "restarts": restarts,
            "budget": most,
        },
        history=history.columns,
    )


class _Regimes:
    """The restarts of BIPOP-CMA-ES: their populations, standard deviations and budgets."""

    def __init__(self, population_size: int) -> None:
        self._first = self._size = population_size
        self._used = [0, 0]  # evaluations of the regime of small populations, and of large ones
        self._last = 0  # of the last search with a large population
        self._large = True
        self._random: random.Random | None = None

    def next(self, seed: int | None) -> tuple[int, float, int | None]:
        """Return the population of the next search, the share of the standard deviation, and its budget.

        They depend on the searches before alone, so that a search goes on with a larger budget.
        """
        self._random = self._random or random.Random(f"restarts {seed}")
        self._large = self._used[1] <= self._used[0]
        if self._large:
            self._size *= 2
            return self._size, 1.0, None
        ratio = self._size / self._first / 2
        size = int(self._first * max(1.0, ratio) ** (self._random.random() ** 2))
        return size, 10 ** (-2 * self._random.random()), max(self._last // 2, size)

    def spent(self, evaluations: int) -> bool:
        """Count the evaluations of a search; return whether its population was a large one."""
        if self._random is not None:  # the first search belongs to neither
            self._used[self._large] += evaluations
        if self._large:
            self._last = evaluations
        return self._large


class _History:
    """What is recorded over all restarts."""

    def __init__(self, maximize: bool, target: float | None) -> None:
        self.maximize = maximize
        self.target = target
        self.evaluations = 0  # of the restarts before
        self.columns: dict[str, list[float]] = {name: [] for name in _COLUMNS}

    @property
    def range(self) -> float:
        """The distance from the first elites' mean fitness to the best one."""
        return abs(self.columns["elite_mean"][0] - self.columns["best_fitness"][-1])

    def is_better(self, a: float, b: float) -> bool:
        return a > b if self.maximize else a < b

    def add(self, record: GenerationRecord, size: int) -> None:
        before = self.columns["best_fitness"][-1:]
        best = record.best_fitness
        if before and not self.is_better(best, before[0]):
            best = before[0]
        evaluations = self.evaluations + record.generation * size
        row = (evaluations, best, record.generation_best, record.elite_mean, record.std_mean, size)
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)


def _resumed(folder: Path, trainer: Trainer, metrics: MetricsWriter) -> tuple[list[bytes], dict[str, Any]]:
    """Resume a search that is in a folder; return the lines of its generations, and its state."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    if any(folder.glob("checkpoint-*.json")):
        trainer.resume()
        for problem in metrics.restore(trainer.optimizer.generation):
            warnings.warn(problem, RuntimeWarning, stacklevel=outside())
        lines = metrics.path.read_bytes().splitlines() if metrics.path.exists() else []
    return lines, trainer.optimizer.state_dict()


class _Watch(Callback):
    """Records the history, and looks for a reason of ``cem.termination`` to end the search."""

    on_every_rank = True

    def __init__(self, optimizer: CrossEntropyMethod, history: _History) -> None:
        self.reason: str | None = None
        self._history = history
        self._size = optimizer.population_size
        self._good = math.inf if optimizer.maximize else -math.inf
        self._first_std = torch.as_tensor(optimizer.std).cpu()
        self._termination = Termination.of(optimizer, history.target)
        self._before: tuple[Tensor, Tensor] | None = None

    def replay(self, lines: Sequence[bytes], path: Path) -> None:
        """Record the generations that a resumed run had recorded by its checkpoint."""
        for line in lines:
            values = json.loads(line)
            if missing := [name for name in (*_RECORDED, "mean", "std") if name not in values]:
                raise ValueError(f"{path}: generation {values['generation']}: expected {', '.join(missing)}")
            # What is not finite is null there, and can only be infinity on the good side.
            numbers: dict[str, Any] = {
                name: self._good if values[name] is None else values[name] for name in _RECORDED
            }
            mean, std = (torch.tensor(values[name], dtype=torch.float64) for name in ("mean", "std"))
            self.on_generation(GenerationRecord(**numbers, distribution=(mean, std)))

    def on_generation(self, record: GenerationRecord) -> None:
        """Record the generation."""
        assert record.distribution is not None
        self._history.add(record, self._size)
        mean, std = (vector.double() for vector in record.distribution)
        reasons = self._termination.reasons(
            record.generation,
            record.best_fitness,
            record.generation_best,
            record.elite_threshold,
            share_of(std, self._first_std),
            shift_of(self._before, mean),
        )
        self._before = mean, std
        self.reason = reasons[0] if reasons else None


class _Halt(Callback):
    """Ends a search that has a reason, after all other callbacks."""

    on_every_rank = True

    def __init__(self, watch: _Watch) -> None:
        self.reason: str | None = None  # for which it ended the search; another callback may do so before
        self._watch = watch

    def on_generation(self, record: GenerationRecord) -> None:
        """Look for a reason.

        Raises:
            Interrupted: If there is one.
        """
        self.reason = self._watch.reason
        if self.reason is not None:
            raise Interrupted(self.reason)


def _with_mean(evaluate: Objective, mean: Any) -> Objective:
    """Evaluate the mean as the first candidate of a search."""

    def given(candidates: Any, generation: Any) -> Any:
        if generation:
            return evaluate(candidates, generation)
        is_array = isinstance(candidates, np.ndarray)
        candidates = candidates.copy() if is_array else candidates.clone()
        candidates[0] = mean if is_array else torch.as_tensor(mean)
        found = evaluate(candidates, generation)
        found = found if isinstance(found, Evaluation) else Evaluation(found)
        return found if found.candidates is not None else replace(found, candidates=candidates)

    return given


def _population_objective(objective: Callable[..., Any], vectorize: bool, with_generation: bool) -> Objective:
    def given(candidates: Any, generation: Any) -> Any:
        return objective(candidates, generation) if with_generation else objective(candidates)

    if not vectorize:
        return given
    vectorized = torch.func.vmap(given, in_dims=(0, None), randomness="different")

    def evaluate(candidates: Any, generation: Any) -> Any:
        if isinstance(candidates, np.ndarray):
            return np.array([given(candidate, generation) for candidate in candidates])
        return vectorized(candidates, generation)

    return evaluate
