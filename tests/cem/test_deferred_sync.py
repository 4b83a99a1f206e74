"""Deferred host sync: the same files and the same ends as with immediate sync.

The trainer defers host sync on a GPU. These tests defer it on the CPU. A test of a slow device decides
when its results are ready.
"""

import errno
import json
import math
import os
import signal
import threading
import time

import pytest
import torch
from searches import bits

from cem import Callback, Checkpointer, CrossEntropyMethod, Evaluation, Interrupted, MetricsWriter, Trainer
from cem.snapshot import Snapshot

GENERATIONS = 9
EVENT = 4  # the generation something happens in, counted from 0 as for the objective
TIMES = ("seconds", "elapsed_s", "evaluated/s")


def make():
    return CrossEntropyMethod(
        torch.full((4,), 2.0), 1.0, 40, maximize=False, seed=3, extra_variance="linear:0.5,20", smoothing=0.8
    )


def sphere(candidates, generation):
    fitness = candidates.square().sum(dim=1) + 0.1 * generation
    metrics = {"stage": 1, "worst": fitness.max(), "evaluated": torch.tensor(len(fitness))}
    return Evaluation(fitness, metrics, rates=["evaluated"])


@pytest.fixture
def sync(monkeypatch):
    """Choose the host sync of the trainer: ``sync("deferred")`` or ``sync("immediate")``."""
    return lambda how: monkeypatch.setattr("cem.trainer.defers_sync", lambda device: how == "deferred")


@pytest.fixture
def deferred(sync):
    sync("deferred")


class Recorder(Callback):
    def __init__(self, events=None):
        self.calls = [] if events is None else events
        self.records = []

    def on_generation(self, record):
        self.calls.append(("generation", record.generation))
        self.records.append(record)

    def on_checkpoint(self, generation, state):
        self.calls.append(("checkpoint", generation, bits(state)))

    def on_end(self):
        self.calls.append(("end",))


class Training:
    """A run in a folder, with all that it leaves."""

    def __init__(self, folder, objective=sphere, callbacks=(), generations=GENERATIONS):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.optimizer = make()
        self.recorder = Recorder()
        self.checkpointer = Checkpointer(folder, keep=100)
        self.trainer = Trainer(
            self.optimizer,
            lambda candidates, generation: (
                objective(self.trainer, candidates, generation)
                if objective is not sphere
                else sphere(candidates, generation)
            ),
            generations=generations,
            callbacks=[MetricsWriter(folder / "metrics.jsonl"), self.recorder, *callbacks],
            checkpointer=self.checkpointer,
        )
        for callback in callbacks:
            callback.trainer = self.trainer

    def run(self):
        """Run, and tell how it ended."""
        if self.checkpointer.paths():
            self.trainer.resume()
        try:
            result = self.trainer.run()
        except BaseException as error:
            return type(error).__name__, str(error)
        return result.reason, result.signum, result.generation

    def lines(self):
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [{name: line[name] for name in line if name not in TIMES} for line in lines]

    def files(self):
        states = {}
        for step in self.checkpointer.paths():
            fresh = Checkpointer(self.folder)
            fresh.paths = lambda step=step: {step: self.checkpointer.paths()[step]}
            states[step] = bits(fresh.load_latest().state["optimizer"])
        return self.lines(), states

    def outcome(self):
        return self.files(), self.recorder.calls, bits(self.optimizer.state_dict())


def test_a_generation_is_recorded_when_the_next_one_was_told(deferred):
    events = []

    def objective(candidates, generation):
        events.append(("play", generation + 1))
        return sphere(candidates, generation)

    Trainer(make(), objective, generations=3, callbacks=[Recorder(events)]).run()
    assert events == [
        *(("play", 1), ("play", 2), ("generation", 1)),
        *(("play", 3), ("generation", 2), ("generation", 3), ("end",)),
    ]


def test_a_checkpoint_is_that_of_its_generation_though_the_search_is_ahead(deferred, tmp_path):
    ahead, states = [], {}

    class Watch(Callback):
        def on_checkpoint(self, generation, state):
            ahead.append(self.trainer.optimizer.generation - generation)
            states[generation] = bits(state)

    training = Training(tmp_path / "run", callbacks=[Watch()])
    training.run()
    assert ahead == [1] * (GENERATIONS - 1) + [0]
    by_hand = make()
    for generation in range(GENERATIONS):
        by_hand.tell(sphere(by_hand.ask(), generation).fitness)
        assert states[generation + 1] == bits(by_hand.state_dict())
    assert training.files()[1] == states


class At(Callback):
    """Does something to the run when a generation is recorded or saved."""

    def __init__(self, hook, act):
        setattr(self, hook, lambda count, state=None: self.act(count, act))

    def act(self, count, act):
        if getattr(count, "generation", count) == EVENT:
            act(self.trainer)


def at(hook, act):
    return {"callbacks": [At(hook, act)]}


def fail(error):
    def failing(trainer):
        raise error

    return failing


def request(trainer):
    trainer.stop.request()


def signal_and_check(trainer):
    os.kill(os.getpid(), signal.SIGINT)
    trainer.stop.check()


def signal_twice(trainer):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)


def expire(trainer):
    trainer.stop.deadline = 0.0


def in_objective(act):
    def objective(trainer, candidates, generation):
        if generation == EVENT:
            changed = act(trainer)
            if changed is not None:
                return changed
        return sphere(candidates, generation)

    return {"objective": objective}


DIVISION = ("ZeroDivisionError", "x")
NAN_FITNESS = (
    "expected at least one candidate with a usable fitness, got 40 NaN and 0 infinite of 40 fitness values"
)
SITUATIONS = {  # what is done, and how the run ends
    "interrupted": (in_objective(signal_and_check), ("signal", signal.SIGINT, EVENT)),
    "second_ctrl_c": (in_objective(signal_twice), ("KeyboardInterrupt", "")),
    "time_is_up": (in_objective(expire), ("time_limit", None, EVENT + 1)),
    "objective_fails": (in_objective(fail(ZeroDivisionError("x"))), DIVISION),
    "no_finite_fitness": (
        in_objective(lambda trainer: torch.full((40,), math.nan)),
        ("ValueError", NAN_FITNESS),
    ),
    "callback_fails": (at("on_generation", fail(ZeroDivisionError("x"))), DIVISION),
    "callback_interrupts": (at("on_generation", fail(Interrupted())), ("requested", None, EVENT)),
    "checkpoint_has_seen_enough": (at("on_checkpoint", request), ("requested", None, EVENT)),
    "disk_is_full": (
        at("on_checkpoint", fail(OSError(errno.ENOSPC, "full"))),
        ("OSError", "[Errno 28] full"),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_deferred_sync_leaves_the_files_of_immediate_sync_and_can_be_resumed(sync, tmp_path, name):
    outcomes = []
    for how in ("immediate", "deferred"):
        sync(how)
        options, ending = SITUATIONS[name]
        training = Training(tmp_path / how, **options)
        assert training.run() == ending
        outcomes.append(training.outcome())
    assert outcomes[1] == outcomes[0]
    told = len(training.lines())
    assert [line["generation"] for line in training.lines()] == list(range(1, told + 1))
    assert told == training.optimizer.generation >= EVENT

    whole = Training(tmp_path / "whole")
    assert whole.run() == ("finished", None, GENERATIONS)
    resumed = Training(tmp_path / "deferred")
    assert resumed.run() == ("finished", None, GENERATIONS)
    assert resumed.files() == whole.files()


def test_a_refused_generation_rises_one_generation_later_and_is_named(sync, tmp_path):
    played = {"immediate": [], "deferred": []}
    endings = []
    for how, seen in played.items():

        def objective(trainer, candidates, generation, seen=seen):
            seen.append(generation)
            found = sphere(candidates, generation)
            return torch.full((40,), math.nan) if generation == EVENT else found

        sync(how)
        training = Training(tmp_path / how, objective)
        training.optimizer._refuses_at_once = False  # as on a GPU
        endings.append((training.run(), training.outcome(), training.optimizer.generation))
    assert endings[1] == endings[0]
    assert endings[0][0] == (
        "ValueError",
        f"expected at least one candidate with a usable fitness, got none in generation {EVENT + 1}, "
        "counted from 1",
    )
    assert played == {"immediate": list(range(EVENT + 1)), "deferred": list(range(EVENT + 2))}
    assert len(training.lines()) == EVENT
    training.optimizer.check()  # it was said once


class Device:
    """Says when the results of a generation are there."""

    def __init__(self, monkeypatch):
        self.ready_at = {}
        monkeypatch.setattr(
            Snapshot,
            "ready",
            property(lambda snapshot: time.monotonic() >= self.ready_at.get(snapshot.generation, 0.0)),
        )


@pytest.fixture
def device(deferred, monkeypatch):
    return Device(monkeypatch)


def test_ctrl_c_ends_a_run_within_two_seconds_though_the_device_is_busy(device, tmp_path):
    stuck = EVENT

    def objective(trainer, candidates, generation):
        if generation + 1 == stuck:
            device.ready_at[stuck] = math.inf
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        return sphere(candidates, generation)

    training = Training(tmp_path / "run", objective)
    began = time.monotonic()
    ending = training.run()
    assert time.monotonic() - began < 2.0
    assert ending == ("signal", signal.SIGINT, stuck - 1)
    assert training.optimizer.generation == stuck - 1
    assert len(training.lines()) == stuck - 1
    assert max(training.checkpointer.paths()) == stuck - 1

    device.ready_at.clear()
    resumed, whole = Training(tmp_path / "run"), Training(tmp_path / "whole")
    resumed.run()
    whole.run()
    assert resumed.files() == whole.files()


def test_the_last_generation_is_not_finished_if_its_results_were_dropped(device, monkeypatch, tmp_path):
    monkeypatch.setattr("cem.trainer.GRACE_SECONDS", 0.05)
    device.ready_at[GENERATIONS] = math.inf
    training = Training(tmp_path / "run")

    def stop_at_the_end():
        while training.optimizer.generation < GENERATIONS:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_at_the_end).start()
    assert training.run() == ("signal", signal.SIGTERM, GENERATIONS - 1)


def test_the_second_ctrl_c_ends_the_waiting_at_once(device, monkeypatch, tmp_path):
    monkeypatch.setattr("cem.trainer.GRACE_SECONDS", 60.0)
    device.ready_at[EVENT] = math.inf
    for delay in (0.1, 0.2):
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
    training = Training(tmp_path / "run")
    began = time.monotonic()
    assert training.run()[0] == "KeyboardInterrupt"
    assert time.monotonic() - began < 10.0
    assert len(training.lines()) == EVENT - 1
    assert training.optimizer.generation == EVENT - 1


def test_a_run_goes_on_after_results_were_dropped(device, monkeypatch, tmp_path):
    monkeypatch.setattr("cem.trainer.GRACE_SECONDS", 0.0)
    device.ready_at[EVENT] = math.inf
    training = Training(tmp_path / "run", **in_objective(request))
    assert training.run() == ("requested", None, EVENT - 1)
    device.ready_at.clear()
    again = Trainer(training.optimizer, sphere, generations=GENERATIONS)
    whole = Training(tmp_path / "whole")
    assert again.run().generation == whole.trainer.run().generation == GENERATIONS
    assert bits(training.optimizer.state_dict()) == bits(whole.optimizer.state_dict())


def test_seconds_reach_from_results_to_results(deferred):
    recorder = Recorder()
    pauses = [0.02, 0.08, 0.02, 0.02]

    def objective(candidates, generation):
        time.sleep(pauses[generation])
        return sphere(candidates, generation)

    trainer = Trainer(make(), objective, generations=4, callbacks=[recorder])
    began = time.monotonic()
    trainer.run()
    wall = time.monotonic() - began
    seconds = [record.seconds for record in recorder.records]
    assert all(found >= pause for found, pause in zip(seconds, pauses, strict=True))
    assert max(range(4), key=seconds.__getitem__) == 1
    assert trainer.elapsed_s == recorder.records[-1].elapsed_s == pytest.approx(sum(seconds))
    assert sum(pauses) <= trainer.elapsed_s <= wall
    for record in recorder.records:
        assert record.metrics["evaluated/s"] == 40 / record.seconds
