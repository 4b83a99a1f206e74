"""The training loop: ask, evaluate, tell, record and save, until there is a reason to end."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import torch

from cem.core.checks import check_real
from cem.core.evaluation import Objective, as_evaluation, copy_of
from cem.core.snapshot import GenerationRecord, Snapshot, copy_to_host
from cem.optimizer import CrossEntropyMethod
from cem.run import ranks
from cem.run.callbacks import Callback, RunPlan, as_callbacks
from cem.run.checkpoint import Checkpointer, CheckpointError
from cem.run.stopping import Due, Interrupted, StopRequest
from kernels.support.checks import check_integer

# When a run is stopped, it waits at most this long for the results of queued generations.
GRACE_SECONDS = 1.0
# At most _MAX_BATCH records are copied to the host together, and only as many as the device
# computes in _BATCH_SECONDS.
_MAX_BATCH = 64
_BATCH_SECONDS = 4e-3
# A CUDA graph contains _GRAPH_BATCH records if the device computes at least _MIN_GRAPH_BATCH
# records in _BATCH_SECONDS, otherwise one record.
_GRAPH_BATCH = 16
_MIN_GRAPH_BATCH = 4
# Before the first nap the device is queried _QUERIES times; a query takes some microseconds.
_QUERIES = 100
# The limits of a nap, in seconds.
_SHORTEST_NAP = 1e-4
_LONGEST_NAP = 0.005

MOST_FAILURES = 3  # the number of consecutive failed generations that ends a run
Reason = Literal["finished", "time_limit", "signal", "requested", "failed"]


def defers_sync(device: torch.device) -> bool:
    """Return whether a generation on ``device`` is recorded after the next one is queued."""
    return device.type != "cpu"


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        reason: "finished" (all generations), "time_limit", "signal", "requested"
            (``stop.request()``), or "failed" (every candidate failed in three consecutive
            generations).
        signum: The number of the signal if ``reason`` is "signal", otherwise None.
        generation: The number of generations, including those before the run was resumed.
        elapsed_s: The wall time of these generations, in seconds.
    """

    reason: Reason
    signum: int | None
    generation: int
    elapsed_s: float


# A generation that is not recorded yet: its snapshot, and the time at which it began.
_Queued = tuple[Snapshot, float]


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

    A trainer with a checkpointer saves the state between generations, and at the end of a run
    that raises no error. A run after ``resume()`` gives bit for bit the results of an
    uninterrupted run, however it was stopped: it computes the generations after the checkpoint
    again, with the same results.

    A signal or the time limit interrupts an objective that calls ``trainer.stop.check()``, and
    the trainer drops its generation. Any other objective finishes its generation first.

    On a GPU a generation is recorded and saved after the next one is queued. So the device has
    work while the host writes, provided that the objective only queues work (see
    ``Evaluation``). Records of short generations are copied to the host together, up to four
    milliseconds of them; each gets an equal share of the time. The files are the same. When
    the run is asked to stop, it waits ``GRACE_SECONDS`` for the queued generations and then
    drops them.

    Inside ``cem.run.ranks.joined`` every rank runs the same trainer, with an objective that
    shares its work. Rank 0 saves the checkpoints, resumes for all ranks, and calls the
    callbacks. A callback with ``on_every_rank`` is called on all ranks.

    Attributes:
        optimizer: The optimizer. Before and after a run its state is that of the last recorded
            generation.
        stop: The request to stop; objectives may call ``stop.check()``.
        ended_by: The callbacks that have ended the last run.
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
        stateful: Any = None,
    ) -> None:
        """Prepare a run; ``run()`` starts it.

        Args:
            optimizer: The optimizer.
            objective: A function (candidates, generation) -> fitness or ``Evaluation``; see
                ``Objective``.
            generations: The total number of generations, including those before the run was
                resumed. None: run until the time limit or a signal.
            time_limit_s: The time limit of each ``run()``, in seconds, ``>= 0``. None: no
                limit.
            callbacks: The callbacks, called in this order.
            checkpointer: Saves checkpoints. None: no checkpoints are saved.
            stop: A stop request whose context the caller has entered (``with StopRequest() as
                stop``). None: ``run()`` makes its own and enters it.
            costs: The relative cost of each generation. Callbacks estimate the remaining time
                from it. Empty: all generations cost the same.
            record_every: The number of generations per record, ``>= 1``. The run stops, calls
                the callbacks and saves checkpoints only after a record. The last generation of
                a run is always recorded.
            graph: Whether to run the generations of a record as one CUDA graph; see
                ``CrossEntropyMethod.capture``.
            stateful: An objective with ``state_dict()`` and ``load_state_dict(state)``, whose
                state belongs to checkpoints; each generation is then recorded at once. None:
                there is none.
        """
        self.optimizer = optimizer
        self._stateful = stateful
        self.stop = StopRequest() if stop is None else stop
        self.elapsed_s = 0.0
        self._objective = objective
        if generations is not None:
            generations = check_integer("generations", generations, 0)
        if time_limit_s is not None:
            time_limit_s = check_real("time_limit_s", time_limit_s, 0.0)
        self._generations = generations
        # Without a number of generations, the run has no last one.
        self._last_generation = math.inf if generations is None else generations
        self._time_limit_s = time_limit_s
        self._callbacks = as_callbacks(callbacks)
        self._checkpointer = checkpointer
        self._owns_stop = stop is None
        self._costs = tuple(costs)
        self._record_every = check_integer("record_every", record_every, 1)
        self._uses_graph = graph
        # Capturing a CUDA graph is slow, so graphs are cached. A graph depends on the number of
        # its generations and of its records.
        self._capture = cache(partial(optimizer.capture_records, objective))
        # On a GPU, work is queued and the results are read later. But the state of an objective
        # must be saved before the next generation changes it.
        self._defers_sync = defers_sync(optimizer.device) and stateful is None
        # The generation of the newest checkpoint.
        self._saved: int | None = None

    def resume(self) -> tuple[str, ...]:
        """Load the newest usable checkpoint.

        Returns:
            The errors of newer checkpoints, which are damaged.

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
            if self._stateful is not None:
                self._stateful.load_state_dict(loaded.state["objective"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{loaded.path.name}: {error}") from error
        self._saved = loaded.step
        self.elapsed_s = elapsed_s
        return loaded.passed_over

    def run(self) -> TrainingResult:
        """Train until all generations are done, the time limit has passed, or a stop is due.

        For every callback whose ``on_start`` was called, ``on_end`` is called, even after an
        error.

        Raises:
            CheckpointError: If the checkpointer's folder contains checkpoints and ``resume()``
                was not called. A new run must not be mixed with them.
            OSError: If metrics or a checkpoint cannot be written.
        """
        # Rank 0 checks that a new run's folder has no checkpoints. All ranks raise its error.
        ranks.broadcast(self._check_free)
        with ExitStack() as stack:
            if self._owns_stop:
                # An ExitStack leaves in reverse order: when the block ends, first the signal
                # handlers are restored, then the request is forgotten.
                stack.callback(self.stop.forget)
                stack.enter_context(self.stop)
            if self._time_limit_s is not None:
                # When the block ends, the stack restores the deadline that was set before.
                stack.callback(setattr, self.stop, "deadline", self.stop.deadline)
                self.stop.deadline = time.monotonic() + self._time_limit_s

            first_generation = self.optimizer.generation
            plan = RunPlan(first_generation, self._generations, self._time_limit_s, self._costs)
            self._copy_state_of_rank_0()
            # The callbacks that this rank calls.
            self._own_callbacks = [
                callback
                for callback in self._callbacks
                if callback.on_every_rank or ranks.rank() == 0
            ]
            for callback in self._own_callbacks:
                stack.callback(callback.on_end)
                callback.on_start(plan)

            reason = self._loop()
            self._save()
            self._copy_state_of_rank_0()
            # ``due`` is a pair: the reason to stop, and the number of the signal.
            _, stop_signal = self.stop.due
            signum = stop_signal if reason == "signal" else None
        return TrainingResult(reason, signum, self.optimizer.generation, self.elapsed_s)

    def _loop(self) -> Reason:
        """Run and record generations until there is a reason to stop; return that reason.

        Interrupted ends the run, too. If no other reason applies then, the reason is
        "requested".
        """
        self._remember(self.optimizer.snapshot())
        self._saved_at = time.monotonic()
        # The number of consecutive generations in which every candidate failed.
        self._failures = 0
        self.ended_by: list[Callback] = []
        # The time after which ``_wait`` no longer waits for the device. It is infinite until a
        # stop is requested.
        self._give_up_at = math.inf
        # How many records are copied to the host together. It is adapted on a GPU.
        self._batch_size = 1
        try:
            with suppress(Interrupted):
                self._run_and_record()
        finally:
            # Generations that were run but not recorded are dropped.
            if self.optimizer.generation != self._recorded.generation:
                self.optimizer.rewind(self._recorded)
            if self._stateful is not None:
                self._stateful.load_state_dict(self._recorded_objective)
        return self._reason_to_stop() or "requested"

    def _remember(self, snapshot: Snapshot) -> None:
        """Store the snapshot that was recorded last, with the objective's state after it."""
        self._recorded = snapshot
        if self._stateful is not None:
            # A generation that is dropped may have changed the state.
            self._recorded_objective = deepcopy(self._stateful.state_dict())

    def _run_and_record(self) -> None:
        """Run generations and record each, until there is a reason to stop.

        On the CPU a generation is recorded as soon as it has run. On a GPU, running a
        generation only queues its work. A generation is recorded after the next ones are
        queued, so that the device has work while the host records.
        """
        # The generations that were run last.
        queued: list[_Queued] = []
        # On a GPU: the generations before them, which are being copied to the host.
        copying: list[_Queued] = []
        while self._reason_to_stop() is None:
            try:
                queued += self._advance()
            except BaseException as error:
                self._record_despite(error, copying, queued)
                raise
            # Collect a batch of generations: copying them together is faster.
            if len(queued) < self._batch_size:
                continue
            if self._defers_sync:
                # Start to copy the new generations, and record those before them.
                copy_to_host([snapshot for snapshot, _ in queued])
                self._record(copying)
                copying = queued
            else:
                self._record(queued)
            queued = []
        self._record(copying)
        self._record(queued)

    def _record_despite(self, error: BaseException, *batches: Sequence[_Queued]) -> None:
        """Record the generations before an error; stop early if the run is interrupted."""
        # A second Ctrl-C raises KeyboardInterrupt: then do not wait for the device.
        if not isinstance(error, Exception):
            self._give_up_at = time.monotonic()
        with suppress(Interrupted):
            for batch in batches:
                self._record(batch)

    def _reason_to_stop(self) -> Reason | None:
        """Return why the run has to end now, or None if it continues."""
        if self.optimizer.generation >= self._last_generation:
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
        """Run generations until the next record is due.

        A CUDA graph may run the generations of several records.

        Returns:
            For each record a pair: the snapshot, and the time at which this call began.
        """
        began_at = time.monotonic()
        optimizer = self.optimizer
        # A record is due when the generation is a multiple of record_every, and at the end.
        until_record = self._record_every - optimizer.generation % self._record_every
        generations_left = self._last_generation - optimizer.generation
        num_generations = int(min(until_record, generations_left))
        if self._uses_graph:
            snapshots = self._replay_graph(num_generations, generations_left)
        else:
            snapshots = [self._run_generations(num_generations)]
        return [(snapshot, began_at) for snapshot in snapshots]

    def _replay_graph(self, num_generations: int, generations_left: float) -> list[Snapshot]:
        """Run generations by a CUDA graph, and return the snapshots of its records.

        Args:
            num_generations: The number of generations until the next record.
            generations_left: The number of generations until the end of the run.
        """
        num_records = 1
        # All records of a graph have the same number of generations, so a graph with several
        # records needs that many complete ones.
        is_full = num_generations == self._record_every
        if is_full and num_generations * self._batch_size <= generations_left:
            num_records = self._batch_size
        run_graph = self._capture(num_generations, num_records)
        return run_graph()

    def _run_generations(self, count: int) -> Snapshot:
        """Run generations one by one, and return the snapshot of the last one."""
        optimizer = self.optimizer
        for _ in range(count):
            candidates = optimizer.ask()
            # The objective may change its argument in place, so it gets a copy.
            evaluate = partial(self._objective, copy_of(candidates), optimizer.generation)
            # After every evaluation the ranks agree whether to stop, whatever the objective.
            evaluation = as_evaluation(ranks.run_collective(evaluate, self.stop))
            is_queue_empty = optimizer.generation == self._recorded.generation
            if self._defers_sync and is_queue_empty and optimizer.device.type == "cuda":
                # Fitness on the CPU: the host has waited for it. Evaluating the next generation
                # before this one is recorded would save no time, and perhaps be in vain.
                self._defers_sync = getattr(evaluation.fitness, "is_cuda", False)
            # Asynchronous candidates may belong to earlier distributions. The lag is how far
            # the mean has moved since.
            if evaluation.lag is not None:
                optimizer.move_back(evaluation.lag)
            evaluated = evaluation.candidates
            if evaluated is None:
                # The optimizer need not check candidates that it drew itself.
                optimizer.tell(candidates, evaluation.fitness, _check_candidates=False)
            else:
                optimizer.tell(evaluated, evaluation.fitness)
        return optimizer.snapshot(evaluation, copied=False)

    def _record(self, queued: Sequence[_Queued]) -> None:
        """Record generations in order.

        On the CPU there is only one record, whose time is measured. On a GPU the work is
        queued, and only the time from the last record to the end of the queue can be measured.
        Every generation gets an equal share of it.

        Args:
            queued: For each record a pair, as ``_advance`` returns it: the snapshot after the
                generation, and the time at which the host began to run it.
        """
        if not queued:
            return
        last, began_at = queued[-1]
        is_on_cpu = not self._defers_sync
        if is_on_cpu:
            # The batch size is 1, so ``last`` is the only snapshot.
            self._record_one(last, time.monotonic() - began_at)
            return
        copy_to_host([snapshot for snapshot, _ in queued])
        self._wait(last)
        previous = self._recorded
        seconds = last.seconds_since(previous)
        generations = last.generation - previous.generation
        self._adapt_batch_size(len(queued), seconds)
        for snapshot, _ in queued:
            share = (snapshot.generation - previous.generation) / generations
            self._record_one(snapshot, seconds * share)
            previous = snapshot

    def _adapt_batch_size(self, num_records: int, seconds: float) -> None:
        """Choose how many records are copied to the host together from now on.

        The device has computed the last ``num_records`` records in ``seconds``.
        """
        # Ranks measure different times, but all have to copy the same number of records.
        if ranks.count() > 1:
            return
        affordable = int(_BATCH_SECONDS * num_records / max(seconds, 1e-9))
        batch_size = min(_MAX_BATCH, affordable)
        self._batch_size = max(1, min(batch_size, 2 * num_records))
        if self._uses_graph:
            # Each batch size needs a graph of its own, so there are only two.
            self._batch_size = _GRAPH_BATCH if batch_size >= _MIN_GRAPH_BATCH else 1

    def _record_one(self, snapshot: Snapshot, seconds: float) -> None:
        """Pass the record of a generation to the callbacks; save a checkpoint if one is due.

        Args:
            snapshot: The state after the generation, on the host.
            seconds: The wall time since the previous record.

        Raises:
            Interrupted: If the run has to end with this generation: a callback asked to stop,
                or ``MOST_FAILURES`` consecutive generations have failed.
        """
        # ``due`` is a pair: the reason to stop, and the number of the signal.
        stop_before, _ = self.stop.due
        generations = snapshot.generation - self._recorded.generation
        self._remember(snapshot)
        self._failures = self._failures + 1 if snapshot.failed else 0
        self.elapsed_s += seconds
        record = snapshot.record(seconds, self.elapsed_s, generations)
        self._call_callbacks(record)
        saver = self._checkpointer
        if saver is not None and time.monotonic() - self._saved_at >= saver.interval_s:
            self._save()
            self._saved_at = time.monotonic()
        # If a stop was requested since this method began, but not by a signal, a callback
        # requested it.
        stop_now, signum = self.stop.due
        is_new_request = stop_now == Due.BY_REQUEST and stop_before != Due.BY_REQUEST
        callback_asked_to_stop = is_new_request and not signum
        if callback_asked_to_stop or self._failures >= MOST_FAILURES:
            raise Interrupted("the run ends with this generation")

    def _call_callbacks(self, record: GenerationRecord) -> None:
        """Call ``on_generation`` of this rank's callbacks.

        All of them get the record, because the generation counts, also if one ends the run.

        Raises:
            Interrupted: If a callback raises Interrupted or StopIteration to end the run.
        """
        for callback in self._own_callbacks:
            try:
                callback.on_generation(record)
            except (Interrupted, StopIteration):
                if callback.on_every_rank or ranks.count() == 1:
                    self.ended_by.append(callback)
                else:
                    # Only rank 0 ran it. The ranks agree on this request, and end together.
                    self.stop.request()
        if self.ended_by:
            raise Interrupted("a callback ended the run")

    def _wait(self, snapshot: Snapshot) -> None:
        """Wait until a snapshot has arrived on the host.

        Short sleeps, instead of one blocking call, let Python handle signals.

        Raises:
            Interrupted: If a stop is requested, and the snapshot does not arrive within
                ``GRACE_SECONDS``.
        """
        # The snapshot of a short generation arrives during a few queries, without a sleep.
        for _ in range(_QUERIES):
            if snapshot.ready:
                return
        nap = _SHORTEST_NAP
        while not snapshot.ready:
            now = time.monotonic()
            due, _ = self.stop.due
            if due == Due.BY_REQUEST:
                self._give_up_at = min(self._give_up_at, now + GRACE_SECONDS)
            if now >= self._give_up_at:
                raise Interrupted("the grace time is over")
            time.sleep(nap)
            nap = min(1.25 * nap, _LONGEST_NAP)

    def _save(self) -> None:
        """Save a checkpoint of the last recorded generation, unless it is already saved."""
        generation = self._recorded.generation
        if self._checkpointer is None or self._saved == generation or ranks.rank() > 0:
            return
        state = self._recorded.state_dict()
        for callback in self._callbacks:
            callback.on_checkpoint(generation, state)
        content = {"optimizer": state, "elapsed_s": self.elapsed_s}
        if self._stateful is not None:
            content["objective"] = self._stateful.state_dict()
        self._checkpointer.save(generation, content)
        self._saved = generation

    def _copy_state_of_rank_0(self) -> None:
        """Load the state of rank 0, including its seed, on all other ranks."""
        if ranks.count() > 1:
            state = ranks.broadcast(self.optimizer.state_dict)
            if ranks.rank() > 0:
                self.optimizer.load_state_dict(state)

    def _check_free(self) -> None:
        """Raise CheckpointError if the folder of a new run already contains checkpoints."""
        if self._checkpointer is None or self._saved is not None:
            return
        newest = next(iter(self._checkpointer.paths().values()), None)
        if newest is not None:
            raise CheckpointError(
                f"expected a folder without checkpoints for a fresh run, got {newest}: "
                "resume that run or choose another folder"
            )
