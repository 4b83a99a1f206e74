"""Measure a whole generation, ask, objective and tell, on the sphere: ours and peers.

The peers are ten lines of PyTorch, eager, compiled and in a CUDA graph, ten lines of NumPy, evotorch, and on
a CPU cmaes and pycma.

Population x dimensions, or problems x population x dimensions. On a GPU the objective is
``x.square().sum(-1)``, and the time is that of 200 generations by the clock, the last one waited for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem import CrossEntropyMethod
from cem.graph import GenerationGraph
from measure.generation_peers import Run, cmaes_generations, pycma_generations
from measure.provenance import Measured
from measure.timing import Function, Plan, times_of

GPU = ((128, 20), (1024, 100), (1024, 5000), (16_384, 100), (64, 128, 20), (1024, 128, 20))
CPU = ((128, 20), (1000, 10), (1000, 1000))
GENERATIONS, REPEATS = 200, 5
EXTRA = 0.1  # variance, so that no search ends
ELITES = 10  # one in as many
IN_A_GRAPH = 20  # generations


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as in the names of figures."""
    return "x".join(map(str, shape))


def sphere(x: Tensor) -> Tensor:
    """Return the objective, shape (..., N)."""
    return x.square().sum(-1)


def search_of(shape: tuple[int, ...], device: str, backend: str = "auto") -> CrossEntropyMethod:
    """Return a search that never ends, of (..., population, dimensions), with one elite in ten."""
    *batch, population, dim = shape
    return CrossEntropyMethod(
        torch.ones((*batch, dim)),
        1.0,
        population,
        maximize=False,
        num_elites=population // ELITES,
        extra_variance=f"constant:{EXTRA}",
        device=device,
        backend=backend,
        seed=1,
    )


def _ask_and_tell(shape: tuple[int, ...], device: str, backend: str = "auto") -> Run:
    optimizer = search_of(shape, device, backend)

    def run(count: int) -> None:
        for _ in range(count):
            optimizer.tell(sphere(optimizer.ask()))

    return run


def _graph(shape: tuple[int, ...], device: str, count: int) -> Run:
    state = search_of(shape, device).state
    graph = GenerationGraph(state, lambda x, _: sphere(x), count)
    return lambda generations: graph(state, generations // count)


def _step(mean: Tensor, std: Tensor, population: int) -> tuple[Tensor, Tensor]:
    """The ten lines of PyTorch, for any leading dimensions."""
    noise = torch.randn((*mean.shape[:-1], population, mean.shape[-1]), device=mean.device)
    candidates = mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
    fitness = sphere(candidates)
    best = torch.topk(fitness, population // ELITES, dim=-1, largest=False).indices
    elites = candidates.gather(-2, best.unsqueeze(-1).expand(*best.shape, candidates.shape[-1]))
    return elites.mean(-2), (elites.var(-2, correction=0) + EXTRA).sqrt()


def _ten_lines(shape: tuple[int, ...], device: str, step: Callable[..., tuple[Tensor, Tensor]]) -> Run:
    *batch, population, dim = shape
    held = [torch.ones((*batch, dim), device=device), torch.ones((*batch, dim), device=device)]

    def run(count: int) -> None:
        for _ in range(count):
            held[:] = step(*held, population)

    return run


def _ten_lines_graph(shape: tuple[int, ...], device: str, count: int) -> Run:
    *batch, population, dim = shape
    mean, std = (torch.ones((*batch, dim), device=device) for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            _step(mean, std, population)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moved = mean, std
        for _ in range(count):
            moved = _step(*moved, population)
        mean.copy_(moved[0])
        std.copy_(moved[1])

    def run(generations: int) -> None:
        for _ in range(generations // count):
            graph.replay()

    return run


def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    torch.compiler.reset()
    return torch.compile(_step, dynamic=False)


def _evotorch(shape: tuple[int, ...], device: str) -> Run | None:
    try:
        from evotorch.algorithms.functional import cem, cem_ask, cem_tell
    except ImportError:
        return None
    *batch, population, dim = shape
    state = [
        cem(
            center_init=torch.ones((*batch, dim), device=device),
            stdev_init=1.0,
            stdev_min=EXTRA**0.5,
            parenthood_ratio=1 / ELITES,
            objective_sense="min",
        )
    ]

    def run(count: int) -> None:
        for _ in range(count):
            x = cem_ask(state[0], popsize=population)
            state[0] = cem_tell(state[0], x, sphere(x))

    return run


def _numpy(shape: tuple[int, ...], device: str) -> Run:
    population, dim = shape
    rng, held = np.random.default_rng(1), [np.ones(dim), np.ones(dim)]

    def run(count: int) -> None:
        for _ in range(count):
            x = held[0] + held[1] * rng.standard_normal((population, dim))
            elites = x[np.argsort((x * x).sum(-1))[: population // ELITES]]
            held[:] = elites.mean(0), np.sqrt(elites.var(0) + EXTRA)

    return run


def methods(shape: tuple[int, ...], device: str) -> dict[str, Run]:
    """Return what is timed at one shape, by the name of its figure."""
    found: dict[str, Run | None] = {"cem.generation.eager": _ask_and_tell(shape, device)}
    if device == "cuda":
        found |= {
            "cem.generation.graph": _graph(shape, device, IN_A_GRAPH),
            "cem.generation.graph_of_one": _graph(shape, device, 1),
            "torch.generation.eager": _ten_lines(shape, device, _step),
            "torch.generation.compile": _ten_lines(shape, device, _compiled()),
            "torch.generation.graph": _ten_lines_graph(shape, device, IN_A_GRAPH),
        }
    else:
        found["numpy.generation.eager"] = _numpy(shape, device)
        found["torch.generation.eager"] = _ten_lines(shape, device, _step)
        found["cmaes.generation.eager"] = cmaes_generations(*shape)
        found["pycma.generation.eager"] = pycma_generations(*shape)
    if len(shape) == 2:
        found["cem_torch.generation.eager"] = _ask_and_tell(shape, device, "torch")
    found["evotorch.generation.eager"] = _evotorch(shape, device)
    return {name: run for name, run in found.items() if run is not None}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure_shape(shape: tuple[int, ...], device: str) -> dict[str, dict[str, float]]:
    """Return the microseconds of a generation by every method, in interleaved rounds."""
    runs = methods(shape, device)
    count = GENERATIONS if device == "cuda" or shape[-1] < 1000 else GENERATIONS // 10

    def once(function: Function) -> float:
        _wait(device)
        began = time.perf_counter()
        function()
        _wait(device)
        return (time.perf_counter() - began) * 1e6 / count

    timed: dict[str, Function] = {name: partial(run, count) for name, run in runs.items()}
    return times_of(timed, Plan(REPEATS, 1, 1), once)


def figures_of(shape: str, times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the medians of a shape under the names of the figures."""
    return {f"{name}.{shape}.us": each["median"] for name, each in times.items()}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    shapes: tuple[tuple[int, ...], ...] = GPU if device == "cuda" else CPU
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    for shape in shapes:
        times = measure_shape(shape, device)
        details[label(shape)] = times
        figures |= figures_of(label(shape), times)
    return figures, {"elites": f"1 in {ELITES}", "extra_variance": EXTRA, "shapes": details}, {}
