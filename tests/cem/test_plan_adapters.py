"""Tests of the planner inside stable-worldmodel and TorchRL."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from cem.plan.stable_worldmodel import CemSolver

CONFIG = SimpleNamespace(horizon=3, action_block=2)


class PointModel:
    """A point that the first two numbers of an action move, and that should reach a goal."""

    def get_cost(self, info, plans):
        assert info["goal"].shape[:2] == plans.shape[:2]
        return (info["goal"] - plans[..., :2].sum(2)).square().sum(-1)


class OneHotModel:
    """The more actions of a plan are the goal, the lower its cost; two are a block."""

    def get_cost(self, info, plans):
        assert (plans.unflatten(-1, (2, 5)).sum(-1) == 1).all()
        is_goal = torch.nn.functional.one_hot(info["goal"], 5).repeat(1, 1, 1, 2)
        return -(plans * is_goal).sum((-2, -1))


class ModelWithActor(PointModel):
    """A model whose actor proposes the number of actions that it has been shown."""

    def get_action(self, info, horizon, prefix_actions):
        shown = 0 if prefix_actions is None else prefix_actions.shape[1]
        return torch.full((len(info["goal"]), horizon, 4), 0.1 * shown)


def make_solver(num_envs=3, model=None, **options):
    solver = CemSolver(model or PointModel(), num_samples=100, n_steps=10, **options)
    space = gymnasium.spaces.Box(-1.0, 1.0, (num_envs, 2))
    solver.configure(action_space=space, n_envs=num_envs, config=CONFIG)
    return solver


class TestCemSolver:
    def test_plans_of_some_environments_reach_the_goals(self):
        goals = np.array([[1.5, -2.0], [0.0, 0.5]])
        outputs = make_solver()({"goal": goals, "name": np.array(["a", "b"])})
        assert outputs["actions"].shape == (2, 3, 4)
        reached = outputs["actions"][..., :2].sum(1).numpy()
        assert np.abs(reached - goals).max() < 0.15
        assert max(outputs["costs"]) < 0.03
        assert outputs["actions"].abs().max() <= 1.0

    def test_batches_of_environments_are_the_same_plans(self):
        info = {"goal": torch.randn(3, 2, generator=torch.Generator().manual_seed(1))}
        plans = [make_solver(batch_size=size).solve(info)["actions"] for size in (None, 2)]
        assert torch.equal(*plans)

    @pytest.mark.parametrize(("model", "rest"), [(PointModel(), 0.0), (ModelWithActor(), 0.1)])
    def test_plans_begin_with_those_of_the_caller(self, model, rest):
        # Without deviation a plan is the one to begin with.
        solver = make_solver(model=model, std=0.0)
        init = torch.full((3, 1, 4), 0.5)
        actions = solver.solve({"goal": torch.zeros(3, 2)}, init_action=init)["actions"]
        expected = torch.tensor([0.5, rest, rest]).view(1, 3, 1).expand(3, 3, 4)
        assert torch.allclose(actions, expected)

    def test_bounds_of_normalised_actions_are_those_of_the_caller(self):
        solver = make_solver(bounds=(-2.0, 2.0))
        actions = solver.solve({"goal": torch.full((3, 2), 6.0)})["actions"]
        assert 1.8 < actions[..., :2].max() <= 2.0

    def test_bounds_and_states_may_be_any_arrays(self):
        goals = np.full((3, 2), 6.0, dtype=">f4")[::-1]
        actions = make_solver(bounds=np.array([-2.0, 2.0])).solve({"goal": goals})["actions"]
        assert 1.8 < actions[..., :2].max() <= 2.0

    def test_a_search_begins_in_the_middle_or_with_the_actions_of_the_caller(self):
        solver = make_solver(bounds=(0.0, 3.0))
        mean, std = solver.init_action_distrib(2, torch.full((2, 1, 4), 0.5))
        expected = torch.tensor([0.5, 1.5, 1.5]).view(1, 3, 1).expand(2, 3, 4)
        assert torch.equal(mean, expected)
        assert torch.equal(std, torch.ones(2, 3, 4))
        assert torch.equal(solver.init_action_distrib(2)[0], torch.full((2, 3, 4), 1.5))

    def test_options_may_have_the_names_of_stable_worldmodel(self):
        model = PointModel()
        own = CemSolver(model, num_samples=100, num_elites=12, std=0.5)
        other = CemSolver(cost=model, num_samples=100, topk=12, var_scale=0.5)
        plans = []
        for solver in (own, other):
            space = gymnasium.spaces.Box(-1.0, 1.0, (3, 2))
            solver.configure(action_space=space, n_envs=3, config=CONFIG)
            plans.append(solver.solve({"goal": torch.ones(3, 2)})["actions"])
        assert torch.equal(*plans)

    @pytest.mark.parametrize(
        "space", [gymnasium.spaces.Discrete(5), gymnasium.spaces.MultiDiscrete([5, 5])]
    )
    def test_discrete_actions_are_one_hot_vectors_to_the_model(self, space):
        solver = CemSolver(OneHotModel(), num_samples=100, n_steps=10)
        solver.configure(action_space=space, n_envs=2, config=CONFIG)
        outputs = solver.solve({"goal": torch.tensor([[1], [4]])})
        expected = torch.tensor([1, 4]).view(2, 1, 1).expand(2, 3, 2)
        assert torch.equal(outputs["actions"], expected)
        assert outputs["costs"] == [-6.0, -6.0]
        frequencies = outputs["mean"][0].unflatten(-1, (2, 5))
        assert torch.allclose(frequencies.sum(-1), torch.ones(2, 3, 2))
        assert frequencies[0, ..., 1].min() > 0.5

    def test_discrete_plans_begin_with_those_of_the_caller(self):
        solver = CemSolver(OneHotModel(), num_samples=4, n_steps=1, std=0.0)
        solver.configure(action_space=gymnasium.spaces.Discrete(5), n_envs=1, config=CONFIG)
        init = torch.tensor([[[3, 2]]])
        actions = solver.solve({"goal": torch.tensor([[1]])}, init_action=init)["actions"]
        assert torch.equal(actions[:, :1], init)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_a_model_gets_plans_in_its_own_dtype(self, dtype):
        class LinearModel(torch.nn.Linear):
            def get_cost(self, info, plans):
                return (info["goal"] - self(plans).sum(2)).square().sum(-1)

            def get_action(self, info, horizon, prefix_actions):
                if prefix_actions is None:
                    prefix_actions = info["goal"].new_zeros(3, 1, 4)
                return self(prefix_actions[:, -1:]).repeat(1, horizon, 2)

        solver = make_solver(model=LinearModel(4, 2, bias=False, dtype=dtype))
        info = {"goal": torch.zeros(3, 2, dtype=dtype)}
        first = solver.solve(info)
        then = solver.solve(info, init_action=first["actions"][:, 1:])
        assert max(first["costs"] + then["costs"]) < 0.1

    def test_unknown_action_spaces_are_named(self):
        space = gymnasium.spaces.MultiBinary(2)
        with pytest.raises(TypeError, match=r"expected \(low, high\).*got MultiBinary"):
            CemSolver(PointModel()).configure(action_space=space, n_envs=2, config=CONFIG)


class TestCemPlanner:
    def make_env(self):
        pytest.importorskip("torchrl")
        from torchrl.envs import PendulumEnv

        return PendulumEnv(device="cpu")

    def test_planner_writes_actions_within_the_spec(self):
        env = self.make_env()
        from cem.plan.torchrl import CemPlanner

        planner = CemPlanner(env, 5, num_samples=20, iterations=2, seed=1)
        rollout = env.rollout(3, planner)
        assert rollout["action"].shape == (3, 1)
        assert rollout["action"].abs().max() <= 2.0

    def test_what_a_model_returns_after_the_end_does_not_count(self):
        env = self.make_env()
        from cem.plan.torchrl import CemPlanner

        class EndingEnv(type(env)):
            """A pendulum of reward 1 that ends at once: later rewards are NaN."""

            def _step(self, tensordict):
                after = super()._step(tensordict)
                has_ended = tensordict["done"]
                reward = torch.where(has_ended, torch.nan, 1.0)
                return after.update({"reward": reward, "done": ~after["done"]})

        env = EndingEnv(device="cpu")
        planner = CemPlanner(env, 5, num_samples=20, iterations=2, seed=1)
        planner(env.reset())
        assert planner._planner.best_cost.item() == 1.0

    def test_actions_have_the_shape_and_the_dtype_of_the_spec(self):
        env = self.make_env()
        from cem.plan.torchrl import CemPlanner

        class NumberEnv(type(env)):
            """A pendulum whose actions are single numbers of 64 bits."""

            def _step(self, tensordict):
                action = tensordict["action"].unsqueeze(-1).float()
                return super()._step(tensordict.clone().set("action", action))

        env = NumberEnv(device="cpu")
        env.action_spec = type(env.action_spec)(-2.0, 2.0, (), dtype=torch.float64)
        actions = env.rollout(3, CemPlanner(env, 5, num_samples=20, seed=1))["action"]
        assert (actions.shape, actions.dtype) == ((3,), torch.float64)
