"""Measure a generation of a million candidates on a GPU without its objective, beside writing its samples.

python scripts/measure large_generation --json large_generation.json

1,024 parameters, one candidate in ten an elite: ask, tell, both, and `fill_` of as many numbers.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from cem.functional import ask, tell
from measure.cli import measurement
from measure.generation import label, search_of
from measure.provenance import Measured
from measure.timing import Function, Plan, event_times

SHAPE = (1_000_000, 1024)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the times, and those of a generation over those of writing."""
    if torch.cuda.mem_get_info()[0] < 12 * SHAPE[0] * SHAPE[1]:
        raise RuntimeError("expected 12 GB of free memory on the GPU")
    state = search_of(SHAPE, device).state
    fitness = torch.rand(SHAPE[0], device=device)
    candidates, _ = ask(state)

    def generation() -> None:
        drawn, _ = ask(state)
        tell(state, drawn, fitness)

    functions: dict[str, Function] = {
        "generation": generation,
        "ask": partial(ask, state),
        "tell": partial(tell, state, candidates, fitness),
        "fill": partial(torch.Tensor.fill_, candidates, 1.0),
    }
    times = event_times(functions, Plan(5, 5, 1))
    medians = {name: each["median"] for name, each in times.items()}
    key = f"cem.generation.{label(SHAPE)}"
    figures = {f"{key}.{name}.us": value for name, value in medians.items()}
    figures |= {f"{key}.over_{name}": medians["generation"] / medians[name] for name in ("ask", "fill")}
    return figures, {"times": times}, {}


main = measurement(measure, __doc__, devices=("cuda",))
