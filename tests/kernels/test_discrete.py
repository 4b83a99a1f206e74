"""Categorical variables and permutations: bits of the reference, distributions, what a draw
depends on."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same, check_device, cuda
from test_cem_update_emulated import check as check_emulated
from torch import Tensor
from torch.utils._pytree import tree_map_only

import kernels
from kernels import sample_categorical, sample_permutation
from kernels.ops.discrete.reference import DOMAIN, random_words
from kernels.ops.philox import philox4x32, split64

LEAST_P = 1e-6  # of a chi-square test: a right sampler falls below for one seed in a million


def noise(batch: tuple[int, ...] = (), generation: int = 2**40 + 3) -> dict[str, Any]:
    seed = torch.arange(math.prod(batch)).reshape(batch) * 2**61 - 5
    return {"seed": seed, "generation": torch.tensor(generation)}


def table_of(*shape: int) -> Tensor:
    """Return probabilities of several sizes, some of them 0, the last two in every row."""
    generator = torch.Generator().manual_seed(8)
    x, size = torch.rand(2, *shape, generator=generator, dtype=torch.float64)
    x = torch.where(x < 0.4, 0.0, x.pow(1 + 30 * size))
    x[..., -2:] = 0.0
    return x


DTYPES = torch.int64, torch.float32, torch.float64
# Operators and their arguments. Variables: fewer and more than a block of CUDA has. Items:
# fewer and more than lanes, and than have a bit in a word; odd and even numbers of candidates.
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *(("sample_categorical", (table_of(*b, *shape), n), noise(b) | {"dtype": DTYPES[len(b)]})
    for b, shape, n in [
        ((), (200, 2), 33), ((3,), (5, 10), 130), ((2, 2), (3, 9000), 5), ((), (9, 1), 64)
    ]),
    *(("sample_permutation", (table_of(*b, k + 1, k), n), noise(b) | {"dtype": DTYPES[len(b)]})
    for b, k, n in [
        ((), 1, 3), ((2, 2), 33, 5), ((), 100, 70), ((3,), 160, 2), ((), 161, 3), ((), 1100, 2)
    ]),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("call", range(len(CALLS)))
def test_the_reference_gives_the_same_bits(call: int, device: str) -> None:
    name, *arguments = CALLS[call]
    arguments, given = tree_map_only(Tensor, lambda x: x.to(device), arguments)
    drawn = getattr(kernels, name)(*arguments, **given)
    assert_same(drawn, getattr(kernels, f"{name}_reference")(*arguments, **given))
    if name == "sample_permutation":
        assert_same(
            drawn.sort(-1).values, torch.arange(drawn.shape[-1]).to(drawn).expand_as(drawn)
        )


@cuda
def test_cuda_gives_the_bits_of_the_cpu() -> None:
    large = ("sample_permutation", (table_of(40, 31, 30), 100), noise((40,)))
    full = ("sample_permutation", (table_of(101, 100), 5000), noise())
    for name, arguments, given in [*CALLS, large, full]:
        check_device(getattr(kernels, name), *arguments, **given)


@pytest.mark.slow
@pytest.mark.parametrize("multiprocessors", [1, 132])
def test_emulated_cuda_gives_the_bits_of_the_cpu(multiprocessors: int) -> None:
    for name, arguments, given in CALLS:
        check_emulated(
            getattr(kernels, name), *arguments, multiprocessors=multiprocessors, **given
        )


@pytest.mark.parametrize("is_permutation", [0, 1])
def test_the_words_are_philox(is_permutation: int) -> None:
    seed, generation, candidate, place = 2**63 + 9, 2**37 + 5, 7, 4
    given = torch.tensor(seed - 2**64), torch.tensor(generation)
    low, high = split64(generation)
    counter = candidate // 2, place, low, high | is_permutation << 31
    found = int(random_words(*given, candidate + 1, place + 1, is_permutation)[-1, -1])
    assert split64(found % 2**64) == philox4x32(counter, split64(seed ^ DOMAIN))[2:]


def fits(found: Tensor, probabilities: Tensor) -> bool:
    """Return whether numbers of draws may be of these probabilities (Pearson's chi-square)."""
    expected = found.sum() * probabilities[probabilities > 0]
    statistic = ((found[probabilities > 0] - expected).square() / expected).sum()
    degrees = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    chance = torch.special.gammaincc(degrees, statistic / 2)
    return bool(chance > LEAST_P) and not found[probabilities == 0].any()


def test_variables_are_independent_and_have_their_probabilities() -> None:
    p = torch.tensor([[0.1, 0.0, 0.003], [0.9, 0.4, 0.7], [0.0, 0.0, 0.0]], dtype=torch.float64)
    drawn = sample_categorical(p, 200_000, **noise())
    shares = (
        p[0] / p[0].sum(),
        p[1] / p[1].sum(),
        p[2] + 1 / 3,
    )  # of zeros alone, all are as likely
    together = torch.einsum("a,b,c->abc", *shares).flatten()
    assert fits((drawn @ torch.tensor([9, 3, 1])).bincount(minlength=27), together)


def test_permutations_have_the_probabilities_of_their_transitions() -> None:
    table = torch.tensor(
        [[0.5, 0.3, 0], [0, 0.7, 0.2], [0, 0.5, 0], [0.4, 0.1, 0.9]], dtype=torch.float64
    )
    drawn = sample_permutation(table, 200_000, **noise())
    found, share = torch.zeros(6), torch.zeros(6, dtype=torch.float64)
    for k, (a, b, c) in enumerate(itertools.permutations(range(3))):
        found[k] = (drawn == torch.tensor([a, b, c])).all(-1).sum()
        either = table[1 + a, b] + table[1 + a, c]  # 0 after item 1: both are as likely
        share[k] = (
            table[0, a] / table[0].sum() * (table[1 + a, b] / either if either > 0 else 0.5)
        )
    assert found.sum() == 200_000
    assert fits(found, share)


def test_a_draw_depends_on_its_own_place_alone() -> None:
    table, rows, given = table_of(2, 4, 6), table_of(2, 9, 8), noise((2,))
    drawn, tours = (
        sample_categorical(table, 101, **given),
        sample_permutation(rows, 101, **given),
    )
    assert_same(sample_categorical(table, 40, **given), drawn[:, :40])
    assert_same(sample_categorical(table[:, :2], 101, **given), drawn[..., :2])
    assert_same(sample_permutation(rows, 40, **given), tours[:, :40])
    for b in range(2):
        alone = {"seed": given["seed"][b], "generation": given["generation"]}
        assert_same(sample_categorical(table[b], 101, **alone), drawn[b])
        assert_same(sample_permutation(rows[b], 101, **alone), tours[b])
    assert not torch.equal(sample_categorical(table, 101, **noise((2,), 4)), drawn)
    generation = given["generation"]
    draw = lambda p, seed: sample_categorical(p, 101, seed=seed, generation=generation)  # noqa: E731
    assert_same(torch.vmap(draw)(table, given["seed"]), drawn)
