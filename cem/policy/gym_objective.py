"""The mean return of policies in environments of Gymnasium, as an objective."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cem.core.backend import mix_seed
from cem.core.checks import Seed, draw_seed
from cem.core.evaluation import Evaluation
from cem.policy.parameter_vector import ParameterVector
from kernels.support.checks import check_flags, check_integer

_LEAST_VARIANCE, _LIMIT = 1e-2, 5.0  # of an observation, and of a normalised one: as of OpenAI-ES


class Policy(nn.Module):
    """A module between normalised observations, (..., *shape), and actions as an environment takes them."""

    mean: Tensor
    std: Tensor
    limit: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, module: nn.Module, observations: Any, actions: Any, like: Tensor) -> None:
        """Set up for the spaces of an environment, with the dtype and device of a tensor."""
        super().__init__()
        self.module = module
        self.start = int(actions.start) if hasattr(actions, "start") else None  # of Discrete
        low, high = (0.0, 0.0) if self.start is not None else (actions.low, actions.high)
        buffers = {"mean": np.zeros(observations.shape), "std": np.ones(observations.shape), "limit": np.inf}
        for name, value in {**buffers, "low": low, "high": high}.items():
            self.register_buffer(name, torch.as_tensor(value).to(like))
        wanted = actions.shape if self.start is None else (int(actions.n),)
        with torch.no_grad():
            found = tuple(module(self.mean[None])[0].shape)
        if found != wanted:
            raise ValueError(f"expected a module whose output has shape {wanted}, got {found}")

    def forward(self, observations: Any) -> Tensor:
        """Return the actions of observations, an array or a tensor."""
        x = (torch.as_tensor(observations).to(self.mean) - self.mean) / self.std
        y: Tensor = self.module(x.clamp(-self.limit, self.limit))
        if self.start is not None:
            return y.argmax(-1) + self.start
        scaled = self.low + (y.clamp(-1.0, 1.0) + 1.0) / 2 * (self.high - self.low)
        return torch.where(scaled.isfinite(), scaled, y).clamp(self.low, self.high)


class GymObjective:
    """The mean return of a module as the policy of an environment, to be maximised.

    Examples:
        >>> import torch
        >>> from cem import GymObjective, maximize
        >>> objective = GymObjective("CartPole-v1", torch.nn.Linear(4, 2), max_steps=100, seed=1)
        >>> result = maximize(objective, torch.zeros(objective.parameters.dim), 1.0, budget=100, seed=1)
        >>> float(objective.play(result.x[None], seeds=range(10)).mean())
        100.0

    The module maps observations, (B, *shape), to the value of each action, of which the greatest is taken
    (Discrete), or to actions (Box): outputs are clipped to [-1, 1] and scaled to the bounds of the action;
    where one is infinite they are clipped to the bounds alone. It has no state from step to step.

    Episodes begin with seeds of (seed, generation, episode), the same for all candidates (common random
    numbers), and the policies of all environments take a step in one call. Metrics are ``episodes`` and
    ``steps``. By its attribute ``is_noisy`` a search treats the objective as noisy from the start.

    Observations are normalised by mean and standard deviation of all those of the generations before, as in
    T. Salimans et al., Evolution Strategies as a Scalable Alternative to Reinforcement Learning,
    arXiv:1703.03864: variances are at least 0.01, results clipped to [-5, 5]. Generation 0 begins anew, with
    observations as they are. Who resumes a search loads the ``state_dict()`` of its last generation.

    Attributes:
        parameters: The ``ParameterVector`` of the module.
        seed: The seed.
    """

    with_generation = True
    is_noisy = True

    def __init__(
        self,
        env: Any,
        module: nn.Module,
        *,
        episodes: int = 1,
        num_envs: int = 32,
        vectorization_mode: str = "sync",
        max_steps: int | None = None,
        normalize_observations: bool = True,
        seed: Seed = None,
    ) -> None:
        """Make an environment to look at its spaces.

        Args:
            env: The id of an environment, or a function that makes one, with the keyword ``render_mode`` if
                it is to be watched. Observations are Box, actions Discrete or Box: otherwise a TypeError.
            module: The policy, ``eval()`` where that matters; it is not changed.
            episodes: Episodes of each candidate.
            num_envs: The most environments side by side. The result does not depend on it.
            vectorization_mode: ``"sync"``: one after another; ``"async"``: each in a process of its own.
            max_steps: The most steps of an episode, within the environment's own limit.
            normalize_observations: Whether to.
            seed: ``0 <= seed < 2**63``, or a generator. None: drawn from torch's global generator.
        """
        check_flags(normalize_observations=normalize_observations)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        self._episodes = check_integer("episodes", episodes, 1)
        self._num_envs = check_integer("num_envs", num_envs, 1)
        self._mode, self._normalizes = vectorization_mode, normalize_observations
        self._make = partial(_made, env, max_steps)
        self._envs: Any = None
        with self._make() as made:
            spaces = made.observation_space, made.action_space
        kinds = tuple(type(space).__name__ for space in spaces)
        if kinds not in (("Box", "Box"), ("Box", "Discrete")):
            raise TypeError(f"expected observations of Box and actions of Box or Discrete, got {kinds}")
        self.parameters = ParameterVector(module)
        self._policy = Policy(module, *spaces, like=self.parameters.vector)
        self._population = ParameterVector(self._policy).population
        self._generation = -1  # the last one
        self._before = self._seen = np.zeros((3, *spaces[0].shape))  # count, sum and sum of squares

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the mean return of candidates, shape (N, dim), float64."""
        number, expected = int(generation), self._generation + 1
        if number == 0:
            self._before = np.zeros_like(self._seen)
        elif number == expected:
            self._before = self._seen
        elif self._normalizes and number != self._generation:  # nor the last one once more
            raise ValueError(f"expected generation {expected}, got {number}: load the state_dict() before it")
        self._generation = number
        self._normalize_by(self._before)
        of_generation = mix_seed(self.seed, number)
        seeds = [mix_seed(of_generation, episode) >> 33 for episode in range(self._episodes)]  # 31 bits
        returns, seen, steps = self._play(candidates, seeds)
        self._seen = self._before + seen
        self._normalize_by(self._seen)
        metrics = {"episodes": returns.numel(), "steps": steps}
        return Evaluation(returns.mean(1), metrics, rates=("episodes", "steps"))

    def play(self, candidates: Any, seeds: Sequence[int]) -> Tensor:
        """Return the returns of candidates, (N, dim), in episodes of these seeds: (N, len(seeds)), float64.

        Observations are normalised as by ``policy``, and are not counted.
        """
        return self._play(candidates, seeds)[0]

    def policy(self, x: Any) -> Policy:
        """Return the policy of a candidate, shape (dim,), a new module, with the statistics as they are."""
        policy = copy.deepcopy(self._policy)
        ParameterVector(policy).write(x)
        return policy

    def watch(self, x: Any, render_mode: str = "human", seed: int = 0) -> tuple[float, list[Any]]:
        """Play an episode of a candidate; return the return, and the frames if they are not shown.

        ``render_mode`` is that of the environment, such as ``"human"``, a window, or ``"rgb_array"``.
        """
        policy, total, frames, ended = self.policy(x), 0.0, [], False
        with self._make(render_mode=render_mode) as env, torch.no_grad():
            observation, _ = env.reset(seed=seed)
            while not ended:
                frames += [] if render_mode == "human" else [env.render()]
                observation, reward, *ends, _ = env.step(policy(observation).cpu().numpy())
                total, ended = total + float(reward), any(ends)
        return total, frames

    def state_dict(self) -> dict[str, Any]:
        """Return what the next generation depends on, to be saved with a checkpoint."""
        return {"generation": self._generation, "seen": torch.from_numpy(self._seen.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after the generation of a state."""
        self._generation, self._seen = int(state["generation"]), state["seen"].numpy().copy()
        self._before = self._seen
        self._normalize_by(self._seen)

    def _normalize_by(self, statistics: Any) -> None:
        """Set the statistics of the policy."""
        count = statistics[0]
        mean, variance, limit = np.zeros_like(count), np.ones_like(count), np.inf
        if self._normalizes and count.all():
            mean, limit = statistics[1] / count, _LIMIT
            variance = np.maximum(statistics[2] / count - mean**2, _LEAST_VARIANCE)
        for name, value in {"mean": mean, "std": np.sqrt(variance), "limit": limit}.items():
            self._policy.get_buffer(name).copy_(torch.as_tensor(value))

    @torch.no_grad()
    def _play(self, candidates: Any, seeds: Sequence[int]) -> tuple[Tensor, Any, int]:
        """Play all episodes; return returns (N, E), statistics of observations, and the number of steps.

        An environment that is done takes the next episode. Sums are kept by episode: which environment played
        it makes no difference.
        """
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        candidates, size = torch.as_tensor(candidates), len(candidates) * len(seeds)
        wanted = min(self._num_envs, size)
        if self._envs is None or self._envs.num_envs < wanted:
            kind: Any = SyncVectorEnv if self._mode == "sync" else AsyncVectorEnv
            self._envs = kind([partial(_waiting, self._make)] * wanted)
            self._envs.reset()
        width = self._envs.num_envs
        returns, seen, steps = np.zeros(size), np.zeros((size, *self._seen.shape)), 0
        episode, playing = np.zeros(width, dtype=int), np.zeros(width, dtype=bool)
        begun, free = 0, np.arange(wanted)
        while True:
            if len(free):
                episode[free] = np.arange(begun, begun + len(free))
                begun, mask = begun + len(free), np.isin(np.arange(width), free)
                playing |= mask
                each = [int(seeds[i % len(seeds)]) for i in episode]
                observations, _ = self._envs.reset(seed=each, options={"reset_mask": mask})
                policies = self._population(candidates[episode // len(seeds)], in_dims=0)
            if not playing.any():
                return torch.from_numpy(returns).view(len(candidates), -1), seen.sum(0), steps
            own = episode[playing]
            if self._normalizes:
                x = observations[playing].astype(np.float64)
                seen[own] += np.stack([np.ones_like(x), x, x**2], axis=1)
            actions = policies(torch.as_tensor(observations)).cpu().numpy()
            observations, rewards, *ends, _ = self._envs.step(actions)
            returns[own] += rewards[playing]
            steps += len(own)
            ended = np.flatnonzero(playing & np.logical_or(*ends))
            playing[ended] = False
            free = ended[: size - begun]


def _made(env: Any, max_steps: int | None, **options: Any) -> Any:
    """Return an environment of an id or a function, with a limit of steps."""
    import gymnasium

    made = env(**options) if callable(env) else gymnasium.make(env, **options)
    return made if max_steps is None else gymnasium.wrappers.TimeLimit(made, max_steps)


def _waiting(make: Any) -> Any:
    """Return an environment that plays an episode after a reset with a seed, and then waits at no cost.

    The reset by which a vector environment follows the end of an episode has no seed: it goes on waiting.
    """
    import gymnasium

    class Waiting(gymnasium.Wrapper[Any, Any, Any, Any]):
        observation: Any = None
        waits = True

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.waits = seed is None
            if self.observation is None or not self.waits:
                self.observation, _ = self.env.reset(seed=seed)
            return self.observation, {}

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            if self.waits:
                return self.observation, 0.0, False, False, {}
            self.observation, *rest, _ = self.env.step(action)
            return self.observation, *rest, {}

    return Waiting(make())
