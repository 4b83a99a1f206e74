"""Measure what planning comes to on simulators, beside pytorch-icem, and how long a plan takes.

python scripts/measure planner --device cpu --json planner.json
python scripts/measure planner --device cuda --json planner.json

On a processor: returns of Pendulum-v1 in 200 steps at equal budgets (plans an iteration x iterations a step),
planned on its equations, for start seeds 0 to 9. Every episode is repeated with other noise, since single
ones differ. ``plain`` is the method without memory: a warm start, the same noise in every step, and the mean
is executed. pytorch-icem has the same budget, horizon and first standard deviation; noise of beta 3 (its
default) and 0, 10 elites (its default) and a tenth. Then returns of HalfCheetah-v5, where MuJoCo is
installed. On a GPU: the time of a plan of 1,024 samples, horizon 30, 5 iterations, on the equations of
Pendulum-v1.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem import Planner
from measure.cli import Options, measurement
from measure.control_tasks import episode, half_cheetah, pendulum, pendulum_cost, planned
from measure.provenance import Measured
from measure.timing import Plan, host_times, latency_times, wall_times
from tetris.commands.command_line import positive_int

Controller = Callable[[Tensor], Tensor]
"""Maps the states of all starts, shape (10, 2), to their actions, shape (10, 1)."""

STEPS, SEEDS = 200, 10
BOUNDS = (-2.0, 2.0)
LARGE = {"horizon": 30, "num_samples": 1024, "iterations": 5}
CHEETAH_STEPS, CHEETAH_SEEDS = 100, 3


class Budget(NamedTuple):
    """What a step may cost."""

    samples: int  # plans an iteration
    iterations: int
    horizon: int

    @property
    def elites(self) -> int:
        """A tenth of the samples."""
        return max(2, self.samples // 10)

    def __str__(self) -> str:
        return f"{self.samples}x{self.iterations}.h{self.horizon}"


BUDGETS = tuple(Budget(*size, horizon) for horizon in (30, 15) for size in ((30, 3), (100, 5)))


def ours(budget: Budget, seed: int, **options: Any) -> Controller:
    """Return `cem.Planner` with its defaults."""
    samples, iterations, horizon = budget
    options = {"num_samples": samples, "iterations": iterations, "num_envs": SEEDS, **options}
    return Planner(pendulum_cost, horizon, 1, BOUNDS, seed=seed, **options).plan


def plain(budget: Budget, seed: int) -> Controller:
    """Return the cross-entropy method as a loop of a few lines uses it, std 1 at the beginning of a step."""
    means = torch.zeros(SEEDS, 1, budget.horizon, 1)

    def control(states: Tensor) -> Tensor:
        nonlocal means
        stds, generator = torch.ones_like(means), torch.Generator().manual_seed(seed)
        for _ in range(budget.iterations):
            noise = torch.randn(SEEDS, budget.samples, budget.horizon, 1, generator=generator)
            plans = (means + stds * noise).clamp(*BOUNDS)
            best = pendulum_cost(states, plans).argsort(dim=1, stable=True)[:, : budget.elites]
            elites = plans[torch.arange(SEEDS)[:, None], best]
            means, stds = elites.mean(1, keepdim=True), elites.std(1, unbiased=False, keepdim=True)
        actions = means[:, 0, 0]
        means = torch.cat([means[:, :, 1:], torch.zeros_like(means[:, :, :1])], dim=2)
        return actions

    return control


def pytorch_icem(budget: Budget, seed: int, beta: float = 3.0, elites: int | None = None) -> Controller:
    """Return planners of the package pytorch-icem, one for each start; its coloured noise takes no seed."""
    import pytorch_icem as peer

    torch.manual_seed(seed)

    def dynamics(states: Tensor, torques: Tensor) -> Tensor:
        angle, speed, torque = states[:, 0], states[:, 1], torques[:, 0].clamp(*BOUNDS)
        speed = (speed + (15 * angle.sin() + 3 * torque) * 0.05).clamp(-8.0, 8.0)
        return torch.stack([angle + 0.05 * speed, speed], dim=1)

    def cost(states: Tensor, torques: Tensor) -> Tensor:
        error = torch.remainder(states[..., 0] + torch.pi, 2 * torch.pi) - torch.pi
        speed, torque = states[..., 1], torques[..., 0].clamp(*BOUNDS)
        return (error.square() + 0.1 * speed.square() + 0.001 * torque.square()).sum(-1)

    controllers = [
        peer.iCEM(
            *(dynamics, cost, 2, 1),
            sigma=torch.full((1,), 4 / 3),
            num_samples=budget.samples,
            num_elites=elites or budget.elites,
            horizon=budget.horizon,
            noise_beta=beta,
            warmup_iters=budget.iterations,
            online_iters=budget.iterations,
            includes_x0=True,
        )
        for _ in range(SEEDS)
    ]
    return lambda states: torch.stack(
        [each.command(state).clamp(*BOUNDS) for each, state in zip(controllers, states, strict=True)]
    )


Method = Callable[[Budget, int], Controller]
"""Makes a controller of all starts by a budget and a seed."""


def methods() -> dict[str, Method]:
    """Return what is compared, by name."""
    compared: dict[str, Method] = {"ours": ours, "plain": plain}
    compared["ours.keep0"], compared["ours.beta2"] = partial(ours, keep=0.0), partial(ours, beta=2.0)
    if importlib.util.find_spec("pytorch_icem") is not None:
        for beta in (3, 0):
            peer = partial(pytorch_icem, beta=beta)
            compared[f"pytorch_icem.beta{beta}.elites10"] = partial(peer, elites=10)
            compared[f"pytorch_icem.beta{beta}.elites_tenth"] = peer
    return compared


def pendulum_returns(method: Method, budget: Budget, repeats: int) -> list[list[float]]:
    """Return the returns of every repeat: one for each start."""
    found = []
    for repeat in range(repeats):
        tasks = [pendulum(seed) for seed in range(SEEDS)]
        control, returns = method(budget, repeat + 1), np.zeros(SEEDS)
        for _ in range(STEPS):
            actions = control(torch.stack([task.state() for task in tasks])).numpy()
            returns += [float(task.env.step(each)[1]) for task, each in zip(tasks, actions, strict=True)]
        found.append(returns.tolist())
    return found


def pendulum_figures(returns: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> dict[str, float]:
    """Return medians over start seeds, averaged over repeats; and for how many each is ahead of ``plain``."""
    figures: dict[str, float] = {}
    for budget, by_method in returns.items():
        means = {name: np.mean(rows, axis=0) for name, rows in by_method.items()}
        for name, rows in by_method.items():
            key = f"planner.pendulum.{budget}.{name}"
            figures[f"{key}.median_return"] = statistics.fmean(map(statistics.median, rows))
            figures[f"{key}.mean_return"] = float(np.mean(rows))
            if name != "plain":
                figures[f"{key}.ahead_of_plain"] = int((means[name] > means["plain"]).sum())
    return figures


def ranges(returns: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> dict[str, list[float]]:
    """Return the least and the greatest median of a repeat."""
    return {
        f"planner.pendulum.{budget}.{name}.median_return": [min(medians), max(medians)]
        for budget, by_method in returns.items()
        for name, rows in by_method.items()
        if (medians := [statistics.median(row) for row in rows])
    }


def cheetah_returns() -> dict[str, list[float]]:
    """Return the returns of HalfCheetah-v5 with and without memory, by start seed."""
    options: dict[str, dict[str, Any]] = {
        "ours": {},
        "ours.keep0": {"keep": 0.0},
        "ours.beta1": {"beta": 1.0},
    }
    found: dict[str, list[float]] = {name: [] for name in options}
    for seed in range(CHEETAH_SEEDS):
        for name, chosen in options.items():
            task = half_cheetah(seed)
            found[name].append(episode(task, planned(task, iterations=3, seed=seed, **chosen), CHEETAH_STEPS))
    return found


def on_cpu(repeats: int) -> Measured:
    """Return what planning comes to, and the time of a plan."""
    returns: dict[str, dict[str, list[list[float]]]] = {}
    for budget in BUDGETS:
        returns[str(budget)] = {
            name: pendulum_returns(each, budget, repeats) for name, each in methods().items()
        }
    figures = pendulum_figures(returns)
    data: dict[str, Any] = {"steps": STEPS, "returns": returns, "ranges": ranges(returns)}
    if importlib.util.find_spec("mujoco") is not None:
        data["half_cheetah"] = cheetah_returns()
        for name, each in data["half_cheetah"].items():
            figures[f"planner.half_cheetah.40x3.h30.{name}.median_return"] = statistics.median(each)
    states = torch.stack([pendulum(seed).state() for seed in range(SEEDS)])
    names = ("ours", "plain", "pytorch_icem.beta0.elites10")
    calls = {name: partial(methods()[name](BUDGETS[1], 0), states) for name in names if name in methods()}
    data["wall"] = wall_times(calls, Plan(5, 10, 1))
    for name, times in data["wall"].items():
        figures[f"planner.plan.{BUDGETS[1]}.envs{SEEDS}.{name}.ms"] = times["median"] / 1e3
    return figures, data, {}


def on_gpu() -> Measured:
    """Return the time of a plan on an idle device, by events, and how long the call keeps the host."""
    figures: dict[str, float] = {}
    data: dict[str, Any] = {"plan": LARGE}
    hanging = torch.tensor([torch.pi, 0.0], device="cuda")
    kinds: dict[str, dict[str, Any]] = {"compiled": {"compile": True}, "graph": {}, "eager": {"graph": False}}
    for envs in (1, 64, 1024):
        calls = {}
        for name, options in kinds.items():
            if envs == 1 or name == "compiled":
                told: dict[str, Any] = {"num_envs": envs, "seed": 1, "device": "cuda", **LARGE, **options}
                planner = Planner(pendulum_cost, action_dim=1, bounds=BOUNDS, **told)
                calls[name] = partial(planner.plan, hanging.expand(envs, 2))
        plan = Plan(5, 40, 3)
        times = {"latency": latency_times(calls, plan), "host": host_times(calls, Plan(3, 5, 1), 10)}
        for clock, by_name in times.items():
            for name, each in by_name.items():
                figures[f"planner.plan.1024x5.h30.envs{envs}.{name}.{clock}_ms"] = each["median"] / 1e3
        data[f"envs{envs}"] = times
    return figures, data, {}


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return returns on a processor, times on a GPU."""
    return on_gpu() if device == "cuda" else on_cpu(arguments.repeats)


REPEATS: Options = {
    "--repeats": {"type": positive_int, "default": 3, "help": "of every episode (default: 3)"}
}
main = measurement(measure, __doc__, REPEATS)
