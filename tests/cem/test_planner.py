"""cem.Planner: warm start, memory, noise, batches, graphs; cem.rollout_cost; coloured noise."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from searches import ON_A_GPU
from torch import Tensor

from cem import CrossEntropyMethod, Planner, rollout_cost
from cem.plan.noise import coloring_matrix
from cem.plan.replay import _copy

GOAL = torch.tensor([0.5, -0.5])


def quadratic(state: Tensor, plans: Tensor) -> Tensor:
    """The best plan is 0.5 and -0.5 all the time."""
    return ((plans[..., 0] - 0.5).square() + (plans[..., 1] + 0.5).square()).sum(-1)


class Recorder:
    """A cost that keeps what it is asked for."""

    def __init__(self, cost: Any = quadratic) -> None:
        self.cost = cost
        self.states: list[Tensor] = []
        self.plans: list[Tensor] = []
        self.costs: list[Tensor] = []

    def __call__(self, state: Tensor, plans: Tensor) -> Tensor:
        costs: Tensor = self.cost(state, plans)
        self.states.append(state.clone())
        self.plans.append(plans.clone())
        self.costs.append(costs.clone())
        return costs

    def best(self, iteration: int, count: int) -> Tensor:
        """The best plans of an iteration, shape (count, horizon, A); without a leading
        dimension."""
        order = self.costs[iteration].sort(stable=True).indices[:count]
        return self.plans[iteration][order]


def make(cost: Any = quadratic, **options: Any) -> Planner:
    """A planner of 40 plans of five actions with two numbers each."""
    settings: dict[str, Any] = {"bounds": (-1.0, 1.0), "num_samples": 40, "seed": 1, **options}
    return Planner(cost, horizon=5, action_dim=2, **settings)


def steps(planner: Planner, count: int = 1, state: Any = 0.0) -> Tensor:
    """The actions of some steps from one state."""
    return torch.stack([planner.plan(torch.as_tensor(state)) for _ in range(count)])


@pytest.mark.parametrize(
    ("execute", "beta", "backend"), [("best", 0.0, "auto"), ("mean", 1.0, "torch")]
)
def test_the_action_comes_near_the_best_one(execute: str, beta: float, backend: str) -> None:
    planner = make(execute=execute, beta=beta, backend=backend, iterations=8)
    assert torch.allclose(steps(planner, 4)[-1], GOAL, atol=0.05)


def test_plans_lie_within_the_bounds_of_each_dimension() -> None:
    recorder = Recorder()
    low, high = torch.tensor([-1.0, 2.0]), np.array([0.0, 3.0])
    make(recorder, bounds=(low, high), std=5.0).plan(torch.zeros(()))
    plans = torch.cat(recorder.plans)
    assert torch.equal(plans.amin((0, 1)), low)
    assert plans.amax((0, 1)).tolist() == high.tolist()


def test_the_mean_reaches_a_bound() -> None:
    planner = make(lambda state, plans: plans[..., 0].sum(-1), execute="mean", iterations=8)
    assert (steps(planner, 3)[-1][0], planner.mean[:, 0].max()) == (-1.0, -1.0)


def test_the_best_plans_are_candidates_of_the_next_iteration_and_shifted_of_the_next_step() -> (
    None
):
    recorder = Recorder()
    steps(make(recorder, num_elites=6, keep=0.5, iterations=3), 2)
    for iteration in (1, 2):
        assert torch.equal(recorder.plans[iteration][:3], recorder.best(iteration - 1, 3))
    shifted, last = recorder.plans[3][:3], recorder.best(2, 3)[:, -1]
    assert torch.equal(shifted[:, :-1], recorder.best(2, 3)[:, 1:])
    assert not torch.equal(
        shifted[:, -1], last
    )  # the action that enters the horizon is a drawn one
    assert len(shifted[:, -1].unique(dim=0)) == 3


def test_the_mean_is_a_candidate_of_the_last_iteration() -> None:
    recorder = Recorder()
    # With this deviation no action reaches a bound.
    planner = make(recorder, std=0.15, num_elites=6, keep=0.5, momentum=0.25, iterations=2)
    steps(planner)
    first = 0.75 * recorder.best(0, 6).mean(0)  # the first mean is 0
    assert torch.allclose(recorder.plans[1][3], first, atol=1e-6)
    last = 0.75 * recorder.best(1, 6).mean(0) + 0.25 * recorder.plans[1][3]
    assert torch.allclose(planner.mean, last, atol=1e-6)


def test_the_search_begins_at_the_shifted_mean_with_the_first_std() -> None:
    recorder = Recorder(lambda state, plans: plans[..., 0, 0] * 0)  # the first plans win
    planner = make(recorder, iterations=1, num_samples=4000, num_elites=2000, keep=0.0, std=0.1)
    steps(planner)
    mean = planner.mean
    steps(planner)
    drawn = recorder.plans[1][1:]  # the first one is the mean
    assert torch.equal(recorder.plans[1][0], torch.cat([mean[1:], mean[-1:]]))
    first, second = (plans[1:] - plans[0] for plans in recorder.plans)
    assert not torch.allclose(first, second, atol=0.01)  # the noise of each step is its own
    # Means of 3,999 numbers with a standard deviation of 0.1: five standard errors are 0.008.
    # The error probability of the ten means is 6e-6, that of the ten standard deviations as
    # small.
    assert torch.allclose(drawn.mean(0), recorder.plans[1][0], atol=0.008)
    assert torch.allclose(drawn.std(0), torch.tensor(0.1), atol=0.006)


def test_the_population_shrinks_to_twice_the_elites_and_the_best_evaluated_is_executed() -> (
    None
):
    recorder = Recorder()
    planner = make(recorder, num_elites=5, shrink=2.0, iterations=4)
    action = planner.plan(torch.zeros(()))
    assert [len(plans) for plans in recorder.plans] == [40, 20, 10, 10]
    lowest = min(range(4), key=lambda iteration: float(recorder.costs[iteration].min()))
    assert torch.equal(planner.best_plan, recorder.best(lowest, 1)[0])
    assert torch.equal(action, planner.best_plan[0])
    assert float(planner.best_cost) == float(recorder.costs[lowest].min())


def test_a_plan_with_cost_nan_is_never_chosen_and_the_old_one_goes_on_if_all_are_nan() -> None:
    least = 0.3

    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return torch.where(plans[..., 0, 0] < least, torch.nan, quadratic(state, plans))

    planner = make(cost)
    assert steps(planner, 5)[:, 0].min() >= 0.3
    mean, least = planner.mean, 2.0
    with pytest.warns(RuntimeWarning, match="no plan has a usable cost"):
        actions = steps(planner, 2)
    assert torch.equal(actions, mean[1:3])
    assert bool(planner.best_cost.isnan())


def test_environments_are_planned_for_side_by_side() -> None:
    def cost(goals: Tensor, plans: Tensor) -> Tensor:
        assert goals.shape[:-1] == plans.shape[:-3]
        return (plans - goals[..., None, None, :]).square().sum((-2, -1))

    goals = torch.tensor([[0.5, -0.5], [-0.9, 0.0], [0.0, 0.2]])
    planner = make(cost, num_envs=3, iterations=8, num_elites=6)
    actions = steps(planner, 4, goals)[-1]
    assert torch.allclose(actions, goals, atol=0.05)
    assert planner.mean.shape == planner.best_plan.shape == (3, 5, 2)
    assert planner.best_cost.shape == (3,)
    assert make(cost, num_envs=1).plan(goals[:1]).shape == (1, 2)
    batch, single = make(num_envs=3), make()
    for _ in range(3):
        assert torch.equal(batch.plan(torch.zeros(3))[0], single.plan(torch.zeros(())))


@pytest.mark.parametrize("env_ids", [torch.tensor([False, True, False]), np.array([1])])
def test_reset_forgets_the_plans_of_the_environments_named(env_ids: Any) -> None:
    recorder = Recorder()
    planner = make(recorder, num_envs=3, iterations=1, num_elites=4, keep=0.5)
    planner.plan(torch.zeros(3))
    mean = planner.mean
    planner.reset(env_ids)
    planner.plan(torch.zeros(3))
    candidate = recorder.plans[1][:, 2]  # the mean at the beginning
    assert torch.equal(candidate[1], torch.zeros(5, 2))
    assert torch.equal(candidate[[0, 2], :-1], mean[[0, 2], 1:])


def test_a_numpy_state_gives_a_numpy_action() -> None:
    recorder = Recorder()
    action = make(recorder).plan(np.zeros(3))
    assert isinstance(action, np.ndarray)
    assert (action.shape, action.dtype) == ((2,), np.float32)
    assert recorder.states[0].dtype == torch.float64  # as it was given


def test_autocast_changes_no_plan_and_a_copy_goes_on_as_the_original() -> None:
    planner, same = make(beta=2.0), make(beta=2.0)
    steps(planner)
    with torch.autocast("cpu", torch.bfloat16):
        steps(same)
    copies = [same, copy.deepcopy(planner), pickle.loads(pickle.dumps(planner))]
    expected = steps(planner, 2)
    for each in copies:
        assert torch.equal(steps(each, 2), expected)


class Agent(torch.nn.Linear):
    """A linear model of single steps with its planner."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.planner = make(rollout_cost(self.step))

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        state = state + self(action)
        return state, state.square().sum(-1)


def test_a_copy_of_an_agent_plans_with_the_model_of_the_copy() -> None:
    agent = Agent()
    copies = [copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))]
    state = torch.ones(2)
    expected = agent.planner.plan(state)
    agent.requires_grad_(False).weight.neg_()
    for each in copies:
        assert torch.equal(each.planner.plan(state), expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bounds": (1.0, -1.0)}, ValueError, "expected bounds with low < high"),
        ({"num_elites": 21}, ValueError, "num_elites"),
        (
            {"momentum": 1.0},
            ValueError,
            "expected 1 - momentum finite and > 0 and <= 1, got 0.0",
        ),
    ],
)
def test_bad_arguments_are_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {
        "cost": quadratic,
        "horizon": 5,
        "action_dim": 2,
        "bounds": (-1.0, 1.0),
        "num_samples": 40,
    }
    with pytest.raises(error, match=message):
        Planner(**{**arguments, **options})


def test_a_space_or_vectors_have_the_dimension_of_actions() -> None:
    spaces = pytest.importorskip("gymnasium").spaces
    for bounds, expected in [
        (spaces.Box(-1, 1, (3,)), 3),
        (spaces.Discrete(4), 1),
        (spaces.MultiDiscrete([2, 3]), 2),
        ((torch.zeros(2), 1.0), 2),
    ]:
        assert Planner(quadratic, 5, bounds=bounds).action_dim == expected
    for bounds in ((-1.0, 1.0), None, spaces.Box(-1, 1, (8, 3))):
        with pytest.raises(ValueError, match="expected action_dim, or a space of vectors"):
            Planner(quadratic, 5, bounds=bounds)
    with pytest.raises(ValueError, match="for a vector environment pass its single"):
        Planner(quadratic, 5, 1, spaces.MultiDiscrete([2] * 8), num_envs=8)


def test_wrong_states_and_costs_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected state of shape \(3, ...\), got \(2, 4\)"):
        make(num_envs=3).plan(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"expected costs of shape \(40,\), got \(\)"):
        steps(make(lambda state, plans: plans.sum()))
    with pytest.raises(RuntimeError, match=r"expected plan\(\) before"):
        _ = make().best_plan


def test_rollout_cost_sums_what_single_steps_cost() -> None:
    def model(state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        state += action  # in place: the states of two plans must not share memory
        return state, state.square().sum(-1)

    for batch in ((), (3,)):
        state, plans = torch.rand(*batch, 2), torch.rand(*batch, 7, 5, 2)
        positions = state[..., None, None, :] + plans.cumsum(-2)
        squares = positions.square().sum(-1)
        assert torch.allclose(rollout_cost(model)(state, plans), squares.sum(-1))
        final = rollout_cost(model, lambda last: 10 * last[..., 0])(state, plans)
        assert torch.allclose(final, squares.sum(-1) + 10 * positions[..., -1, 0])


@pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("aot_eager", "cpu"),
        pytest.param("inductor", "cpu", marks=pytest.mark.slow),
        pytest.param("inductor", "cuda", marks=[*ON_A_GPU, pytest.mark.slow]),
    ],
)
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_a_compiled_planner_finds_the_same_plan(
    monkeypatch: pytest.MonkeyPatch, backend: str, device: str, temperature: float | None
) -> None:
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    compiled, plain = (
        steps(make(device=device, compile=compiles, temperature=temperature), 3)
        for compiles in (True, False)
    )
    assert torch.allclose(compiled, plain, atol=1e-5 if device == "cpu" else 1e-4)


@pytest.mark.parametrize(("length", "beta"), [(1, 2.5), (7, 0.0), (30, 1.0)])
def test_coloured_noise_has_the_spectrum_that_is_asked_for(length: int, beta: float) -> None:
    matrix = coloring_matrix(length, beta)
    covariance = matrix @ matrix.T
    assert torch.allclose(covariance.diagonal(), torch.ones(length, dtype=torch.float64))
    power = torch.fft.rfft(covariance[0]).real
    frequency = torch.fft.rfftfreq(length, dtype=torch.float64)
    expected = power[1:2] * (frequency[1:] / frequency[1:2]) ** -beta
    assert torch.allclose(power[1:], expected)
    assert torch.allclose(power[:1], power[min(1, length // 2)])
    if beta == 0.0:
        assert torch.allclose(matrix, torch.eye(length, dtype=torch.float64), atol=1e-12)


class TestGraph:
    pytestmark = ON_A_GPU

    @pytest.mark.parametrize("options", [{"beta": 1.0, "shrink": 1.5}, {"num_envs": 3}])
    def test_finds_what_single_launches_find(self, options: dict[str, Any]) -> None:
        state = torch.zeros(3, device="cuda")
        eager, graph = (make(device="cuda", graph=graph, **options) for graph in (False, True))
        for step in range(6):
            if step == 3:
                eager.reset()
                graph.reset()
            if step == 4 and "num_envs" not in options:
                state = torch.zeros(2, 2, device="cuda")  # captured again
            with torch.inference_mode(step < 2):  # the graph is captured in inference mode
                assert torch.equal(eager.plan(state), graph.plan(state))
            assert torch.equal(eager.mean, graph.mean)
            assert torch.equal(eager.best_cost, graph.best_cost)

    def test_reads_the_state_and_the_tensors_of_the_cost_anew(self) -> None:
        weight = torch.ones((), device="cuda")

        def cost(goal: Tensor, plans: Tensor) -> Tensor:
            return (plans - weight * goal).square().sum((-2, -1))

        planner = make(cost, device="cuda", num_samples=100, iterations=8)
        for factor, goal in ((1.0, 0.5), (1.0, -0.5), (-1.0, -0.5)):
            weight.fill_(factor)
            actions = steps(planner, 4, torch.tensor([goal, goal], device="cuda"))
            assert torch.allclose(
                actions[-1], torch.full_like(actions[-1], factor * goal), atol=0.05
            )


@torch.no_grad()
def test_a_graph_s_copy_of_a_state_has_no_gradients() -> None:
    assert not _copy(torch.ones(2, requires_grad=True)).requires_grad


def test_costs_that_are_all_unusable_are_warned_of() -> None:
    def cost(state: Tensor, plans: Tensor) -> Tensor:
        return plans.sum((-2, -1)) + state

    with pytest.warns(RuntimeWarning, match="no plan has a usable cost: all are NaN") as seen:
        Planner(cost, 3, 1, (-1.0, 1.0), seed=1).plan(torch.tensor(math.nan))
    assert seen[0].filename == __file__
    planner = Planner(cost, 3, 1, (-1.0, 1.0), num_envs=2, seed=1)
    with pytest.warns(RuntimeWarning, match=r"no plan has a usable cost in environments \[1\]"):
        action = planner.plan(torch.tensor([[0.0], [math.inf]]))
    assert action.isfinite().all()


@pytest.mark.parametrize("as_box", ["Box", "Bounds"])
def test_bounds_may_be_a_box(as_box: str) -> None:
    low, high = np.float32([-1, 0]), np.float32([1, 3])
    if as_box == "Box":
        bounds = pytest.importorskip("gymnasium").spaces.Box(low, high)
    else:
        bounds = pytest.importorskip("scipy.optimize").Bounds(low, high)
    planners = [Planner(distance, 3, 2, each, seed=1) for each in (bounds, (low, high))]
    actions = [planner.plan(torch.zeros(2)) for planner in planners]
    assert actions[0].equal(actions[1])
    search = CrossEntropyMethod([0.0, 1.0], 1.0, maximize=False, bounds=bounds)
    assert (search.state.low.tolist(), search.state.high.tolist()) == ([-1, 0], [1, 3])


def test_without_bounds_a_std_is_needed_and_the_search_begins_at_zero() -> None:
    planner = Planner(distance, 3, 2, None, std=2.0, iterations=8, seed=1)
    assert (planner.plan(torch.full((2,), 5.0)) - 5.0).abs().max() < 1
    one_end = Planner(distance, 3, 2, (2.0, math.inf), std=1.0, iterations=8, seed=1)
    assert (one_end.plan(torch.full((2,), 5.0)) - 5.0).abs().max() < 1
    with pytest.raises(ValueError, match="expected std, or finite bounds"):
        Planner(distance, 3, 2, None)
    with pytest.raises(TypeError, match=r"expected \(low, high\), a Box, Bounds, a discrete"):
        Planner(distance, 3, 2, 1.0)
    # `minimize` reads a pair for each parameter here.
    with pytest.raises(ValueError, match=r"expected Bounds\(low, high\), got"):
        Planner(distance, 3, 2, [(0.0, 1.0), (2.0, 3.0)])


def test_actions_keep_to_bounds_that_their_dtype_does_not_have() -> None:
    planner = Planner(lambda state, plans: -plans.sum((-2, -1)), 3, 1, (-0.4, 0.4), seed=1)
    assert 0.3999 < float(planner.plan(0.0)) <= 0.4  # float32(0.4) is greater


def test_states_may_be_lists_and_no_environment_is_nothing_to_plan() -> None:
    def cost(state: Any, plans: Tensor) -> Tensor:
        return distance(state[0][:, None, None], plans) + state[1]["t"][:, None]

    planner = Planner(cost, 3, 2, (-1.0, 1.0), num_envs=2, beta=1.0, seed=1)
    goals = np.float32([[0.5, -0.5], [0.2, 0.3]])
    assert planner.plan([goals, {"t": np.zeros(2)}]).shape == (2, 2)
    nothing = [torch.zeros(0, 2), {"t": torch.zeros(0)}]
    assert planner.plan(nothing, envs=[False, False]).shape == (0, 2)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_a_tuple_of_numbers_of_numpy_is_one_state(number: Any) -> None:
    action = make(distance).plan((number(1), number(-1)))
    assert torch.equal(action, make(distance).plan((1.0, -1.0)))


def distance(state: Tensor, plans: Tensor) -> Tensor:
    return (plans - state).square().sum((-2, -1))


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_after_a_reset_nothing_is_left_of_the_steps_before(backend: str) -> None:
    recorders = Recorder(), Recorder(lambda state, plans: -quadratic(state, plans))
    for recorder in recorders:
        planner = make(recorder, num_elites=6, keep=0.5, iterations=2, backend=backend)
        steps(planner, 2)
        planner.reset()
        steps(planner)
    # They had other costs, and so other means and elites.
    assert not torch.equal(recorders[0].plans[2], recorders[1].plans[2])
    assert torch.equal(recorders[0].plans[4], recorders[1].plans[4])


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_the_noise_of_no_two_iterations_and_steps_is_the_same(
    backend: str, beta: float
) -> None:
    recorder = Recorder()
    momentum = 1 - 1e-7  # the distribution stays as it is: the plans show the noise alone
    options: dict[str, Any] = {"std": 0.1, "momentum": momentum, "keep": 0.0, "beta": beta}
    steps(make(recorder, iterations=3, backend=backend, **options), 2)
    assert len(recorder.plans) == 6
    for number, plans in enumerate(recorder.plans):
        for others in recorder.plans[:number]:
            assert (
                float((plans - others)[1:].abs().mean()) > 0.05
            )  # the first one may be the mean


def test_the_first_standard_deviation_is_a_third_of_the_width_of_the_bounds() -> None:
    recorder = Recorder()
    steps(make(recorder, num_samples=2000, bounds=(-3.0, 1.0)))
    # Clamped at one and a half: the share of each face is 0.0668, its standard error over
    # 20,000 is 0.0018.
    for face in (-3.0, 1.0):
        assert float((recorder.plans[0] == face).double().mean()) == pytest.approx(
            0.0668, abs=0.009
        )


def test_the_share_of_elites_that_are_candidates_again_is_rounded_up() -> None:
    recorder = Recorder()
    steps(make(recorder, num_elites=5, keep=0.5, iterations=2))
    assert torch.equal(recorder.plans[1][:3], recorder.best(0, 3))
