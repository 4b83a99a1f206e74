"""Kill a training run at random moments, resume it, compare: started by test_kill_and_resume.py.

A process of its own, so that it can fork: a fork from pytest would inherit its threads.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from cem import Checkpointer, CrossEntropyMethod, Evaluation, MetricsWriter, Trainer


def train(folder, generations):
    optimizer = CrossEntropyMethod(
        torch.full((6,), -1.0), 1.0, 60, maximize=True, noise="hyperbolic:0.3", smoothing=0.9, seed=11
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
        assert trainer.resume().refused == ()  # a kill leaves no damaged file
    trainer.run()


def start(folder, generations):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        train(folder, generations)
        code = 0
    finally:
        os._exit(code)


def outcome(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [{k: v for k, v in line.items() if k not in ("seconds", "elapsed_s")} for line in lines]
    state = Checkpointer(folder).load_latest().state["optimizer"]
    return {k: v.numpy().tobytes().hex() if torch.is_tensor(v) else v for k, v in state.items()}, timeless


def main(root, generations, kills):
    whole, killed = root / "whole", root / "killed"
    whole.mkdir()
    killed.mkdir()
    started = time.monotonic()
    assert os.waitpid(start(whole, generations), 0)[1] == 0
    duration = time.monotonic() - started
    moments = random.Random(0)
    steps = []
    for _ in range(kills):
        child = start(killed, generations)
        time.sleep(moments.uniform(0.0, 2.0 * duration / kills))
        os.kill(child, signal.SIGKILL)
        steps.append(os.WIFSIGNALED(os.waitpid(child, 0)[1]) and max(Checkpointer(killed).paths(), default=0))
    assert os.waitpid(start(killed, generations), 0)[1] == 0
    print(json.dumps({"same": outcome(whole) == outcome(killed), "steps": steps, "generations": generations}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
