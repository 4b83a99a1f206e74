"""cem.Planner: nested states, some environments, plans from outside, methods, spaces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from searches import ON_A_GPU
from torch import Tensor

from cem import Planner, rollout_cost
from cem.families import Categorical
from cem.plan.options import choose_options
from cem.plan.spline import spline_matrix
from cem.plan.update import Fit, Update

GOALS = torch.tensor([[0.5, -0.5], [-0.9, 0.0], [0.0, 0.2]])
STATE = {"goal": GOALS, "more": (torch.zeros(3), [1.0, 2.0, 3.0])}


def distance(state: Any, plans: Tensor) -> Tensor:
    return (plans - state["goal"][..., None, None, :]).square().sum((-2, -1))


def make(cost: Any = distance, **options: Any) -> Planner:
    """A planner of 40 plans of five actions for three environments."""
    settings: dict[str, Any] = {"num_envs": 3, "num_samples": 40, "seed": 1, **options}
    return Planner(cost, 5, 2, (-1.0, 1.0), **settings)


def rows_of(envs: Any) -> dict[str, Tensor]:
    """The state of some environments."""
    return {"goal": GOALS[envs]}


@pytest.mark.parametrize(
    ("samples", "iterations", "elites"),
    [(100, 4, 5), (100, 30, 10), (300, 30, 15), (12, 30, 6)],
)
def test_many_iterations_have_more_elites_by_default(
    samples: int, iterations: int, elites: int
) -> None:
    options = {"num_samples": samples, "iterations": iterations}
    assert choose_options(None, options).elite_count == elites


def plans_seen(
    options: dict[str, Any], arguments: dict[str, Any], steps: int = 2
) -> list[Tensor]:
    """The plans that the cost gets in the iterations of the last step."""
    seen: list[Tensor] = []

    def cost(state: Any, plans: Tensor) -> Tensor:
        seen.append(plans.clone())
        return distance(state, plans)

    planner = make(cost, **{"iterations": 2, "keep": 0.5, "num_elites": 4, **options})
    for _ in range(steps):
        planner.plan(STATE, **arguments)
    return seen[-planner.options.iterations :]


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_an_environment_has_the_plan_that_it_has_among_all(backend: str) -> None:
    together, apart = make(backend=backend), make(backend=backend)
    expected = torch.stack([together.plan(STATE) for _ in range(4)])
    taken = [0, 0, 0]
    mask = torch.tensor([False, True, True])
    for envs in ([2], [0, 2], mask, [1, 0], np.array([2, 1, 0])):
        actions = apart.plan(rows_of(envs), envs=envs)
        numbers = [1, 2] if envs is mask else envs
        for row, env in enumerate(numbers):
            assert torch.equal(actions[row], expected[taken[env], env])
            taken[env] += 1
    assert apart.best_plan.shape == (3, 5, 2)


@pytest.mark.parametrize(
    "parts", [{"batch_size": 2}, {"chunk": 7}, {"batch_size": 1, "chunk": 39}]
)
def test_the_cost_of_parts_gives_the_same_plan(parts: dict[str, int]) -> None:
    buffer = torch.empty(0)

    def cost(state: Any, plans: Tensor) -> Tensor:
        assert len(plans) <= parts.get("batch_size", 3)
        assert plans.shape[1] <= parts.get("chunk", 40)
        # As simulators do, it returns the same memory in every call.
        return buffer.resize_(plans.shape[:2]).copy_(distance(state, plans))

    assert torch.equal(make(cost, **parts).plan(STATE), make().plan(STATE))


def test_a_cost_gets_a_state_for_every_plan_and_a_model_gets_nested_ones() -> None:
    def cost(state: Any, plans: Tensor) -> Tensor:
        assert state["goal"].shape == (3, 40, 2)
        assert state["more"][1].shape == (3, 40)
        return (plans - state["goal"].unsqueeze(2)).square().sum((-2, -1))

    assert torch.equal(make(cost, expand_state=True).plan(STATE), make().plan(STATE))
    model = rollout_cost(lambda state, a: (state, (a - state["goal"]).square().sum(-1)))
    assert torch.allclose(make(model).plan(STATE), make().plan(STATE), atol=1e-4)
    with pytest.raises(ValueError, match="expected expand_state=False with rollout_cost"):
        make(model, expand_state=True)


def test_plans_move_by_the_shift_and_begin_with_others_from_outside() -> None:
    once = make(iterations=2, keep=0.5, num_elites=4)
    once.plan(STATE)
    elites = once.elite_plans[:, :2]
    assert torch.equal(once.elite_costs, distance(STATE, once.elite_plans))
    assert torch.equal(plans_seen({}, {"shift": 0})[0][:, :2], elites)
    assert torch.equal(plans_seen({}, {"shift": 2})[0][:, :2, :3], elites[:, :, 2:])
    init = torch.full((3, 5, 2), 0.25)
    begun = plans_seen({"std": 0.0}, {"init": init}, 1)[0]
    assert torch.equal(begun, init[:, None].expand(3, 40, 5, 2))


def test_proposals_are_candidates_of_every_iteration() -> None:
    proposals = torch.rand(3, 6, 5, 2)
    for plans in plans_seen({}, {"proposals": proposals}):
        assert torch.equal(plans[:, 2:8], proposals)


def test_weights_of_a_temperature_move_the_mean_and_the_deviation() -> None:
    # Costs of 0 and ln 4 have weights of 0.8 and 0.2 at temperature 1: the mean of 1 and 2 is
    # 1.2, the variance 0.8 * 0.04 + 0.2 * 0.64 = 0.16. The plan at 9 is no elite, the one at 5
    # has failed.
    vectors = torch.tensor([[[9.0], [2.0], [1.0], [5.0]]])
    costs = torch.tensor([[3.0, math.log(4), 0.0, math.nan]])
    rows = torch.tensor([[[0.0], [2.0], [0.0], [0.0]]])
    old = Fit(rows, torch.full((1, 5), math.nan, dtype=torch.float64), torch.empty(1, 0))
    best = torch.tensor([[-math.inf, 0.0, -math.inf, math.nan]])  # of vectors 9 and 1
    for momentum, highest, mean, std in [
        (0.0, 2.0, 1.2, 0.4),
        (0.5, 2.0, 0.6, 1.2),
        (0.5, 0.7, 0.6, 0.7),
    ]:
        weights = {"temperature": 1.0, "num_elites": 2, "num_samples": 4, "max_std": highest}
        options = choose_options("tdmpc2", {**weights, "momentum": momentum})
        for maximize in (False, True):
            update = Update(options, torch.ones(1), maximize, "cpu")
            new = update(-costs if maximize else costs, vectors, old)
            assert new.distribution[0, :2, 0].tolist() == pytest.approx([mean, std])
            assert (new.distribution[0, 3], new.record[0, 0]) == (1, 0)
            best_mean = update(-best if maximize else best, vectors, old).distribution[0, 0, 0]
            assert best_mean == pytest.approx(5.0 * (1 - momentum))
            failed = update(costs * math.nan, vectors, old)
            assert failed.distribution[0, [0, 3], 0].tolist() == [0, 0]


@pytest.mark.parametrize("method", ["tdmpc2", "icem"])
def test_an_action_without_deviation_stays_whatever_the_least_one_is(method: str) -> None:
    planner = make(method=method, std=[0.5, 0.0], min_std=0.1)
    planner.plan(STATE)
    assert planner.elite_plans[..., 0].std() > 0.05
    assert not planner.elite_plans[..., 1].any()


def test_mppi_weighs_all_plans_and_keeps_its_deviation() -> None:
    planner = make(method="mppi", temperature=0.7, std=0.15)  # no action reaches a bound
    action = planner.plan(STATE)
    assert planner.elite_plans.shape == (3, 40, 5, 2)
    weights = (-planner.elite_costs / 0.7).softmax(-1)
    mean = (weights[..., None, None] * planner.elite_plans).sum(1)
    assert torch.allclose(planner.mean, mean, atol=1e-6)
    assert torch.equal(action, planner.mean[:, 0])
    options = {
        "method": "mppi",
        "std": 0.1,
        "num_samples": 4000,
        "num_elites": 1.0,
        "keep": 0.0,
    }
    seen = plans_seen({**options, "iterations": 2, "temperature": 0.01}, {}, 1)
    # Thirty deviations of 4,000 numbers each: five standard errors are 0.006.
    assert torch.allclose(seen[-1].std(1), torch.tensor(0.1), atol=0.006)


def test_an_elite_is_executed_as_often_as_its_weight_says() -> None:
    # Costs of 0 and ln 3 have weights of 3/4 and 1/4. Of 400 draws 300 +- 43 are five standard
    # errors, an error probability of 6e-7.
    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return torch.tensor([0.0, math.log(3), 9.0, 9.0]).expand(400, 4)

    options = {"num_envs": 400, "num_samples": 4, "num_elites": 2, "temperature": 1.0}
    planner = make(cost, **options, keep=0.0, iterations=1, execute="sample")
    actions = planner.plan(torch.zeros(400))
    is_best = (actions == planner.elite_plans[:, 0, 0]).all(-1)
    assert abs(int(is_best.sum()) - 300) < 43


def test_an_elite_of_infinite_cost_is_never_executed() -> None:
    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return torch.tensor([0.0, math.inf, math.inf, math.nan]).expand(100, 4)

    for temperature in (None, 1.0):
        options = {"num_envs": 100, "num_samples": 4, "num_elites": 2, "iterations": 1}
        planner = make(cost, **options, temperature=temperature, keep=0.0, execute="sample")
        actions = planner.plan(torch.zeros(100))
        assert torch.equal(actions, planner.elite_plans[:, 0, 0])


@pytest.mark.parametrize("kind", ["zero", "linear", "cubic"])
def test_splines_are_those_of_scipy(kind: str) -> None:
    interpolate = pytest.importorskip("scipy.interpolate")
    knots = np.random.default_rng(1).normal(size=5)
    times = np.linspace(0, 4, 13)
    splines = {
        "zero": interpolate.interp1d(range(5), knots, "previous"),
        "linear": interpolate.interp1d(range(5), knots, "linear"),
        "cubic": interpolate.CubicHermiteSpline(range(5), knots, np.gradient(knots)),
    }
    matrix = spline_matrix(torch.from_numpy(times), 5, kind)
    assert np.allclose(matrix.numpy() @ knots, splines[kind](times))


def test_knots_have_the_digits_of_plans() -> None:
    options: dict[str, Any] = {"knots": 3, "spline": "linear", "dtype": torch.float64}
    space = Planner(distance, 8, 1, (-1.0, 1.0), **options).space
    line = torch.linspace(0.1, 0.8, 8, dtype=torch.float64)[:, None]
    knots = space.encode(line)
    assert torch.allclose(space.decode(knots), line, rtol=0, atol=1e-14)
    (shifted,) = space.shift_mean(knots[None], 1)
    assert torch.allclose(space.decode(shifted)[0, :4], line[1:5], rtol=0, atol=1e-14)


def test_a_plan_by_knots_moves_in_time_and_stays_within_the_bounds() -> None:
    planner = make(knots=3, spline="linear", std=0.0)
    ramp = torch.tensor([0.0, 0.2, 0.4, 0.2, 0.0])[:, None].expand(3, 5, 2)
    planner.plan(STATE, init=ramp)
    assert torch.allclose(planner.mean, ramp, atol=1e-6)
    planner.plan(STATE, shift=2)  # the time between two knots
    moved = torch.tensor([0.4, 0.2, 0.0, 0.0, 0.0])[:, None].expand(3, 5, 2)
    assert torch.allclose(planner.mean, moved, atol=1e-6)
    assert plans_seen({"knots": 4, "std": 9.0}, {})[0].abs().max() == 1


def test_resampled_plans_have_the_moments_of_the_truncated_normal() -> None:
    stats = pytest.importorskip("scipy.stats")
    truncated = stats.truncnorm(-0.5, 0.5, scale=2.0)
    options = {"std": 2.0, "bound_handling": "resample", "num_samples": 4000}
    plans = plans_seen(options, {}, 1)[0]
    assert plans.abs().max() <= 1
    # 120,000 numbers: five standard errors are 0.008 and 0.004.
    assert float(plans.mean()) == pytest.approx(0.0, abs=0.008)
    assert float(plans.std()) == pytest.approx(truncated.std(), abs=0.004)


def test_the_mean_reaches_a_bound_unless_vectors_are_clamped_as_in_published_methods() -> None:
    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return -plans.sum((-1, -2))

    means = {}
    for method in (None, "icem", "mppi", "tdmpc2"):
        planner = Planner(cost, 5, 2, (-1.0, 1.0), method=method, std=2.0, seed=1)
        planner.plan(torch.zeros(()))
        means[method] = float(planner.mean.amax())
    assert means.pop(None) == 1
    assert max(means.values()) < 1


@pytest.mark.parametrize("as_space", [True, False])
def test_discrete_actions_are_searched_by_their_probabilities(as_space: bool) -> None:
    space: Any = Categorical((3, 6))
    if as_space:
        space = pytest.importorskip("gymnasium").spaces.MultiDiscrete([3, 6])
    seen: list[Tensor] = []

    def cost(state: Tensor, plans: Tensor) -> Tensor:
        seen.append(plans)
        return (plans - torch.tensor([2, 4])).abs().sum((-1, -2))

    planner = Planner(cost, 6, 2, space, num_samples=60, iterations=6, seed=1)
    actions = [planner.plan(torch.zeros(())) for _ in range(3)]
    assert actions[-1].tolist() == [2, 4]
    plans = torch.cat(seen)
    assert (plans.dtype, plans.amin().item()) == (torch.int64, 0)
    assert plans.amax((0, 1)).tolist() == [2, 5]


def test_an_action_of_a_plan_may_be_several_of_the_environment() -> None:
    target = torch.tensor([0.5, 2.0])

    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return (plans - target.repeat(3)).square().sum((-2, -1))

    options = {"num_samples": 100, "action_block": 3, "iterations": 9, "seed": 1}
    planner = Planner(cost, 5, 2, (-1.0, [1.0, 3.0]), **options)
    actions = [planner.plan(torch.zeros(())) for _ in range(3)]
    assert torch.allclose(actions[-1], target.expand(3, 2), atol=0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"state": rows_of([0, 1])}, r"state\['goal'\] of shape \(3, ...\), got \(2, 2\)"),
        ({"state": {"goal": "x"}}, r"a tensor or an array for state\['goal'\], got str"),
        ({"envs": [1, 1]}, r"different environments below 3, got \[1, 1\]"),
        ({"init": torch.zeros(5, 2)}, r"init of shape \(3, 5, 2\), got \(5, 2\)"),
        ({"proposals": torch.zeros(3, 39, 5, 2)}, "the number of proposals from 1 to 36"),
    ],
)
def test_wrong_arguments_of_a_step_are_named(arguments: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make().plan(**{"state": STATE, **arguments})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "mpi"}, "expected a method among .*did you mean 'mppi'"),
        ({"num_sample": 3}, "unexpected option 'num_sample'; did you mean 'num_samples'"),
        ({"execute": "worst"}, "expected 'best' or 'mean' or 'sample' for execute"),
    ],
)
def test_wrong_options_are_named(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(**options)


@pytest.mark.parametrize(
    ("method", "elites"), [("cem", 4), ("icem", 4), ("mppi", 40), ("tdmpc2", 5)]
)
def test_a_method_has_a_share_of_elites_among_any_number_of_plans(
    method: str, elites: int
) -> None:
    planner = make(method=method)
    planner.plan(STATE)
    assert planner.elite_plans.shape == (3, elites, 5, 2)


def test_tdmpc2_has_64_elites_among_its_512_plans() -> None:
    assert choose_options("tdmpc2", {}).elite_count == 64


def waves(state: Tensor, plans: Tensor) -> Tensor:
    """The squared distance of a point to its goal, after a walk through a smooth field."""
    point, goal = state.unsqueeze(1).unbind(-2)
    for action in plans.unbind(2):
        point = point + action + 0.3 * torch.sin(3.0 * point)
    return (point - goal).square().sum(-1)


@pytest.mark.parametrize("options", [{}, {"knots": 3, "maximize": True}])
def test_gradient_steps_lower_the_cost_at_equal_samples(options: dict[str, Any]) -> None:
    # With 30 seeds the ratio of the costs was 0.13 to 0.74.
    sign = -1.0 if options else 1.0
    state = torch.randn(50, 2, 2, generator=torch.Generator().manual_seed(1))
    costs = []
    for steps in (0, 3):
        planner = make(
            lambda state, plans: sign * waves(state, plans),
            num_envs=50,
            iterations=3,
            gradient_steps=steps,
            **options,
        )
        planner.plan(state)
        costs.append(sign * planner.best_cost.median())
    assert costs[1] < 0.9 * costs[0]


@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        (torch.no_grad()(distance), {}, "costs that are differentiable in the plans"),
        (distance, {"keep": 0.0}, "expected keep with gradient_steps finite and > 0"),
    ],
)
def test_gradient_steps_need_a_gradient_and_elites(
    cost: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(cost, gradient_steps=1, **options).plan(STATE)


def test_gradient_steps_are_the_same_in_inference_mode() -> None:
    expected = make(gradient_steps=2, knots=3).plan(STATE)
    with torch.inference_mode():
        planner = make(gradient_steps=2, knots=3)
        assert torch.equal(planner.plan(STATE), expected)
    planner.plan(STATE)


@pytest.mark.parametrize(
    "options",
    [{}, {"method": "tdmpc2"}, {"knots": 3, "beta": 1.0}, {"gradient_steps": 2}],
)
class TestGraph:
    pytestmark = ON_A_GPU

    def test_takes_the_steps_of_single_launches(self, options: dict[str, Any]) -> None:
        planners = [make(device="cuda", graph=graph, **options) for graph in (False, True)]
        for arguments in (
            {},
            {"envs": [2, 0]},
            {"shift": 2},
            {"proposals": torch.rand(3, 4, 5, 2), "init": torch.rand(3, 5, 2)},
            {"envs": [1, 2]},
            {},
        ):
            state = rows_of(arguments.get("envs", [0, 1, 2]))
            state = {"goal": state["goal"].cuda()}
            actions = [planner.plan(state, **arguments) for planner in planners]
            assert torch.equal(*actions)
            assert torch.equal(*(planner.elite_plans for planner in planners))


def test_a_zero_order_spline_stays_when_nothing_was_executed() -> None:
    knots = torch.linspace(-1.0, 1.0, 8)
    plan = (spline_matrix(torch.arange(12) * 7 / 11, 8, "zero").float() @ knots)[:, None]
    planner = Planner(
        lambda state, plans: plans.sum((1, 2)),
        12,
        1,
        (-1.0, 1.0),
        knots=8,
        spline="zero",
        std=0.0,
    )
    planner.plan(0.0, init=plan)
    mean = planner.mean
    planner.plan(0.0, shift=0)
    assert torch.equal(planner.mean, mean)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": [True, False]}, "a mask of shape"),
        ({"envs": [0.9, 2.0]}, "different environments"),
        ({"init": torch.full((3, 5, 2), math.nan)}, "init without NaN"),
    ],
)
def test_plans_and_environments_that_cannot_be_meant_raise(
    arguments: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make().plan(rows_of([0, 1, 2][: len(arguments.get("envs", [0, 1, 2]))]), **arguments)


def test_discrete_plans_have_values() -> None:
    planner = Planner(lambda state, plans: plans.sum((1, 2)).double(), 6, 1, Discrete(3))
    with pytest.raises(ValueError, match="proposals of the values"):
        planner.plan(0.0, proposals=torch.full((1, 6, 1), 5))


@pytest.mark.parametrize("as_state", [torch.zeros, np.zeros])
def test_the_environment_gets_the_item_of_a_discrete_action(as_state: Any) -> None:
    planner = Planner(lambda state, plans: -plans.sum((1, 2)), 6, bounds=Discrete(3), seed=1)
    assert planner.plan(as_state(1)).item() in Discrete(3)


def test_discrete_actions_have_no_spline() -> None:
    with pytest.raises(ValueError, match="expected real actions for knots"):
        Planner(distance, 6, bounds=Discrete(3), knots=2)


def test_all_elites_may_be_kept() -> None:
    planner = Planner(
        lambda state, plans: plans.sum((1, 2)), 3, 1, (-1.0, 1.0), method="mppi", keep=1.0
    )
    assert planner.plan(0.0).shape == (1,)
