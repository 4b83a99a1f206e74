"""Measure searches of discrete parameters: evaluations to the optimum, or on a GPU the time of a generation.

python scripts/measure discrete --json discrete.json

On a CPU: 40 parameters of 10 values in 20 pairs. A pair costs 1, 0.6 if one of its values is right, and 0 if
both are. Peers, with settings of their own and where installed: cmaes' CatCMAwM and Optuna's TPE. On a GPU:
generations of 1,024 candidates in a CUDA graph, ours and ten lines of PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from cem import CEMConfig, Choice, CrossEntropyMethod, minimize
from cem.families import Bernoulli, Categorical, Permutation
from measure.provenance import Measured
from measure.timing import Plan, capture, latency_times

PAIRS, VALUES, COSTS = 20, 10, np.array([1.0, 0.6, 0.0])
SEEDS, LOOK, MOST = 10, 1000, 100_000
FEW, TRIALS = 3, 1000  # seeds and evaluations of TPE, which takes minutes
POPULATION, ELITES, GENERATIONS, PLAN = 1024, 204, 20, Plan(7, 5, 1)
BITS, CATEGORIES, ITEMS = 200, (50, 10), 100


class Pairs:
    """The objective of a seed; it keeps the costs."""

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


def _cem(problem: Pairs, seed: int, most: int) -> None:
    space = {str(number): Choice(*range(VALUES)) for number in range(2 * PAIRS)}
    function = lambda p: problem(np.stack(list(p.values()), axis=-1))  # noqa: E731
    minimize(function, space, vectorize=False, target=0.0, budget=most, seed=seed)


def _catcma(problem: Pairs, seed: int, most: int) -> None:
    from cmaes import CatCMAwM

    search = CatCMAwM(c_space=[VALUES] * (2 * PAIRS), seed=seed)
    while min(problem.costs, default=1.0) > 0.0 and len(problem.costs) < most:
        asked = [search.ask() for _ in range(search.population_size)]
        costs = problem(np.array([each.c.argmax(1) for each in asked]))
        search.tell(list(zip(asked, costs.tolist(), strict=True)))


def _tpe(problem: Pairs, seed: int, most: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    while min(problem.costs, default=1.0) > 0.0 and len(problem.costs) < most:
        trial = study.ask()
        x = [trial.suggest_categorical(str(number), range(VALUES)) for number in range(2 * PAIRS)]
        study.tell(trial, float(problem(np.array([x]))[0]))


SEARCHES = {"cem": (_cem, "cem"), "catcma": (_catcma, "cmaes"), "tpe": (_tpe, "optuna")}
"""Functions, and what they import."""


def _fitness(x: Tensor) -> Tensor:
    return x[:, ::2].sum(-1)


def _independent(p: Tensor) -> None:
    """Move p by a generation: shape (V,), bits, or (V, K). Ten lines of PyTorch, as the next ones."""
    noise, bits = torch.rand(POPULATION, *p.shape, device=p.device), p.dim() == 1
    x = (noise < p).float() if bits else (p.log() - (-noise.log()).log()).argmax(-1)
    elites = x[_fitness(x).topk(ELITES).indices]
    shares = elites if bits else one_hot(elites, p.shape[1]).float()
    p.lerp_(shares.mean(0), 0.7).clamp_(1e-3, 1 - 1e-3)


def _orders(p: Tensor) -> None:
    left, row, items = p.new_ones(POPULATION, ITEMS), p.new_zeros(POPULATION).long(), list[Tensor]()
    for _ in range(ITEMS):
        items.append(((p[row] * left).log() - (-torch.rand_like(left).log()).log()).argmax(1))
        left.scatter_(1, items[-1].unsqueeze(1), 0.0)
        row = items[-1] + 1
    x = torch.stack(items, 1)
    elites = x[_fitness(x).topk(ELITES).indices]
    shares = torch.full(elites.shape, 1 / ELITES, device=p.device)
    moved = torch.zeros_like(p).index_put_((pad(elites[:, :-1] + 1, (1, 0)), elites), shares, accumulate=True)
    p.lerp_(moved, 0.7)


def on_gpu() -> Measured:
    """Return the microseconds of a generation; a graph has 20, but of PyTorch's permutations one."""
    figures, full = dict[str, float](), partial(torch.full, device="cuda")
    choices, sizes = Categorical(CATEGORIES[1:] * CATEGORIES[0]), "{}x{}".format(*CATEGORIES)
    for name, family, ten_lines, p, count in (
        (f"bits.{BITS}", Bernoulli(BITS), _independent, full((BITS,), 0.5), GENERATIONS),
        (f"categories.{sizes}", choices, _independent, full(CATEGORIES, 1 / CATEGORIES[1]), GENERATIONS),
        (f"orders.{ITEMS}", Permutation(ITEMS), _orders, full((ITEMS + 1, ITEMS), 1 / ITEMS), 1),
    ):
        options: dict[str, Any] = {"maximize": True, "config": CEMConfig.cma(families=[family]), "seed": 1}
        ours = CrossEntropyMethod(torch.zeros(0), 1.0, POPULATION, **options, device="cuda")
        step = ours.capture(lambda x, _: _fitness(x), GENERATIONS)
        times = latency_times({"cem": step, "torch": capture(partial(ten_lines, p), count)}, PLAN)
        for method, each in (("cem", GENERATIONS), ("torch", count)):
            figures[f"discrete.{method}.{name}.us"] = times[method]["median"] / each
    return Measured(figures, {"population": POPULATION, "generations": GENERATIONS})


def on_cpu() -> Measured:
    """Return of each search the runs that find the optimum, the evaluations for it, and its best early."""
    figures: dict[str, float] = {}
    for name, (search, _) in ((x, each) for x, each in SEARCHES.items() if find_spec(each[1])):
        seeds, most = (FEW, TRIALS) if name == "tpe" else (SEEDS, MOST)
        runs = [Pairs(1000 + seed) for seed in range(seeds)]
        for seed, problem in enumerate(runs):
            search(problem, seed, most)
        needed = [each.costs.index(0.0) + 1 for each in runs if 0.0 in each.costs]
        figures |= {f"discrete.{name}.runs": len(runs), f"discrete.{name}.solved": len(needed)}
        figures[f"discrete.{name}.early"] = statistics.fmean(min(each.costs[:LOOK]) for each in runs)
        if needed:
            figures[f"discrete.{name}.median"] = statistics.median(needed)
            figures |= {f"discrete.{name}.least": min(needed), f"discrete.{name}.most": max(needed)}
    return Measured(figures, {"early": LOOK})


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    return on_gpu() if device == "cuda" else on_cpu()
