"""The mean return of policies in environments of Gymnasium, as an objective."""

import copy
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cem.core.backend import mix_seed
from cem.core.checks import Seed, draw_seed, to_tensor
from cem.core.evaluation import Evaluation
from cem.policy.parameter_vector import ParameterVector
from kernels.support.checks import check_flags, check_integer

# As in the evolution strategies of Salimans et al. (2017).
_LEAST_VARIANCE = 1e-2  # observations with a lower variance are divided by its root
_LIMIT = 5.0  # normalised observations are clipped to this absolute value


class _Episodes:
    """Distributes episodes over environments.

    Attributes:
        of_env: The index of the episode that each environment plays, or has played last.
        is_playing: Which environments play an episode.
    """

    def __init__(self, count: int, num_envs: int) -> None:
        """Prepare to distribute ``count`` episodes over ``num_envs`` environments."""
        self.of_env = np.zeros(num_envs, dtype=int)
        self.is_playing = np.zeros(num_envs, dtype=bool)
        self._waiting = np.arange(count)

    def start(self) -> Any:
        """Start an episode in each free environment; return flags of these environments."""
        free = np.flatnonzero(~self.is_playing)
        # There may be more free environments than waiting episodes.
        free = free[: len(self._waiting)]
        self.of_env[free] = self._waiting[: len(free)]
        self._waiting = self._waiting[len(free) :]
        is_new = np.zeros_like(self.is_playing)
        is_new[free] = True
        self.is_playing |= is_new
        return is_new


class EnvironmentPolicy(nn.Module):
    """Normalises observations, calls a module, and converts its outputs to actions."""

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
        """Make a policy for the spaces of an environment.

        Args:
            module: Maps observations, shape (B, *shape), to the values of n discrete actions,
                shape (B, n), or to continuous actions, shape (B, *action_shape).
            observations: The space of observations, a Box of Gymnasium.
            actions: The space of actions. It is a Discrete, the integers from ``start`` to
                ``start + n - 1``, or a Box with the bounds ``low`` and ``high``.
            like: A tensor with the dtype and device of the policy.

        Raises:
            ValueError: If the outputs of the module have another shape.
        """
        super().__init__()
        self.module = module
        self.first_action: int | None = None  # None: the actions are continuous
        # Discrete actions have no bounds, and do not use these.
        low: Any = 0.0
        high: Any = 0.0
        is_discrete = hasattr(actions, "start")
        if is_discrete:
            self.first_action = int(actions.start)
            output_shape = (int(actions.n),)
        else:
            output_shape = actions.shape
            low = actions.low
            high = actions.high

        # The initial mean, std and limit leave observations unchanged.
        buffers = {
            "mean": np.zeros(observations.shape),
            "std": np.ones(observations.shape),
            "limit": np.inf,
        }
        for name, value in buffers.items():
            self.register_buffer(name, to_tensor(value).to(like))
        # The bounds keep the dtype of the space, which is that of the actions.
        self.register_buffer("low", torch.as_tensor(low, device=like.device))
        self.register_buffer("high", torch.as_tensor(high, device=like.device))

        # Find the shape of the outputs by a call with a batch of one observation.
        with torch.no_grad():
            output = module(self.mean[None])[0]
        if output.shape != output_shape:
            raise ValueError(
                f"expected a module whose output has shape {output_shape}, "
                f"got {tuple(output.shape)}"
            )

    def forward(self, observations: Any) -> Tensor:
        """Return the actions for observations, an array or tensor of shape (..., *shape).

        They have the dtype of their space. For a Box of integers, they are rounded.
        """
        x = (to_tensor(observations).to(self.mean) - self.mean) / self.std
        x = x.clamp(-self.limit, self.limit)
        # The module gets a single leading dimension, also for a single observation.
        leading = x.shape[: x.dim() - self.mean.dim()]
        outputs: Tensor = self.module(x.reshape(-1, *self.mean.shape))
        outputs = outputs.reshape(leading + outputs.shape[1:])
        if self.first_action is not None:
            # The outputs are the values of the discrete actions.
            return outputs.argmax(-1) + self.first_action
        # Outputs in [-1, 1] are scaled to the bounds. With an infinite bound the result is not
        # finite, and the outputs are used unscaled.
        low = self.low.to(outputs)
        high = self.high.to(outputs)
        scaled = low + (outputs.clamp(-1.0, 1.0) + 1.0) / 2 * (high - low)
        unbounded = torch.where(scaled.isfinite(), scaled, outputs)
        if not self.low.is_floating_point():
            unbounded = unbounded.round()
        # Clamp last: a bound of float64 may lie outside as float32.
        return unbounded.to(self.low.dtype).clamp(self.low, self.high)


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

    The module maps observations, shape (B, *shape), to values or to actions. If the action
    space is Discrete, the action with the greatest value is taken. If it is a Box, outputs are
    clipped to [-1, 1] and scaled to the bounds of the action; if a bound is infinite, they are
    only clipped to the bounds. The module must not keep a state from step to step.

    The seed of an episode is a function of (seed, generation, episode). So all candidates play
    the same episodes (common random numbers). The policies of all environments are evaluated in
    one call. The metrics are ``episodes`` and ``steps``. The attribute ``is_noisy`` makes a
    search treat the objective as noisy from the start.

    Observations are normalised by the mean and standard deviation of all finite observations of
    earlier generations, as in T. Salimans et al., Evolution Strategies as a Scalable
    Alternative to Reinforcement Learning, arXiv:1703.03864. Variances are at least 0.01, and
    normalised observations are clipped to [-5, 5]. In generation 0 there are no statistics, and
    observations are not normalised. Checkpoints of a search contain the statistics.

    Attributes:
        parameters: The ``ParameterVector`` of the module.
        seed: The seed.
    """

    with_generation = True
    is_noisy = True
    has_state = True  # ``state_dict()`` belongs to the checkpoints of a search.

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
        """Prepare the objective. Make an environment once, to read its spaces.

        Args:
            env: The id of an environment, or a function that makes one. ``watch`` calls the
                function with the keyword argument ``render_mode``.
            module: The policy, which is not modified. Call its ``eval()`` before, if it behaves
                differently in training.
            episodes: The number of episodes per candidate.
            num_envs: The maximum number of environments that play in parallel. The result
                depends on it by rounding errors alone, if a layer has 400 weights or more.
            vectorization_mode: ``"sync"``: environments take their steps one after another;
                ``"async"``: each environment runs in a process of its own.
            max_steps: The maximum number of steps per episode, in addition to the environment's
                own limit.
            normalize_observations: Whether to normalise observations.
            seed: ``0 <= seed < 2**63``, or a generator. None: drawn from torch's global
                generator.

        Raises:
            TypeError: If the space of observations is not a Box, or that of actions is neither
                a Discrete nor a Box.
        """
        check_flags(normalize_observations=normalize_observations)
        self.seed = check_integer("seed", draw_seed(seed), 0, 2**63 - 1)
        self._episodes = check_integer("episodes", episodes, 1)
        self._num_envs = check_integer("num_envs", num_envs, 1)
        if vectorization_mode not in ("sync", "async"):
            raise ValueError(
                f"expected 'sync' or 'async' for vectorization_mode, got {vectorization_mode!r}"
            )
        self._mode = vectorization_mode
        self._normalizes = normalize_observations
        self._make = partial(_make_env, env, max_steps)
        self._envs: Any = None  # a vector of environments; ``_prepare_envs`` makes it
        with self._make() as example:
            observation_space = example.observation_space
            action_space = example.action_space
        kinds = (type(observation_space).__name__, type(action_space).__name__)
        if kinds not in (("Box", "Box"), ("Box", "Discrete")):
            raise TypeError(
                f"expected observations of Box and actions of Box or Discrete, got {kinds}"
            )
        self.parameters = ParameterVector(module)
        self._policy = EnvironmentPolicy(
            module, observation_space, action_space, like=self.parameters.vector
        )
        self._population = ParameterVector(self._policy).population
        self._generation = -1  # the last generation that was evaluated; -1: none
        # The statistics of observations are their count, sum and sum of squares. The first
        # array excludes the last generation, and the second one includes it.
        self._statistics_before = np.zeros((3, *observation_space.shape))
        self._statistics = self._statistics_before

    def __call__(self, candidates: Any, generation: Any) -> Evaluation:
        """Return the mean returns of candidates, shape (N, dim), as fitness, (N,), float64.

        Observations are normalised by the statistics of all earlier generations. Therefore
        generations have to be evaluated in order. The last generation may be evaluated again:
        the same candidates then have the same fitness. Their observations replace those of the
        first evaluation in the statistics.

        Raises:
            ValueError: If the generation is neither the next nor the last one nor 0.
        """
        number = int(generation)
        next_generation = self._generation + 1
        if number == 0:
            # A new search begins.
            self._statistics_before = np.zeros_like(self._statistics)
        elif number == next_generation:
            self._statistics_before = self._statistics
        elif self._normalizes and number != self._generation:
            remedy = "load the state_dict() before it"
            raise ValueError(f"expected generation {next_generation}, got {number}: {remedy}")
        self._generation = number
        self._normalize_by(self._statistics_before)

        generation_seed = mix_seed(self.seed, number)
        # All candidates play the same episodes. The shift makes seeds of 31 bits, the most that
        # Gymnasium accepts.
        seeds = [mix_seed(generation_seed, episode) >> 33 for episode in range(self._episodes)]
        returns, statistics, steps = self._play(candidates, seeds)
        self._statistics = self._statistics_before + statistics

        # For the methods ``policy`` and ``play``, include the observations of this generation.
        self._normalize_by(self._statistics)
        metrics = {"episodes": returns.numel(), "steps": steps}
        return Evaluation(returns.mean(1), metrics, rates=("episodes", "steps"))

    def play(self, candidates: Any, seeds: Sequence[int]) -> Tensor:
        """Play one episode per seed with each candidate.

        Observations are normalised by the current statistics, which do not change.

        Args:
            candidates: The candidates, shape (N, dim).
            seeds: The seeds of the episodes.

        Returns:
            The returns, shape (N, len(seeds)), float64.
        """
        returns, _, _ = self._play(candidates, seeds)
        return returns

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
        """Play an episode with a candidate. Show it in a window, or return its frames.

        Args:
            x: The candidate, shape (dim,).
            render_mode: A mode of the environment: ``"human"`` opens a window, and other modes
                such as ``"rgb_array"`` return frames.
            seed: The seed of the episode.

        Returns:
            The return (sum of rewards), and the list of frames, which is empty with
            ``"human"``.
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
                # Discrete actions are numbers, as a vector environment passes them on.
                action = policy(observation).cpu().numpy()[()]
                observation, reward, terminated, truncated, _ = env.step(action)
                total_reward += float(reward)
                has_ended = terminated or truncated
        return total_reward, frames

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next generation depends on, for a checkpoint."""
        return {
            "generation": self._generation,
            "seen": torch.from_numpy(self._statistics.copy()),
            # The last generation may be evaluated again.
            "seen_before": torch.from_numpy(self._statistics_before.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, to continue with the generation after it."""
        self._generation = int(state["generation"])
        self._statistics = state["seen"].numpy().copy()
        self._statistics_before = state["seen_before"].numpy().copy()
        self._normalize_by(self._statistics)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the environments, which a copy makes again."""
        return {**self.__dict__, "_envs": None}

    def _normalize_by(self, statistics: Any) -> None:
        """Set the policy's normalisation from statistics of observations.

        Without observations, or if normalisation is off, observations are not changed.

        Args:
            statistics: The count, sum and sum of squares, shape (3, *shape).
        """
        count, total, squares = statistics
        mean = np.zeros_like(count)
        variance = np.ones_like(count)
        limit = np.inf
        if self._normalizes and count.any():
            # An element without a finite observation has the count 0.
            divisor = np.maximum(count, 1)
            mean = total / divisor
            variance = np.maximum(squares / divisor - mean**2, _LEAST_VARIANCE)
            limit = _LIMIT
        for name, value in {"mean": mean, "std": np.sqrt(variance), "limit": limit}.items():
            self._policy.get_buffer(name).copy_(to_tensor(value))

    @torch.no_grad()
    def _play(self, candidates: Any, seeds: Sequence[int]) -> tuple[Tensor, Any, int]:
        """Play one episode per seed with every candidate, many episodes in parallel.

        With E seeds, episode ``i * E + j`` is that of candidate i and seed j. All environments
        take their steps together. When an environment has ended its episode, it starts the next
        episode that has not started yet. The statistics are summed for each episode, so that
        the result does not depend on which environment plays it.

        Args:
            candidates: The parameters of N policies, shape (N, dim).
            seeds: The seeds of E episodes.

        Returns:
            returns: The sum of rewards of each episode, shape (N, E).
            statistics: The count, sum and sum of squares of all observations, shape (3,
                *shape).
            steps: The number of steps.
        """
        candidates = to_tensor(candidates)
        num_seeds = len(seeds)
        num_episodes = len(candidates) * num_seeds
        returns = np.zeros(num_episodes)
        statistics = np.zeros((num_episodes, *self._statistics.shape))
        steps = 0
        self._prepare_envs(min(self._num_envs, num_episodes))
        # An earlier call may have made more environments than this one needs. The others wait.
        episodes = _Episodes(num_episodes, self._envs.num_envs)
        is_playing = episodes.is_playing
        is_new = episodes.start()
        while is_playing.any():
            if is_new.any():
                observations = self._reset_envs(is_new, episodes.of_env, seeds)
                # Each environment gets the policy of its episode's candidate.
                policies = self._population(candidates[episodes.of_env // num_seeds], in_dims=0)
            current = episodes.of_env[is_playing]
            if self._normalizes:
                statistics[current] += _measure(observations[is_playing])
            actions = policies(to_tensor(observations)).cpu().numpy()
            observations, rewards, terminated, truncated, _ = self._envs.step(actions)
            returns[current] += rewards[is_playing]
            steps += len(current)
            is_playing &= ~(terminated | truncated)
            is_new = episodes.start()
        returns_by_candidate = torch.from_numpy(returns).view(len(candidates), num_seeds)
        return returns_by_candidate, statistics.sum(0), steps

    def _reset_envs(self, is_new: Any, episode_of_env: Any, seeds: Sequence[int]) -> Any:
        """Start new episodes in the environments of a mask; return all observations.

        The other environments continue their episodes.
        """
        env_seeds = [int(seeds[episode % len(seeds)]) for episode in episode_of_env]
        options = {"reset_mask": is_new}
        observations, _ = self._envs.reset(seed=env_seeds, options=options)
        return observations

    def _prepare_envs(self, count: int) -> None:
        """Make a vector of at least ``count`` environments, unless one exists already."""
        from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

        if self._envs is None or self._envs.num_envs < count:
            vector_env: Any = SyncVectorEnv if self._mode == "sync" else AsyncVectorEnv
            envs = vector_env([partial(_make_waiting_env, self._make)] * count)
            # The processes of an `AsyncVectorEnv` have copies, and it has no list of them.
            different = {id(env.unwrapped) for env in getattr(envs, "envs", ())}
            if 0 < len(different) < count:
                raise ValueError(
                    "expected a function that makes environments, got the same one again"
                )
            if self._envs is not None:
                self._envs.close()
            self._envs = envs
            self._envs.reset()
            # Processes of environments must end before the interpreter does.
            weakref.finalize(self, self._envs.close)


def _measure(observations: Any) -> Any:
    """Return the count (1), sum and square of each of n observations, shape (n, 3, *shape).

    All three are 0 where an observation is not finite.
    """
    # Long sums of squares need double precision.
    x = observations.astype(np.float64)
    is_finite = np.isfinite(x)
    x = np.where(is_finite, x, 0.0)
    return np.stack([is_finite, x, x**2], axis=1)


def _make_env(env: Any, max_steps: int | None, **options: Any) -> Any:
    """Make an environment from an id or a function; limit the steps of an episode."""
    import gymnasium

    made = env(**options) if callable(env) else gymnasium.make(env, **options)
    return made if max_steps is None else gymnasium.wrappers.TimeLimit(made, max_steps)


def _make_waiting_env(make: Any) -> Any:
    """Make an environment that plays one episode after a reset with a seed, and then waits.

    A vector environment steps all its environments at once, even those that have no episode to
    play. If an environment waits, its ``step`` returns the last observation and a reward of 0.

    Args:
        make: A function that makes the environment to be wrapped.
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
            """Start an episode if there is a seed; otherwise wait, and repeat the observation.

            The objective resets with a seed. The vector environment itself resets without one
            after the end of an episode.
            """
            self.is_waiting = seed is None
            if self.observation is None or not self.is_waiting:
                self.observation, _ = self.env.reset(seed=seed)
            return self.observation, {}

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            """Take a step, or repeat the observation if the environment waits."""
            if self.is_waiting:
                return self.observation, 0.0, False, False, {}
            observation, reward, terminated, truncated, _ = self.env.step(action)
            self.observation = observation
            return observation, reward, terminated, truncated, {}

    return Waiting(make())
