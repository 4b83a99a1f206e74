"""The loop of a training run: ask, evaluate, tell, watch, save; it ends by plan, by the clock or a signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from cem._checks import check_integer, check_real
from cem.callbacks import Callback, GenerationRecord, RunPlan
from cem.checkpoint import Checkpointer, CheckpointError, Loaded
from cem.optimizer import CrossEntropyMethod
from cem.stopping import Interrupted, StopRequest

Reason = Literal["finished", "time_limit", "signal", "requested"]


@dataclass(frozen=True)
class Evaluation:
    """What an objective found out about a population.

    Attributes:
        fitness: How fit each candidate is, shape (population,), any real dtype and device.
        metrics: Anything else worth watching, by name: numbers that are not tensors, such as rates.
        candidates: What was really evaluated, shape (population, dim), where it is not what was asked for.
    """

    fitness: Tensor
    metrics: Mapping[str, float] = field(default_factory=dict)
    candidates: Tensor | None = None


Objective = Callable[[Tensor, int], "Tensor | Evaluation"]
"""Maps (candidates, generation) to fitness: candidates as ``ask()`` gives them, generation = 0 for the first.

To be resumable bit for bit it must be a function of these two alone."""


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        reason: "finished" (all generations told), "time_limit", "signal", or "requested"
            (``stop.request()``).
        signum: The number of the signal where that is the reason, otherwise None.
        generation: The generations told, those before a resumption included.
        elapsed_s: The wall time of all of them, in seconds.
    """

    reason: Reason
    signum: int | None
    generation: int
    elapsed_s: float

    @property
    def exit_code(self) -> int:
        """The exit code shells expect: 128 + the signal, 130 after Ctrl-C, 143 after SIGTERM; otherwise 0."""
        return 0 if self.signum is None else 128 + self.signum


class Trainer:
    """Runs an optimizer on an objective.

    >>> from cem import CrossEntropyMethod, Trainer
    >>> optimizer = CrossEntropyMethod([5.0, -5.0], 3.0, 100, maximize=False)
    >>> def sphere(candidates, generation):
    ...     return candidates.square().sum(dim=1)
    >>> Trainer(optimizer, sphere, generations=30).run().reason
    'finished'
    >>> bool(optimizer.best_fitness < 1e-3)
    True

    With a checkpointer, the state is saved after the generations, and at the end of a run that does not fail.
    After ``resume()``, a run gives bit for bit what the run that was never stopped gives, whenever and
    however it was stopped: what a checkpoint does not hold is computed again, the same.

    A generation is told whole or not at all. On a signal or at the time limit an objective that calls
    ``trainer.stop.check()`` now and then is left at once and its generation dropped; one that does not is
    finished and told first.

    Attributes:
        optimizer: The optimizer; its state is that of the last generation told.
        stop: The request to stop; objectives may call ``stop.check()``.
        elapsed_s: The wall time of all generations so far, in seconds.
    """

    def __init__(
        self,
        optimizer: CrossEntropyMethod,
        objective: Objective,
        *,
        generations: int | None = None,
        time_limit_s: float | None = None,
        callbacks: Sequence[Callback] = (),
        checkpointer: Checkpointer | None = None,
        stop: StopRequest | None = None,
    ) -> None:
        """Put a run together; nothing happens yet.

        Args:
            optimizer: What to ask and tell.
            objective: (candidates, generation) -> fitness or ``Evaluation``; see ``Objective``.
            generations: How many generations shall have been told in the end, ``>= 0``, those before a
                resumption included. None: until the time limit or a signal.
            time_limit_s: How long each ``run()`` may take, in seconds, ``>= 0``. None: no limit.
            callbacks: Who watches, called in this order.
            checkpointer: Where to save. None: nowhere.
            stop: A request whose signal handlers the caller has in place (``with StopRequest() as stop``).
                None: one that is in place while ``run()`` is.

        Raises:
            TypeError: If ``generations`` or ``time_limit_s`` has the wrong type.
            ValueError: If one is out of range.
        """
        self.optimizer = optimizer
        self.stop = StopRequest() if stop is None else stop
        self.elapsed_s = 0.0
        self._objective = objective
        self._generations = None if generations is None else check_integer("generations", generations, 0)
        self._time_limit_s = None if time_limit_s is None else check_real("time_limit_s", time_limit_s, 0.0)
        self._callbacks = tuple(callbacks)
        self._checkpointer = checkpointer
        self._owns_stop = stop is None
        self._saved: int | None = None

    def resume(self) -> Loaded:
        """Go on from the newest usable checkpoint: load it into the optimizer. Call it before ``run()``.

        Returns:
            The checkpoint used, and in ``refused`` every newer file that could not be used, with the reason.

        Raises:
            CheckpointError: If there is no usable checkpoint, or no checkpointer.
        """
        if self._checkpointer is None:
            raise CheckpointError("expected a trainer with a checkpointer to resume from, got one without")
        loaded = self._checkpointer.load_latest(self._restore)
        self._saved = loaded.step
        return loaded

    def run(self) -> TrainingResult:
        """Train until the plan is fulfilled, the time is up, or somebody asks to stop.

        Returns:
            Why it ended, and what came of it.

        Raises:
            CheckpointError: If the folder of the checkpointer holds checkpoints and ``resume()`` was not
                called: a fresh run would mix with them.
            KeyboardInterrupt: On the second Ctrl-C.
            OSError: If metrics or a checkpoint cannot be written.
            ValueError: If a generation is unusable; see ``CrossEntropyMethod.tell``.
        """
        self._refuse_to_mix()
        with ExitStack() as stack:
            if self._owns_stop:
                stack.enter_context(self.stop)
            if self._time_limit_s is not None:
                stack.callback(setattr, self.stop, "deadline", self.stop.deadline)
                self.stop.deadline = time.monotonic() + self._time_limit_s
            plan = RunPlan(self.optimizer.generation, self._generations, self._time_limit_s)
            for callback in self._callbacks:
                stack.callback(callback.on_end)
                callback.on_start(plan)
            reason = self._loop()
            self._save()
        signum = self.stop.signum if reason == "signal" else None
        return TrainingResult(reason, signum, self.optimizer.generation, self.elapsed_s)

    def _loop(self) -> Reason:
        saved_at = time.monotonic()
        while True:
            reason = self._reason_to_stop()
            if reason is not None:
                return reason
            try:
                self._generation()
            except Interrupted:
                return self._reason_to_stop() or "requested"
            if (
                self._checkpointer is not None
                and time.monotonic() - saved_at >= self._checkpointer.interval_s
            ):
                self._save()
                saved_at = time.monotonic()

    def _reason_to_stop(self) -> Reason | None:
        if self._generations is not None and self.optimizer.generation >= self._generations:
            return "finished"
        if self.stop.requested:
            return "requested" if self.stop.signum is None else "signal"
        return "time_limit" if self.stop.expired else None

    def _generation(self) -> None:
        started = time.monotonic()
        found = self._objective(self.optimizer.ask(), self.optimizer.generation)
        evaluation = found if isinstance(found, Evaluation) else Evaluation(found)
        self.optimizer.tell(evaluation.fitness, evaluation.candidates)
        statistics = self.optimizer.statistics()
        seconds = time.monotonic() - started
        self.elapsed_s += seconds
        record = GenerationRecord(
            generation=self.optimizer.generation,
            **statistics,
            seconds=seconds,
            elapsed_s=self.elapsed_s,
            metrics={
                name: value if isinstance(value, int) else float(value)
                for name, value in evaluation.metrics.items()
            },
        )
        for callback in self._callbacks:
            callback.on_generation(record)

    def _save(self) -> None:
        generation = self.optimizer.generation
        if self._checkpointer is None or self._saved == generation:
            return
        for callback in self._callbacks:
            callback.on_checkpoint(generation)
        state = {"optimizer": self.optimizer.state_dict(), "elapsed_s": self.elapsed_s}
        self._checkpointer.save(generation, state)
        self._saved = generation

    def _restore(self, state: dict[str, Any]) -> None:
        optimizer_state = state.get("optimizer")
        if not isinstance(optimizer_state, dict):
            raise CheckpointError(f"expected the state of an optimizer, got {sorted(state)}")
        elapsed_s = check_real("elapsed_s", state.get("elapsed_s"), 0.0)
        self.optimizer.load_state_dict(optimizer_state)
        self.elapsed_s = elapsed_s

    def _refuse_to_mix(self) -> None:
        if self._checkpointer is None or self._saved is not None:
            return
        newest = next(iter(self._checkpointer.paths().values()), None)
        if newest is not None:
            raise CheckpointError(
                f"expected a folder without checkpoints for a fresh run, got {newest}: "
                "resume that run or choose another folder"
            )
