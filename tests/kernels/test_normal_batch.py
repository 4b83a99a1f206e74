"""sample_normal on a batch of problems, with seeds and generation in tensors."""

from __future__ import annotations

from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.ops.normal import sample_normal, sample_normal_rows

SEEDS = [1, -1, 2**62 + 5, -(2**63), 7, 0]  # of six problems; negative ones are seeds above 2^63 - 1


def packed(
    d: int, device: str = "cpu", dtype: torch.dtype = torch.float32, batch: tuple[int, ...] = (2, 3)
) -> Tensor:
    """Returns (..., 4, d): what an optimiser keeps of a problem, the mean first, then the deviation."""
    count = 4 * d * torch.Size(batch).numel()
    return torch.linspace(0.25, 2, count, dtype=dtype, device=device).view(*batch, 4, d)


def single(mean: Tensor, std: Tensor, n: int, generation: int, options: dict[str, Any]) -> Tensor:
    """Returns the samples of a batch (2, 3), one call a problem."""
    calls: list[Tensor] = []
    for p, seed in enumerate(SEEDS):
        i, j = divmod(p, 3)
        bounds = tuple(
            x[i, j] if isinstance(x, Tensor) and x.dim() > 1 else x for x in options["bounds"] or ()
        )
        each = {**options, "bounds": bounds or None}
        calls.append(
            sample_normal(mean[i, j], std[i, j], n, seed=seed % 2**64, generation=generation, **each)
        )
    stacked = torch.stack(calls)
    return stacked.view(2, 3, *stacked.shape[1:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "dim_first", "options"),
    [
        (torch.float32, True, {"bounds": None}),
        (torch.float32, False, {"bounds": None}),
        (torch.float64, False, {"bounds": (0.3, 1.9)}),
        (torch.bfloat16, True, {"bounds": None, "shared_noise": True, "antithetic": True}),
    ],
)
def test_a_problem_has_the_numbers_of_a_call_of_its_own(
    device: str, dtype: torch.dtype, dim_first: bool, options: dict[str, Any]
) -> None:
    seeds = torch.tensor(SEEDS, device=device).view(2, 3)
    for d, n in [(1, 5), (20, 128), (8, 260), (33, 7), (130, 36)]:
        rows = packed(d, device, dtype)
        mean, std = rows[..., 0, :], rows[..., 1, :]
        for generation in (0, 2**32 + 9):
            expected = single(mean, std, n, generation, {**options, "dim_first": dim_first})
            number = torch.tensor(generation, device=device)
            for kind in (generation, number):
                samples = sample_normal(
                    mean, std, n, seed=seeds, generation=kind, dim_first=dim_first, **options
                )
                assert samples.is_contiguous()
                assert_same(samples, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("problems", "d", "n"), [(1024, 20, 128), (3, 5000, 40), (70000, 4, 4)])
def test_many_problems(device: str, problems: int, d: int, n: int) -> None:
    """More than a side of the grid has blocks, and as many dimensions a thread as there are variants."""
    mean, std = (
        torch.linspace(-1, 1, problems * d).view(1, problems, d).to(device),
        torch.ones(d, device=device),
    )
    seeds = torch.arange(problems, device=device).view(1, problems)
    samples = sample_normal(
        mean, std.expand_as(mean), n, seed=seeds, generation=torch.tensor(3, device=device), dim_first=False
    )
    for p in {0, 1, problems // 2, problems - 1}:
        assert_same(samples[0, p], sample_normal(mean[0, p], std, n, seed=p, generation=3, dim_first=False))
    across = sample_normal(mean, std.expand_as(mean), n, seed=seeds, generation=3)
    assert_same(across, samples.mT)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "batch"), [(torch.float64, ()), (torch.float32, (2, 3)), (torch.bfloat16, (0,))]
)
def test_rows_are_mean_and_standard_deviation(
    device: str, dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    seeds = torch.arange(torch.Size(batch).numel(), device=device).view(batch)
    generation = torch.tensor(3, device=device)
    for d, n in [(1, 5), (20, 128), (33, 7)]:
        rows = packed(d, device, dtype, batch)
        low, high = rows[..., 2, :] - 1, rows[..., 3, :]
        for bounds in (None, (low, high), (low.new_full((d,), 0.3), low.new_full((d,), 0.9))):
            options: dict[str, Any] = {"seed": seeds, "generation": generation, "bounds": bounds}
            expected = sample_normal(rows[..., 0, :], rows[..., 1, :], n, dim_first=False, **options)
            assert expected.shape == (*batch, n, d)
            for given in (rows, rows[..., :2, :], rows.mT.contiguous().mT):
                assert_same(sample_normal_rows(given, n, **options), expected)


def test_rows_have_gradients_and_batching_rules() -> None:
    rows, seeds, generation = packed(5, batch=(3,)), torch.arange(3), torch.tensor(3)

    def f(rows: Tensor) -> Tensor:
        return sample_normal_rows(rows, 6, seed=seeds, generation=generation)

    def g(rows: Tensor) -> Tensor:
        mean, std = rows[:, 0], rows[:, 1]
        return sample_normal(mean, std, 6, seed=seeds, generation=generation, dim_first=False)

    assert_same(torch.func.jacfwd(f)(rows), torch.func.jacfwd(g)(rows))
    given = [rows.clone().requires_grad_() for _ in range(2)]
    for h, x in zip((f, g), given, strict=True):
        h(x).square().sum().backward()
    assert_same(given[0].grad, given[1].grad)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": torch.zeros(1, 4)}, ValueError, r"R >= 2, got \(1, 4\)"),
        ({"seed": torch.zeros(2, dtype=torch.int64)}, ValueError, "seed"),
        ({"generation": torch.zeros(2, dtype=torch.int64)}, ValueError, "generation"),
    ],
)
def test_bad_rows(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"rows": torch.ones(4, 4), "seed": torch.tensor(1), "generation": torch.tensor(0)}
    with pytest.raises(error, match=message):
        sample_normal_rows(**{"num_samples": 3, **good, **change})


@pytest.mark.parametrize("device", DEVICES)
def test_a_seed_in_a_tensor_is_the_number(device: str) -> None:
    mean, std = (x.contiguous() for x in packed(9, device, batch=())[:2])
    for shape in ((), (1,)):
        seed = torch.full(shape, 5, device=device)
        generation = torch.tensor(2, device=device)
        expected = sample_normal(mean, std, 33, seed=5, generation=2)
        for dim_first in (True, False):
            samples = sample_normal(mean, std, 33, seed=seed, generation=generation, dim_first=dim_first)
            assert_same(samples if dim_first else samples.T, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_no_problems(device: str) -> None:
    batch = (2, 0, 3)
    mean = torch.zeros(*batch, 5, device=device, requires_grad=True)
    seeds = torch.zeros(batch, dtype=torch.int64, device=device)
    samples = sample_normal(mean, torch.ones_like(mean), 7, seed=seeds)
    assert samples.shape == (*batch, 5, 7)
    assert_same(torch.autograd.grad(samples.sum(), mean)[0], torch.zeros_like(mean))


# Gradients


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dim_first", [True, False])
def test_gradients_are_those_of_single_calls(device: str, dim_first: bool) -> None:
    n = 2500  # more than a block sums
    mean, std = (packed(6, device)[..., i, :].clone().requires_grad_() for i in range(2))
    seeds = torch.tensor(SEEDS, device=device).view(2, 3)
    weights = torch.linspace(-1, 1, 6 * 6 * n, device=device)
    shape = (2, 3, 6, n) if dim_first else (2, 3, n, 6)
    samples = sample_normal(mean, std, n, seed=seeds, dim_first=dim_first)
    alone = single(mean, std, n, 0, {"bounds": None, "dim_first": dim_first})
    assert_same(
        torch.autograd.grad(samples, (mean, std), weights.view(shape)),
        torch.autograd.grad(alone, (mean, std), weights.view(shape)),
    )


# What every operator promises


def seeded(mean: Tensor, std: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_normal(mean, std, 12, seed=seeds, generation=generation, dim_first=False)


def seeded_rows(rows: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_normal_rows(rows, 12, seed=seeds, generation=generation)


def arguments(device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = packed(8, device, batch=(3,))
    seeds, generation = torch.tensor([3, 1, 2], device=device), torch.tensor([5], device=device)
    return rows[..., 0, :].clone(), rows[..., 1, :].clone(), seeds, generation


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str) -> None:
    mean, std, seeds, generation = arguments(device)
    seeded(mean, std, seeds, generation)
    operators = torch.ops.cem_tetris
    contract.check_opcheck(
        operators.sample_normal_rows.default,
        (torch.stack([mean, std], dim=1), 6, seeds, generation, None, None),
        (torch.stack([mean, std, std], dim=1), 6, seeds, generation, mean[0].clone(), None),
    )
    mean.requires_grad_()
    noise = (0, 0, seeds, generation, False, False, True)
    contract.check_opcheck(operators.sample_normal.default, (mean, std, 6, *noise, torch.float32, None, std))
    grad = torch.ones(3, 8, 6, device=device, requires_grad=True)
    contract.check_opcheck(operators.sample_normal_backward.default, (grad, *noise))


@pytest.mark.parametrize("device", DEVICES)
def test_compiles(device: str) -> None:
    mean, std, seeds, generation = arguments(device)
    mean.requires_grad_()
    contract.check_compiles(seeded, mean, std, seeds, generation)
    rows = torch.stack([mean.detach(), std], dim=1)
    contract.check_compiles(seeded_rows, rows, seeds, generation)


@pytest.mark.parametrize("device", DEVICES)
def test_layouts(device: str) -> None:
    contract.check_noncontiguous(seeded, *arguments(device))


def test_rows_of_a_packed_tensor_are_not_copied() -> None:
    rows = packed(8, batch=(3,))
    seeds, generation = torch.arange(3), torch.tensor(0)
    seeded(rows[:, 0], rows[:, 1], seeds, generation)
    with torch.profiler.profile() as profile:
        seeded(rows[:, 0], rows[:, 1], seeds, generation)
        seeded_rows(rows, seeds, generation)
    assert not {"aten::contiguous", "aten::clone", "aten::copy_"} & {event.key for event in profile.events()}


@cuda
def test_graphs_streams_and_devices() -> None:
    """With other seeds and another generation in the same memory, too."""
    contract.check_cuda(seeded, *arguments("cuda"))


@cuda
def test_a_replay_draws_the_generation_in_memory() -> None:
    mean, std, seeds, generation = arguments("cuda")
    step = generation.clone()
    seeded(mean, std, seeds, step)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        samples = seeded(mean, std, seeds, step)
        step += 1
    for number in range(5, 8):
        graph.replay()
        assert_same(samples, seeded(mean, std, seeds, torch.tensor(number, device="cuda")))


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"seed": 1}, TypeError, "seed to be a tensor, got int"),
    ({"seed": torch.arange(2)}, ValueError, r"seed of shape \(3,\), got \(2,\)"),
    ({"seed": torch.arange(3, device="meta")}, ValueError, "seed on cpu, got meta"),
    ({"generation": torch.arange(3)}, ValueError, r"generation of shape \(\), got \(3,\)"),
    ({"bounds": (torch.zeros(3), 1)}, ValueError, r"low of shape \(4,\) or \(3, 4\), got \(3,\)"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    mean, std = torch.zeros(3, 4), torch.ones(3, 4)
    arguments = {"mean": mean, "std": std, "seed": torch.arange(3), "generation": torch.tensor(0), **change}
    with pytest.raises(error, match=message):
        sample_normal(num_samples=5, **arguments)


def test_direct_calls_check_what_they_read() -> None:
    mean, std, seeds, generation = arguments("cpu")
    seeded(mean, std, seeds, generation)  # loads it
    rows = torch.ops.cem_tetris.sample_normal_rows
    for wrong in (seeds[:2], seeds.int(), torch.arange(3).view(3, 1)):
        with pytest.raises(RuntimeError, match="seed"):
            rows(mean, std, 5, wrong, generation, None, None)
    with pytest.raises(RuntimeError, match="generation"):
        rows(mean, std, 5, seeds, seeds, None, None)
    with pytest.raises(RuntimeError, match="low"):
        rows(mean, std, 5, seeds, generation, torch.zeros(3), None)
    with pytest.raises(RuntimeError, match="seeds, one a problem"):
        torch.ops.cem_tetris.sample_normal_seeded(mean, std, 5, 1, 0, True)
    with pytest.raises(RuntimeError, match="seed in"):
        torch.ops.cem_tetris.sample_normal_seeded(mean[0], std[0], 5, -1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("seed", "generation", "dim_first"), [(0, 0, True), (2**63, 5, False), (2**64 - 1, 5, True)]
)
def test_the_short_way_is_the_long_one(seed: int, generation: int, dim_first: bool, device: str) -> None:
    mean, std = (tensor[0] for tensor in arguments(device)[:2])
    noise: dict[str, Any] = {"seed": seed, "generation": generation, "dim_first": dim_first}
    samples = sample_normal(mean, std, 7, **noise)
    assert torch.equal(samples, sample_normal(mean, std, 7, **noise, dtype=mean.dtype))
