"""Measure searches of discrete parameters: evaluations to the optimum, or a GPU's generations.

python scripts/measure discrete --json discrete.json

On a CPU: 40 parameters of 10 values in 20 pairs. A pair costs 1, 0.6 if one of its values is
right, and 0 if both are. Peers, with their default settings and if they are installed: cmaes'
CatCMAwM and Optuna's TPE. On a GPU: the time of a generation of 1,024 candidates in a CUDA
graph, ours and ten lines of PyTorch.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from cem import CEMConfig, Choice, CrossEntropyMethod, minimize
from cem.families import Bernoulli, Categorical, Family, Permutation
from measure.provenance import Measured
from measure.timing import Plan, capture, latency_times

PAIRS = 20
VALUES = 10
COSTS = np.array([1.0, 0.6, 0.0])  # A pair's cost, by the number of right values.
SEEDS = 10
LOOK = 1000  # Evaluations after which the best cost is taken early.
MOST = 100_000  # The budget.
FEW, TRIALS = 3, 1000  # Seeds and budget of TPE, which takes minutes.

# On a GPU.
POPULATION = 1024
ELITES = 204
GENERATIONS = 20
PLAN = Plan(7, 5, 1)
BITS = 200
CATEGORIES = (50, 10)
ITEMS = 100


class Pairs:
    """The objective of a seed; it remembers the costs of all candidates."""

    def __init__(self, seed: int) -> None:
        """Draw pairs and right values."""
        rng = np.random.default_rng(seed)
        self.pairs = rng.permutation(2 * PAIRS).reshape(-1, 2)
        self.right = rng.integers(0, VALUES, 2 * PAIRS)
        self.costs: list[float] = []

    def __call__(self, x: Any) -> Any:
        """Map values, shape (N, 2 PAIRS), to costs, shape (N,)."""
        costs = COSTS[(x == self.right)[:, self.pairs].sum(-1)].sum(-1)
        self.costs += costs.tolist()
        return costs

    def is_unsolved(self, budget: int) -> bool:
        """Return whether a search goes on: without the optimum, within the budget."""
        return min(self.costs, default=1.0) > 0.0 and len(self.costs) < budget


def _cem(problem: Pairs, seed: int, budget: int) -> None:
    space = {str(number): Choice(*range(VALUES)) for number in range(2 * PAIRS)}

    def cost(parameters: dict[str, Any]) -> Any:
        return problem(np.stack(list(parameters.values()), axis=-1))

    minimize(cost, space, vectorize=False, target=0.0, budget=budget, seed=seed)


def _catcma(problem: Pairs, seed: int, budget: int) -> None:
    from cmaes import CatCMAwM

    search = CatCMAwM(c_space=[VALUES] * (2 * PAIRS), seed=seed)
    while problem.is_unsolved(budget):
        candidates = [search.ask() for _ in range(search.population_size)]
        values = np.array([candidate.c.argmax(1) for candidate in candidates])
        search.tell(list(zip(candidates, problem(values).tolist(), strict=True)))


def _tpe(problem: Pairs, seed: int, budget: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while problem.is_unsolved(budget):
        trial = study.ask()
        x = [
            trial.suggest_categorical(str(number), range(VALUES)) for number in range(2 * PAIRS)
        ]
        study.tell(trial, float(problem(np.array([x]))[0]))


SEARCHES = {"cem": (_cem, "cem"), "catcma": (_catcma, "cmaes"), "tpe": (_tpe, "optuna")}
"""The searches by name, and the modules that they import."""


def _fitness(x: Tensor) -> Tensor:
    return x[:, ::2].sum(-1)


# What follows are the ten lines of PyTorch. Gumbel's noise -log(-log(u)) makes a draw an
# argmax.


def _step_bits(p: Tensor) -> None:
    """Make a generation of bits with probabilities p, shape (bits,), in place."""
    x = (torch.rand(POPULATION, *p.shape, device=p.device) < p).float()
    elites = x[_fitness(x).topk(ELITES).indices]
    p.lerp_(elites.mean(0), 0.7).clamp_(1e-3, 1 - 1e-3)


def _step_categories(p: Tensor) -> None:
    """Make a generation of categories with probabilities p, shape (parameters, values)."""
    noise = torch.rand(POPULATION, *p.shape, device=p.device)
    x = (p.log() - (-noise.log()).log()).argmax(-1)
    elites = x[_fitness(x).topk(ELITES).indices]
    p.lerp_(one_hot(elites, p.shape[1]).float().mean(0), 0.7).clamp_(1e-3, 1 - 1e-3)


def _step_orders(p: Tensor) -> None:
    """Make a generation of permutations; p has shape (1 + items, items).

    Row 0 has the probabilities of the first item, row i + 1 those of the item after i.
    """
    remaining = p.new_ones(POPULATION, ITEMS)
    row = p.new_zeros(POPULATION).long()
    items = []
    for _ in range(ITEMS):
        noise = torch.rand_like(remaining)
        item = ((p[row] * remaining).log() - (-noise.log()).log()).argmax(1)
        items.append(item)
        remaining.scatter_(1, item.unsqueeze(1), 0.0)
        row = item + 1
    x = torch.stack(items, 1)
    elites = x[_fitness(x).topk(ELITES).indices]
    rows = pad(elites[:, :-1] + 1, (1, 0))
    shares = torch.full(elites.shape, 1 / ELITES, device=p.device)
    frequencies = torch.zeros_like(p).index_put_((rows, elites), shares, accumulate=True)
    p.lerp_(frequencies, 0.7)


def _graph_times(
    family: Family, step: Callable[[Tensor], None], p: Tensor, count: int
) -> list[float]:
    """Return the microseconds of our and of PyTorch's generation, in CUDA graphs."""
    ours = CrossEntropyMethod(
        torch.zeros(0),
        1.0,
        POPULATION,
        maximize=True,
        config=CEMConfig.cma(families=[family]),
        seed=1,
        device="cuda",
    )
    graphs = {
        "cem": ours.capture(lambda x, _: _fitness(x), GENERATIONS),
        "torch": capture(partial(step, p), count),
    }
    times = latency_times(graphs, PLAN)
    return [times["cem"]["median"] / GENERATIONS, times["torch"]["median"] / count]


def on_gpu() -> Measured:
    """Return the microseconds of a generation in a CUDA graph."""
    parameters, values = CATEGORIES
    full = partial(torch.full, device="cuda")
    categories = Categorical((values,) * parameters)
    times = {
        f"bits.{BITS}": _graph_times(
            Bernoulli(BITS), _step_bits, full((BITS,), 0.5), GENERATIONS
        ),
        f"categories.{parameters}x{values}": _graph_times(
            categories, _step_categories, full(CATEGORIES, 1 / values), GENERATIONS
        ),
        f"orders.{ITEMS}": _graph_times(
            Permutation(ITEMS), _step_orders, full((ITEMS + 1, ITEMS), 1 / ITEMS), 1
        ),
    }
    figures = {}
    for name, (our_time, torch_time) in times.items():
        figures[f"discrete.cem.{name}.us"] = our_time
        figures[f"discrete.torch.{name}.us"] = torch_time
    return Measured(figures, {"population": POPULATION, "generations": GENERATIONS})


def on_cpu() -> Measured:
    """Return for each search how many runs found the optimum, when, and early costs."""
    figures: dict[str, float] = {}
    for name, (search, module) in SEARCHES.items():
        if not find_spec(module):
            continue
        seeds, budget = (FEW, TRIALS) if name == "tpe" else (SEEDS, MOST)
        problems = [Pairs(1000 + seed) for seed in range(seeds)]
        for seed, problem in enumerate(problems):
            search(problem, seed, budget)
        evaluations = [run.costs.index(0.0) + 1 for run in problems if 0.0 in run.costs]
        early = statistics.fmean(min(run.costs[:LOOK]) for run in problems)
        numbers: dict[str, float] = {"runs": seeds, "solved": len(evaluations), "early": early}
        if evaluations:
            numbers["median"] = statistics.median(evaluations)
            numbers["least"] = min(evaluations)
            numbers["most"] = max(evaluations)
        figures |= {f"discrete.{name}.{key}": number for key, number in numbers.items()}
    return Measured(figures, {"early": LOOK})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    return on_gpu() if device == "cuda" else on_cpu()
