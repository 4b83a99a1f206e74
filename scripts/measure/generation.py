"""Measure a generation of our search and of peers' on the sphere: ask, objective and tell.

python scripts/measure generation --json generation.json

The peers are evotorch, SNES of EvoX, and ten lines of PyTorch: eager, compiled and in a CUDA
graph. Up to 64 dimensions our search is also measured with a full covariance and paths; with
small populations on a CPU it is compared with the peers cmaes and pycma. Peers that are not
installed are left out.

Shapes are population x dimensions, or problems x population x dimensions. The objective is
``x.square().sum(-1)``; for ``graph_compiled`` it is compiled. 200 generations are timed
together, until the device has finished the last of them.
"""

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

SHAPES = {
    "cuda": (
        (128, 20),
        (1024, 100),
        (1024, 5000),
        (16_384, 100),
        (64, 128, 20),
        (1024, 128, 20),
    ),
    "cpu": ((8, 5), (12, 20), (128, 20), (1000, 10), (1000, 1000)),
}
GENERATIONS = 200
REPEATS = 5
EXTRA_VARIANCE = 0.1  # It is added in every generation, so that no search ends.
CANDIDATES_PER_ELITE = 10
LARGEST_CMA = 64  # The most dimensions with a full covariance.
IN_A_GRAPH = 20  # The number of generations in a graph.
_RESTART_AFTER = 50  # Generations until a peer's search restarts; later it would diverge.

Run = Callable[[int], object]
"""Runs a number of generations, without waiting for them."""
Shape = tuple[int, ...]


def sphere(x: Tensor) -> Tensor:
    """Return the objective, shape (..., N)."""
    return x.square().sum(-1)


def make_search(
    shape: Shape, device: str, backend: str = "auto", cma: bool = False
) -> CrossEntropyMethod:
    """Return one of our searches: the cross-entropy method, or CMA-ES with a full covariance.

    The search minimises. Every number of its first mean is 1, and so is its first standard
    deviation. Every generation adds a constant variance, so the search never converges.

    Args:
        shape: (population, dimensions), or (problems, population, dimensions) for a batch of
            independent problems.
        device: The device of the search.
        backend: The implementation that draws candidates: "auto" or "torch".
        cma: Whether to adapt a full covariance instead of its diagonal.
    """
    *batch, population, dim = shape  # `batch` is [problems], or empty.
    added_variance = f"constant:{EXTRA_VARIANCE}"
    if cma:
        config = CEMConfig.cma(variance_schedule=added_variance)
    else:
        elites = population // CANDIDATES_PER_ELITE
        config = CEMConfig(num_elites=elites, variance_schedule=added_variance)
    start = torch.ones((*batch, dim))
    return CrossEntropyMethod(
        start,
        1.0,
        population,
        seed=1,
        maximize=False,
        config=config,
        device=device,
        backend=backend,
    )


def ask_and_tell(shape: Shape, device: str, backend: str = "auto", cma: bool = False) -> Run:
    """Return a function that runs a number of generations of our search on the sphere."""
    optimizer = make_search(shape, device, backend, cma)

    def run(count: int) -> None:
        for _ in range(count):
            candidates = optimizer.ask()
            optimizer.tell(candidates, sphere(candidates))

    return run


def _graph(
    shape: Shape, device: str, count: int, objective: Any = sphere, cma: bool = False
) -> Run:
    """Return a function that runs our search by replaying a CUDA graph of some generations.

    ``count`` is the number of generations in the graph.
    """
    state = make_search(shape, device, cma=cma).state
    graph = GenerationGraph(state, lambda x, _: objective(x), count)
    return lambda generations: graph(state, generations // count)


def _step(mean: Tensor, std: Tensor, population: int) -> tuple[Tensor, Tensor]:
    """Run a generation in ten lines of PyTorch, and return the new mean and std.

    Both have the shape ([problems,] dimensions).
    """
    noise = torch.randn((*mean.shape[:-1], population, mean.shape[-1]), device=mean.device)
    candidates = mean.unsqueeze(-2) + std.unsqueeze(-2) * noise
    fitness = sphere(candidates)
    elite_count = population // CANDIDATES_PER_ELITE
    best = torch.topk(fitness, elite_count, dim=-1, largest=False).indices
    # `gather` needs an index for each number of an elite.
    indices = best.unsqueeze(-1).expand(*best.shape, candidates.shape[-1])
    elites = candidates.gather(-2, indices)
    new_std = (elites.var(-2, correction=0) + EXTRA_VARIANCE).sqrt()
    return elites.mean(-2), new_std


def _ten_lines(
    shape: Shape, device: str, step: Callable[..., tuple[Tensor, Tensor]] = _step
) -> Run:
    """Return a function that runs generations of a search in plain PyTorch, one by one."""
    *batch, population, dim = shape
    mean = torch.ones((*batch, dim), device=device)
    std = torch.ones_like(mean)

    def run(count: int) -> None:
        nonlocal mean, std
        for _ in range(count):
            mean, std = step(mean, std, population)

    return run


def _ten_lines_graph(shape: Shape, device: str, count: int) -> Run:
    """Return a function that runs a search in plain PyTorch by replaying a CUDA graph.

    Args:
        shape: ([problems,] population, dimensions).
        device: The device of the search.
        count: The number of generations in the graph. The returned function always replays the
            graph as a whole, so it runs a multiple of this number.
    """
    *batch, population, dim = shape
    # Every replay of a graph uses the same memory. A replay reads the distribution from these
    # two tensors, and at its end writes the new distribution into them.
    graph_mean = torch.ones((*batch, dim), device=device)
    graph_std = torch.ones_like(graph_mean)

    def run_generations() -> None:
        mean = graph_mean
        std = graph_std
        for _ in range(count):
            mean, std = _step(mean, std, population)  # One generation.
        graph_mean.copy_(mean)
        graph_std.copy_(std)

    # `capture` records the work of one call in a graph, and returns the graph's replay.
    replay = capture(run_generations, calls=1)

    def run(generations: int) -> None:
        for _ in range(generations // count):
            replay()

    return run


def _evotorch(shape: Shape, device: str) -> Run:
    """Return a function that runs generations of evotorch's cross-entropy method on the sphere.

    Each call of the function continues the search where the last call ended.

    Args:
        shape: ([problems,] population, dimensions).
        device: The device of the search.
    """
    from evotorch.algorithms.functional import cem, cem_ask, cem_tell

    *batch, population, dim = shape
    state = cem(
        center_init=torch.ones((*batch, dim), device=device),
        objective_sense="min",
        stdev_init=1.0,
        # In place of the extra variance of our search, so that this one does not end, either.
        stdev_min=EXTRA_VARIANCE**0.5,
        parenthood_ratio=1 / CANDIDATES_PER_ELITE,
    )

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            candidates = cem_ask(state, popsize=population)
            state = cem_tell(state, candidates, sphere(candidates))

    return run


def _evox(population: int, dim: int, device: str, compiled: bool = False) -> Run:
    """Return a function that runs generations of EvoX's SNES on the sphere.

    SNES is the fastest of EvoX's searches that adapt a distribution.

    Args:
        population: The number of candidates.
        dim: The number of parameters.
        device: The device of the search.
        compiled: Whether EvoX compiles a generation.
    """
    from evox.algorithms import SNES
    from evox.core import Problem
    from evox.core import compile as evox_compile
    from evox.workflows import StdWorkflow

    class Sphere(Problem):  # type: ignore[misc]
        def evaluate(self, x: Tensor) -> Tensor:
            return sphere(x)

    center = torch.ones(dim, device=device)
    algorithm = SNES(population, center, device=device)
    workflow = StdWorkflow(algorithm, Sphere(), device=device)
    # EvoX runs the first generation with `init_step`, and all others with `step`.
    workflow.init_step()
    step = workflow.step
    if compiled:
        step = evox_compile(step)

    def run(count: int) -> None:
        for _ in range(count):
            step()

    return run


def _peer(
    start: Callable[[], Any], ask: Callable[[Any], Any], tell: Callable[[Any, Any, Any], None]
) -> Run:
    """Return a function that runs generations of a search with NumPy on the sphere.

    Args:
        start: Makes a search. It is also called for every restart.
        ask: Returns the candidates of a search.
        tell: Passes candidates and their fitness to a search.
    """

    def run(count: int) -> None:
        for generation in range(count):
            if generation % _RESTART_AFTER == 0:
                search = start()
            candidates = ask(search)
            fitness = (np.asarray(candidates) ** 2).sum(-1)
            tell(search, candidates, fitness.tolist())

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
    """Return a function for each search, by its name, that runs a number of generations.

    An example of a name is "cem.generation.graph". It begins with the package: "cem" is ours,
    "torch" is ten lines of PyTorch. It ends with the way in which generations run: "eager",
    "compile" or "graph". Packages that are not installed are left out.

    Args:
        shape: ([problems,] population, dimensions).
        device: "cpu" or "cuda".
    """
    *batch, population, dim = shape
    # The cross-entropy method needs at least two elites. For smaller populations only searches
    # with a full covariance are compared.
    if population < 2 * CANDIDATES_PER_ELITE:
        return _cma_methods(shape, device)
    has_evox = find_spec("evox") and not batch
    # The functions that run the operations of a generation one by one.
    eager = {"cem": ask_and_tell(shape, device), "torch": _ten_lines(shape, device)}
    if dim <= LARGEST_CMA:
        eager["cem_cma"] = ask_and_tell(shape, device, cma=True)
    if not batch:
        eager["cem_torch"] = ask_and_tell(shape, device, backend="torch")
    if find_spec("evotorch"):
        eager["evotorch"] = _evotorch(shape, device)
    if has_evox:
        eager["evox"] = _evox(population, dim, device)
    runs = {f"{name}.generation.eager": run for name, run in eager.items()}
    if device == "cuda":
        runs |= _graph_methods(shape)
        if dim <= LARGEST_CMA:
            runs["cem_cma.generation.graph"] = _graph(shape, device, IN_A_GRAPH, cma=True)
        if has_evox:
            runs["evox.generation.compile"] = _evox(population, dim, device, compiled=True)
    return runs


def _cma_methods(shape: Shape, device: str) -> dict[str, Run]:
    """Return the searches with a full covariance by name, as `methods` does."""
    runs = {"cem_cma.generation.eager": ask_and_tell(shape, device, cma=True)}
    if find_spec("cmaes"):
        runs["cmaes_full.generation.eager"] = _cmaes(*shape)
    if find_spec("cma"):
        runs["cma_full.generation.eager"] = _pycma(*shape)
    return runs


def _graph_methods(shape: Shape) -> dict[str, Run]:
    """Return our search and ten lines of PyTorch as CUDA graphs or compiled, by name."""
    # `torch.compile` compiles a function for at most eight shapes, unless it is reset.
    torch.compiler.reset()
    step = torch.compile(_step, dynamic=False)
    objective = torch.compile(sphere)
    return {
        "cem.generation.graph": _graph(shape, "cuda", IN_A_GRAPH),
        "cem.generation.graph_of_one": _graph(shape, "cuda", count=1),
        "cem.generation.graph_compiled": _graph(shape, "cuda", IN_A_GRAPH, objective),
        "torch.generation.compile": _ten_lines(shape, "cuda", step),
        "torch.generation.graph": _ten_lines_graph(shape, "cuda", IN_A_GRAPH),
    }


def measure_shape(shape: Shape, device: str) -> dict[str, dict[str, float]]:
    """Time a generation of every search on problems of a shape.

    Args:
        shape: ([problems,] population, dimensions).
        device: "cpu" or "cuda".

    Returns:
        For each search, by name, statistics of the microseconds that a generation takes, such
        as "median".
    """
    count = GENERATIONS  # Each timing covers this number of generations.
    if device == "cpu" and shape[-1] >= 1000:  # With so many dimensions a CPU is slow.
        count = max(1, GENERATIONS // 10)

    def wait_for_device() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def time_generation(run_all: Function) -> float:
        """Return the microseconds of a generation, if ``run_all`` runs ``count`` of them."""
        wait_for_device()
        start_time = time.perf_counter()
        run_all()
        wait_for_device()
        return (time.perf_counter() - start_time) * 1e6 / count

    functions = {}
    for name, run in methods(shape, device).items():
        functions[name] = partial(run, count)
    # All searches are timed in each of `REPEATS` rounds, with one timing of each in a round.
    plan = Plan(REPEATS, calls=1, warm_up=1)
    return times_of(functions, plan, time_generation)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Time a generation of our searches and of others' on problems of several shapes.

    The figures are the median times in microseconds. The details have all statistics.
    """
    times_by_shape = {}
    figures = {}
    for shape in SHAPES[device]:
        label = "x".join(map(str, shape))
        times_by_name = measure_shape(shape, device)
        times_by_shape[label] = times_by_name
        for name, times in times_by_name.items():
            figures[f"{name}.{label}.us"] = times["median"]
    details = {
        "elites": f"1 in {CANDIDATES_PER_ELITE}",
        "extra_variance": EXTRA_VARIANCE,
        "shapes": times_by_shape,
    }
    return Measured(figures, details)
