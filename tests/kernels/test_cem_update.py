"""The update: against the reference bit for bit, the ranking's rules, bad input, the contract."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, assert_same, cuda
from torch import Tensor

from kernels.ops.cem_update import cem_update, cem_update_reference

NAN, INF = math.nan, math.inf
FITNESS = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool]
# batch, N, K, d: no multiples of 32 or 512; more elites than a chunk; more than a block of the GPU ranks.
SHAPES = [
    ((), 1, 1, 1),
    ((5,), 33, 7, 3),
    ((2, 3), 100, 100, 70),
    ((), 1300, 600, 65),
    ((), 1500, 1100, 2),
    ((), 9, 2, 5000),
]
LARGE = [((2,), 17000, 1300, 200), ((3,), 17000, 6000, 5), ((), 300000, 30000, 3)]
EVERYTHING: dict[str, Any] = {
    "variance_about": "old_mean",
    "smoothing": 0.75,
    "std_smoothing": 0.4,
    "mean_averaging": 0.5,
}


def problem(
    batch: tuple[int, ...] = (),
    population: int = 50,
    width: int = 3,
    *,
    dtype: torch.dtype = torch.float32,
    fitness: torch.dtype = torch.float32,
    failed: float = 0.0,
    ties: int = 0,
    device: str = "cpu",
    seed: int = 1,
) -> tuple[Tensor, ...]:
    """Returns fitness, candidates, distribution, record and generation 3.

    failed: the share each of NaN, inf and -inf in a floating fitness. ties: so many different values, or 0.
    """
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.randn(*batch, population, width, generator=generator, dtype=dtype) * 2 + 3
    scores = candidates.double().square().sum(dim=-1)
    if ties:
        scores = scores.remainder(ties).floor()
    if not fitness.is_floating_point:
        scores = scores.remainder(100)
    scores = scores.to(fitness)
    for value in (NAN, INF, -INF) if failed else ():
        scores[torch.rand(scores.shape, generator=generator) < failed] = value
    distribution = torch.randn(*batch, 4, width, generator=generator, dtype=dtype).abs()
    record = torch.tensor([NAN] * 4 + [0.0], dtype=torch.float64).expand(*batch, 5).contiguous()
    return tuple(x.to(device) for x in (scores, candidates, distribution, record, torch.tensor(3)))


def options(elites: int, width: int, dtype: torch.dtype, device: str = "cpu") -> dict[str, Any]:
    """Returns all that an update can be asked for."""
    generator = torch.Generator().manual_seed(2)
    tensors = {
        "weights": torch.rand(elites, generator=generator, dtype=torch.float64),
        "extra_variance": torch.rand(3, generator=generator, dtype=torch.float64),
        "std_floor": torch.rand(width, generator=generator, dtype=dtype) * 2,
    }
    return {**EVERYTHING, **{name: tensor.to(device) for name, tensor in tensors.items()}}


def to_device(values: dict[str, Any], device: str) -> dict[str, Any]:
    return {name: x.to(device) if isinstance(x, Tensor) else x for name, x in values.items()}


def assert_matches(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Compares bit for bit; std, where it is float64, to the last place: torch.sqrt may not be IEEE's."""
    if actual[0].dtype is torch.float64:
        torch.testing.assert_close(actual[0][..., 1, :], expected[0][..., 1, :], rtol=5e-16, atol=0)
        actual[0][..., 1, :] = expected[0][..., 1, :]
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "population", "elites", "width"), SHAPES)
def test_reference_match(
    batch: tuple[int, ...], population: int, elites: int, width: int, dtype: torch.dtype
) -> None:
    inputs = problem(batch, population, width, dtype=dtype, failed=0.1)
    for maximize in (False, True):
        for extra in ({}, {"ranked": False}, options(elites, width, dtype)):
            actual = cem_update(*inputs, elites, maximize=maximize, **extra)
            assert_matches(actual, cem_update_reference(*inputs, elites, maximize=maximize, **extra))


@pytest.mark.parametrize(
    ("failed", "fitness"), [(0.1, torch.float32), (1.0, torch.float32), (0.0, torch.int32)]
)
@pytest.mark.parametrize(("batch", "population", "elites", "width"), SHAPES[1:4])
def test_sums_in_any_order_are_the_same_but_for_rounding(
    batch: tuple[int, ...], population: int, elites: int, width: int, failed: float, fitness: torch.dtype
) -> None:
    inputs = problem(batch, population, width, dtype=torch.float64, fitness=fitness, failed=failed, ties=50)
    for about in ("new_mean", "new_mean_unbiased", "old_mean"):
        for maximize in (False, True):
            given = {**options(elites, width, torch.float64), "variance_about": about, "maximize": maximize}
            for extra in (given, {**given, "weights": None}):
                actual = cem_update_reference(*inputs, elites, fixed_order=False, **extra)
                expected = cem_update(*inputs, elites, **extra)
                torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
                assert_same(actual[3], expected[3])


@pytest.mark.parametrize(
    ("about", "weighted"),
    [("new_mean", True), ("new_mean_unbiased", True), ("new_mean_unbiased", False), ("old_mean", True)],
)
def test_it_is_the_textbook_s_update(about: str, weighted: bool) -> None:
    fitness, candidates, distribution, record, generation = problem(dtype=torch.float64)
    weights = torch.linspace(1.0, 0.1, 10, dtype=torch.float64)
    result, _, _, elites = cem_update(
        *(fitness, candidates, distribution, record, generation),
        10,
        maximize=False,
        weights=weights if weighted else None,
        variance_about=about,
    )
    share = weights / weights.sum() if weighted else torch.full((10,), 0.1, dtype=torch.float64)
    x = candidates[fitness.argsort()[:10]]
    mean = (share[:, None] * x).sum(0)
    center = distribution[0] if about == "old_mean" else mean
    variance = (share[:, None] * (x - center).square()).sum(0)
    if about == "new_mean_unbiased":
        variance = variance / (1 - share.square().sum())
        if not weighted:
            torch.testing.assert_close(variance, x.var(0))
    torch.testing.assert_close(result[0], mean)
    torch.testing.assert_close(result[1], variance.sqrt())
    assert torch.equal(result[2], result[0])
    assert torch.equal(candidates[elites[0]], result[3])


@pytest.mark.parametrize("dtype", FITNESS)
def test_elites_are_those_of_a_stable_sort(dtype: torch.dtype) -> None:
    inputs = problem((4,), 300, 2, fitness=dtype, ties=20)
    for maximize in (False, True):
        order = torch.sort(inputs[0], dim=-1, stable=True, descending=maximize).indices[:, :60]
        assert torch.equal(cem_update(*inputs, 60, maximize=maximize)[3], order)
        unordered = cem_update(*inputs, 60, maximize=maximize, ranked=False)[3]
        assert torch.equal(unordered, order.sort().values)


def test_the_zeros_are_equal() -> None:
    inputs = (torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0]), *problem((), 6)[1:])
    assert cem_update(*inputs, 6, maximize=False)[3].tolist() == [5, 0, 1, 2, 3, 4]
    assert cem_update(*inputs, 6, maximize=True)[3].tolist() == [4, 0, 1, 2, 3, 5]


def test_failed_candidates_rank_last_and_move_nothing() -> None:
    fitness, candidates, *state = problem((), 8, 2)
    fitness[:] = torch.tensor([NAN, 3.0, -INF, INF, 1.0, NAN, INF, 2.0])
    candidates[[0, 3, 5, 6]] = NAN
    elites = cem_update(fitness, candidates, *state, 6, maximize=False)[3]
    assert elites.tolist() == [2, 4, 7, 1, 0, 3]
    assert cem_update(fitness, candidates, *state, 6, maximize=False, ranked=False)[3].tolist() == [
        *(1, 2, 4, 7, 0, 3)
    ]
    result, record, *_ = cem_update(fitness, candidates, *state, 6, maximize=False)
    few = cem_update(fitness, candidates, *state, 4, maximize=False)
    assert_same((result, record), few[:2])
    assert record.tolist() == [-INF, -INF, -INF, 3.0, 0.0]


def test_a_generation_in_which_all_fail_is_refused_and_counts() -> None:
    fitness, candidates, distribution, record, generation = problem((2,), 8)
    fitness[0] = torch.tensor([NAN, INF] * 4)
    record[:, 0] = 1e9
    result, new_record, new_generation, elites = cem_update(
        fitness, candidates, distribution, record, generation, 3, maximize=False
    )
    assert torch.equal(result[0], distribution[0])
    assert_same(new_record[0], torch.tensor([1e9, NAN, NAN, NAN, 4.0], dtype=torch.float64))
    assert new_record[1, 4] == 0.0
    assert not torch.equal(result[1], distribution[1])
    assert new_generation.item() == 4
    assert elites[0].tolist() == [0, 1, 2]


def test_the_record() -> None:
    fitness, candidates, *state = problem((), 6)
    fitness[:] = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    result, record, *_ = cem_update(fitness, candidates, *state, 3, maximize=True)
    assert record.tolist() == [5.0, 5.0, 4.0, 3.0, 0.0]
    assert torch.equal(result[3], candidates[0])
    # Equal is not better: the first one told stays.
    again, known, *_ = cem_update(fitness, candidates + 1, result, record, state[2], 3, maximize=True)
    assert torch.equal(again[3], candidates[0])
    assert torch.equal(known, record)
    better, known, *_ = cem_update(fitness + 1, candidates + 1, result, record, state[2], 3, maximize=True)
    assert torch.equal(better[3], candidates[0] + 1)
    assert known[0] == 6.0


def test_a_dimension_whose_elites_are_not_finite_stays() -> None:
    fitness, candidates, distribution, *state = problem()
    candidates[:, 1] = INF
    candidates[fitness.argmin(), 2] = NAN
    result = cem_update(fitness, candidates, distribution, *state, 9, maximize=False)[0]
    assert torch.equal(result[:3, 1:], distribution[:3, 1:])
    assert not torch.equal(result[0, 0], distribution[0, 0])


def test_what_overflows_becomes_the_largest_number() -> None:
    fitness, candidates, *state = problem((), 2, 1)
    candidates[:, 0] = torch.tensor([-3e38, 3e38])
    extra = torch.tensor([1e80], dtype=torch.float64)
    result = cem_update(fitness, candidates, *state, 2, maximize=False, extra_variance=extra)[0]
    assert result[0, 0] == 0.0
    assert result[1, 0] == torch.finfo(torch.float32).max


def test_a_problem_of_a_batch_has_the_numbers_of_its_own() -> None:
    fitness, candidates, distribution, record, generation = problem((3, 2), 70, 5)
    many = cem_update(fitness, candidates, distribution, record, generation, 9, maximize=False)
    for i in range(3):
        for j in range(2):
            inputs = (x[i, j] for x in (fitness, candidates, distribution, record))
            one = cem_update(*inputs, generation, 9, maximize=False)
            assert_same((*(x[i, j] for x in many[:2]), many[2], many[3][i, j]), one)


@pytest.mark.parametrize("update", [cem_update, cem_update_reference])
def test_the_results_have_no_gradients(update: Callable[..., tuple[Tensor, ...]]) -> None:
    fitness, candidates, distribution, record, generation = problem()
    tensors = {
        "candidates": candidates,
        "record": record,
        "extra_variance": torch.ones(1, dtype=torch.float64),
        "weights": torch.ones(5, dtype=torch.float64),
        "std_floor": torch.ones(candidates.shape[-1], dtype=candidates.dtype),
    }
    for name, tensor in tensors.items():
        given = {**tensors, name: tensor.clone().requires_grad_()}
        result = update(
            fitness, distribution=distribution, generation=generation, num_elites=5, maximize=False, **given
        )
        assert not any(x.requires_grad for x in result), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "digest"), [(torch.float32, "1ea3236785f7166d"), (torch.float64, "434e61fc96b47026")]
)
def test_the_bits_are_the_same_on_every_processor(dtype: torch.dtype, digest: str, device: str) -> None:
    numbers = torch.arange(2 * 1500 * 70, dtype=torch.int64).view(2, 1500, 70)
    candidates = (numbers * 7919 % 100_003).double() / 1000  # divided, so rounded: IEEE does it everywhere
    fitness = (numbers[..., 0] * 104_729 % 1009).to(dtype)
    distribution = candidates[:, :4].to(dtype)
    record = torch.tensor([NAN] * 4 + [0.0], dtype=torch.float64).repeat(2, 1)
    inputs = (fitness, candidates.to(dtype), distribution, record, torch.tensor(2))
    weights = 1 / torch.arange(1, 701, dtype=torch.float64)
    given = {**EVERYTHING, "weights": weights}
    result = cem_update(*(x.to(device) for x in inputs), 700, maximize=True, **to_device(given, device))
    whole = hashlib.sha256()
    for tensor in result:
        whole.update(tensor.cpu().numpy().tobytes())
    assert whole.hexdigest()[:16] == digest


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"fitness": [1.0]}, TypeError, "fitness to be a tensor, got list"),
    ({"fitness": torch.zeros(7)}, ValueError, r"candidates of shape \(7, 3\), got \(8, 3\)"),
    ({"candidates": torch.zeros(8, 3).half()}, TypeError, "float32, float64, got float16"),
    ({"distribution": torch.zeros(3, 3)}, ValueError, r"shape \(4, 3\), got \(3, 3\)"),
    ({"record": torch.zeros(5)}, TypeError, "record of float64, got float32"),
    ({"generation": torch.zeros(1, dtype=torch.int64)}, ValueError, r"generation of shape \(\), got \(1,\)"),
    ({"generation": torch.tensor(1.0)}, TypeError, "generation of int64, got float32"),
    ({"num_elites": 9}, ValueError, "num_elites from 1 to 8, got 9"),
    ({"weights": torch.zeros(3).double()}, ValueError, r"weights of shape \(2,\), got \(3,\)"),
    ({"extra_variance": torch.zeros(0).double()}, ValueError, r"shape \(T,\), T >= 1, got \(0,\)"),
    ({"std_floor": torch.zeros(4)}, ValueError, r"std_floor of shape \(3,\).*got \(4,\)"),
    ({"variance_about": "mean"}, ValueError, "got 'mean'"),
    ({"record": torch.zeros(5, dtype=torch.float64, device="meta")}, ValueError, "record on cpu, got meta"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input(change: dict[str, Any], error: type[Exception], message: str) -> None:
    names = ("fitness", "candidates", "distribution", "record", "generation")
    arguments = dict(zip(names, problem((), 8), strict=True))
    with pytest.raises(error, match=message):
        cem_update(**{**arguments, "num_elites": 2, "maximize": False, **change})


def update(*inputs: Tensor) -> tuple[Tensor, ...]:
    """All options, by tensors alone."""
    *most, weights, extra, floor = inputs
    return cem_update(
        *most, 5, maximize=False, weights=weights, extra_variance=extra, std_floor=floor, **EVERYTHING
    )


def all_inputs(device: str = "cpu", batch: tuple[int, ...] = (2,)) -> tuple[Tensor, ...]:
    given = options(5, 3, torch.float32, device)
    floor = given["std_floor"].expand(*batch, 3).contiguous()
    return (*problem(batch, 40, device=device), given["weights"], given["extra_variance"], floor)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str) -> None:
    cem_update(*problem(device=device), 2, maximize=False)
    *most, weights, extra, floor = all_inputs(device)
    numbers = (5, True, 2, 0.5, 1.0, 0.0, True)
    contract.check_opcheck(
        torch.ops.cem_tetris.cem_update.default,
        (*most, extra, weights, floor, *numbers),
        (*most, None, None, None, *numbers),
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_it_compiles(device: str, backend: str) -> None:
    contract.check_compiles(update, *all_inputs(device), backend=backend)


@pytest.mark.parametrize("device", DEVICES)
def test_noncontiguous_inputs(device: str) -> None:
    contract.check_noncontiguous(update, *all_inputs(device))


@cuda
@pytest.mark.parametrize(("batch", "population", "elites", "width"), SHAPES + LARGE)
def test_cuda_gives_the_bits_of_the_cpu(
    batch: tuple[int, ...], population: int, elites: int, width: int
) -> None:
    dtype = torch.float64 if population in (33, 1500, 300000) else torch.float32
    for failed, ties in ((0.0, 0), (0.1, 0), (0.05, 7), (1.0, 0)):
        inputs = problem(batch, population, width, dtype=dtype, fitness=dtype, failed=failed, ties=ties)
        there = [x.cuda() for x in inputs]
        for extra in ({}, {"ranked": False}, options(elites, width, dtype)):
            for maximize in (False, True):
                expected = cem_update(*inputs, elites, maximize=maximize, **extra)
                actual = cem_update(*there, elites, maximize=maximize, **to_device(extra, "cuda"))
                assert_same(tuple(x.cpu() for x in actual), expected)


@cuda
@pytest.mark.parametrize("dtype", FITNESS)
def test_cuda_ranks_every_type_as_the_cpu(dtype: torch.dtype) -> None:
    for population, elites, ties in ((300, 60, 20), (3000, 700, 0), (20000, 5000, 20)):
        inputs = problem((2,), population, 2, fitness=dtype, ties=ties)
        for maximize in (False, True):
            expected = cem_update(*inputs, elites, maximize=maximize)
            actual = cem_update(*(x.cuda() for x in inputs), elites, maximize=maximize)
            assert_same(tuple(x.cpu() for x in actual), expected)


@cuda
@pytest.mark.parametrize("population", [40, 20000])
def test_graphs_streams_and_devices(population: int) -> None:
    given = options(5, 3, torch.float32, "cuda")
    inputs = problem((2,), population, device="cuda")
    tensors = (*inputs, given["weights"], given["extra_variance"], given["std_floor"].expand(2, 3).clone())
    contract.check_cuda(update, *tensors)
