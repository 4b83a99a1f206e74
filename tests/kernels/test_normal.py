"""sample_normal: its options, its gradients, where its seed comes from, and what every operator promises."""

from __future__ import annotations

from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from kernels.ops.normal import sample_normal, sample_normal_reference

OPTIONS: list[dict[str, Any]] = [
    {},
    {"dim_first": False},
    {"antithetic": True},
    {"shared_noise": True, "dim_first": False},
    {"bounds": (-0.4, torch.tensor([0.3, 0.5, 0.7, 0.9, 1.1], dtype=torch.float64))},
    {"bounds": (-0.4, 0.8), "antithetic": True, "dim_first": False},
]


def parameters(d: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[Tensor, Tensor]:
    return (
        torch.linspace(-2, 3, d, dtype=dtype, device=device),
        torch.linspace(0.1, 1.5, d, dtype=dtype, device=device),
    )


def noise_of(d: int, n: int, dtype: torch.dtype, device: str, options: dict[str, Any]) -> Tensor:
    zeros = torch.zeros(d, dtype=dtype, device=device)
    return sample_normal(
        zeros, torch.ones_like(zeros), n, **{k: v for k, v in options.items() if k != "bounds"}
    )


def on(device: str, options: dict[str, Any]) -> dict[str, Any]:
    if "bounds" not in options:
        return options
    low, high = (x.to(device) if isinstance(x, Tensor) else x for x in options["bounds"])
    return {**options, "bounds": (low, high)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        *zip(OPTIONS[:3], (torch.float64, torch.float32, torch.float16), strict=True),
        *zip(OPTIONS[3:], (torch.bfloat16, torch.float32, torch.float64), strict=True),
    ],
)
def test_reference(device: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    options = {**on(device, options), "seed": 11, "generation": 4}
    mean, std = parameters(5, dtype, device)
    samples = sample_normal(mean, std, 1023, **options)
    compute = torch.float64 if dtype is torch.float64 else torch.float32
    z = noise_of(5, 1023, compute, device, options)
    keep = {k: v for k, v in options.items() if k in ("bounds", "dim_first")}
    expected = sample_normal_reference(mean.to(compute), std.to(compute), z, **keep)
    assert samples.is_contiguous()
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if dtype is not torch.bfloat16 else {"rtol": 8e-3, "atol": 1e-6}
    if dtype is torch.float16:
        tolerance = {"rtol": 1e-3, "atol": 1e-6}
    torch.testing.assert_close(samples.to(compute), expected, **tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS[3:])
def test_gradients(device: str, options: dict[str, Any]) -> None:
    """Twice, by finite differences: with the seed fixed, the samples are a plain function of mean and std."""
    mean, std = (x.requires_grad_() for x in parameters(5, torch.float64, device))

    def f(mean: Tensor, std: Tensor) -> Tensor:
        return sample_normal(mean, std, 9, seed=3, generation=1, **on(device, options))

    assert torch.autograd.gradcheck(f, (mean, std))
    assert torch.autograd.gradgradcheck(f, (mean, std), fast_mode=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("options", "dtype"),
    [(OPTIONS[3], torch.float32), (OPTIONS[4], torch.float16), (OPTIONS[5], torch.float32)],
)
def test_backward_is_autograd_through_the_reference(
    device: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    options = {**on(device, options), "seed": 3}
    mean, std = (x.requires_grad_() for x in parameters(5, dtype, device))
    samples = sample_normal(mean, std, 3001, **options)
    weights = torch.linspace(-1, 1, samples.numel(), device=device).view(samples.shape).to(dtype)
    actual = torch.autograd.grad(samples, (mean, std), weights)
    wide = [x.detach().double().requires_grad_() for x in (mean, std)]
    z = noise_of(5, 3001, torch.float32, device, options).double()
    keep = {k: v for k, v in options.items() if k in ("bounds", "dim_first")}
    reference = sample_normal_reference(*wide, z, **keep)
    expected = torch.autograd.grad(reference, wide, weights.double())
    # A sample within rounding of a bound may fall to the other side: one weight of 1.
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.double(), e, rtol=2e-3 if dtype is torch.float16 else 2e-5, atol=2e-2)


def test_parameters_of_another_type_than_the_result() -> None:
    mean, std = (x.requires_grad_() for x in parameters(4, torch.float64))
    samples = sample_normal(mean, std, 10, seed=1, dtype=torch.bfloat16)
    assert samples.dtype is torch.bfloat16
    expected = sample_normal(mean.detach().float(), std.detach().float(), 10, seed=1).bfloat16()
    assert_same(samples.detach(), expected)
    assert [g.dtype for g in torch.autograd.grad(samples.sum(), (mean, std))] == [torch.float64] * 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "dim_first"), [(torch.float16, True), (torch.bfloat16, False)])
def test_gradients_are_not_rounded_to_the_type_of_the_samples(
    device: str, dtype: torch.dtype, dim_first: bool
) -> None:
    count = 100_001  # no float16 holds it
    mean, std = (x.requires_grad_() for x in parameters(2, device=device))
    samples = sample_normal(mean, std, count, seed=1, dtype=dtype, dim_first=dim_first)
    (gradient,) = torch.autograd.grad(samples, mean, torch.ones_like(samples))
    assert gradient.tolist() == [count] * 2


@pytest.mark.parametrize("device", DEVICES)
def test_antithetic_pairs_mirror_the_even_samples(device: str) -> None:
    z = noise_of(6, 41, torch.float32, device, {"seed": 5})
    mirrored = noise_of(6, 41, torch.float32, device, {"seed": 5, "antithetic": True})
    assert torch.equal(mirrored[:, 0::2], z[:, 0::2])
    assert torch.equal(mirrored[:, 1::2], -z[:, 0:40:2])


@pytest.mark.parametrize("device", DEVICES)
def test_shared_noise_is_that_of_dimension_0(device: str) -> None:
    for dim_first in (True, False):
        z = noise_of(9, 50, torch.float32, device, {"seed": 5, "dim_first": dim_first, "shared_noise": True})
        alone = noise_of(1, 50, torch.float32, device, {"seed": 5})
        assert torch.equal(z if dim_first else z.T, alone.expand(9, 50))


def test_bounds_have_no_gradients() -> None:
    mean, std, low = torch.zeros(3), torch.ones(3), torch.full((3,), -0.2)
    f = lambda mean, low: sample_normal(mean, std, 40, seed=1, bounds=(low, 1.0)).sum()  # noqa: E731
    of_mean, of_low = torch.func.grad(f, (0, 1))(mean, low)
    assert of_low.tolist() == [0.0] * 3
    leaf = mean.clone().requires_grad_()
    assert torch.equal(of_mean, torch.autograd.grad(f(leaf, low), leaf)[0])


def test_nan_stays_nan_and_no_spread_gives_the_mean() -> None:
    mean = torch.tensor([float("nan"), 1.5])
    samples = sample_normal(mean, torch.zeros(2), 6, seed=1, bounds=(0, 1e9))
    assert bool(samples[0].isnan().all())
    assert bool((samples[1] == 1.5).all())


@pytest.mark.parametrize("device", DEVICES)
def test_empty(device: str) -> None:
    for d, n in ((0, 5), (5, 0)):
        mean = torch.zeros(d, device=device, requires_grad=True)
        samples = sample_normal(mean, torch.ones(d, device=device), n, seed=1)
        assert samples.shape == (d, n)
        assert_same(torch.autograd.grad(samples.sum(), mean)[0], torch.zeros(d, device=device))


# Without a seed


@pytest.mark.parametrize("device", DEVICES)
def test_torch_generator_governs_calls_without_a_seed(device: str) -> None:
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


def test_tracing_sees_the_seed_being_drawn() -> None:
    """A seed that is drawn by the host would be a constant of the graph."""
    mean, std = parameters(3)
    sample_normal(mean, std, 8)  # loads it
    graph = make_fx(lambda mean, std: sample_normal(mean, std, 8))(mean, std)
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


# What every operator promises


def seeded(mean: Tensor, std: Tensor) -> Tensor:
    return sample_normal(mean, std, 12, seed=6, generation=1, bounds=(-1.0, 2.5))


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str) -> None:
    mean, std = parameters(5, device=device)
    seeded(mean, std)
    operators = torch.ops.cem_tetris
    seed_tensor = torch.tensor([9], device=device)
    rest = (None, False, True, False, torch.float32, None, std)
    contract.check_opcheck(operators.sample_normal_no_grad.default, (mean, std, 6, 2, 0, None, *rest))
    mean.requires_grad_()
    contract.check_opcheck(operators.sample_normal.default, (mean, std, 6, 0, 0, seed_tensor, *rest))
    noise = (0, 0, seed_tensor, None, False, True, False)
    grad = torch.ones(6, 5, device=device, requires_grad=True)
    contract.check_opcheck(operators.sample_normal_backward.default, (grad, *noise))


def test_the_backward_operator_refuses_a_gradient_that_can_be_none() -> None:
    seeded(*parameters(5))  # loads it
    with pytest.raises(RuntimeError, match="two dimensions or more"):
        torch.ops.cem_tetris.sample_normal_backward(torch.ones(3), 1, 0, None, None, False, False, True)


@pytest.mark.parametrize("device", DEVICES)
def test_compiles(device: str) -> None:
    mean, std = (x.requires_grad_() for x in parameters(5, device=device))
    contract.check_compiles(lambda mean, std: sample_normal(mean, std, 12, seed=6), mean, std)


def test_a_new_generation_or_seed_is_not_compiled_anew() -> None:
    mean, std = (x.requires_grad_() for x in parameters(3))
    compiled = torch.compile(
        lambda mean, std, seed, generation: sample_normal(mean, std, 8, seed=seed, generation=generation),
        fullgraph=True,
        backend="aot_eager",
    )
    for number in range(20):  # torch gives up after the eighth compilation
        for seed, generation in ((1, number), (number, 1)):
            expected = sample_normal(mean, std, 8, seed=seed, generation=generation)
            assert torch.equal(compiled(mean, std, seed, generation), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts(device: str) -> None:
    contract.check_noncontiguous(seeded, *parameters(5, device=device))


@cuda
def test_graphs_streams_and_devices() -> None:
    contract.check_cuda(seeded, *parameters(5, device="cuda"))


@cuda
def test_the_backward_pass_is_the_same_every_time() -> None:
    mean, std = (x.requires_grad_() for x in parameters(300, device="cuda"))
    for dim_first in (True, False):
        samples = sample_normal(mean, std, 50000, seed=1, dim_first=dim_first)
        weights = torch.randn_like(samples)
        runs = [torch.autograd.grad(samples, (mean, std), weights, retain_graph=True) for _ in range(5)]
        for run in runs[1:]:
            assert_same(run, runs[0])


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mean": torch.zeros(2, 2)}, ValueError, r"std of shape \(2, 2\), got \(3,\)"),
    ({"mean": torch.zeros(3).long(), "std": torch.ones(3).long()}, TypeError, "mean of float.*got int64"),
    ({"std": torch.ones(3, device="meta")}, ValueError, "std on cpu, got meta"),
    ({"num_samples": -1}, ValueError, "num_samples.*got -1"),
    ({"seed": 2**64}, ValueError, r"seed < 2\*\*64, got 18446744073709551616"),
    ({"seed": 1.5}, TypeError, "seed to be an int.*got float"),
    ({"generation": 2**38}, ValueError, "generation.*got 274877906944"),
    ({"generator": torch.Generator()}, ValueError, "seed or a generator, got both"),
    ({"bounds": (1, 0)}, ValueError, r"low <= high, got \(1, 0\)"),
    ({"bounds": (torch.zeros(2), 1)}, ValueError, r"shape \(3,\).*got \(2,\)"),
    ({"mean": [0.0, 0.0, 0.0]}, TypeError, "mean to be a tensor, got list"),
    ({"seed": None, "generator": 5}, TypeError, "torch.Generator or None, got int"),
    ({"num_samples": 2**40}, RuntimeError, "13194139533312 bytes"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"mean": torch.zeros(3), "std": torch.ones(3), "num_samples": 4, "seed": 1, **change}
    with pytest.raises(error, match=message):
        sample_normal(**arguments)


def test_direct_calls_check_what_they_read() -> None:
    mean, std = parameters(3)
    rest = (4, 1, 0, None, None, False, False, True, torch.float32)
    sample = torch.ops.cem_tetris.sample_normal_no_grad
    sample_normal(mean, std, 4, seed=1)  # loads it
    with pytest.raises(RuntimeError, match="another type of low"):
        sample(mean, std, *rest, torch.ones(3, dtype=torch.half), None)
    with pytest.raises(RuntimeError, match="another type of std"):
        sample(mean, std.half(), *rest, None, None)


FAILING: dict[str, dict[str, Any]] = {
    "another shape": {"std": torch.ones(2)},
    "another type": {"std": torch.ones(3).half()},
    "integers": {"mean": torch.zeros(3).long(), "std": torch.ones(3).long()},
    "no flag": {"dim_first": "first"},
    "another device": {"std": torch.ones(3, device="meta")},
    "a negative number": {"num_samples": -1},
    "no memory": {"num_samples": 2**45},
    "no memory, the long way": {"num_samples": 2**45, "antithetic": True},
}


@pytest.mark.parametrize("change", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("device", DEVICES)
def test_an_unseeded_call_that_fails_draws_nothing(change: dict[str, Any], device: str) -> None:
    given = {"mean": torch.zeros(3), "std": torch.ones(3), "num_samples": 4, **change}
    arguments = {
        name: x.to(device) if isinstance(x, Tensor) and not x.is_meta else x for name, x in given.items()
    }
    generator = torch.Generator(device).manual_seed(1)
    before = generator.get_state()
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        sample_normal(**arguments, generator=generator)
    assert torch.equal(generator.get_state(), before)


def test_meta_tensors_have_shapes() -> None:
    mean, std = parameters(3, device="meta")
    assert sample_normal(mean, std, 5, seed=1).shape == (3, 5)
