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
from searches import Recorder, bits

from cem import Callback, Checkpointer, CrossEntropyMethod, Evaluation, Interrupted, MetricsWriter, Trainer
from cem.snapshot import Snapshot

GENERATIONS = 9
EVENT = 4  # the generation something happens in, counted from 0 as for the objective
TIMES = ("seconds", "elapsed_s", "evaluated/s")
INT, TERM = signal.SIGINT, signal.SIGTERM


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


class Training(Callback):
    """A run in a folder, with all that it leaves.

    Args:
        folder: The folder; a run that is there is resumed.
        place: Where something happens, in generation ``EVENT``: "objective", "on_generation" or
            "on_checkpoint".
        act: What happens, called with the trainer; an objective returns its result, if there is one.
    """

    def __init__(self, folder, place=None, act=None):
        folder.mkdir(exist_ok=True)
        self.folder, self.place, self.act = folder, place, act
        self.optimizer, self.recorder = make(), Recorder()
        self.checkpointer = Checkpointer(folder, keep=100)
        self.ahead = []
        self.trainer = Trainer(
            self.optimizer,
            self.objective,
            generations=GENERATIONS,
            callbacks=[MetricsWriter(folder / "metrics.jsonl"), self.recorder, self],
            checkpointer=self.checkpointer,
        )

    def happens(self, place, number):
        return self.act(self.trainer) if (place, number) == (self.place, EVENT) else None

    def objective(self, candidates, generation):
        self.recorder.calls.append(("play", generation + 1))
        instead = self.happens("objective", generation)
        return sphere(candidates, generation) if instead is None else instead

    def on_generation(self, record):
        self.happens("on_generation", record.generation)

    def on_checkpoint(self, generation, state):
        self.ahead.append(self.optimizer.generation - generation)
        self.happens("on_checkpoint", generation)

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
        return [number for kind, *numbers in self.recorder.calls if kind == "play" for number in numbers]

    def lines(self):
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [{name: line[name] for name in line if name not in TIMES} for line in lines]

    def files(self):
        states = {}
        for step, path in self.checkpointer.paths().items():
            one = Checkpointer(self.folder)
            one.paths = lambda step=step, path=path: {step: path}
            states[step] = bits(one.load_latest().state["optimizer"])
        return self.lines(), states

    def outcome(self):
        heard = [call for call in self.recorder.calls if call[0] != "play"]
        return self.files(), heard, self.recorder.states, bits(self.optimizer)


def test_a_generation_is_recorded_when_the_next_one_was_told_with_its_own_state(deferred, tmp_path):
    training = Training(tmp_path / "run")
    assert training.run() == ("finished", None, GENERATIONS)
    expected = [("start", 0, GENERATIONS, None), ("play", 1)]
    for number in range(1, GENERATIONS):
        expected += [("play", number + 1), ("generation", number), ("checkpoint", number)]
    last = [("generation", GENERATIONS), ("checkpoint", GENERATIONS), ("end",)]
    assert training.recorder.calls == [*expected, *last]
    assert training.ahead == [1] * (GENERATIONS - 1) + [0]
    by_hand, states = make(), {}
    for generation in range(GENERATIONS):
        by_hand.tell(sphere(by_hand.ask(), generation).fitness)
        states[generation + 1] = bits(by_hand)
    assert training.files()[1] == training.recorder.states == states


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


def unusable(trainer):
    return torch.full((40,), math.nan)


USABLE = "expected at least one candidate with a usable fitness"
SITUATIONS = {  # where, what is done, and how the run ends
    "interrupted": ("objective", send(INT, check=True), ("signal", INT, EVENT)),
    "signalled": ("objective", send(TERM), ("signal", TERM, EVENT + 1)),
    "second_ctrl_c": ("objective", send(INT, INT), ("KeyboardInterrupt", "")),
    "objective_fails": ("objective", fail(ZeroDivisionError("x")), ("ZeroDivisionError", "x")),
    "no_usable_fitness": (
        *("objective", unusable),
        ("ValueError", f"{USABLE}, got 40 NaN and 0 infinite of 40 fitness values"),
    ),
    "callback_interrupts": ("on_generation", fail(Interrupted()), ("requested", None, EVENT)),
    "disk_is_full": (
        *("on_checkpoint", fail(OSError(errno.ENOSPC, "full"))),
        ("OSError", "[Errno 28] full"),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_deferred_sync_leaves_the_files_of_immediate_sync_and_can_be_resumed(sync, tmp_path, name):
    place, act, ending = SITUATIONS[name]
    outcomes, handlers = [], [signal.getsignal(number) for number in (INT, TERM)]
    for how in ("immediate", "deferred"):
        sync(how)
        training = Training(tmp_path / how, place, act)
        assert training.run() == ending
        outcomes.append(training.outcome())
    assert outcomes[1] == outcomes[0]
    assert [signal.getsignal(number) for number in (INT, TERM)] == handlers
    count = len(training.lines())
    assert [line["generation"] for line in training.lines()] == list(range(1, count + 1))
    assert count == training.optimizer.generation >= EVENT
    assert_goes_on(tmp_path, "deferred")


def assert_goes_on(folder, name):
    """A run that is resumed leaves the files of one that was never stopped."""
    whole, resumed = Training(folder / "whole"), Training(folder / name)
    saved = max(resumed.checkpointer.paths())
    assert whole.run() == resumed.run() == ("finished", None, GENERATIONS)
    assert resumed.files() == whole.files()
    assert resumed.played() == list(range(saved + 1, GENERATIONS + 1))


def test_a_refused_generation_rises_one_generation_later_and_is_named(sync, tmp_path):
    outcomes = {}
    for how, played in ("immediate", EVENT + 1), ("deferred", EVENT + 2):
        sync(how)
        training = Training(tmp_path / how, "objective", unusable)
        training.optimizer._refuses_at_once = False  # as on a GPU
        assert training.run() == (
            "ValueError",
            f"{USABLE}, got none in generation {EVENT + 1}, counted from 1",
        )
        assert training.played() == list(range(1, played + 1))
        assert len(training.lines()) == EVENT
        training.optimizer.check()  # it was said once
        outcomes[how] = training.outcome()
    assert outcomes["deferred"] == outcomes["immediate"]


@pytest.fixture
def device(deferred, monkeypatch):
    """When the results of a generation are there, by its number."""
    ready_at = {}
    ready = property(lambda snapshot: time.monotonic() >= ready_at.get(snapshot.generation, 0.0))
    monkeypatch.setattr(Snapshot, "ready", ready)
    return ready_at


def test_ctrl_c_ends_a_run_within_two_seconds_though_the_device_is_busy(device, tmp_path):
    def interrupt_soon(trainer):
        device[EVENT + 1] = math.inf
        threading.Timer(0.05, os.kill, (os.getpid(), INT)).start()

    training = Training(tmp_path / "run", "objective", interrupt_soon)
    began = time.monotonic()
    assert training.run() == ("signal", INT, EVENT)
    assert time.monotonic() - began < 2.0
    assert (
        training.optimizer.generation == len(training.lines()) == max(training.checkpointer.paths()) == EVENT
    )
    device.clear()
    assert_goes_on(tmp_path, "run")
