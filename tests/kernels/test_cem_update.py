"""The update: against the reference, the ranking's rules, CUDA's bits against the CPU's.

Against the formulas: tests/cem/test_optimizer.py.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from typing import Any

import pytest
import torch
from contract import assert_same, check_device, cuda
from torch import Tensor

from kernels import cem_update, cem_update_reference

NAN, INF = math.nan, math.inf
FITNESS = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool]
# batch, N, K, d: no multiples of 32 or 512; more elites than a chunk; more than a block of the
# GPU ranks.
SHAPES = [
    ((), 1, 1, 1),
    ((5,), 33, 7, 3),
    ((2, 3), 100, 100, 70),
    ((), 1300, 600, 65),
    ((), 1500, 1100, 2),
    ((), 9, 2, 5000),
    ((), 4096, 2048, 5),
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
) -> tuple[Tensor, ...]:
    """Returns fitness, candidates, distribution, record and generation 3.

    failed: the share each of NaN, inf and -inf in a floating fitness. ties: so many different
    values, or 0.
    """
    generator = torch.Generator().manual_seed(1)
    candidates = (
        torch.randn(*batch, population, width, generator=generator, dtype=dtype) * 2 + 3
    )
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
    return scores, candidates, distribution, record, torch.tensor(3)


def options(elites: int, width: int, dtype: torch.dtype) -> dict[str, Any]:
    """Returns all that an update can be asked for."""
    generator = torch.Generator().manual_seed(2)
    return EVERYTHING | {
        "weights": torch.rand(elites, generator=generator, dtype=torch.float64),
        "extra_variance": torch.rand(5, generator=generator, dtype=torch.float64),
        "std_floor": torch.rand(width, generator=generator, dtype=dtype) * 2,
    }


def assert_matches(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Compares bit for bit; std, where it is float64, to the last place: torch.sqrt may not be
    IEEE's."""
    if actual[0].dtype is torch.float64:
        torch.testing.assert_close(
            actual[0][..., 1, :], expected[0][..., 1, :], rtol=5e-16, atol=0
        )
        actual[0][..., 1, :] = expected[0][..., 1, :]
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_reference(dtype: torch.dtype) -> None:
    for batch, population, elites, width in SHAPES:
        inputs = problem(batch, population, width, dtype=dtype, failed=0.1)
        for maximize in (False, True):
            for extra in ({}, {"ranked": False}, options(elites, width, dtype)):
                actual = cem_update(*inputs, elites, maximize=maximize, **extra)
                assert_matches(
                    actual, cem_update_reference(*inputs, elites, maximize=maximize, **extra)
                )


@pytest.mark.parametrize("failed", [0.1, 1.0])
def test_sums_in_any_order_are_the_same_but_for_rounding(failed: float) -> None:
    inputs = problem((2, 3), 100, 70, dtype=torch.float64, failed=failed, ties=50)
    for about in ("new_mean", "new_mean_unbiased", "old_mean"):
        for maximize in (False, True):
            given = {
                **options(60, 70, torch.float64),
                "variance_about": about,
                "maximize": maximize,
            }
            for extra in (given, {**given, "weights": None}):
                actual = cem_update_reference(*inputs, 60, fixed_order=False, **extra)
                expected = cem_update(*inputs, 60, **extra)
                torch.testing.assert_close(
                    actual, expected, rtol=1e-12, atol=1e-12, equal_nan=True
                )
                assert_same(actual[3], expected[3])


@pytest.mark.parametrize("maximize", [False, True])
def test_elites_are_those_of_a_stable_sort(maximize: bool) -> None:
    for dtype in FITNESS:
        inputs = problem((4,), 300, 2, fitness=dtype, ties=20)
        order = torch.sort(inputs[0], dim=-1, stable=True, descending=maximize).indices[:, :60]
        assert torch.equal(cem_update(*inputs, 60, maximize=maximize)[3], order), dtype
        unordered = cem_update(*inputs, 60, maximize=maximize, ranked=False)[3]
        assert torch.equal(unordered, order.sort().values), dtype


def test_the_zeros_are_equal() -> None:
    inputs = (torch.tensor([0.0, -0.0, 0.0, -0.0, 1.0, -1.0]), *problem((), 6)[1:])
    assert cem_update(*inputs, 6, maximize=False)[3].tolist() == [5, 0, 1, 2, 3, 4]
    assert cem_update(*inputs, 6, maximize=True)[3].tolist() == [4, 0, 1, 2, 3, 5]


def test_failed_candidates_rank_last_and_move_nothing() -> None:
    fitness, candidates, *state = problem((), 8, 2)
    fitness[:] = torch.tensor([NAN, 3.0, -INF, INF, 1.0, NAN, INF, 2.0])
    candidates[[0, 3, 5, 6]] = NAN
    result, record, _, elites = cem_update(fitness, candidates, *state, 6, maximize=False)
    assert elites.tolist() == [2, 4, 7, 1, 0, 3]
    unordered = cem_update(fitness, candidates, *state, 6, maximize=False, ranked=False)[3]
    assert unordered.tolist() == [1, 2, 4, 7, 0, 3]
    few = cem_update(fitness, candidates, *state, 4, maximize=False)
    assert_same((result, record), few[:2])
    assert record.tolist() == [-INF, -INF, -INF, 3.0, 0.0]


def test_the_unbiased_std_of_one_elite_stays() -> None:
    _, candidates, distribution, *state = problem((), 2, 3)
    given = torch.tensor([NAN, 1.0]), candidates, distribution, *state
    moved, *_ = cem_update_reference(
        *given, 2, maximize=False, variance_about="new_mean_unbiased"
    )
    assert_same((moved[0], moved[1]), (candidates[1], distribution[1]))


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


@pytest.mark.parametrize(
    ("dtype", "digest"),
    [(torch.float32, "1ea3236785f7166d"), (torch.float64, "434e61fc96b47026")],
)
def test_the_bits_are_the_same_on_every_processor(dtype: torch.dtype, digest: str) -> None:
    numbers = torch.arange(2 * 1500 * 70, dtype=torch.int64).view(2, 1500, 70)
    candidates = (
        numbers * 7919 % 100_003
    ).double() / 1000  # divided, so rounded: IEEE does it everywhere
    fitness = (numbers[..., 0] * 104_729 % 1009).to(dtype)
    distribution = candidates[:, :4].to(dtype)
    record = torch.tensor([NAN] * 4 + [0.0], dtype=torch.float64).repeat(2, 1)
    inputs = (fitness, candidates.to(dtype), distribution, record, torch.tensor(2))
    weights = 1 / torch.arange(1, 701, dtype=torch.float64)
    result = cem_update(*inputs, 700, maximize=True, weights=weights, **EVERYTHING)
    whole = b"".join(tensor.numpy().tobytes() for tensor in result)
    assert hashlib.sha256(whole).hexdigest()[:16] == digest


def test_vmap_is_a_loop() -> None:
    *of_problems, _ = problem((2,))
    arguments = (*of_problems, torch.tensor([3, 5]))  # of each a generation of its own
    update = functools.partial(cem_update, num_elites=5, maximize=False, mean_averaging=0.5)
    single = [update(*(x[i] for x in arguments)) for i in range(2)]
    assert_same(
        torch.func.vmap(update)(*arguments), tuple(map(torch.stack, zip(*single, strict=True)))
    )


@cuda
@pytest.mark.parametrize("shapes", [SHAPES, LARGE], ids=["small", "large"])
def test_cuda_gives_the_bits_of_the_cpu(
    shapes: list[tuple[tuple[int, ...], int, int, int]],
) -> None:
    for batch, population, elites, width in shapes:
        dtype = torch.float64 if population in (33, 1500, 300000) else torch.float32
        for failed, ties in ((0.0, 0), (0.1, 0), (0.05, 7), (1.0, 0)):
            inputs = problem(
                batch, population, width, dtype=dtype, fitness=dtype, failed=failed, ties=ties
            )
            for extra in ({}, {"ranked": False}, options(elites, width, dtype)):
                for maximize in (False, True):
                    check_device(cem_update, *inputs, elites, maximize=maximize, **extra)


@cuda
def test_cuda_ranks_every_type_as_the_cpu() -> None:
    sizes = ((300, 60, 20), (3000, 700, 0), (20000, 5000, 20))
    for (population, elites, ties), dtype in itertools.product(sizes, FITNESS):
        inputs = problem((2,), population, 2, fitness=dtype, ties=ties)
        for maximize in (False, True):
            check_device(cem_update, *inputs, elites, maximize=maximize)


@pytest.mark.parametrize("update", [cem_update, cem_update_reference])
def test_each_problem_of_a_batch_has_its_own_floor(update: Any) -> None:
    # All candidates are alike: the variance is 0, and the floor is what remains.
    candidates = torch.full((3, 6, 2), 2.0)
    floor = torch.tensor([[0.5, 0.25], [0.125, 1.0], [3.0, 0.75]])
    distribution = torch.tensor([2.0, 1.0, 2.0, NAN])[:, None].expand(3, 4, 2)
    record = torch.full((3, 5), NAN, dtype=torch.float64)
    state = distribution, record, torch.tensor(0)
    moved, *_ = update(
        candidates[..., 0], candidates, *state, 3, maximize=False, std_floor=floor
    )
    assert torch.equal(moved[:, 1], floor)
    moved, *_ = update(
        candidates[..., 0], candidates, *state, 3, maximize=False, std_floor=floor[2]
    )
    assert torch.equal(moved[:, 1], floor[2].expand(3, 2))
