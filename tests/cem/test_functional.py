"""The functions of a state: batches, purity, and the transforms of PyTorch."""

import math

import pytest
import torch
from searches import KINDS, ON_A_GPU, step
from torch.utils import _pytree as pytree

from cem import CrossEntropyMethod
from cem.functional import State, ask, init, tell

MEANS = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [-5.0, 3.0, 2.0, 1.0]])
STDS = torch.tensor([[1.0], [2.0], [0.5]]).expand(3, 4)
SEEDS = [5, 2**63 + 9, 7]
ROUNDED = ("transform", "full paths", "cma")
"""What runs through vectorised operations of torch: a batch differs from single searches in the
last bits."""


def quadratic(x):
    """Ill-conditioned, and added in one order, whatever the shape."""
    return sum(10.0**i * (x[..., i] - i).square() for i in range(x.shape[-1]))


def make(options="default", mean=MEANS, std=STDS, seed=SEEDS, **more):
    return CrossEntropyMethod(
        mean, std, 23, maximize=False, seed=seed, **KINDS[options], **more
    )


def generation(state):
    candidates, state = ask(state)
    return tell(state, candidates, quadratic(candidates))


def tensors(state):
    return [leaf for leaf in pytree.tree_leaves(state) if leaf is not None]


def assert_equal(found, expected, **tolerances):
    torch.testing.assert_close(
        tensors(found),
        tensors(expected),
        equal_nan=True,
        **(tolerances or {"rtol": 0, "atol": 0}),
    )


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        *(("classic", "cpu"), ("paths", "cpu"), ("full paths", "cpu"), ("classic", "torch")),
        ("integers", "cpu"),
        ("transform", "torch"),
        pytest.param("classic", "cuda", marks=ON_A_GPU),
        pytest.param("full paths", "cuda", marks=ON_A_GPU),
    ],
)
def test_problems_of_a_batch_are_searches_of_their_own(options, backend):
    where = {"backend": backend, "device": "cuda" if backend == "cuda" else "cpu"}
    batch = make(options, **where)
    singles = [
        make(options, mean, std, seed, **where)
        for mean, std, seed in zip(MEANS, STDS, SEEDS, strict=True)
    ]
    for _ in range(6):
        for search in (batch, *singles):
            step(search, quadratic)
    tolerances = {"rtol": 1e-3, "atol": 1e-3} if options in ROUNDED else {"rtol": 0, "atol": 0}
    for name in ("mean", "std", "averaged_mean", "best", "best_fitness", "covariance"):
        found = getattr(batch, name)
        expected = [torch.as_tensor(getattr(single, name)).to(found) for single in singles]
        torch.testing.assert_close(found, torch.stack(expected), **tolerances)


def test_a_failure_in_one_problem_leaves_the_others_alone():
    batch, other = make(), make()
    candidates = batch.ask()
    fitness = quadratic(candidates)
    other.tell(candidates, fitness.clone())
    fitness[1] = math.nan
    batch.tell(candidates, fitness)
    assert torch.equal(batch.mean[1], MEANS[1])
    assert torch.equal(batch.std[1], STDS[1])
    assert batch.best[1].isnan().all()
    assert batch.state.record[:, 4].tolist() == [0.0, 1.0, 0.0]
    for problem in (0, 2):
        assert torch.equal(batch.mean[problem], other.mean[problem])


def test_one_seed_of_a_batch_gives_each_problem_another_one():
    batch, again = make(mean=torch.zeros(3, 4), seed=1), make(mean=torch.zeros(3, 4), seed=1)
    candidates = batch.ask()
    assert torch.equal(candidates, again.ask())
    noise = candidates / STDS[:, None]
    assert len({row.numpy().tobytes() for row in noise.view(-1, 4)}) == 3 * 23


def test_batches_have_any_number_of_dimensions():
    nested = make(mean=MEANS.view(3, 1, 4), std=1.0, seed=[[seed] for seed in SEEDS])
    flat = make(std=1.0)
    for search in (nested, flat):
        step(search, quadratic)
    assert nested.ask().shape == (3, 1, 23, 4)
    assert torch.equal(nested.mean[:, 0], flat.mean)
    assert nested.statistics() == flat.statistics()
    assert flat.statistics()["best_fitness"] == float(flat.best_fitness.min())


@pytest.mark.parametrize("options", ["classic", "full paths"])
def test_the_class_is_the_functions_which_change_nothing_in_place(options):
    optimizer = make(options, backend="cpu")
    state = init(MEANS, STDS, 23, maximize=False, seed=SEEDS, backend="cpu", **KINDS[options])
    for _ in range(4):
        step(optimizer, quadratic)
        candidates, same = ask(state)
        assert same is state
        inputs = [*tensors(state), candidates, quadratic(candidates)]
        copies = [tensor.clone() for tensor in inputs]
        after = tell(state, candidates, inputs[-1])
        torch.testing.assert_close(inputs, copies, rtol=0, atol=0, equal_nan=True)
        assert after.distribution.data_ptr() != state.distribution.data_ptr()
        state = after
    # The class makes the extra variance of later generations when they come.
    assert_equal(
        state._replace(variance_schedule=None), optimizer.state._replace(variance_schedule=None)
    )
    assert torch.equal(state.mean, optimizer.mean)


@pytest.mark.parametrize("options", ["paths", "transform"])
def test_a_state_has_no_gradients(options):
    candidates, state = ask(make(options).state)
    candidates.requires_grad_()
    after = tell(state, candidates, quadratic(candidates))
    assert not any(tensor.requires_grad for tensor in tensors(after))


def test_a_state_is_a_structure_of_tensors():
    state = make("full paths").state
    leaves, structure = pytree.tree_flatten(state)
    assert all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves)
    assert_equal(pytree.tree_unflatten(leaves, structure), state)
    moved = pytree.tree_map_only(torch.Tensor, torch.clone, state)
    assert isinstance(moved, State)
    assert moved.settings == state.settings


@pytest.mark.parametrize(
    ("options", "backend", "compiler"),
    [
        ("default", "cpu", "aot_eager"),
        ("full paths", "torch", "aot_eager"),
        pytest.param("full paths", "cpu", "inductor", marks=pytest.mark.slow),
        pytest.param("full paths", "cuda", "inductor", marks=[*ON_A_GPU, pytest.mark.slow]),
    ],
)
def test_a_generation_is_one_graph_for_the_compiler(options, backend, compiler):
    torch.compiler.reset()
    compiled = torch.compile(generation, fullgraph=True, backend=compiler)
    state = make(options, backend=backend, device="cuda" if backend == "cuda" else "cpu").state
    found = expected = state
    torch.manual_seed(0)
    for _ in range(3):
        found = compiled(found)
    torch.manual_seed(0)
    for _ in range(3):
        expected = generation(expected)
    # The compiler may fuse a product and a sum.
    tolerances = {} if compiler == "aot_eager" else {"rtol": 1e-3, "atol": 1e-3}
    assert_equal(found, expected, **tolerances)


def mapped_dims(state):
    """The dimensions to map for ``vmap``: the first of what each problem has of its own."""
    shared = ("generation", "weights", "variance_schedule", "settings")
    named = zip(State._fields, state, strict=True)
    return State(*(None if value is None or name in shared else 0 for name, value in named))


@pytest.mark.parametrize(
    ("options", "backend"), [("default", "cpu"), ("full paths", "cpu"), ("full paths", "torch")]
)
def test_tell_and_a_generation_of_the_operators_are_mapped_over_problems(options, backend):
    state = generation(make(options, backend=backend).state)
    candidates, state = ask(state)
    fitness, dims = quadratic(candidates), mapped_dims(state)
    mapped = torch.func.vmap(tell, in_dims=(dims, 0, 0), out_dims=dims)(
        state, candidates, fitness
    )
    assert isinstance(mapped, State)
    assert_equal(mapped, tell(state, candidates, fitness), rtol=1e-5, atol=1e-5)
    if backend == "cpu":  # the noise of torch is that of its global generator
        mapped = torch.func.vmap(generation, in_dims=(dims,), out_dims=dims)(state)
        assert_equal(mapped, generation(state), rtol=1e-5, atol=1e-5)
