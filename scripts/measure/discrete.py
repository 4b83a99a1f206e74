"""Measure searches of discrete parameters: evaluations to the optimum, or a GPU's generations.

python scripts/measure discrete --json discrete.json

On a CPU, a problem has 40 parameters with 10 values each, in 20 pairs. A pair costs 1 if both
of its values are wrong, 0.6 if one is right, and 0 if both are right. Peers are CatCMAwM of
cmaes and TPE of Optuna, with their default settings and if they are installed. On a GPU, the
time of a generation of 1,024 candidates in a CUDA graph is measured, for our search and for ten
lines of PyTorch.
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
EARLY = 1000  # Evaluations after which the best cost is recorded, before the search ends.
BUDGET = 100_000
# The seeds and the budget of TPE, which takes minutes.
TPE_SEEDS = 3
TPE_BUDGET = 1000

# On a GPU.
POPULATION = 1024
ELITES = 204
GENERATIONS = 20
PLAN = Plan(7, 5, 1)
BITS = 200
CATEGORIES = (50, 10)
ITEMS = 100


class Pairs:
    """An objective with random pairs, which records the costs of all candidates."""

    def __init__(self, seed: int) -> None:
        """Draw the pairs of parameters, and the right value of each parameter."""
        rng = np.random.default_rng(seed)
        self.pairs = rng.permutation(2 * PAIRS).reshape(-1, 2)
        self.right = rng.integers(0, VALUES, 2 * PAIRS)
        self.costs: list[float] = []

    def __call__(self, x: Any) -> Any:
        """Map values, shape (N, 2 PAIRS), to costs, shape (N,)."""
        is_right = x == self.right
        # The number of right values in each pair, shape (N, PAIRS).
        right_values = is_right[:, self.pairs].sum(-1)
        costs = COSTS[right_values].sum(-1)
        self.costs += costs.tolist()
        return costs

    def is_unsolved(self, budget: int) -> bool:
        """Return whether no candidate has had the cost 0, and a part of the budget is left."""
        return min(self.costs, default=1.0) > 0.0 and len(self.costs) < budget


def _cem(problem: Pairs, seed: int, budget: int) -> None:
    space = {str(number): Choice(*range(VALUES)) for number in range(2 * PAIRS)}

    def cost(parameters: dict[str, Any]) -> Any:
        return problem(np.stack(list(parameters.values()), axis=-1))

    # With vectorize=False the function gets an array of shape (N,) for each parameter.
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


# The ten lines of PyTorch follow. They draw a category as the argmax of log probabilities plus
# Gumbel noise, -log(-log(u)).


def _step_bits(p: Tensor) -> None:
    """Run a generation of a search over bits; update p, shape (bits,), in place."""
    x = (torch.rand(POPULATION, *p.shape, device=p.device) < p).float()
    elites = x[_fitness(x).topk(ELITES).indices]
    p.lerp_(elites.mean(0), 0.7).clamp_(1e-3, 1 - 1e-3)


def _step_categories(p: Tensor) -> None:
    """Run a generation over categories; update p, shape (parameters, values), in place."""
    noise = torch.rand(POPULATION, *p.shape, device=p.device)
    x = (p.log() - (-noise.log()).log()).argmax(-1)
    elites = x[_fitness(x).topk(ELITES).indices]
    p.lerp_(one_hot(elites, p.shape[1]).float().mean(0), 0.7).clamp_(1e-3, 1 - 1e-3)


def _draw_permutations(p: Tensor) -> Tensor:
    """Draw a population of permutations, shape (POPULATION, ITEMS), item by item.

    Args:
        p: The probabilities, shape (1 + ITEMS, ITEMS). Row 0 has the probabilities of the first
            item of a permutation. Row i + 1 has the probabilities of the item after item i.
    """
    # 1 for an item that a permutation does not contain yet, otherwise 0.
    unused = p.new_ones(POPULATION, ITEMS)
    # For each permutation, the row of `p` from which its next item is drawn.
    row_index = p.new_zeros(POPULATION).long()
    items = []
    for _ in range(ITEMS):
        # The Gumbel-max trick: the argmax of log-probabilities plus Gumbel noise is a draw from
        # the probabilities.
        uniform = torch.rand_like(unused)
        gumbel_noise = -(-uniform.log()).log()
        log_probabilities = (p[row_index] * unused).log()
        item = (log_probabilities + gumbel_noise).argmax(1)  # One per permutation.
        items.append(item)
        # A permutation never draws the same item again.
        unused.scatter_(1, item.unsqueeze(1), 0.0)
        row_index = item + 1
    return torch.stack(items, 1)


def _step_orders(p: Tensor) -> None:
    """Run a generation of the cross-entropy method for permutations; update p in place.

    Args:
        p: The probabilities, shape (1 + ITEMS, ITEMS). Row 0 has the probabilities of the first
            item of a permutation. Row i + 1 has the probabilities of the item after item i.
    """
    permutations = _draw_permutations(p)
    elites = permutations[_fitness(permutations).topk(ELITES).indices]
    # For every item of the elites, the row of p from which it was drawn: 0 for the first item,
    # otherwise the previous item + 1.
    rows = pad(elites[:, :-1] + 1, (1, 0))
    # In each row of p, the share of the elites that have drawn an item from it.
    shares = torch.full(elites.shape, 1 / ELITES, device=p.device)
    frequencies = torch.zeros_like(p).index_put_((rows, elites), shares, accumulate=True)
    p.lerp_(frequencies, 0.7)


def _graph_times(
    family: Family, step: Callable[[Tensor], None], p: Tensor, torch_generations: int
) -> list[float]:
    """Time a generation of our search, and of a search in plain PyTorch, as CUDA graphs.

    A graph runs several generations. The time of a generation is the time of the graph divided
    by the number of its generations.

    Args:
        family: The distribution of the discrete parameters in our search.
        step: Runs a generation in plain PyTorch, and updates the probabilities in place.
        p: The initial probabilities, which ``step`` updates.
        torch_generations: The number of generations in the graph of ``step``. The graph of our
            search has `GENERATIONS`.

    Returns:
        The median microseconds of a generation: of our search, and of plain PyTorch.
    """
    # The search has only discrete parameters, so the mean of the continuous ones is empty.
    no_continuous_parameters = torch.zeros(0)
    search = CrossEntropyMethod(
        no_continuous_parameters,
        1.0,
        POPULATION,
        maximize=True,
        config=CEMConfig.cma(families=[family]),
        seed=1,
        device="cuda",
    )
    # Each value is a function that replays a graph. An objective gets the number of the
    # generation as a second argument, which this one ignores.
    graphs = {
        "cem": search.capture(lambda candidates, _: _fitness(candidates), GENERATIONS),
        "torch": capture(partial(step, p), torch_generations),
    }
    times = latency_times(graphs, PLAN)
    our_time = times["cem"]["median"] / GENERATIONS
    torch_time = times["torch"]["median"] / torch_generations
    return [our_time, torch_time]


def on_gpu() -> Measured:
    """Time a generation of searches over bits, categories and permutations on a GPU.

    The figures are microseconds per generation: of our search ("cem"), and of a search in plain
    PyTorch ("torch"). At the start of both searches all values are equally probable.
    """
    parameters, values = CATEGORIES  # The number of parameters, and of values of each.
    with torch.device("cuda"):
        p_bits = torch.full((BITS,), 0.5)
        p_values = torch.full((parameters, values), 1 / values)
        p_items = torch.full((ITEMS + 1, ITEMS), 1 / ITEMS)
    categories = Categorical((values,) * parameters)
    times = {
        f"bits.{BITS}": _graph_times(Bernoulli(BITS), _step_bits, p_bits, GENERATIONS),
        f"categories.{parameters}x{values}": _graph_times(
            categories, _step_categories, p_values, GENERATIONS
        ),
        # One generation of permutations is enough for a graph, since it draws `ITEMS` times.
        f"orders.{ITEMS}": _graph_times(
            Permutation(ITEMS), _step_orders, p_items, torch_generations=1
        ),
    }
    figures = {}
    for name, (our_time, torch_time) in times.items():
        figures[f"discrete.cem.{name}.us"] = our_time
        figures[f"discrete.torch.{name}.us"] = torch_time
    return Measured(figures, {"population": POPULATION, "generations": GENERATIONS})


def on_cpu() -> Measured:
    """Run all installed searches on problems with discrete parameters, one run for each seed.

    The optimum of a problem has the cost 0. The figures of a search are

    runs: The number of runs.
    solved: The number of runs that reached the optimum.
    median, least, most: The median, smallest and largest number of evaluations that these runs
        needed to reach the optimum.
    early: The lowest cost in the first `EARLY` evaluations of a run, averaged over all runs.
    """
    figures: dict[str, float] = {}
    for name, (search, module) in SEARCHES.items():
        if not find_spec(module):
            continue
        seeds = SEEDS
        budget = BUDGET
        if name == "tpe":  # A run of Optuna's TPE takes minutes.
            seeds = TPE_SEEDS
            budget = TPE_BUDGET
        costs_of_runs = []
        for seed in range(seeds):
            problem = Pairs(1000 + seed)  # Every run has a problem of its own.
            search(problem, seed, budget)
            costs_of_runs.append(problem.costs)
        for figure, value in _summarise(costs_of_runs).items():
            figures[f"discrete.{name}.{figure}"] = value
    return Measured(figures, {"early": EARLY})


def _summarise(costs_of_runs: list[list[float]]) -> dict[str, float]:
    """Return the figures of a search, from the costs of each run in order of evaluation."""
    early_costs = [min(costs[:EARLY]) for costs in costs_of_runs]
    # One number for every run that reached the optimum.
    evaluations = [costs.index(0.0) + 1 for costs in costs_of_runs if 0.0 in costs]
    figures: dict[str, float] = {
        "runs": len(costs_of_runs),
        "solved": len(evaluations),
        "early": statistics.fmean(early_costs),
    }
    if evaluations:
        figures["median"] = statistics.median(evaluations)
        figures["least"] = min(evaluations)
        figures["most"] = max(evaluations)
    return figures


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Time generations on a GPU, or count evaluations until the optimum on a CPU."""
    return on_gpu() if device == "cuda" else on_cpu()
