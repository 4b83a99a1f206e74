"""One search of a call of ``minimize``: from its start until there is a reason to end."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cem.core.backend import mix_seed
from cem.core.checks import as_real
from cem.core.evaluation import Objective
from cem.core.reasons import Reason
from cem.core.snapshot import GenerationRecord
from cem.core.state import with_integers
from cem.core.termination import Termination
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, MetricsWriter, ProgressBar, as_callbacks
from cem.run.checkpoint import Checkpointer
from cem.run.evaluator import Evaluator
from cem.run.stopping import Interrupted, StopRequest
from cem.run.trainer import MOST_FAILURES, Trainer
from cem.search.assisted import ModelAssisted
from cem.search.history import EVALUATIONS, History, parse_record
from cem.search.noise import NoiseDetector
from cem.search.plan import Plan, Start
from cem.search.restarts import Attempt, Ended

_CHECKPOINT_SECONDS = 1.0


@dataclass(frozen=True)
class Session:
    """What all searches of a call share: resources, and what they have recorded."""

    evaluator: Evaluator
    stop: StopRequest
    history: History


class Monitor(Callback):
    """Records the generations of a search, and ends it if there is a reason.

    Attributes:
        reason: The reason to end; None while there is none.
    """

    on_every_rank = True

    def __init__(
        self,
        plan: Plan,
        history: History,
        termination: Termination,
        population_size: int,
        budget: int | None,
        is_first: bool,
    ) -> None:
        """Begin with a search.

        Args:
            plan: The plan of the call.
            history: The recorded generations of all searches, to which this one adds its own.
            termination: Finds the reasons to end in the records of a search.
            population_size: The candidates per generation.
            budget: The evaluations of a search with a model, after which the monitor ends it.
                None: the trainer counts the generations of the budget.
            is_first: Whether no search before has had a success. Only such a search may end
                because the objective is noisy.
        """
        self.reason: Reason | None = None
        self.detector: NoiseDetector | None = None
        self._history = history
        self._termination = termination
        self._population_size = population_size
        self._budget = budget
        self._is_known_as_noisy = plan.declares_noise
        self._ends_by_noise = is_first and plan.adapts_to_noise
        self._failures = 0  # the last generations, one after another, without a success

    def on_generation(self, record: GenerationRecord) -> None:
        """Add the record; raise Interrupted if there is a reason to end."""
        self._history.new_records += 1
        self.add(record)
        if self.reason is not None:
            raise Interrupted(self.reason)

    def add(self, record: GenerationRecord) -> None:
        """Add the record of a generation to the history, and look for a reason to end.

        A reason is set by ``Termination``, by noise, or by several generations one after
        another in which every candidate failed: their best fitness is NaN.
        """
        evaluations = record.generation * self._population_size
        if self._budget is not None:
            evaluations = int(record.metrics[EVALUATIONS])
        self._history.add(record, self._population_size, evaluations)
        reasons = self._termination.reasons(record)
        reason = reasons[0] if reasons else None
        if self._budget is not None and evaluations >= self._budget:
            reason = reason or Reason.BUDGET
        is_seen = self.detector is not None and self.detector.has_seen_noise(record.generation)
        if is_seen or self._is_known_as_noisy:
            self._history.has_seen_noise = True
            if self._ends_by_noise:
                reason = Reason.NOISE
        has_failed = math.isnan(record.generation_best)
        self._failures = self._failures + 1 if has_failed else 0
        if self._failures >= MOST_FAILURES:
            reason = Reason.FAILED
        self.reason = reason


class Search:
    """One search, ready to run, or to continue from its checkpoint."""

    def __init__(
        self,
        plan: Plan,
        attempt: Attempt,
        number: int,
        start: Start,
        session: Session,
        earlier_best: float | None,
    ) -> None:
        """Set up the search, and resume it if its checkpoint exists.

        Args:
            plan: The plan of the call, adapted to what searches before have shown.
            attempt: The population, and the budget of this search.
            number: How many searches were before.
            start: The first mean and standard deviation.
            session: What all searches of the call share.
            earlier_best: The best fitness of searches before; None: none had a success.
        """
        options = plan.options
        seed = plan.seed
        if seed is not None and number > 0:
            seed = mix_seed(seed, number)
        optimizer = plan.build_optimizer(start, attempt.population_size, seed)
        _check_can_move(optimizer, plan.start.std)
        has_constraints = plan.constraints is not None
        is_first = earlier_best is None and not plan.is_noisy
        termination = Termination(
            optimizer.state.settings,
            optimizer.state.std,
            noisy=plan.is_noisy,
            earlier=None if has_constraints else earlier_best,
            constrained=has_constraints,
            **plan.termination_options,
        )
        self.optimizer = optimizer
        self._attempt = attempt
        budget = attempt.budget if plan.uses_model else None
        self._monitor = Monitor(
            plan, session.history, termination, attempt.population_size, budget, is_first
        )
        self._assisted: ModelAssisted | None = None
        objective = self._build_objective(plan, start, session, is_first)
        generations: int | None = max(1, attempt.budget // attempt.population_size)
        if plan.uses_model:
            objective = ModelAssisted(optimizer, session.evaluator, attempt.budget, plan.path)
            self._assisted = objective
            generations = None
        callbacks = [*as_callbacks(options["callbacks"]), self._monitor]
        if options["progress"]:
            callbacks.insert(0, ProgressBar())
        files = None
        if options["checkpoint"] is not None:
            files = _Files(plan, attempt, number, optimizer)
            callbacks.insert(0, files.metrics)
        self._trainer = Trainer(
            optimizer,
            objective,
            generations=generations,
            callbacks=callbacks,
            checkpointer=None if files is None else files.checkpointer,
            stop=session.stop,
            record_every=options["record_every"],
            graph=options["graph"],
        )
        if files is not None:
            self._resume(files, session.evaluator, plan)

    def _build_objective(
        self, plan: Plan, start: Start, session: Session, is_first: bool
    ) -> Objective:
        """Return the evaluator as an objective for the way in which candidates are evaluated.

        Ranks share a population, or workers take candidates in any order. Where it is possible,
        the first search looks for noise: it evaluates its first mean twice.
        """
        options = plan.options
        objective: Objective = session.evaluator
        if ranks.count() > 1:
            objective = ranks.shared(objective, session.stop)
        if options["asynchronous"]:
            objective = session.evaluator.in_any_order(self.optimizer.ask)
        # One worker finishes candidates in order, even if any order is allowed.
        is_in_order = not options["asynchronous"] or objective is session.evaluator
        is_plain = not (options["graph"] or plan.uses_model) and plan.constraints is None
        if is_in_order and is_plain and is_first:
            candidate = _as_candidate(self.optimizer, start.mean, plan.first)
            self._monitor.detector = NoiseDetector(objective, candidate)
            return self._monitor.detector
        return objective

    def run(self) -> Ended:
        """Search until there is a reason to end."""
        reason = self._monitor.reason
        if reason is None:  # otherwise the search that was resumed had ended
            ended = self._trainer.run().reason
            trainer_reason = Reason.BUDGET if ended == "finished" else Reason[ended.upper()]
            reason = self._monitor.reason or trainer_reason
        optimizer = self.optimizer
        evaluations = optimizer.generation * optimizer.population_size
        if self._assisted is not None:
            evaluations = self._assisted.evaluations
        return Ended(self._attempt, optimizer, reason, evaluations)

    def _resume(self, files: "_Files", evaluator: Evaluator, plan: Plan) -> None:
        """Continue from the newest checkpoint in a folder, if there is one, on all ranks.

        The first rank reads the files and sends what it has read to the others. The monitor
        gets all recorded generations again, and so knows what it knew when the run ended.

        Args:
            files: The files of this search.
            evaluator: Gets a journal of the candidates that are evaluated one by one.
            plan: The plan of the call.
        """
        optimizer = self.optimizer
        monitor = self._monitor

        def load() -> tuple[list[dict[str, Any]], dict[str, Any]]:
            lines = []
            if files.checkpointer.paths():
                self._trainer.resume()
                lines = files.metrics.restore(optimizer.generation)
            return lines, optimizer.state_dict()

        lines, state_of_first_rank = ranks.broadcast(load)
        if ranks.rank() > 0:
            # A run would give them this state, but a search that has ended does not run.
            optimizer.load_state_dict(state_of_first_rank)
        if monitor.detector is not None and lines:
            monitor.detector.restore(lines)
        # In the records null is any number that is not finite: the perfect fitness if the best
        # one is that, otherwise NaN. With constraints the best one is null while no candidate
        # is feasible, which is the worst fitness.
        perfect = math.inf if plan.maximize else -math.inf
        missing = perfect if optimizer.best_fitness == perfect else math.nan
        best_if_missing = missing if plan.constraints is None else -perfect
        for line in lines:
            monitor.add(parse_record(line, best_if_missing, missing))
        files.folder.mkdir(parents=True, exist_ok=True)
        path = files.folder / "evaluations.journal"
        journal = evaluator.open_journal(path, files.fingerprint, optimizer.generation)
        if journal is None:
            return
        earlier = journal.read_earlier()
        evaluator.take_up(earlier, optimizer.mean)
        if self._assisted is not None:
            self._assisted.restore(earlier)


class _Files:
    """The folder of a search: checkpoints, records, and evaluations one by one."""

    def __init__(
        self, plan: Plan, attempt: Attempt, number: int, optimizer: CrossEntropyMethod
    ) -> None:
        """Name the files of a search, and make the fingerprint that tells it from others.

        Args:
            plan: The plan of the call; its option ``checkpoint`` is the folder of all searches.
            attempt: The population of this search.
            number: How many searches were before.
            optimizer: The optimizer at its start.
        """
        self.folder = Path(plan.options["checkpoint"]) / f"restart-{number:03d}"
        self.fingerprint: dict[str, Any] = {
            "objective": plan.name,
            "code": plan.code,
            "restart": number,
            "population_size": attempt.population_size,
            "mean": plan.first.to(optimizer.dtype).tolist(),
            "std": optimizer.std.tolist(),
        }
        if plan.constraints is not None:
            self.fingerprint["constraints"] = plan.constraints.described
        self.checkpointer = Checkpointer(
            self.folder, fingerprint=self.fingerprint, interval_s=_CHECKPOINT_SECONDS
        )
        self.metrics = MetricsWriter(self.folder / "metrics.jsonl", distribution=True)


def _check_can_move(optimizer: CrossEntropyMethod, std: Any) -> None:
    """Raise ValueError if no parameter of a search can ever change."""
    state = optimizer.state
    others = (state.std_floor, state.variance_schedule, state.discrete)
    has_another_way = any(tensor is not None for tensor in others)
    if not has_another_way and not state.std.any():
        raise ValueError(
            f"expected std > 0 of a parameter at least, got {std}: nothing can move"
        )


def _as_candidate(optimizer: CrossEntropyMethod, mean: Any, first: Tensor) -> Tensor:
    """Return a mean as a candidate, with the columns of families that ``first`` has."""
    numbers = as_real("mean", mean).to(first)
    candidate = torch.cat([numbers, first[len(numbers) :]])
    state = optimizer.state
    return with_integers(state, candidate.to(state.distribution))
