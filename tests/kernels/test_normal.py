"""sample_normal: its options, its gradients, and where its numbers come from without a seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from kernels import sample_normal, sample_normal_reference

TO_HIGH = torch.tensor([0.3, 0.5, 0.7, 0.9, 1.1], dtype=torch.float64)


def parameters(
    d: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    return (
        torch.linspace(-2, 3, d, dtype=dtype, device=device),
        torch.linspace(0.1, 1.5, d, dtype=dtype, device=device),
    )


def noise_of(d: int, n: int, dtype: torch.dtype, device: str, **options: Any) -> Tensor:
    zeros = torch.zeros(d, dtype=dtype, device=device)
    return sample_normal(zeros, torch.ones_like(zeros), n, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "dim_first", "bounds", "options"),
    [
        (torch.float64, True, (-0.4, TO_HIGH), {"antithetic": True}),
        (torch.float32, False, None, {"shared_noise": True}),
        (torch.float16, False, (-0.4, 0.8), {"antithetic": True}),
        (torch.bfloat16, True, None, {}),
    ],
)
def test_samples_and_gradients_are_those_of_the_reference(
    device: str, dtype: torch.dtype, dim_first: bool, bounds: Any, options: dict[str, Any]
) -> None:
    if bounds is not None:
        bounds = tuple(x.to(device) if isinstance(x, Tensor) else x for x in bounds)
    mean, std = (x.requires_grad_() for x in parameters(5, dtype, device))
    noise = {"seed": 11, "generation": 4, "dim_first": dim_first, **options}
    samples = sample_normal(mean, std, 3001, bounds=bounds, **noise)
    assert samples.is_contiguous()
    exact = torch.float64 if dtype is torch.float64 else torch.float32
    z = noise_of(5, 3001, exact, device, **noise).double()
    wide = [x.detach().double().requires_grad_() for x in (mean, std)]
    expected = sample_normal_reference(*wide, z, bounds=bounds, dim_first=dim_first)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(samples.double(), expected, rtol=max(1e-6, eps), atol=1e-6)

    weights = (
        torch.linspace(-1, 1, samples.numel(), device=device).view(samples.shape).to(dtype)
    )
    gradients = torch.autograd.grad(samples, (mean, std), weights)
    assert [gradient.dtype for gradient in gradients] == [dtype] * 2
    # A sample within rounding of a bound may fall to the other side: one weight of 1.
    for ours, theirs in zip(
        gradients, torch.autograd.grad(expected, wide, weights.double()), strict=True
    ):
        torch.testing.assert_close(ours.double(), theirs, rtol=max(2e-5, 2 * eps), atol=2e-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [{"shared_noise": True, "dim_first": False}, {"bounds": (-0.4, 0.8), "antithetic": True}],
)
def test_derivatives_are_those_of_finite_differences(
    device: str, options: dict[str, Any]
) -> None:
    mean, std = (x.requires_grad_() for x in parameters(5, torch.float64, device))

    def f(mean: Tensor, std: Tensor) -> Tensor:
        return sample_normal(mean, std, 9, seed=3, generation=1, **options)

    assert torch.autograd.gradcheck(f, (mean, std))
    assert torch.autograd.gradgradcheck(f, (mean, std), fast_mode=True)


def test_parameters_of_another_type_than_the_result() -> None:
    mean, std = (x.requires_grad_() for x in parameters(4, torch.float64))
    samples = sample_normal(mean, std, 10, seed=1, dtype=torch.bfloat16)
    expected = sample_normal(mean.detach().float(), std.detach().float(), 10, seed=1).bfloat16()
    assert_same(samples.detach(), expected)
    assert [g.dtype for g in torch.autograd.grad(samples.sum(), (mean, std))] == [
        torch.float64
    ] * 2


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_not_rounded_to_the_type_of_the_samples(device: str) -> None:
    count = 100_001  # no float16 holds it
    for dtype, dim_first in ((torch.float16, True), (torch.bfloat16, False)):
        mean, std = (x.requires_grad_() for x in parameters(2, device=device))
        samples = sample_normal(mean, std, count, seed=1, dtype=dtype, dim_first=dim_first)
        (gradient,) = torch.autograd.grad(samples, mean, torch.ones_like(samples))
        assert gradient.tolist() == [count] * 2


@pytest.mark.parametrize("device", DEVICES)
def test_antithetic_pairs_mirror_the_even_samples(device: str) -> None:
    z = noise_of(6, 41, torch.float32, device, seed=5)
    mirrored = noise_of(6, 41, torch.float32, device, seed=5, antithetic=True)
    assert torch.equal(mirrored[:, 0::2], z[:, 0::2])
    assert torch.equal(mirrored[:, 1::2], -z[:, 0:40:2])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dimensions", "samples"), [(9, 50), (2004, 1024)])
def test_shared_noise_is_that_of_dimension_0(
    device: str, dimensions: int, samples: int
) -> None:
    alone = noise_of(1, samples, torch.float32, device, seed=5).expand(dimensions, samples)
    for dim_first in (True, False):
        options: Any = {"dim_first": dim_first, "shared_noise": True}
        z = noise_of(dimensions, samples, torch.float32, device, seed=5, **options)
        assert torch.equal(z if dim_first else z.T, alone)
        unseeded = noise_of(dimensions, samples, torch.float32, device, **options)
        by_dimension = unseeded if dim_first else unseeded.T
        assert torch.equal(by_dimension, by_dimension[:1].expand(dimensions, samples))


def test_bounds_have_no_gradients() -> None:
    mean, std, low = torch.zeros(3), torch.ones(3), torch.full((3,), -0.2)
    f = lambda mean, low: sample_normal(mean, std, 40, seed=1, bounds=(low, 1.0)).sum()  # noqa: E731
    of_mean, of_low = torch.func.grad(f, (0, 1))(mean, low)
    assert of_low.tolist() == [0.0] * 3
    leaf = mean.clone().requires_grad_()
    assert torch.equal(of_mean, torch.autograd.grad(f(leaf, low), leaf)[0])


@pytest.mark.parametrize("device", DEVICES)
def test_nan_stays_nan_and_no_spread_gives_the_mean(device: str) -> None:
    mean = torch.tensor([float("nan"), 1.5], device=device)
    samples = sample_normal(mean, torch.zeros(2, device=device), 6, seed=1, bounds=(0, 1e9))
    assert bool(samples[0].isnan().all())
    assert bool((samples[1] == 1.5).all())


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_to_draw(device: str) -> None:
    for *batch, d, n in ((0, 5), (5, 0), (2, 0, 3, 5, 7)):
        mean = torch.zeros(*batch, d, device=device, requires_grad=True)
        seeds = torch.zeros(batch, dtype=torch.int64, device=device)
        samples = sample_normal(mean, torch.ones_like(mean), n, seed=seeds)
        assert samples.shape == (*batch, d, n)
        assert_same(torch.autograd.grad(samples.sum(), mean)[0], torch.zeros_like(mean))


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_generator_governs_calls_without_a_seed(device: str) -> None:
    mean, std = parameters(3, device=device)
    torch.manual_seed(5)
    first, second = sample_normal(mean, std, 8), sample_normal(mean, std, 8)
    torch.manual_seed(5)
    assert torch.equal(sample_normal(mean, std, 8), first)
    assert not bool((first == second).any())


@cuda
def test_calls_without_a_seed_move_the_generator_on() -> None:
    """As torch's kernels do, so that they and the calls have no number twice."""
    mean, std = parameters(3, device="cuda")
    sample_normal(mean, std, 8)
    generator = torch.cuda.default_generators[0]
    before = generator.get_offset()
    sample_normal(mean, std, 8)
    assert generator.get_offset() == before + 4
    first = torch.randn(8, device="cuda")
    generator.set_offset(before + 4)
    assert torch.equal(torch.randn(8, device="cuda"), first)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_tracing_sees_the_seed_being_drawn() -> None:
    """A seed that is drawn by the host would be a constant of the graph."""
    mean, std = parameters(3)
    sample_normal(mean, std, 8)  # loads it

    def draw(mean: Tensor, std: Tensor) -> Tensor:
        return sample_normal(mean, std, 8)

    for graph in (
        make_fx(draw)(mean, std),
        torch.jit.trace(draw, (mean, std), check_trace=False),
        torch.compile(draw, backend="aot_eager", fullgraph=True),
    ):
        assert not bool((graph(mean, std) == graph(mean, std)).any())


@cuda
def test_replays_of_a_graph_without_a_seed_differ() -> None:
    mean, std = parameters(8, device="cuda")
    sample_normal(mean, std, 64)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        samples = sample_normal(mean, std, 64)
    replays = []
    for _ in range(3):
        graph.replay()
        replays.append(samples.clone())
    assert not bool((replays[0] == replays[1]).any() or (replays[1] == replays[2]).any())


def test_a_new_generation_or_seed_is_not_compiled_anew() -> None:
    mean, std = (x.requires_grad_() for x in parameters(3))
    compiled = torch.compile(
        lambda mean, std, seed, generation: sample_normal(
            mean, std, 8, seed=seed, generation=generation
        ),
        fullgraph=True,
        backend="aot_eager",
    )
    for number in range(20):  # torch gives up after the eighth compilation
        for seed, generation in ((1, number), (number, 1)):
            expected = sample_normal(mean, std, 8, seed=seed, generation=generation)
            assert torch.equal(compiled(mean, std, seed, generation), expected)


def test_equal_bounds_leave_one_value_and_crossed_ones_are_refused() -> None:
    mean = torch.zeros(3)
    assert bool((sample_normal(mean, mean + 1.0, 20, seed=1, bounds=(0.5, 0.5)) == 0.5).all())
    with pytest.raises(ValueError, match="low <= high"):
        sample_normal(mean, mean + 1.0, 20, seed=1, bounds=(0.5, 0.4))
