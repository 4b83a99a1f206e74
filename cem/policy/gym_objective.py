"""The mean return of policies in environments of Gymnasium, as an objective."""

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

# As in the evolution strategies of Salimans et al. (2017).
_LEAST_VARIANCE = 1e-2  # of an observation
_LIMIT = 5.0  # of a normalised observation


class EnvironmentPolicy(nn.Module):
    """A module that gets normalised observations, and whose outputs become actions."""

    mean: Tensor
    std: Tensor
    limit: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        module: nn.Module,
        observations: Any,
        actions: Any,
        like: Tensor,
    ) -> None:
        """Set up for the spaces of an environment.

        Args:
            module: Maps observations, shape (B, *shape), to n values of discrete actions, shape
                (B, n), or to continuous actions.
            observations: The space of observations, a Box of Gymnasium.
            actions: The space of actions: Discrete, the integers from ``start`` to ``start + n
                - 1``, or a Box with the bounds ``low`` and ``high``.
            like: A tensor with the dtype and device of the policy.

        Raises:
            ValueError: If the outputs of the module have another shape.
        """
        super().__init__()
        self.module = module
        self.first_action: int | None = None  # None: the actions are continuous
        low: Any = 0.0  # discrete actions have no bounds
        high: Any = 0.0
        if hasattr(actions, "start"):
            self.first_action = int(actions.start)
            output_shape = (int(actions.n),)
        else:
            output_shape = actions.shape
            low = actions.low
            high = actions.high
        # At first observations are not normalised: mean 0, standard deviation 1, no limit.
        buffers = {
            "mean": np.zeros(observations.shape),
            "std": np.ones(observations.shape),
            "limit": np.inf,
            "low": low,
            "high": high,
        }
        for name, value in buffers.items():
            self.register_buffer(name, torch.as_tensor(value).to(like))
        with torch.no_grad():
            output = module(self.mean[None])[0]  # for a batch of one observation
        if output.shape != output_shape:
            expected = f"a module whose output has shape {output_shape}"
            raise ValueError(f"expected {expected}, got {tuple(output.shape)}")

    def forward(self, observations: Any) -> Tensor:
        """Return the actions for observations, an array or a tensor of shape (..., *shape)."""
        x = (torch.as_tensor(observations).to(self.mean) - self.mean) / self.std
        outputs: Tensor = self.module(x.clamp(-self.limit, self.limit))
        if self.first_action is not None:
            return outputs.argmax(-1) + self.first_action
        scaled = self.low + (outputs.clamp(-1.0, 1.0) + 1.0) / 2 * (self.high - self.low)
        unbounded = torch.where(scaled.isfinite(), scaled, outputs)
        return unbounded.clamp(self.low, self.high)


class GymObjective:
    """The mean return of a module as the policy of an environment, to be maximised.

    Examples:
        >>> import torch
        >>> from cem import GymObjective, maximize
        >>> policy = torch.nn.Linear(4, 2)
        >>> objective = GymObjective("CartPole-v1", policy, max_steps=100, seed=1)
        >>> mean = torch.zeros(objective.parameters.dim)
        >>> result = maximize(objective, mean, 1.0, budget=100, seed=1)
        >>> float(objective.play(result.x[None], seeds=range(10)).mean())
        100.0

    The module maps observations, (B, *shape), to values or to actions. If the actions are
    Discrete, the one of the greatest value is taken. If they are Box, outputs are clipped to
    [-1, 1] and scaled to the bounds of the action; if a bound is infinite, they are only
    clipped to the bounds. The module keeps no state from step to step.

    Episodes begin with seeds of (seed, generation, episode), the same for all candidates
    (common random numbers), and the policies of all environments take a step in one call.
    Metrics are ``episodes`` and ``steps``. The attribute ``is_noisy`` makes a search treat the
    objective as noisy from the start.

    Observations are normalised by the mean and standard deviation of the observations of all
    generations before, as in T. Salimans et al., Evolution Strategies as a Scalable Alternative
    to Reinforcement Learning, arXiv:1703.03864: variances are at least 0.01, results clipped to
    [-5, 5]. Generation 0 begins without statistics, and its observations are not normalised. To
    resume a search, load the ``state_dict()`` of its last generation.

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
        """Set up, and make an environment to read its spaces.

        Args:
            env: The id of an environment, or a function that makes one; ``watch`` calls it with
                the keyword ``render_mode``.
            module: The policy, in the mode ``eval()`` if that matters; it is not changed.
            episodes: Episodes per candidate.
            num_envs: The most environments side by side. The result does not depend on it.
            vectorization_mode: ``"sync"``: environments take their steps one after another;
                ``"async"``: each runs in a process of its own.
            max_steps: The most steps of an episode, in addition to the environment's own limit.
            normalize_observations: Whether to normalise observations.
            seed: ``0 <= seed < 2**63``, or a generator. None: drawn from torch's global
                generator.

        Raises:
            TypeError: If observations are not Box, or actions neither Discrete nor Box.
        """
        check_flags(normalize_observations=normalize_observations)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        self._episodes = check_integer("episodes", episodes, 1)
        self._num_envs = check_integer("num_envs", num_envs, 1)
        self._mode = vectorization_mode
        self._normalizes = normalize_observations
        self._make = partial(_make_env, env, max_steps)
        self._envs: Any = None  # a vector of environments, made when they are needed
        with self._make() as example:
            observations = example.observation_space
            actions = example.action_space
        kinds = (type(observations).__name__, type(actions).__name__)
        if kinds not in (("Box", "Box"), ("Box", "Discrete")):
            expected = "observations of Box and actions of Box or Discrete"
            raise TypeError(f"expected {expected}, got {kinds}")
        self.parameters = ParameterVector(module)
        self._policy = EnvironmentPolicy(
            module, observations, actions, like=self.parameters.vector
        )
        self._population = ParameterVector(self._policy).population
        self._generation = -1  # the last one that was evaluated
        # The count, sum and sum of squares of the observations in all generations, before the
        # last one and including it.
        self._statistics_before = np.zeros((3, *observations.shape))
        self._statistics = self._statistics_before

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the mean returns of candidates, shape (N, dim), as fitness, (N,), float64.

        Observations are normalised by the statistics of all generations before this one.
        Therefore generations come in order. The last one may be repeated, with the same result:
        its observations then replace those of its first evaluation.
        """
        number = int(generation)
        next_generation = self._generation + 1
        if number == 0:
            self._statistics_before = np.zeros_like(self._statistics)
        elif number == next_generation:
            self._statistics_before = self._statistics
        elif self._normalizes and number != self._generation:
            remedy = "load the state_dict() before it"
            raise ValueError(f"expected generation {next_generation}, got {number}: {remedy}")
        self._generation = number
        self._normalize_by(self._statistics_before)
        generation_seed = mix_seed(self.seed, number)
        # All candidates play the same episodes; Gymnasium takes seeds of 31 bits.
        seeds = [mix_seed(generation_seed, episode) >> 33 for episode in range(self._episodes)]
        returns, statistics, steps = self._play(candidates, seeds)
        self._statistics = self._statistics_before + statistics
        # Policies that are made from now on also know the observations of this generation.
        self._normalize_by(self._statistics)
        metrics = {"episodes": returns.numel(), "steps": steps}
        return Evaluation(returns.mean(1), metrics, rates=("episodes", "steps"))

    def play(self, candidates: Any, seeds: Sequence[int]) -> Tensor:
        """Return the returns of candidates, shape (N, dim), in one episode per seed.

        Observations are normalised as by ``policy``, and do not change the statistics.

        Returns:
            The returns, shape (N, len(seeds)), float64.
        """
        return self._play(candidates, seeds)[0]

    def policy(self, x: Any) -> EnvironmentPolicy:
        """Return the policy of a candidate, shape (dim,), as a new module.

        It normalises observations by the current statistics.
        """
        policy = copy.deepcopy(self._policy)
        ParameterVector(policy).write(x)
        return policy

    def watch(
        self,
        x: Any,
        render_mode: str = "human",
        seed: int = 0,
    ) -> tuple[float, list[Any]]:
        """Play an episode with a candidate, and show it or return its frames.

        Args:
            x: The candidate, shape (dim,).
            render_mode: A mode of the environment, such as ``"human"``, a window, or
                ``"rgb_array"``.
            seed: The seed of the episode.

        Returns:
            The return, and the frames; with ``"human"`` there are none.
        """
        policy = self.policy(x)
        total_reward = 0.0
        frames: list[Any] = []
        has_ended = False
        with self._make(render_mode=render_mode) as env, torch.no_grad():
            observation, _ = env.reset(seed=seed)
            while not has_ended:
                if render_mode != "human":
                    frames.append(env.render())
                action = policy(observation).cpu().numpy()
                observation, reward, terminated, truncated, _ = env.step(action)
                total_reward += float(reward)
                has_ended = terminated or truncated
        return total_reward, frames

    def state_dict(self) -> dict[str, Any]:
        """Return what the next generation depends on, for a checkpoint."""
        statistics = torch.from_numpy(self._statistics.copy())
        return {"generation": self._generation, "seen": statistics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the generation of a state."""
        self._generation = int(state["generation"])
        self._statistics = state["seen"].numpy().copy()
        self._statistics_before = self._statistics
        self._normalize_by(self._statistics)

    def _normalize_by(self, statistics: Any) -> None:
        """Make the policy normalise by count, sum and sum of squares of observations."""
        count, total, squares = statistics
        mean = np.zeros_like(count)
        variance = np.ones_like(count)
        limit = np.inf
        if self._normalizes and count.all():
            mean = total / count
            variance = np.maximum(squares / count - mean**2, _LEAST_VARIANCE)
            limit = _LIMIT
        for name, value in {"mean": mean, "std": np.sqrt(variance), "limit": limit}.items():
            self._policy.get_buffer(name).copy_(torch.as_tensor(value))

    @torch.no_grad()
    def _play(self, candidates: Any, seeds: Sequence[int]) -> tuple[Tensor, Any, int]:
        """Play one episode per seed with every candidate, many episodes side by side.

        With E seeds, episode ``i * E + j`` is that of candidate i and seed j. All environments
        take a step at once, and one that has ended its episode begins the next. Observations
        are summed by episode, so that it does not matter which environment plays it.

        Args:
            candidates: The parameters of N policies, shape (N, dim).
            seeds: The seeds of E episodes.

        Returns:
            The returns, shape (N, E); the count, sum and sum of squares of all observations,
            shape (3, *observation); and the number of steps.
        """
        candidates = torch.as_tensor(candidates)
        num_seeds = len(seeds)
        num_episodes = len(candidates) * num_seeds
        num_players = min(self._num_envs, num_episodes)
        self._prepare_envs(num_players)
        num_envs = self._envs.num_envs  # there may be more from an earlier call, which wait
        returns = np.zeros(num_episodes)
        statistics = np.zeros((num_episodes, *self._statistics.shape))
        steps = 0
        episodes = np.zeros(num_envs, dtype=int)  # the episode that an environment plays
        is_playing = np.zeros(num_envs, dtype=bool)
        next_episode = 0
        free = np.arange(num_players)  # environments that begin the next episodes
        while next_episode < num_episodes or is_playing.any():
            if len(free):
                episodes[free] = np.arange(next_episode, next_episode + len(free))
                next_episode += len(free)
                is_new = np.zeros(num_envs, dtype=bool)
                is_new[free] = True
                is_playing |= is_new
                env_seeds = [int(seeds[episode % num_seeds]) for episode in episodes]
                # Environments outside the mask continue their episodes.
                options = {"reset_mask": is_new}
                observations, _ = self._envs.reset(seed=env_seeds, options=options)
                policies = self._population(candidates[episodes // num_seeds], in_dims=0)
            played = episodes[is_playing]
            if self._normalizes:
                # In double precision, because long sums of squares lose the digits of floats.
                x = observations[is_playing].astype(np.float64)
                statistics[played] += np.stack([np.ones_like(x), x, x**2], axis=1)
            actions = policies(torch.as_tensor(observations)).cpu().numpy()
            observations, rewards, terminated, truncated, _ = self._envs.step(actions)
            returns[played] += rewards[is_playing]
            steps += len(played)
            has_ended = is_playing & (terminated | truncated)
            is_playing &= ~has_ended
            num_left = num_episodes - next_episode
            free = np.flatnonzero(has_ended)[:num_left]
        returns_by_candidate = torch.from_numpy(returns).view(len(candidates), num_seeds)
        return returns_by_candidate, statistics.sum(0), steps

    def _prepare_envs(self, count: int) -> None:
        """Make a vector of at least ``count`` environments, unless there is one already."""
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        if self._envs is None or self._envs.num_envs < count:
            vector_env: Any = SyncVectorEnv if self._mode == "sync" else AsyncVectorEnv
            self._envs = vector_env([partial(_make_waiting_env, self._make)] * count)
            self._envs.reset()


def _make_env(env: Any, max_steps: int | None, **options: Any) -> Any:
    """Make an environment from an id or a function, with a limit of steps."""
    import gymnasium

    made = env(**options) if callable(env) else gymnasium.make(env, **options)
    return made if max_steps is None else gymnasium.wrappers.TimeLimit(made, max_steps)


def _make_waiting_env(make: Any) -> Any:
    """Make an environment that plays one episode after a reset with a seed, and then waits.

    A vector environment steps all its environments at once, also those that have no episode to
    play. One that waits does not run the environment: it returns its last observation and the
    reward 0. It also stays so after the reset that ends an episode, which has no seed.

    Args:
        make: Makes the environment that is wrapped.
    """
    import gymnasium

    class Waiting(gymnasium.Wrapper[Any, Any, Any, Any]):
        observation: Any = None
        is_waiting = True

        def reset(
            self,
            *,
            seed: int | None = None,
            options: Any = None,
        ) -> tuple[Any, dict[str, Any]]:
            self.is_waiting = seed is None
            if self.observation is None or not self.is_waiting:
                self.observation, _ = self.env.reset(seed=seed)
            return self.observation, {}

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            if self.is_waiting:
                return self.observation, 0.0, False, False, {}
            observation, reward, terminated, truncated, _ = self.env.step(action)
            self.observation = observation
            return observation, reward, terminated, truncated, {}

    return Waiting(make())
