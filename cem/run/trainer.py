"""The training loop: ask, evaluate, tell, record, save; it ends by plan, time limit or signal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch

from cem.core.checks import check_real
from cem.core.evaluation import Evaluation, Metrics, Objective, as_evaluation
from cem.core.snapshot import Snapshot
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, GenerationRecord, RunPlan, check_callbacks
from cem.run.checkpoint import Checkpointer, CheckpointError, LoadedCheckpoint
from cem.run.stopping import Interrupted, StopRequest
from kernels.support.checks import check_integer

GRACE_SECONDS = 1.0
"""How long a stopped run waits for the results of generations that were told, in seconds."""

_LONGEST_NAP = 0.005  # the longest time between two queries of the device, in seconds

MOST_FAILURES = 3
"""Failed generations, one after another, that end a run."""
Reason = Literal["finished", "time_limit", "signal", "requested", "failed"]


def defers_sync(device: torch.device) -> bool:
    """Return whether a generation on this device is recorded only after the next one is queued."""
    return device.type != "cpu"


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        reason: "finished" (all generations), "time_limit", "signal", "requested" (``stop.request()``), or
            "failed": in three generations, one after another, every candidate failed.
        signum: The number of the signal where that is the reason, otherwise None.
        generation: The generations told, those before a resumption included.
        elapsed_s: The wall time of all of them, in seconds.
    """

    reason: Reason
    signum: int | None
    generation: int
    elapsed_s: float


@dataclass(frozen=True)
class _Told:
    """A generation that was told and is not recorded yet."""

    snapshot: Snapshot
    metrics: Metrics
    began: float

    @property
    def ready(self) -> bool:
        return self.snapshot.ready and self.metrics.ready


class Trainer:
    """Runs an optimizer on an objective.

    Examples:
        >>> from cem import CrossEntropyMethod, Trainer
        >>> optimizer = CrossEntropyMethod([5.0, -5.0], 3.0, 100, maximize=False)
        >>> def sphere(candidates, generation):
        ...     return candidates.square().sum(dim=1)
        >>> Trainer(optimizer, sphere, generations=30).run().reason
        'finished'
        >>> bool(optimizer.best_fitness < 1e-3)
        True

    With a checkpointer, the state is saved after the generations, and at the end of a run that does not fail.
    After ``resume()`` a run gives bit for bit the results of an uninterrupted one, however it was stopped:
    generations after the checkpoint are computed again, the same.

    On a signal or at the time limit an objective that calls ``trainer.stop.check()`` is left at once and its
    generation dropped; otherwise the generation is finished and told first.

    On a GPU host sync is deferred: a generation is recorded and saved after the next one is told, that is,
    queued. The device has work while the host writes, if the objective only queues its own (see
    ``Evaluation``). The files are those of immediate sync. When the run ends or the objective fails, pending
    generations are recorded. A run that is asked to stop waits ``GRACE_SECONDS`` for them and then drops
    them. The optimizer is rewound to the last generation recorded.

    Within ``cem.run.ranks.joined`` every rank runs the same trainer, with an objective that shares its work.
    Rank 0 saves, resumes for all, and calls the callbacks; all ranks call those with ``on_every_rank``.

    Attributes:
        optimizer: The optimizer; before and after a run its state is that of the last generation recorded.
        stop: The request to stop; objectives may call ``stop.check()``.
        elapsed_s: The wall time of all generations recorded so far, in seconds; see ``GenerationRecord``.
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
        costs: Sequence[float] = (),
        record_every: int = 1,
        graph: bool = False,
    ) -> None:
        """Set up a run.

        Args:
            optimizer: The optimizer.
            objective: (candidates, generation) -> fitness or ``Evaluation``; see ``Objective``.
            generations: The generations to be told in the end, ``>= 0``, those before a resumption included.
                None: until the time limit or a signal.
            time_limit_s: The time limit of each ``run()``, in seconds, ``>= 0``. None: no limit.
            callbacks: The callbacks, called in this order.
            checkpointer: Saves checkpoints. None: no checkpoints.
            stop: A request whose context the caller has entered (``with StopRequest() as stop``). None: one
                that is entered for the time of ``run()``.
            costs: The relative cost of each generation, for the time left; empty: all the same.
            record_every: The generations from one record to the next, ``>= 1``: stops, callbacks and
                checkpoints come after them. The last of a run has a record in any case.
            graph: Whether the generations of a record are one CUDA graph; see ``CrossEntropyMethod.capture``.

        Raises:
            TypeError: If ``generations``, ``time_limit_s`` or ``callbacks`` has the wrong type.
            ValueError: If one is out of range.
        """
        self.optimizer = optimizer
        self.stop = StopRequest() if stop is None else stop
        self.elapsed_s = 0.0
        self._objective = objective
        self._generations = None if generations is None else check_integer("generations", generations, 0)
        self._time_limit_s = None if time_limit_s is None else check_real("time_limit_s", time_limit_s, 0.0)
        self._callbacks = check_callbacks(callbacks)
        self._checkpointer = checkpointer
        self._owns_stop = stop is None
        self._costs = tuple(costs)
        self._record_every = check_integer("record_every", record_every, 1)
        self._graph = graph
        self._steps: dict[int, Callable[[], Evaluation]] = {}  # by their generations
        self._saved: int | None = None
        self._saved_at = 0.0
        self._defers_sync = defers_sync(optimizer.device)
        self._pending: deque[_Told] = deque()
        self._give_up_at: float | None = None
        self._failures = 0  # generations, one after another, in which every candidate failed
        self._recorded: Snapshot  # of the last generation recorded, or of the start of the run

    def resume(self) -> LoadedCheckpoint:
        """Load the newest usable checkpoint into the optimizer; to be called before ``run()``.

        Returns:
            The checkpoint used, and in ``rejected`` every newer file that is not usable, with the reason.

        Raises:
            CheckpointError: If there is no usable checkpoint, or no checkpointer.
        """
        if self._checkpointer is None:
            raise CheckpointError("expected a trainer with a checkpointer to resume from, got one without")
        loaded = self._checkpointer.load_latest(self._restore)
        self._saved = loaded.step
        return loaded

    def run(self) -> TrainingResult:
        """Train until all generations are told, the time limit, or a stop request.

        Returns:
            Why the run ended, its generations and its time.

        Raises:
            CheckpointError: If the folder of the checkpointer holds checkpoints and ``resume()`` was not
                called: a new run would mix with them.
            KeyboardInterrupt: On the second Ctrl-C.
            OSError: If metrics or a checkpoint cannot be written.
        """
        ranks.broadcast(self._refuse_to_mix)
        with ExitStack() as stack:
            if self._owns_stop:
                stack.callback(self.stop._forget)
                stack.enter_context(self.stop)
            if self._time_limit_s is not None:
                stack.callback(setattr, self.stop, "deadline", self.stop.deadline)
                self.stop.deadline = time.monotonic() + self._time_limit_s
            plan = RunPlan(
                self.optimizer.generation,
                self._generations,
                self._time_limit_s,
                self._costs,
                self._record_every,
            )
            self._take_state_of_first()
            for callback in self._called():
                stack.callback(callback.on_end)
                callback.on_start(plan)
            reason = self._loop()
            self._save()
            self._take_state_of_first()
            signum = self.stop.signum if reason == "signal" else None
        return TrainingResult(reason, signum, self.optimizer.generation, self.elapsed_s)

    def _loop(self) -> Reason:
        self._saved_at = time.monotonic()
        self._give_up_at = None
        self._recorded = self.optimizer.snapshot()
        self._failures = 0
        try:
            with suppress(Interrupted):  # a callback may raise it, too
                self._generations_to_the_end()
        finally:
            self._drop_pending()
        return self._reason_to_stop() or "requested"

    def _generations_to_the_end(self) -> None:
        while self._reason_to_stop() is None:
            try:
                told = self._tell()
            except Interrupted:
                break
            except BaseException as error:
                if not isinstance(error, Exception):  # the second Ctrl-C does not wait
                    self._give_up_at = time.monotonic()
                with suppress(Interrupted):
                    self._record_all_but(0)
                raise
            self._pending.append(told)
            self._record_all_but(1 if self._defers_sync else 0)
        self._record_all_but(0)

    def _reason_to_stop(self) -> Reason | None:
        if self._generations is not None and self.optimizer.generation >= self._generations:
            return "finished"
        if self._failures >= MOST_FAILURES:
            return "failed"
        if self.stop.requested:
            return "requested" if self.stop.signum is None else "signal"
        return "time_limit" if self.stop.expired else None

    def _tell(self) -> _Told:
        """Tell the generations of a record."""
        began = time.monotonic()
        count = self._record_every - self.optimizer.generation % self._record_every  # up to a multiple of it
        if self._generations is not None:
            count = min(count, self._generations - self.optimizer.generation)
        if self._graph:
            if count not in self._steps:
                self._steps[count] = self.optimizer.capture(self._objective, count)
            evaluation = self._steps[count]()
            return _Told(self.optimizer.snapshot(), Metrics(evaluation), began)
        for last in range(count - 1, -1, -1):
            candidates = self.optimizer.ask()
            evaluation = as_evaluation(self._objective(candidates, self.optimizer.generation))
            metrics = Metrics(evaluation) if last == 0 else None
            evaluated = candidates if evaluation.candidates is None else evaluation.candidates
            self.optimizer.tell(evaluated, evaluation.fitness)
        assert metrics is not None
        return _Told(self.optimizer.snapshot(), metrics, began)

    def _record_all_but(self, count: int) -> None:
        """Record pending generations, oldest first, until ``count`` are left or the grace time is over."""
        while len(self._pending) > count and self._wait(self._pending[0]):
            requested = self.stop.requested
            self._record(self._pending.popleft())
            if (
                self._checkpointer is not None
                and time.monotonic() - self._saved_at >= self._checkpointer.interval_s
            ):
                self._save()
                self._saved_at = time.monotonic()
            if self._failures >= MOST_FAILURES or (
                self.stop.requested and not requested and self.stop.signum is None
            ):
                self._drop_pending()  # a callback requested the stop: the run ends here

    def _drop_pending(self) -> None:
        self._pending.clear()
        if self.optimizer.generation != self._recorded.generation:
            self.optimizer.rewind(self._recorded)

    def _wait(self, told: _Told) -> bool:
        """Wait for results in short naps, so that signals are handled; False after the grace time."""
        began = time.monotonic()
        while not told.ready:
            now = time.monotonic()
            if self._give_up_at is None and self.stop.requested:
                self._give_up_at = now + GRACE_SECONDS
            if self._give_up_at is not None and now >= self._give_up_at:
                return False
            time.sleep(min(1e-4 + (now - began) / 4, _LONGEST_NAP))
        return True

    def _record(self, told: _Told) -> None:
        statistics = told.snapshot.statistics()
        self._failures = self._failures + 1 if told.snapshot.failed else 0
        before, self._recorded = self._recorded, told.snapshot
        taken = time.monotonic() - told.began
        seconds = told.snapshot.seconds_since(before) if self._defers_sync else taken
        self.elapsed_s += seconds
        record = GenerationRecord(
            generation=told.snapshot.generation,
            **statistics,
            seconds=seconds,
            elapsed_s=self.elapsed_s,
            metrics=told.metrics.read(seconds / (told.snapshot.generation - before.generation)),
            distribution=told.snapshot.distribution(),
        )
        for callback in self._called():
            try:
                callback.on_generation(record)
            except (Interrupted, StopIteration):
                if callback.on_every_rank or ranks.count() == 1:
                    raise Interrupted("a callback ended the run") from None
                self.stop.request()  # the other ranks have to hear of it

    def _save(self) -> None:
        generation = self._recorded.generation
        if self._checkpointer is None or self._saved == generation or ranks.rank() > 0:
            return
        state = self._recorded.state_dict()
        for callback in self._callbacks:
            callback.on_checkpoint(generation, state)
        self._checkpointer.save(generation, {"optimizer": state, "elapsed_s": self.elapsed_s})
        self._saved = generation

    def _called(self) -> Sequence[Callback]:
        return [each for each in self._callbacks if each.on_every_rank or ranks.rank() == 0]

    def _take_state_of_first(self) -> None:
        """Give all ranks the state of rank 0: with its seed, after the generation that it recorded."""
        if ranks.count() > 1:
            state = ranks.broadcast(self.optimizer.state_dict)
            if ranks.rank() > 0:
                self.optimizer.load_state_dict(state)

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
