"""The training loop: its records, its ends and how it is resumed.

The trainer defers host sync on a GPU; tests defer it on the CPU, too. A test of a slow device
decides when its results are ready.
"""

import errno
import json
import math
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from searches import bits

from cem import (
    Callback,
    CEMConfig,
    Checkpointer,
    CheckpointError,
    CrossEntropyMethod,
    Evaluation,
    Interrupted,
    MetricsWriter,
    Trainer,
)
from cem.core.snapshot import Snapshot
from cem.run.checkpoint import read_checkpoint

GENERATIONS = 9
EVENT = 4  # the generation something happens in, counted from 0 as for the objective
TIMES = ("seconds", "elapsed_s", "evaluated/s")
INT, TERM = signal.SIGINT, signal.SIGTERM


def make():
    config = CEMConfig(variance_schedule="linear:0.5,20", smoothing=0.8)
    return CrossEntropyMethod(
        torch.full((4,), 2.0), 1.0, 40, maximize=False, config=config, seed=3
    )


def sphere(candidates, generation):
    fitness = candidates.square().sum(dim=1) + 0.1 * generation
    metrics = {"stage": 1, "worst": fitness.max(), "evaluated": torch.tensor(len(fitness))}
    return Evaluation(fitness, metrics, rates=["evaluated"])


@pytest.fixture(autouse=True)
def _all_checkpoints_are_kept(monkeypatch):
    monkeypatch.setattr("cem.run.checkpoint.KEPT", 100)


@pytest.fixture
def sync(monkeypatch):
    """Choose the host sync of the trainer: "immediate", "deferred", or that of several "at
    once"."""

    def choose(how):
        monkeypatch.setattr("cem.run.trainer.defers_sync", lambda device: how != "immediate")
        monkeypatch.setattr("cem.run.trainer._MAX_BATCH", 2 if how == "at once" else 1)

    return choose


@pytest.fixture(params=["immediate", "deferred", "at once"])
def either_sync(request, sync):
    sync(request.param)


class Training(Callback):
    """A run in a folder, with all that it leaves and the order of all calls.

    Args:
        folder: The folder; a run that is there is resumed.
        place: Where something happens, in generation ``EVENT``: "objective", "on_generation" or
            "on_checkpoint".
        act: What happens, called with the trainer; an objective returns its result, if there is
            one.
    """

    def __init__(self, folder, place=None, act=None):
        folder.mkdir(exist_ok=True)
        self.folder, self.place, self.act = folder, place, act
        self.optimizer, self.checkpointer = make(), Checkpointer(folder)
        self.calls, self.records, self.states, self.ahead = [], [], {}, []
        self.trainer = Trainer(
            self.optimizer,
            self.objective,
            generations=GENERATIONS,
            callbacks=[MetricsWriter(folder / "metrics.jsonl"), self],
            checkpointer=self.checkpointer,
        )

    def happens(self, place, number):
        return self.act(self.trainer) if (place, number) == (self.place, EVENT) else None

    def objective(self, candidates, generation):
        self.calls.append(("play", generation + 1))
        instead = self.happens("objective", generation)
        return sphere(candidates, generation) if instead is None else instead

    def on_start(self, plan):
        self.calls.append(("start", plan.generation, plan.generations, plan.time_limit_s))

    def on_generation(self, record):
        self.calls.append(("generation", record.generation))
        self.records.append(record)
        self.happens("on_generation", record.generation)

    def on_checkpoint(self, generation, state):
        self.calls.append(("checkpoint", generation))
        self.states[generation] = bits(state)
        self.ahead.append(self.optimizer.generation - generation)
        self.happens("on_checkpoint", generation)

    def on_end(self):
        self.calls.append(("end",))

    def run(self):
        """Run, and return how it ended."""
        if self.checkpointer.paths():
            self.trainer.resume()
        try:
            result = self.trainer.run()
        except BaseException as error:
            return type(error).__name__, str(error)
        return result.reason, result.signum, result.generation

    def played(self):
        return [call[1] for call in self.calls if call[0] == "play"]

    def lines(self):
        lines = [
            json.loads(line)
            for line in (self.folder / "metrics.jsonl").read_text().splitlines()
        ]
        return [{name: line[name] for name in line if name not in TIMES} for line in lines]

    def files(self):
        paths = self.checkpointer.paths()
        return self.lines(), {
            step: bits(read_checkpoint(paths[step])[0]["optimizer"]) for step in paths
        }

    def outcome(self):
        heard = [call for call in self.calls if call[0] != "play"]
        return self.files(), heard, self.states, bits(self.optimizer)


def test_a_generation_is_recorded_when_the_next_one_was_told_with_its_own_state(sync, tmp_path):
    sync("deferred")
    training = Training(tmp_path / "run")
    assert training.run() == ("finished", None, GENERATIONS)
    expected = [("start", 0, GENERATIONS, None), ("play", 1)]
    for number in range(1, GENERATIONS):
        expected += [("play", number + 1), ("generation", number), ("checkpoint", number)]
    last = [("generation", GENERATIONS), ("checkpoint", GENERATIONS), ("end",)]
    assert training.calls == [*expected, *last]
    assert training.ahead == [1] * (GENERATIONS - 1) + [0]
    by_hand = make()
    for generation, record in enumerate(training.records):
        candidates = by_hand.ask()
        evaluation = sphere(candidates, generation)
        by_hand.tell(candidates, evaluation.fitness)
        assert training.states[generation + 1] == bits(by_hand)
        statistics = by_hand.statistics()
        assert {name: getattr(record, name) for name in statistics} == statistics
        assert torch.equal(record.mean, by_hand.mean)
        assert torch.equal(record.std, by_hand.std)
        assert record.metrics["worst"] == float(evaluation.fitness.max())
    assert training.files()[1] == training.states
    assert record.elapsed_s == pytest.approx(sum(each.seconds for each in training.records))


def fail(error):
    def failing(trainer):
        raise error

    return failing


def send(*numbers, check=False):
    def sending(trainer):
        for number in numbers:
            os.kill(os.getpid(), number)
        if check:
            trainer.stop.check()

    return sending


FULL = OSError(errno.ENOSPC, "full")
SITUATIONS = {  # where, what is done, and how the run ends
    "interrupted": ("objective", send(INT, check=True), ("signal", INT, EVENT)),
    "signalled": ("objective", send(TERM), ("signal", TERM, EVENT + 1)),
    "second_ctrl_c": ("objective", send(INT, INT), ("KeyboardInterrupt", "")),
    "objective_fails": ("objective", fail(ZeroDivisionError("x")), ("ZeroDivisionError", "x")),
    "callback_interrupts": ("on_generation", fail(Interrupted()), ("requested", None, EVENT)),
    "disk_is_full": ("on_checkpoint", fail(FULL), ("OSError", "[Errno 28] full")),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_deferred_sync_leaves_the_files_of_immediate_sync_and_can_be_resumed(
    sync, tmp_path, name
):
    place, act, ending = SITUATIONS[name]
    outcomes, handlers = [], [signal.getsignal(number) for number in (INT, TERM)]
    for how in ("immediate", "deferred", "at once"):
        sync(how)
        training = Training(tmp_path / how, place, act)
        assert training.run() == ending
        outcomes.append(training.outcome())
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert [signal.getsignal(number) for number in (INT, TERM)] == handlers
    count = len(training.lines())
    assert [line["generation"] for line in training.lines()] == list(range(1, count + 1))
    assert count == training.optimizer.generation >= EVENT
    assert_goes_on(tmp_path, "at once")


def assert_goes_on(folder, name):
    """A run that is resumed leaves the files of one that was never stopped."""
    whole, resumed = Training(folder / "whole"), Training(folder / name)
    saved = max(resumed.checkpointer.paths())
    assert whole.run() == resumed.run() == ("finished", None, GENERATIONS)
    assert resumed.files() == whole.files()
    assert resumed.played() == list(range(saved + 1, GENERATIONS + 1))


@pytest.mark.parametrize(("record_every", "most"), [(1, 9), (10, 10)])
def test_the_records_of_a_millisecond_are_copied_together(
    sync, monkeypatch, record_every, most
):
    def since(snapshot, earlier):
        return 2e-4 * (snapshot.generation - earlier.generation)

    class Ahead(Callback):
        def on_generation(self, record):
            ahead.append(optimizer.generation - record.generation)

    sync("deferred")
    monkeypatch.setattr("cem.run.trainer._MAX_BATCH", 64)
    monkeypatch.setattr("cem.run.trainer._BATCH_SECONDS", 1e-3)
    monkeypatch.setattr(Snapshot, "seconds_since", since)
    ahead, optimizer = [], make()
    Trainer(
        optimizer, sphere, generations=100, callbacks=[Ahead()], record_every=record_every
    ).run()
    assert max(ahead) == most


@pytest.mark.usefixtures("either_sync")
def test_three_failed_generations_one_after_another_end_a_run():
    fails, seen = (1, 2, 4, 5, 6, 7), []  # counted from 0

    def objective(candidates, generation):
        seen.append(generation)
        fitness = candidates.square().sum(dim=1)
        return fitness * math.nan if generation in fails else fitness

    optimizer = make()
    with pytest.warns(RuntimeWarning, match="all 40 candidates of generation . failed"):
        result = Trainer(optimizer, objective, generations=20).run()
    assert (result.reason, result.generation) == ("failed", 7)
    assert math.isfinite(optimizer.best_fitness)


def test_ctrl_c_ends_a_run_within_two_seconds_though_the_device_is_busy(
    sync, monkeypatch, tmp_path
):
    ready_at = {}  # when the results of a generation are there, by its number
    ready = property(
        lambda snapshot: time.monotonic() >= ready_at.get(snapshot.generation, 0.0)
    )
    monkeypatch.setattr(Snapshot, "ready", ready)
    sync("deferred")

    def interrupt_soon(trainer):
        ready_at[EVENT + 1] = math.inf
        threading.Timer(0.05, os.kill, (os.getpid(), INT)).start()

    training = Training(tmp_path / "run", "objective", interrupt_soon)
    began = time.monotonic()
    assert training.run() == ("signal", INT, EVENT)
    assert time.monotonic() - began < 2.0
    saved = max(training.checkpointer.paths())
    assert training.optimizer.generation == len(training.lines()) == saved == EVENT
    ready_at.clear()
    assert_goes_on(tmp_path, "run")


@pytest.mark.usefixtures("either_sync")
def test_the_time_limit_interrupts_an_objective_that_checks():
    def objective(candidates, generation):
        while generation == 1:
            trainer.stop.check()
        return sphere(candidates, generation)

    trainer = Trainer(make(), objective, time_limit_s=0.1)
    began = time.monotonic()
    assert trainer.run().reason == "time_limit"
    assert 0.1 <= time.monotonic() - began < 5
    assert trainer.optimizer.generation == 1
    assert trainer.stop.deadline is None


@pytest.mark.usefixtures("either_sync")
def test_a_run_can_go_on_after_it_was_asked_to_stop():
    def asks(candidates, generation):
        if generation == 2:
            signal.raise_signal(INT)
        return sphere(candidates, generation)

    trainer = Trainer(make(), asks, generations=5)
    first, second = trainer.run(), trainer.run()
    assert (first.reason, first.signum, first.generation) == ("signal", INT, 3)
    assert (second.reason, second.signum, second.generation) == ("finished", None, 5)


def test_a_stop_comes_after_the_generations_of_a_record():
    class Enough(Callback):
        def on_generation(self, record):
            trainer.stop.request()

    trainer = Trainer(make(), sphere, generations=20, callbacks=[Enough()], record_every=4)
    assert trainer.run().generation == trainer.optimizer.generation == 4


def test_a_fresh_run_does_not_mix_with_an_old_one(tmp_path):
    Trainer(make(), sphere, generations=2, checkpointer=Checkpointer(tmp_path)).run()
    with pytest.raises(
        CheckpointError, match="expected a folder without checkpoints for a fresh run"
    ):
        Trainer(make(), sphere, generations=4, checkpointer=Checkpointer(tmp_path)).run()


def test_saves_keep_the_interval_and_the_last_state_is_always_saved(tmp_path, monkeypatch):
    records = []  # one a second
    monkeypatch.setattr("cem.run.trainer.time", SimpleNamespace(monotonic=lambda: len(records)))
    checkpointer = Checkpointer(tmp_path, interval_s=3)
    Trainer(
        make(), sphere, generations=7, callbacks=[records.append], checkpointer=checkpointer
    ).run()
    assert list(checkpointer.paths()) == [7, 6, 3]


def test_rates_are_those_of_a_generation_where_a_record_is_of_several():
    records = []
    search = CrossEntropyMethod([0.0], 1.0, 6, maximize=False)
    objective = lambda x, generation: Evaluation(x.sum(1), {"games": 7}, rates=["games"])  # noqa: E731
    Trainer(search, objective, generations=8, record_every=4, callbacks=[records.append]).run()
    assert [record.generation for record in records] == [4, 8]
    for record in records:
        assert record.metrics["games/s"] == pytest.approx(7 / (record.seconds / 4))


def test_a_resumed_run_goes_on_with_its_time_and_records_the_same_generations(tmp_path):
    elapsed, records = [], []
    for generations in (3, 10):
        search = CrossEntropyMethod([0.0], 1.0, 6, maximize=False, seed=1)
        trainer = Trainer(
            search,
            lambda x, generation: x.sum(1),
            generations=generations,
            record_every=4,
            callbacks=[records.append],
            checkpointer=Checkpointer(tmp_path),
        )
        if elapsed:
            trainer.resume()
            assert trainer.elapsed_s == elapsed[0] > 0.0
        elapsed.append(trainer.run().elapsed_s)
    assert [record.generation for record in records] == [3, 4, 8, 10]
    assert elapsed[1] > elapsed[0]


def test_the_state_of_an_objective_is_that_of_the_generation_that_is_saved(sync, tmp_path):
    sync("deferred")
    calls = []

    def objective(candidates, generation):
        calls.append(generation)
        return sphere(candidates, generation)

    objective.state_dict = lambda: {"calls": len(calls)}
    objective.load_state_dict = lambda state: None
    checkpointer = Checkpointer(tmp_path)
    trainer = Trainer(
        make(),
        objective,
        generations=8,
        callbacks=lambda record: 1 / (record.generation - 4),
        checkpointer=checkpointer,
        stateful=objective,
    )
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    loaded = checkpointer.load_latest()
    assert (loaded.step, loaded.state["objective"]) == (3, {"calls": 3})


def test_a_dropped_generation_does_not_change_the_state_of_the_objective(tmp_path):
    calls = torch.zeros(1)

    def objective(candidates, generation):
        calls.add_(1)
        if generation == 3:
            raise Interrupted
        return sphere(candidates, generation)

    objective.state_dict = lambda: {"calls": calls}
    objective.load_state_dict = lambda state: calls.copy_(state["calls"])
    checkpointer = Checkpointer(tmp_path)
    Trainer(
        make(), objective, record_every=2, checkpointer=checkpointer, stateful=objective
    ).run()
    assert checkpointer.load_latest().state["objective"]["calls"] == calls == 2
