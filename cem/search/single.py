"""A single search of a call of ``minimize``, from its start to a reason to end."""

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
from cem.core.snapshot import NUMBERS, GenerationRecord
from cem.core.state import with_integers
from cem.core.termination import Termination
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, MetricsWriter, ProgressBar, as_callbacks
from cem.run.checkpoint import Checkpointer
from cem.run.evaluator import CHECK, Evaluator
from cem.run.stopping import Interrupted, StopRequest
from cem.run.trainer import MOST_FAILURES, Trainer
from cem.search.assisted import ModelAssisted
from cem.search.history import EVALUATIONS, History, parse_record
from cem.search.noise import NoiseDetector
from cem.search.plan import Plan, Start
from cem.search.restarts import Attempt, Ended

_CHECKPOINT_SECONDS = 1.0  # the least time between two checkpoints


@dataclass(frozen=True)
class Session:
    """The resources and records that all searches of a call share."""

    evaluator: Evaluator
    stop: StopRequest
    history: History


class Monitor(Callback):
    """Records the generations of a search, and ends the search if there is a reason.

    Attributes:
        reason: The reason to end the search; None while there is none.
        detector: Detects whether the objective is noisy; None: nothing does.
    """

    on_every_rank = True

    def __init__(
        self,
        plan: Plan,
        history: History,
        termination: Termination,
        attempt: Attempt,
        is_first: bool,
    ) -> None:
        """Prepare to monitor a search.

        Args:
            plan: The settings of the call.
            history: The records of all searches, to which the monitor adds.
            termination: The rules that end a search by its records.
            attempt: The population size and the budget of the search. The monitor enforces the
                budget of a search with a surrogate model, whose generations differ in their
                evaluations, and the trainer that of any other.
            is_first: Whether this is the first search, or every candidate of all earlier ones
                failed. Only such a search may end because the objective is noisy.
        """
        self.reason: Reason | None = None
        self.detector: NoiseDetector | None = None
        self._history = history
        self._termination = termination
        self._attempt = attempt
        self._uses_model = plan.uses_model
        self._declares_noise = plan.declares_noise
        self._may_end_for_noise = is_first and plan.adapts_to_noise
        self._failures = 0  # consecutive generations in which every candidate failed

    def on_generation(self, record: GenerationRecord) -> None:
        """Add the record of a generation, and raise Interrupted if there is a reason to end."""
        self._history.new_records += 1
        self.add(record)
        if self.reason is not None:
            raise Interrupted(self.reason)

    def add(self, record: GenerationRecord) -> None:
        """Add the record of a generation to the history, and set ``reason``.

        ``reason`` becomes None, or the reason to end the search. There are four kinds of
        reasons. If several apply, the last one in this list counts:

        * the budget of a search with a surrogate model,
        * a rule of ``Termination``,
        * noise of the objective,
        * several consecutive generations in which every candidate failed.
        """
        size = self._attempt.population_size
        evaluations = record.generation * size
        if self._uses_model:
            # A surrogate model evaluates only a part of each population, and counts it.
            evaluations = int(record.metrics[EVALUATIONS])
        self._history.add(record, size, evaluations)
        # ``Termination`` returns all reasons that apply, the most important one first.
        reasons = self._termination.reasons(record)
        reason = reasons[0] if reasons else None
        if self._uses_model and evaluations >= self._attempt.budget:
            reason = reason or Reason.BUDGET
        detector = self.detector
        has_seen_noise = detector is not None and detector.has_seen_noise(record.generation)
        if has_seen_noise or self._declares_noise:
            self._history.has_seen_noise = True
            if self._may_end_for_noise:
                reason = Reason.NOISE
        # The best fitness of a generation is NaN if every candidate failed.
        has_failed = math.isnan(record.generation_best)
        self._failures = self._failures + 1 if has_failed else 0
        if self._failures >= MOST_FAILURES:
            reason = Reason.FAILED
        self.reason = reason


class Search:
    """One search, which is new or continues from its checkpoint."""

    def __init__(
        self,
        plan: Plan,
        attempt: Attempt,
        index: int,
        start: Start,
        session: Session,
        earlier_best: float | None,
    ) -> None:
        """Set up the search, and resume it if it has a checkpoint.

        Args:
            plan: The plan of the call, adapted to the results of earlier searches.
            attempt: The population size and the budget of this search.
            index: The index of this search in the call; 0 for the first one.
            start: The first mean and standard deviation.
            session: The resources and records that all searches of the call share.
            earlier_best: The best fitness of earlier searches; None: no search had a success.
        """
        options = plan.options
        seed = plan.seed
        if seed is not None and index > 0:
            seed = mix_seed(seed, index)
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
        self._monitor = Monitor(plan, session.history, termination, attempt, is_first)
        self._assisted: ModelAssisted | None = None
        objective = self._build_objective(plan, start, session, is_first)
        generations: int | None = max(1, attempt.budget // attempt.population_size)
        if plan.uses_model:
            objective = ModelAssisted(
                optimizer,
                session.evaluator,
                attempt.budget,
                plan.path,
                in_batches=plan.in_batches,
            )
            self._assisted = objective
            generations = None
        callbacks = [*as_callbacks(options["callbacks"]), self._monitor]
        if options["progress"]:
            callbacks.insert(0, ProgressBar())
        files = None
        if options["checkpoint"] is not None:
            files = _Files(plan, attempt, index, optimizer)
            callbacks.insert(0, files.metrics)
        has_state = getattr(plan.objective, "has_state", False)
        self._trainer = Trainer(
            optimizer,
            objective,
            generations=generations,
            callbacks=callbacks,
            checkpointer=None if files is None else files.checkpointer,
            stop=session.stop,
            record_every=options["record_every"],
            graph=options["graph"],
            stateful=plan.objective if has_state else None,
        )
        if files is not None:
            self._resume(files, session.evaluator, plan)

    def _build_objective(
        self, plan: Plan, start: Start, session: Session, is_first: bool
    ) -> Objective:
        """Return the objective of this search, which calls the evaluator of the session.

        With several ranks, each rank evaluates a part of the population. With the option
        ``asynchronous``, the objective returns candidates in the order in which workers finish
        them. To detect noise, the first search evaluates its first mean twice, if possible.

        Args:
            plan: The plan of the call.
            start: The first mean and standard deviation.
            session: The resources and records that all searches of the call share.
            is_first: Whether this is the first search, or every candidate of all earlier ones
                failed.
        """
        options = plan.options
        objective: Objective = session.evaluator
        if ranks.count() > 1:
            objective = ranks.shared(objective, session.stop)
        if options["asynchronous"]:
            objective = session.evaluator.in_any_order(self.optimizer)
        # The detector needs populations in the order in which they were drawn. A single
        # asynchronous worker keeps this order: ``in_any_order`` then returns the evaluator.
        is_in_order = not options["asynchronous"] or objective is session.evaluator
        # The detector replaces the first candidate of a population. CUDA graphs, surrogate
        # models and constraints do not allow this.
        can_replace_candidate = (
            not (options["graph"] or plan.uses_model) and plan.constraints is None
        )
        if is_in_order and can_replace_candidate and is_first:
            candidate = _as_candidate(self.optimizer, start.mean, plan.first_candidate)
            budget = self._attempt.budget
            size = self._attempt.population_size
            # Noise may end the search at the first record of two or more generations.
            end = max(2, options["record_every"]) if plan.adapts_to_noise else math.inf
            has_room = budget - size * min(end, budget // size) >= CHECK
            check_rows = session.evaluator.check_rows if has_room else None
            self._monitor.detector = NoiseDetector(objective, candidate, check_rows)
            return self._monitor.detector
        return objective

    def run(self) -> Ended:
        """Run the search until there is a reason to end, and return how it ended."""
        reason = self._monitor.reason
        # A resumed search may have ended before. The monitor then has a reason already.
        if reason is None:
            trainer_reason = self._trainer.run().reason
            # If the monitor alone has ended the search, it knows why. Otherwise the trainer
            # returns the name of a reason, or "finished" after the last generation of the
            # budget.
            reason = self._monitor.reason
            if reason is None or self._trainer.ended_by != [self._monitor]:
                is_finished = trainer_reason == "finished"
                reason = Reason.BUDGET if is_finished else Reason[trainer_reason.upper()]
        optimizer = self.optimizer
        evaluations = optimizer.generation * optimizer.population_size
        if self._assisted is not None:
            evaluations = self._assisted.evaluations
        return Ended(self._attempt, optimizer, reason, evaluations)

    def _resume(self, files: "_Files", evaluator: Evaluator, plan: Plan) -> None:
        """Resume from the newest checkpoint in the folder, if there is one, on all ranks.

        The first rank reads the checkpoint and sends its content to the other ranks.

        Args:
            files: The files of this search.
            evaluator: The evaluator, which then continues the journal of single evaluations.
            plan: The plan of the call.
        """

        def load() -> tuple[list[dict[str, Any]], dict[str, Any]]:
            lines = []
            if files.checkpointer.paths():
                self._trainer.resume()
                lines = files.metrics.restore(self.optimizer.generation)
            return lines, self.optimizer.state_dict()

        lines, state_of_first_rank = ranks.broadcast(load)
        if ranks.rank() > 0:
            # The trainer would send this state, but it does not run if the search has ended.
            self.optimizer.load_state_dict(state_of_first_rank)
        self._replay_records(lines, plan)
        self._continue_journal(files, evaluator)

    def _replay_records(self, lines: list[dict[str, Any]], plan: Plan) -> None:
        """Restore the monitor: show it again the generations that it saw before the checkpoint.

        Args:
            lines: The records of these generations, as JSON with numbers and null.
            plan: The plan of the call.
        """
        if self._monitor.detector is not None and lines:
            self._monitor.detector.restore(lines)
        # JSON has neither infinity nor NaN, so both were recorded as null. The best possible
        # fitness is an infinity. If the search has reached it, null is read as this infinity,
        # otherwise as NaN.
        best_possible = math.inf if plan.maximize else -math.inf
        has_reached_best = self.optimizer.best_fitness == best_possible
        null_value = best_possible if has_reached_best else math.nan
        null_values = dict.fromkeys(NUMBERS, null_value)
        if plan.constraints is not None:
            # Until a candidate is feasible, the best fitness is the worst possible one, the
            # other infinity.
            null_values["best_fitness"] = -best_possible
        for line in lines:
            self._monitor.add(parse_record(line, null_values))

    def _continue_journal(self, files: "_Files", evaluator: Evaluator) -> None:
        """Open the journal of single evaluations, and restore those that are in it."""
        files.folder.mkdir(parents=True, exist_ok=True)
        path = files.folder / "evaluations.journal"
        journal = evaluator.open_journal(path, files.fingerprint, self.optimizer.generation)
        if journal is None:  # The objective is called with whole populations.
            return
        earlier = journal.read_earlier()
        evaluator.restore(earlier, self.optimizer.mean)
        # A search with a surrogate model also fits the model to these evaluations.
        if self._assisted is not None:
            self._assisted.restore(earlier)


class _Files:
    """The files of a search in its folder: checkpoints and records of generations."""

    def __init__(
        self, plan: Plan, attempt: Attempt, index: int, optimizer: CrossEntropyMethod
    ) -> None:
        """Choose the folder of one search, and open its checkpoints and its metrics.

        A call of ``minimize`` runs several searches, one after another. A checkpoint stores a
        fingerprint, so that only the same search can resume from it.

        Args:
            plan: The settings of the call. Its option ``checkpoint`` is the folder that
                contains the folders of all searches.
            attempt: The settings of this search, such as its population size.
            index: The index of this search in the call; 0 for the first one.
            optimizer: The optimizer before its first generation.
        """
        self.folder = Path(plan.options["checkpoint"]) / f"restart-{index:03d}"
        self.fingerprint: dict[str, Any] = {
            **plan.describe(optimizer),
            "restart": index,
            "population_size": attempt.population_size,
        }
        self.checkpointer = Checkpointer(
            self.folder, fingerprint=self.fingerprint, interval_s=_CHECKPOINT_SECONDS
        )
        # A resumed search restores its history from these records. They therefore contain the
        # mean and the standard deviation, too.
        self.metrics = MetricsWriter(self.folder / "metrics.jsonl", distribution=True)


def _check_can_move(optimizer: CrossEntropyMethod, std: Any) -> None:
    """Raise ValueError if the distribution can never change: if all its variance is 0.

    Args:
        optimizer: The optimizer before its first generation.
        std: The standard deviation of the call, for the message.
    """
    state = optimizer.state
    # Each of these makes candidates differ even if every standard deviation is 0.
    others = (state.std_floor, state.variance_schedule, state.discrete)
    has_other_variance = any(tensor is not None for tensor in others)
    if not has_other_variance and not state.std.any():
        raise ValueError(
            f"expected std > 0 of a parameter at least, got {std}: nothing can move"
        )


def _as_candidate(optimizer: CrossEntropyMethod, mean: Any, first: Tensor) -> Tensor:
    """Return a mean as a candidate; choices and permutations are those of ``first``."""
    numbers = as_real("mean", mean).to(first)
    candidate = torch.cat([numbers, first[len(numbers) :]])
    state = optimizer.state
    return with_integers(state, candidate.to(state.distribution))
