"""Searches that ranks share, started by test_ranks.py: every rank writes what it found."""

import json
import math
import os
import sys
from pathlib import Path

import torch

from cem import Callback, CrossEntropyMethod, Evaluation, Interrupted, Trainer, minimize
from cem.run.ranks import joined, shared


def sphere(x):
    return (x - 3.0).square().sum(-1)


def found(**options):
    result = minimize(
        sphere,
        torch.zeros(5),
        1.0,
        budget=4000,
        population_size=51,
        distributed=True,
        **options,
    )
    return {
        **{
            name: getattr(result, name)
            for name in ("fun", "reason", "evaluations", "restarts", "history")
        },
        "x": result.x.tolist(),
        "std": result.std.tolist(),
    }


def of_a_list():
    values = lambda x: [1e6 + 1e-3 * float(number) for number in sphere(x)]  # noqa: E731 - float32 is too coarse
    options = {"seed": 1, "budget": 510, "population_size": 51, "distributed": True}
    result = minimize(values, torch.zeros(3), 1.0, **options)
    return [result.x.tolist(), result.fun]


def refused(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class InterruptAfter(Callback):
    """Ends a search after the third generation."""

    def on_generation(self, record):
        if record.generation == 3:
            raise Interrupted("enough")


def interrupted_by_a_callback():
    result = found(seed=6, callbacks=[InterruptAfter()])
    return [result["reason"], result["evaluations"] in (3 * 51, 4 * 51)]


def reasons_of_trainers():
    """How trainers end whose objective knows nothing of their request to stop."""
    objective = shared(lambda x, generation: sphere(x))
    reasons = []
    with joined():
        for options in ({"time_limit_s": 0.2}, {"callbacks": [InterruptAfter()]}):
            search = CrossEntropyMethod(torch.zeros(5), 1.0, 51, maximize=False, seed=1)
            trainer = Trainer(search, objective, generations=100_000, **options)
            reasons.append(trainer.run().reason)
    return reasons


def main(folder):
    with_metrics = lambda x: Evaluation(sphere(x), {"a": 1.0})  # noqa: E731
    report = {
        "plain": found(seed=1),
        "restarts": found(seed=2, restarts=2, target=-1.0),
        "bounds": found(seed=3, bounds=(-1.0, 2.0)),
        "known": found(seed=7, evaluated=([[3.0] * 5, [0.0] * 5], [-1.0, 45.0])),
        "saved": found(seed=4, checkpoint=Path(folder, "search")),
        "saved again": found(checkpoint=Path(folder, "search")),
        "interrupted by a callback": interrupted_by_a_callback(),
        "trainers": reasons_of_trainers(),
        "metrics": refused(
            lambda: minimize(with_metrics, torch.zeros(2), 1.0, distributed=True)
        ),
        "failed": refused(
            lambda: minimize(
                lambda x: x[:, 0] * math.nan, torch.zeros(2), 1.0, distributed=True
            )
        ),
        "list": of_a_list(),
        "seedless": found()["fun"],
    }
    Path(folder, f"report-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
