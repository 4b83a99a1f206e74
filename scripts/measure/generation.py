"""Measure a whole generation of the search, ask, objective and tell, on the sphere: ours and peers.

python scripts/measure generation --json generation.json

The peers are ten lines of PyTorch, eager, compiled and in a CUDA graph, evotorch and SNES of EvoX. Up to 64
dimensions ours has a full covariance and paths, too; of small populations on a CPU so have the peers cmaes
and pycma. Those that are not installed are left out.

Population x dimensions, or problems x population x dimensions. On a GPU the objective is
``x.square().sum(-1)``, ``graph_compiled``'s compiled; 200 generations by the clock, the last one waited for.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem import CEMConfig, CrossEntropyMethod
from cem.core.graph import GenerationGraph
from measure.provenance import Measured
from measure.timing import Function, Plan, capture, times_of

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "cuda": ((128, 20), (1024, 100), (1024, 5000), (16_384, 100), (64, 128, 20), (1024, 128, 20)),
    "cpu": ((8, 5), (12, 20), (128, 20), (1000, 10), (1000, 1000)),
}
GENERATIONS, REPEATS = 200, 5
EXTRA = 0.1  # variance, so that no search ends
ELITES = 10  # one in as many; of smaller populations those of CMA-ES, half of them
LARGEST_CMA = 64  # dimensions with a full covariance
IN_A_GRAPH = 20  # generations
_LONGEST = 50  # generations of a peer's search: one that has converged drifts off to infinity

Run = Callable[[int], object]
"""Runs a number of generations, and waits for none of them."""
Shape = tuple[int, ...]


def sphere(x: Tensor) -> Tensor:
    """Return the objective, shape (..., N)."""
    return x.square().sum(-1)


def search_of(shape: Shape, device: str, backend: str = "auto", cma: bool = False) -> CrossEntropyMethod:
    """Return a search that never ends, of (..., population, dimensions); without ``cma`` one elite in ten."""
    *batch, population, dim = shape
    config = CEMConfig.cma(variance_schedule=f"constant:{EXTRA}")
    if not cma:
        config = CEMConfig(num_elites=population // ELITES, variance_schedule=f"constant:{EXTRA}")
    options: dict[str, Any] = {"maximize": False, "config": config, "device": device, "backend": backend}
    return CrossEntropyMethod(torch.ones((*batch, dim)), 1.0, population, seed=1, **options)


def ask_and_tell(shape: Shape, device: str, backend: str = "auto", cma: bool = False) -> Run:
    """Return generations of our search, on the sphere."""
    optimizer = search_of(shape, device, backend, cma)

    def run(count: int) -> None:
        for _ in range(count):
            candidates = optimizer.ask()
            optimizer.tell(candidates, sphere(candidates))

    return run


def _graph(shape: Shape, device: str, count: int, objective: Any = sphere, cma: bool = False) -> Run:
    state = search_of(shape, device, cma=cma).state
    graph = GenerationGraph(state, lambda x, _: objective(x), count)
    return lambda generations: graph(state, generations // count)


def _step(mean: Tensor, std: Tensor, population: int) -> tuple[Tensor, Tensor]:
    """The ten lines of PyTorch, for any leading dimensions."""
    noise = torch.randn((*mean.shape[:-1], population, mean.shape[-1]), device=mean.device)
    candidates = mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
    fitness = sphere(candidates)
    best = torch.topk(fitness, population // ELITES, dim=-1, largest=False).indices
    elites = candidates.gather(-2, best.unsqueeze(-1).expand(*best.shape, candidates.shape[-1]))
    return elites.mean(-2), (elites.var(-2, correction=0) + EXTRA).sqrt()


def _ten_lines(shape: Shape, device: str, step: Callable[..., tuple[Tensor, Tensor]] = _step) -> Run:
    *batch, population, dim = shape
    held = [torch.ones((*batch, dim), device=device) for _ in range(2)]

    def run(count: int) -> None:
        for _ in range(count):
            held[:] = step(*held, population)

    return run


def _ten_lines_graph(shape: Shape, device: str, count: int) -> Run:
    *batch, population, dim = shape
    held = [torch.ones((*batch, dim), device=device) for _ in range(2)]

    def generations() -> None:
        mean, std = held
        for _ in range(count):
            mean, std = _step(mean, std, population)
        held[0].copy_(mean)
        held[1].copy_(std)

    replay = capture(generations, 1)
    return lambda all_of_them: [replay() for _ in range(all_of_them // count)]


def _evotorch(shape: Shape, device: str) -> Run:
    from evotorch.algorithms.functional import cem, cem_ask, cem_tell

    *batch, population, dim = shape
    options = {"stdev_init": 1.0, "stdev_min": EXTRA**0.5, "parenthood_ratio": 1 / ELITES}
    start = torch.ones((*batch, dim), device=device)
    state = [cem(center_init=start, objective_sense="min", **options)]

    def run(count: int) -> None:
        for _ in range(count):
            x = cem_ask(state[0], popsize=population)
            state[0] = cem_tell(state[0], x, sphere(x))

    return run


def _evox(population: int, dim: int, device: str, compiled: bool = False) -> Run:
    """Return generations of SNES, the fastest of EvoX's searches with a distribution of its own."""
    from evox.algorithms import SNES
    from evox.core import Problem
    from evox.core import compile as evox_compile
    from evox.workflows import StdWorkflow

    class Sphere(Problem):  # type: ignore[misc]
        def evaluate(self, x: Tensor) -> Tensor:
            return sphere(x)

    center = torch.ones(dim, device=device)
    workflow = StdWorkflow(SNES(population, center, device=device), Sphere(), device=device)
    workflow.init_step()
    step = evox_compile(workflow.step) if compiled else workflow.step
    return lambda count: [step() for _ in range(count)]


def _peer(start: Callable[[], Any], ask: Callable[[Any], Any], tell: Callable[[Any, Any, Any], None]) -> Run:
    """Return generations of a search that begins anew before it drifts off; NumPy's arrays."""

    def run(count: int) -> None:
        for generation in range(count):
            if generation % _LONGEST == 0:
                search = start()
            x = ask(search)
            tell(search, x, (np.asarray(x) ** 2).sum(-1).tolist())

    return run


def _cmaes(population: int, dim: int) -> Run:
    import cmaes

    return _peer(
        lambda: cmaes.CMA(np.ones(dim), 1.0, population_size=population, seed=1),
        lambda search: np.array([search.ask() for _ in range(population)]),
        lambda search, x, fitness: search.tell(list(zip(x, fitness, strict=True))),
    )


def _pycma(population: int, dim: int) -> Run:
    from cma import CMAEvolutionStrategy as Search

    options = {"popsize": population, "seed": 1, "verbose": -9, "verb_log": 0}
    return _peer(lambda: Search(np.ones(dim), 1.0, options), Search.ask, Search.tell)


def methods(shape: Shape, device: str) -> dict[str, Run]:
    """Return what is timed at one shape, by the name of its figure."""
    if shape[-2] < 2 * ELITES:
        peers = {name: make for name, make in (("cmaes", _cmaes), ("cma", _pycma)) if find_spec(name)}
        found = {"cem_cma": ask_and_tell(shape, device, cma=True)}
        found |= {f"{name}_full": make(*shape) for name, make in peers.items()}
        return {f"{name}.generation.eager": run for name, run in found.items()}
    found = {"cem": ask_and_tell(shape, device), "torch": _ten_lines(shape, device)}
    if shape[-1] <= LARGEST_CMA:
        found["cem_cma"] = ask_and_tell(shape, device, cma=True)
    if len(shape) == 2:
        found["cem_torch"] = ask_and_tell(shape, device, "torch")
    if find_spec("evotorch"):
        found["evotorch"] = _evotorch(shape, device)
    if find_spec("evox") and len(shape) == 2:
        found["evox"] = _evox(shape[0], shape[1], device)
    runs = {f"{name}.generation.eager": run for name, run in found.items()}
    if device == "cuda":
        torch.compiler.reset()
        runs |= {
            "cem.generation.graph": _graph(shape, device, IN_A_GRAPH),
            "cem.generation.graph_of_one": _graph(shape, device, 1),
            "cem.generation.graph_compiled": _graph(shape, device, IN_A_GRAPH, torch.compile(sphere)),
            "torch.generation.compile": _ten_lines(shape, device, torch.compile(_step, dynamic=False)),
            "torch.generation.graph": _ten_lines_graph(shape, device, IN_A_GRAPH),
        }
        if "cem_cma" in found:
            runs["cem_cma.generation.graph"] = _graph(shape, device, IN_A_GRAPH, cma=True)
        if "evox" in found:
            runs["evox.generation.compile"] = _evox(shape[0], shape[1], device, compiled=True)
    return runs


def measure_shape(shape: Shape, device: str) -> dict[str, dict[str, float]]:
    """Return the microseconds of a generation by every method, in interleaved rounds."""
    count = GENERATIONS if device == "cuda" or shape[-1] < 1000 else max(1, GENERATIONS // 10)
    wait: Function = torch.cuda.synchronize if device == "cuda" else lambda: None

    def once(function: Function) -> float:
        wait()
        began = time.perf_counter()
        function()
        wait()
        return (time.perf_counter() - began) * 1e6 / count

    timed: dict[str, Function] = {name: partial(run, count) for name, run in methods(shape, device).items()}
    return times_of(timed, Plan(REPEATS, 1, 1), once)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the medians as figures, and all times."""
    found = {"x".join(map(str, shape)): measure_shape(shape, device) for shape in SHAPES[device]}
    figures = {f"{name}.{at}.us": x["median"] for at, times in found.items() for name, x in times.items()}
    return Measured(figures, {"elites": f"1 in {ELITES}", "extra_variance": EXTRA, "shapes": found})
