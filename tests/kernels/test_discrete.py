"""Categorical variables and permutations: bits of the reference, distributions, what a draw depends on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same, check_device, cuda
from test_cem_update_emulated import check as check_emulated
from torch import Tensor

from kernels import (
    sample_categorical,
    sample_categorical_reference,
    sample_permutation,
    sample_permutation_reference,
)
from kernels.ops.discrete.reference import DOMAIN, random_words
from kernels.ops.philox import philox4x32, split64

# batch, sizes, N: equal and different sizes, one group of variables and several, odd and even N.
CATEGORICAL = [
    ((), [2] * 200, 33),
    ((3,), [10] * 5, 64),
    ((2, 2), [1, 7, 2, 5000, 3], 5),
    ((), [2, 3] * 700, 9),
]
# batch, n, N: a lane of CUDA has 1, 2, 4, 5 and more items; a row in shared and in global memory.
PERMUTATION = [((), 1, 3), ((2, 2), 33, 5), ((), 100, 70), ((3,), 160, 2), ((), 161, 3), ((), 1100, 2)]
LEAST_P = 1e-6  # of a chi-square test: what a right sampler falls below once in a million seeds


def noise(batch: tuple[int, ...] = (), generation: int = 2**40 + 3) -> dict[str, Tensor]:
    seed = torch.arange(math.prod(batch)).reshape(batch) * 2**61 - 5
    return {"seed": seed, "generation": torch.tensor(generation)}


def table_of(*shape: int) -> Tensor:
    """Return probabilities of several sizes, some of them 0, and some rows of 0 alone."""
    generator = torch.Generator().manual_seed(8)
    x, size = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    x = torch.where(x < 0.4, 0.0, x.pow(1 + 30 * size))
    x[..., -2:] = 0.0
    return x


def calls() -> list[tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Any, ...], dict[str, Tensor]]]:
    """Return operators, references and arguments."""
    found: list[Any] = [
        (sample_categorical, sample_categorical_reference, (table_of(*b, sum(sizes)), sizes, n), noise(b))
        for b, sizes, n in CATEGORICAL
    ]
    for batch, items, count in PERMUTATION:
        table = table_of(*batch, items + 1, items)
        table[..., items // 2, :] = 0.0
        found.append((sample_permutation, sample_permutation_reference, (table, count), noise(batch)))
    return found


def to(device: str, x: Any) -> Any:
    return x.to(device) if isinstance(x, Tensor) else x


def p_value(counts: Tensor, expected: Tensor) -> float:
    """Return the chance that a right sampler is further from what is expected (Pearson's chi-square)."""
    statistic = ((counts - expected).square() / expected).sum()
    degrees = torch.tensor((len(counts) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(degrees, statistic / 2))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("call", range(len(CATEGORICAL) + len(PERMUTATION)))
def test_the_reference_gives_the_same_bits(call: int, device: str) -> None:
    operator, reference, arguments, given = calls()[call]
    arguments, given = tuple(to(device, x) for x in arguments), {k: to(device, x) for k, x in given.items()}
    assert_same(operator(*arguments, **given), reference(*arguments, **given))


@cuda
def test_cuda_gives_the_bits_of_the_cpu() -> None:
    for operator, _, arguments, given in calls():
        check_device(operator, *arguments, **given)
    check_device(sample_categorical, table_of(3, 500), [10] * 50, 1024, **noise((3,)))
    check_device(sample_permutation, table_of(101, 100), 5000, **noise())
    check_device(sample_permutation, table_of(40, 31, 30), 100, **noise((40,)))


@pytest.mark.slow
def test_emulated_cuda_gives_the_bits_of_the_cpu() -> None:
    for operator, _, arguments, given in calls():
        for multiprocessors in (1, 132):
            check_emulated(operator, *arguments, multiprocessors=multiprocessors, **given)


def test_the_words_are_philox() -> None:
    seed, generation, candidate, place = 2**63 + 9, 2**37 + 5, 7, 4
    given = torch.tensor(seed - 2**64), torch.tensor(generation)
    for is_permutation in (0, 1):
        low, high = split64(generation)
        counter = candidate // 2, place, low, high | is_permutation << 31
        word = philox4x32(counter, split64(seed ^ DOMAIN))[2:]
        found = random_words(*given, candidate + 1, place + 1, is_permutation)[-1, -1]
        assert split64(int(found) % 2**64) == word


def test_categories_have_their_probabilities() -> None:
    p, count = torch.tensor([0.1, 0.0, 0.003, 0.9, 0.4, 0.7, 1.0, 0.0], dtype=torch.float64), 200_000
    drawn = sample_categorical(p, [3, 5], count, **noise())
    for v, (begin, end) in enumerate([(0, 3), (3, 8)]):
        counts, share = (
            drawn[:, v].bincount(minlength=end - begin).double(),
            p[begin:end] / p[begin:end].sum(),
        )
        assert not counts[share == 0].any()
        assert p_value(counts[share > 0], count * share[share > 0]) > LEAST_P
    first, second = drawn.T
    both = (5 * first + second).bincount(minlength=15).double()
    share = torch.outer(p[:3] / p[:3].sum(), p[3:] / p[3:].sum()).flatten()
    assert p_value(both[share > 0], count * share[share > 0]) > LEAST_P


def test_permutations_have_the_probabilities_of_their_transitions() -> None:
    table = table_of(4, 3) * 0 + torch.tensor(
        [[0.5, 0.3, 0.2], [0.0, 0.7, 0.2], [0.1, 0.5, 0.0], [0.4, 0.1, 0.9]]
    )
    drawn, count = sample_permutation(table, 200_000, **noise()), 200_000
    share = []
    for a, b, c in itertools.permutations(range(3)):
        share.append(table[0, a] / table[0].sum() * table[1 + a, b] / (table[1 + a, b] + table[1 + a, c]))
    assert math.isclose(sum(share), 1.0)
    counts = torch.tensor(
        [(drawn == torch.tensor(x)).all(-1).sum() for x in itertools.permutations(range(3))]
    )
    expected = count * torch.stack(share)
    assert not counts[expected == 0].any()
    assert p_value(counts[expected > 0].double(), expected[expected > 0]) > LEAST_P


def test_without_weights_all_are_as_likely() -> None:
    count = 100_000
    drawn = sample_categorical(torch.zeros(7, dtype=torch.float64), [7], count, **noise())
    assert p_value(drawn[:, 0].bincount(minlength=7).double(), torch.full((7,), count / 7)) > LEAST_P
    drawn = sample_permutation(torch.zeros(4, 3, dtype=torch.float64), count, **noise())
    counts = (drawn @ torch.tensor([9, 3, 1])).bincount()
    assert p_value(counts[counts > 0].double(), torch.full((6,), count / 6)) > LEAST_P


def test_permutations_are_permutations_that_avoid_what_has_no_probability() -> None:
    n = 50
    table = table_of(n + 1, n) * 0 + 0.01
    table[1:].fill_diagonal_(1.0)  # of no use: the item is no longer left
    table[0, 7:] = table[1, :25] = 0.0
    drawn = sample_permutation(table, 500, **noise())
    assert_same(drawn.sort(-1).values, torch.arange(n).expand(500, n))
    assert (drawn[:, 0] < 7).all()
    at = drawn.argmin(-1)  # where item 0 is
    after = drawn.gather(-1, (at + 1).clamp(max=n - 1).unsqueeze(-1)).squeeze(-1)
    late_left = torch.stack([(row[a + 1 :] >= 25).any() for row, a in zip(drawn, at.tolist(), strict=True)])
    assert (after[late_left] >= 25).all()


def test_a_draw_depends_on_its_own_place_alone() -> None:
    sizes, table, transitions = [3, 2, 6, 2], table_of(2, 13), table_of(2, 9, 8)
    given = noise((2,))
    drawn, tours = (
        sample_categorical(table, sizes, 101, **given),
        sample_permutation(transitions, 101, **given),
    )
    assert_same(sample_categorical(table, sizes, 40, **given), drawn[:, :40])
    assert_same(sample_categorical(table[:, :5].contiguous(), sizes[:2], 101, **given), drawn[..., :2])
    assert_same(sample_permutation(transitions, 40, **given), tours[:, :40])
    for b in range(2):
        alone = {"seed": given["seed"][b], "generation": given["generation"]}
        assert_same(sample_categorical(table[b], sizes, 101, **alone), drawn[b])
        assert_same(sample_permutation(transitions[b], 101, **alone), tours[b])
    later = noise((2,), 4)
    assert not torch.equal(sample_categorical(table, sizes, 101, **later), drawn)
