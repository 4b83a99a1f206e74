"""The training loop: ask, evaluate, tell, record and save, until there is a reason to end."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import torch

from cem.core.checks import check_real
from cem.core.evaluation import Objective, as_evaluation, copy_of
from cem.core.snapshot import Snapshot, copy_to_host
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, RunPlan, as_callbacks
from cem.run.checkpoint import Checkpointer, CheckpointError
from cem.run.stopping import Due, Interrupted, StopRequest
from kernels.support.checks import check_integer

# A run that is stopped waits so long for the results of generations that are queued.
GRACE_SECONDS = 1.0
# So many records are copied to the host together, if they take no longer than these seconds.
_MAX_BATCH = 64
_BATCH_SECONDS = 4e-3
# A CUDA graph has one record, or so many if at least four of them take these seconds.
_GRAPH_BATCH = 16
_MIN_GRAPH_BATCH = 4
# The queries of the device, some microseconds each, before the first nap, and the limits of a
# nap, in seconds.
_QUERIES = 100
_SHORTEST_NAP = 1e-4
_LONGEST_NAP = 0.005

MOST_FAILURES = 3  # failed generations, one after another, that end a run
Reason = Literal["finished", "time_limit", "signal", "requested", "failed"]


def defers_sync(device: torch.device) -> bool:
    """Return whether generations on a device are recorded after the next one is queued."""
    return device.type != "cpu"


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        reason: "finished" (all generations), "time_limit", "signal", "requested"
            (``stop.request()``), or "failed": in three generations, one after another, every
            candidate failed.
        signum: The number of the signal where that is the reason, otherwise None.
        generation: The number of generations, those before a resumption included.
        elapsed_s: The wall time of all of them, in seconds.
    """

    reason: Reason
    signum: int | None
    generation: int
    elapsed_s: float


_Queued = tuple[Snapshot, float]  # a generation that is not recorded yet, and when it began


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

    With a checkpointer, the state is saved after the generations, and at the end of a run that
    does not fail. After ``resume()`` a run gives bit for bit the results of an uninterrupted
    one, however it was stopped: generations after the checkpoint are computed again, the same.

    On a signal or at the time limit an objective that calls ``trainer.stop.check()`` is left at
    once and its generation dropped; otherwise the generation is finished first.

    On a GPU a generation is recorded and saved after the next one is queued: the device has
    work while the host writes, if the objective only queues its own (see ``Evaluation``). The
    records of four milliseconds are copied together, each with its share of the time. The files
    are the same. A run that is asked to stop waits ``GRACE_SECONDS`` for the generations that
    are queued and then drops them.

    Within ``cem.run.ranks.joined`` every rank runs the same trainer, with an objective that
    shares its work. Rank 0 saves, resumes for all, and calls the callbacks; all ranks call
    those with ``on_every_rank``.

    Attributes:
        optimizer: The optimizer; before and after a run its state is that of the last
            generation recorded.
        stop: The request to stop; objectives may call ``stop.check()``.
        elapsed_s: The wall time of all generations recorded so far, in seconds.
    """

    def __init__(  # noqa: PLR0913 - an option for each part of a run
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
        """Set up a run; ``run()`` starts it.

        Args:
            optimizer: The optimizer.
            objective: (candidates, generation) -> fitness or ``Evaluation``; see ``Objective``.
            generations: The number of generations in the end, those before a resumption
                included. None: until the time limit or a signal.
            time_limit_s: The time limit of each ``run()``, in seconds, ``>= 0``. None: no
                limit.
            callbacks: The callbacks, called in this order.
            checkpointer: Saves checkpoints. None: no checkpoints.
            stop: A request whose context the caller has entered (``with StopRequest() as
                stop``). None: one that is entered for the time of ``run()``.
            costs: The relative cost of each generation, for the time left; empty: all the same.
            record_every: The generations from one record to the next, ``>= 1``: stops,
                callbacks and checkpoints come after them. The last of a run has a record in any
                case.
            graph: Whether the generations of a record are one CUDA graph; see
                ``CrossEntropyMethod.capture``.
        """
        self.optimizer = optimizer
        self.stop = StopRequest() if stop is None else stop
        self.elapsed_s = 0.0
        self._objective = objective
        if generations is not None:
            generations = check_integer("generations", generations, 0)
        if time_limit_s is not None:
            time_limit_s = check_real("time_limit_s", time_limit_s, 0.0)
        self._generations = generations
        self._time_limit_s = time_limit_s
        self._callbacks = as_callbacks(callbacks)
        self._checkpointer = checkpointer
        self._owns_stop = stop is None
        self._costs = tuple(costs)
        self._record_every = check_integer("record_every", record_every, 1)
        self._graph = graph
        self._capture = cache(partial(optimizer.capture_records, objective))
        self._defers_sync = defers_sync(optimizer.device)
        self._saved: int | None = None

    def resume(self) -> tuple[str, ...]:
        """Load the newest usable checkpoint; return what is wrong with newer ones.

        Raises:
            CheckpointError: If there is no usable checkpoint, or it belongs to another run.
        """
        assert self._checkpointer is not None, (
            "a trainer without a checkpointer has nothing to resume"
        )
        loaded = self._checkpointer.load_latest()
        try:
            elapsed_s = check_real("elapsed_s", loaded.state["elapsed_s"], 0.0)
            self.optimizer.load_state_dict(loaded.state["optimizer"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{loaded.path.name}: {error}") from error
        self._saved, self.elapsed_s = loaded.step, elapsed_s
        return loaded.passed_over

    def run(self) -> TrainingResult:
        """Train until all generations are done, the time limit, or a stop request.

        Callbacks that were started are ended, also after an error.

        Raises:
            CheckpointError: If the folder of the checkpointer holds checkpoints and
                ``resume()`` was not called: a new run would mix with them.
            OSError: If metrics or a checkpoint cannot be written.
        """
        ranks.broadcast(self._check_free)
        with ExitStack() as stack:
            if self._owns_stop:
                stack.callback(self.stop.forget)
                stack.enter_context(self.stop)
            if self._time_limit_s is not None:
                # The stack restores the old deadline at the end.
                stack.callback(setattr, self.stop, "deadline", self.stop.deadline)
                self.stop.deadline = time.monotonic() + self._time_limit_s
            first_generation = self.optimizer.generation
            plan = RunPlan(first_generation, self._generations, self._time_limit_s, self._costs)
            self._copy_state_of_rank_0()
            self._called = [
                callback
                for callback in self._callbacks
                if callback.on_every_rank or ranks.rank() == 0
            ]
            for callback in self._called:
                stack.callback(callback.on_end)
                callback.on_start(plan)
            reason = self._loop()
            self._save()
            self._copy_state_of_rank_0()
            signum = self.stop.due[1] if reason == "signal" else None
        return TrainingResult(reason, signum, self.optimizer.generation, self.elapsed_s)

    def _loop(self) -> Reason:
        """Run and record generations until there is a reason to stop; return that reason.

        A generation is queued when it is run, and recorded later. On a GPU that is when the
        next ones are queued, so that the device has work meanwhile: ``queued`` are the newest
        generations, ``pending`` those before, of which copies to the host have begun. At the
        end the optimizer returns to the last generation that was recorded.
        """
        self._recorded = self.optimizer.snapshot()
        self._saved_at = time.monotonic()
        # The generations, one after another, in which every candidate failed.
        self._failures = 0
        # The time at which queued generations are dropped; None: there is no need to stop.
        self._give_up_at: float | None = None
        # The number of records that are copied together.
        self._batch_size = 1
        pending: list[_Queued] = []
        queued: list[_Queued] = []
        try:
            with suppress(Interrupted):
                while self._reason_to_stop() is None:
                    try:
                        queued += self._advance()
                    except BaseException as error:
                        # The KeyboardInterrupt of a second Ctrl-C does not wait for the device.
                        if not isinstance(error, Exception):
                            self._give_up_at = time.monotonic()
                        with suppress(Interrupted):
                            self._record(pending)
                            self._record(queued)
                        raise
                    if len(queued) < self._batch_size:
                        continue
                    if self._defers_sync:
                        copy_to_host([snapshot for snapshot, _ in queued])
                        pending, queued = queued, pending
                    self._record(queued)
                    queued = []
                self._record(pending)
                self._record(queued)
        finally:
            if self.optimizer.generation != self._recorded.generation:
                self.optimizer.rewind(self._recorded)
        return self._reason_to_stop() or "requested"

    def _reason_to_stop(self) -> Reason | None:
        """Return why the run has to end now; None: it goes on."""
        if self._generations is not None and self.optimizer.generation >= self._generations:
            return "finished"
        if self._failures >= MOST_FAILURES:
            return "failed"
        due, signum = self.stop.due
        if not due:
            return None
        if due == Due.BY_REQUEST:
            return "signal" if signum else "requested"
        return "time_limit"

    def _advance(self) -> list[_Queued]:
        """Run generations up to the next record, or to several records in one CUDA graph.

        Returns:
            Snapshots for these records, with the time at which this call began.
        """
        began = time.monotonic()
        optimizer = self.optimizer
        # A record comes after every multiple of record_every generations, and after the last.
        count = self._record_every - optimizer.generation % self._record_every
        left = math.inf
        if self._generations is not None:
            left = self._generations - optimizer.generation
        count = int(min(count, left))
        if self._graph:
            records = 1
            if count == self._record_every and count * self._batch_size <= left:
                records = self._batch_size
            run_graph = self._capture(count, records)
            return [(snapshot, began) for snapshot in run_graph()]
        for _ in range(count):
            candidates = optimizer.ask()
            # The objective gets a copy, because it may change its argument in place.
            evaluation = as_evaluation(
                self._objective(copy_of(candidates), optimizer.generation)
            )
            evaluated = evaluation.candidates
            if evaluated is None:
                # The optimizer need not check what it drew itself.
                optimizer.tell(candidates, evaluation.fitness, _check_candidates=False)
            else:
                optimizer.tell(evaluated, evaluation.fitness)
        return [(optimizer.snapshot(evaluation, copied=False), began)]

    def _record(self, queued: Sequence[_Queued]) -> None:
        """Record queued generations in their order; on a GPU they are copied together.

        There the seconds since the last record are shared equally by the generations, and
        determine how many records are copied together from now on.
        """
        if not queued:
            return
        last, began = queued[-1]
        if not self._defers_sync:
            self._record_one(last, time.monotonic() - began)
            return
        copy_to_host([snapshot for snapshot, _ in queued])
        self._wait(last)
        seconds = last.seconds_since(self._recorded)
        generations = last.generation - self._recorded.generation
        # Ranks measure different times, but have to copy the same number of records.
        if ranks.count() == 1:
            affordable = int(_BATCH_SECONDS * len(queued) / max(seconds, 1e-9))
            batch_size = min(_MAX_BATCH, affordable)
            self._batch_size = max(1, min(batch_size, 2 * len(queued)))
            if self._graph:
                self._batch_size = _GRAPH_BATCH if batch_size >= _MIN_GRAPH_BATCH else 1
        for snapshot, _ in queued:
            share = (snapshot.generation - self._recorded.generation) / generations
            self._record_one(snapshot, seconds * share)

    def _record_one(self, snapshot: Snapshot, seconds: float) -> None:
        """Pass the record of a generation to the callbacks, and save a checkpoint if it is due.

        ``seconds`` is the time since the last record.

        Raises:
            Interrupted: If the run ends with this generation: a callback asked for it, or too
                many generations have failed.
        """
        due_before, _ = self.stop.due
        generations = snapshot.generation - self._recorded.generation
        self._recorded = snapshot
        self._failures = self._failures + 1 if snapshot.failed else 0
        self.elapsed_s += seconds
        record = snapshot.record(seconds, self.elapsed_s, generations)
        for callback in self._called:
            try:
                callback.on_generation(record)
            except (Interrupted, StopIteration):
                if callback.on_every_rank or ranks.count() == 1:
                    raise Interrupted("a callback ended the run") from None
                # The other ranks learn of it by the request.
                self.stop.request()
        saver = self._checkpointer
        if saver is not None and time.monotonic() - self._saved_at >= saver.interval_s:
            self._save()
            self._saved_at = time.monotonic()
        # A request without a signal, which was not there before, is that of a callback.
        due, signum = self.stop.due
        by_callback = due > due_before and due == Due.BY_REQUEST and not signum
        if by_callback or self._failures >= MOST_FAILURES:
            raise Interrupted("the run ends with this generation")

    def _wait(self, snapshot: Snapshot) -> None:
        """Wait until a snapshot has arrived on the host, in naps so that signals are handled.

        Raises:
            Interrupted: If the run is asked to stop, and it does not arrive in the grace time.
        """
        # Short generations arrive while the device is queried without a nap.
        for _ in range(_QUERIES):
            if snapshot.ready:
                return
        nap = _SHORTEST_NAP
        while not snapshot.ready:
            now = time.monotonic()
            if self._give_up_at is None and self.stop.due[0] == Due.BY_REQUEST:
                self._give_up_at = now + GRACE_SECONDS
            if self._give_up_at is not None and now >= self._give_up_at:
                raise Interrupted("the grace time is over")
            time.sleep(nap)
            nap = min(1.25 * nap, _LONGEST_NAP)

    def _save(self) -> None:
        """Save a checkpoint of the last recorded generation, if there is none yet."""
        generation = self._recorded.generation
        if self._checkpointer is None or self._saved == generation or ranks.rank() > 0:
            return
        state = self._recorded.state_dict()
        for callback in self._callbacks:
            callback.on_checkpoint(generation, state)
        self._checkpointer.save(generation, {"optimizer": state, "elapsed_s": self.elapsed_s})
        self._saved = generation

    def _copy_state_of_rank_0(self) -> None:
        """Give all ranks the state of rank 0, with its seed."""
        if ranks.count() > 1:
            state = ranks.broadcast(self.optimizer.state_dict)
            if ranks.rank() > 0:
                self.optimizer.load_state_dict(state)

    def _check_free(self) -> None:
        """Raise CheckpointError if a new run would mix with checkpoints in its folder."""
        if self._checkpointer is None or self._saved is not None:
            return
        newest = next(iter(self._checkpointer.paths().values()), None)
        if newest is not None:
            raise CheckpointError(
                f"expected a folder without checkpoints for a fresh run, got {newest}: "
                "resume that run or choose another folder"
            )
