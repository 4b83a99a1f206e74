"""cem.ParameterVector and cem.GymObjective: populations of modules, alone and in
environments."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from searches import ON_A_GPU
from torch import Tensor, nn

from cem import GymObjective, ParameterVector, maximize
from cem.core.backend import mix_seed
from cem.policy.gym_objective import EnvironmentPolicy, _measure


def network() -> nn.Module:
    torch.manual_seed(1)
    return (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
        .double()
        .eval()
    )


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=ON_A_GPU)])
def test_a_population_of_modules_is_what_each_module_is(device: str) -> None:
    parameters = ParameterVector(network().to(device))
    assert (parameters.vector.dtype, parameters.vector.device.type) == (torch.float64, device)
    candidates = (
        torch.randn(5, parameters.dim, dtype=torch.float64).mT.contiguous().mT.to(device)
    )
    inputs = torch.randn(5, 6, 3, dtype=torch.float64, device=device)
    own = parameters.population(candidates, in_dims=0)(inputs)
    shared = parameters.population(candidates)(inputs[0])
    before = parameters.vector
    for candidate, x, of_own, of_shared in zip(candidates, inputs, own, shared, strict=True):
        parameters.write(candidate)
        assert torch.equal(parameters.vector, candidate)
        assert torch.allclose(parameters.module(x), of_own)
        assert torch.allclose(parameters.module(inputs[0]), of_shared)
    parameters.write(before.cpu().numpy())
    assert torch.equal(parameters.vector, before)


class Tied(nn.Module):
    """Two layers with one weight, and a frozen scale."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.tensor(3.0), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.scale * self.second(self.first(x))
        return y


def test_tied_parameters_stand_once_and_frozen_ones_stay() -> None:
    parameters = ParameterVector(Tied())
    assert parameters.names == ("first.weight", "second.bias")
    x, candidates = torch.randn(4, 2), torch.randn(3, 6)
    weight = candidates[:, :4].reshape(3, 2, 2)
    expected = 3 * (x @ weight.mT @ weight.mT + candidates[:, None, 4:])
    assert torch.allclose(parameters.population(candidates)(x), expected, atol=1e-5)
    parameters.write(candidates[0])
    assert torch.allclose(parameters.module(x), expected[0], atol=1e-5)
    with pytest.raises(
        ValueError, match=r"expected candidates of shape \(N, 6\), got \(3, 5\)"
    ):
        parameters.population(candidates[:, :5])


def test_a_module_that_is_used_twice_stays_what_it_is() -> None:
    activation = nn.PReLU()
    parameters = ParameterVector(nn.Sequential(nn.Linear(2, 2), activation, activation))
    x, candidates = torch.randn(4, 2), torch.randn(3, 7)
    for _ in range(2):  # The first call left the second one a module without a parameter.
        outputs = parameters.population(candidates)(x)
    parameters.write(candidates[1])
    assert torch.allclose(parameters.module(x), outputs[1])


class Counter(gymnasium.Env[Any, Any]):
    """Observes seed and step, ends after 1 + seed % 3 steps, and rewards with the action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = gymnasium.spaces.Box(
        np.array([-1.0, 0.0]), np.array([3.0, np.inf]), dtype=np.float64
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.start, self.count = seed or 0, 0
        return np.array([self.start % 1000, 0.0]), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        assert self.action_space.contains(action)
        observation = np.array([self.start % 1000, self.count], dtype=np.float64)
        return observation, float(action.sum()), self.count == 1 + self.start % 3, False, {}


def objective(**options: Any) -> GymObjective:
    module = nn.Linear(2, 2).double()
    return GymObjective(Counter, module, **{"seed": 3, "episodes": 2, "num_envs": 3, **options})


def test_statistics_are_those_of_the_generations_before() -> None:
    found, candidates = objective(), torch.randn(5, 6, dtype=torch.float64)
    first = found(candidates, 0)
    seeds = [mix_seed(mix_seed(3, 0), episode) >> 33 for episode in range(2)]
    seen = np.array([[seed % 1000, i] for seed in seeds for i in range(1 + seed % 3)])
    assert first.metrics == {"episodes": 10, "steps": 5 * len(seen)}
    policy = found.policy(candidates[0])
    assert policy.mean.tolist() == pytest.approx(seen.mean(0))
    assert policy.std.tolist() == pytest.approx(np.maximum(seen.std(0), 0.1))
    weight, bias = candidates[:, :4].reshape(5, 2, 2).numpy(), candidates[:, 4:].numpy()
    y = (
        np.einsum("ts,nas->nta", seen, weight) + bias[:, None]
    )  # as they are: nothing was seen before
    actions = np.stack(
        [1 + 2 * y[..., 0].clip(-1, 1), y[..., 1].clip(0)], axis=-1
    )  # to [-1, 3], [0, inf]
    assert first.fitness.tolist() == pytest.approx(actions.sum((1, 2)) / 2)
    state = found.state_dict()
    second, again = found(candidates, 1).fitness, found(candidates, 1).fitness
    assert torch.equal(second, again)
    resumed = objective(num_envs=7)
    with pytest.raises(ValueError, match="load the state_dict"):
        resumed(candidates, 1)
    resumed.load_state_dict(state)
    assert torch.equal(resumed(candidates, 1).fitness, second)
    resumed.load_state_dict(found.state_dict())
    assert torch.equal(resumed(candidates, 1).fitness, second)
    assert torch.equal(pickle.loads(pickle.dumps(found))(candidates, 1).fitness, second)
    assert torch.equal(found(candidates, 0).fitness, first.fitness)  # another search begins


def test_observations_that_are_not_finite_do_not_count() -> None:
    observations = np.array([[1.0, np.inf], [3.0, 5.0], [np.nan, -np.inf]])
    measured = _measure(observations).sum(0)
    assert measured.tolist() == [[2.0, 1.0], [4.0, 5.0], [10.0, 25.0]]


def test_a_checkpoint_has_the_statistics(tmp_path: Path) -> None:
    def search(budget: int, **options: Any) -> Any:
        options = {"population_size": 12, "seed": 1, **options}
        return maximize(objective(), np.zeros(6), 1.0, budget=budget, **options)

    search(36, checkpoint=tmp_path / "run")
    resumed = search(72, checkpoint=tmp_path / "run")  # by an objective that has seen nothing
    assert resumed.x.tolist() == search(72).x.tolist()


@pytest.mark.parametrize(
    ("env", "layers", "options"),
    [
        ("Pendulum-v1", [nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)], {}),
        ("CartPole-v1", [nn.Linear(4, 2)], {"normalize_observations": False}),
        pytest.param(
            "CartPole-v1",
            [nn.Linear(4, 2)],
            {"vectorization_mode": "async"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_seed_repeats_a_search_with_any_number_of_environments(
    env: str, layers: list[nn.Module], options: Any, tmp_path: Path
) -> None:
    def search(num_envs: int) -> tuple[GymObjective, Any]:
        given = {"max_steps": 20, "episodes": 2, "num_envs": num_envs, "seed": 1, **options}
        found = GymObjective(env, nn.Sequential(*layers), **given)
        return found, maximize(found, np.zeros(found.parameters.dim), 1.0, budget=60, seed=1)

    (found, result), (_, again) = search(3), search(8)
    assert result.x.tolist() == again.x.tolist()
    assert result.settings["noise"]
    torch.save(found.policy(result.x), tmp_path / "policy.pt")
    policy = torch.load(tmp_path / "policy.pt", weights_only=False)
    environment: Any = gymnasium.make(env, max_episode_steps=20)
    (observation, _), total, ends = environment.reset(seed=4), 0.0, [False]
    while not any(ends):
        observation, reward, *ends, _ = environment.step(policy(observation).detach().numpy())
        total += float(reward)
    assert found.play(result.x[None], seeds=[4]).item() == pytest.approx(total)


def test_an_episode_is_watched() -> None:
    pytest.importorskip("pygame", reason='needs pygame: pip install -e ".[play]"')
    found = GymObjective(partial(gymnasium.make, "CartPole-v1"), nn.Linear(4, 2), max_steps=3)
    total, frames = found.watch(found.parameters.vector, "rgb_array")
    assert (total, len(frames), frames[0].shape) == (3.0, 3, (400, 600, 3))


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Discrete(2),
        gymnasium.spaces.Box(-0.1, 0.1, (2,), np.float64),  # float32 has no 0.1
        gymnasium.spaces.Box(0, 5, (2,), np.int64),
        gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_actions_belong_to_their_space(space: Any, dtype: torch.dtype) -> None:
    class Checked(Counter):
        action_space = space

        def render(self) -> None: ...

        def step(self, action: Any) -> Any:
            assert action.shape or isinstance(action, np.integer)
            return super().step(action)

    found = GymObjective(lambda **_: Checked(), nn.Linear(2, 2).to(dtype))
    candidates = torch.tensor([[9.0, 9, 9, 9, 0, 1]])
    total, _ = found.watch(candidates[0], "ansi", seed=2)
    assert total == found.play(candidates, [2]).item() > 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"output has shape \(2,\), got \(3,\)"):
        GymObjective("CartPole-v1", nn.Linear(4, 3))
    with pytest.raises(TypeError, match="Box"):
        GymObjective("FrozenLake-v1", nn.Linear(1, 4))
    env = Counter()
    with pytest.raises(ValueError, match="got the same one again"):
        GymObjective(lambda: env, nn.Linear(2, 2).double()).play(torch.zeros(2, 6), [1])


def test_statistics_add_up_and_every_generation_has_episodes_of_its_own() -> None:
    found, candidates = objective(), torch.zeros(4, 6, dtype=torch.float64)
    steps = [found(candidates, generation).metrics["steps"] for generation in range(3)]
    count, sums, _ = found.state_dict()["seen"]
    assert count.tolist() == [sum(steps)] * 2
    seeds = {mix_seed(mix_seed(3, t), episode) >> 33 for t in range(3) for episode in range(2)}
    assert len(seeds) == 6
    expected = sum(seed % 1000 * (1 + seed % 3) for seed in seeds)
    assert float(sums[0]) == 4 * expected


def test_a_generation_of_a_search_is_one_call() -> None:
    found = objective()
    maximize(found, np.zeros(6), 1.0, budget=6, population_size=6, seed=1)
    assert found.state_dict()["seen"][0, 0] == objective()(np.zeros((6, 6)), 0).metrics["steps"]


def test_environments_are_closed_when_more_are_made() -> None:
    closed = []

    class Closing(Counter):
        def close(self) -> None:
            closed.append(self)

    found = GymObjective(Closing, nn.Linear(2, 2).double())
    for candidates in (1, 3):
        found.play(torch.zeros(candidates, 6), [1])
    assert len(closed) == 2  # the one that shows its spaces, and that of the first candidate


def test_the_actions_of_a_discrete_space_begin_where_it_does() -> None:
    spaces = gymnasium.spaces.Box(-1.0, 1.0, (3,)), gymnasium.spaces.Discrete(3, start=5)
    policy = EnvironmentPolicy(nn.Identity(), *spaces, like=torch.zeros(1))
    assert policy(torch.tensor([[0.1, 0.2, 0.9], [0.3, 0.2, 0.1]])).tolist() == [7, 5]


def test_a_module_gets_a_batch_also_of_one_observation_in_play() -> None:
    spaces = gymnasium.spaces.Box(-1.0, 1.0, (3, 1)), gymnasium.spaces.Discrete(3)
    policy = EnvironmentPolicy(nn.Flatten(), *spaces, like=torch.zeros(1))
    observations = torch.tensor([[[0.1], [0.2], [0.9]], [[0.3], [0.2], [0.1]]])
    assert torch.vmap(policy)(observations).tolist() == [2, 0]
    assert policy(observations[:, None]).tolist() == [[2], [0]]
