"""Kill a training run at random moments, resume it, compare: started by test_kill_and_resume.py.

The run that is never killed syncs at once, as on the CPU. Every other killed run defers host sync, as on a
GPU.

A process of its own, so that it can fork: a fork from pytest would inherit its threads.
"""

import json
import os
import random
import sys
import traceback
from functools import partial
from pathlib import Path

import torch
from killing import kill_later

import cem.trainer
from cem import Checkpointer, CrossEntropyMethod, Evaluation, MetricsWriter, Trainer


def train(folder, generations, deferred):
    cem.trainer.defers_sync = lambda device: deferred
    optimizer = CrossEntropyMethod(
        torch.full((6,), -1.0),
        1.0,
        60,
        maximize=True,
        extra_variance="hyperbolic:0.3",
        smoothing=0.9,
        seed=11,
    )

    def rosenbrock(candidates, generation):
        x, y = candidates[:, :-1], candidates[:, 1:]
        fitness = -(100 * (y - x * x).square() + (1 - x).square()).sum(dim=1)
        return Evaluation(fitness, {"worst": float(fitness.min())})

    trainer = Trainer(
        optimizer,
        rosenbrock,
        generations=generations,
        callbacks=[MetricsWriter(folder / "metrics.jsonl")],
        checkpointer=Checkpointer(folder, fingerprint={"run": "rosenbrock"}),
    )
    if Checkpointer(folder).paths():
        assert trainer.resume().rejected == ()  # a kill leaves no damaged file
    trainer.run()


def start(folder, generations, deferred=False):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        train(folder, generations, deferred)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def newest(folder):
    return max(Checkpointer(folder).paths(), default=0)


def outcome(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [{k: v for k, v in line.items() if k not in ("seconds", "elapsed_s")} for line in lines]
    state = Checkpointer(folder).load_latest().state["optimizer"]
    return {k: v.numpy().tobytes().hex() if torch.is_tensor(v) else v for k, v in state.items()}, timeless


def main(root, generations, kills):
    whole, killed = root / "whole", root / "killed"
    whole.mkdir()
    killed.mkdir()
    assert os.waitpid(start(whole, generations), 0)[1] == 0
    moments = random.Random(0)
    steps = []
    for count in range(kills):
        child = start(killed, generations, deferred=count % 2 == 0)
        was_killed = kill_later(child, partial(newest, killed), moments, 20, generations - 1)
        assert was_killed, "the run ended before it was killed"
        steps.append(newest(killed))
    assert os.waitpid(start(killed, generations, deferred=True), 0)[1] == 0
    print(json.dumps({"whole": outcome(whole), "killed": outcome(killed), "steps": steps}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
