"""What the operators of op.py return, in plain PyTorch, on any device: the same bits."""

import torch
from torch import Tensor

from kernels.ops.philox import WORD, philox4x32

DOMAIN = int.from_bytes(b"discrete", "big")
_SCALE = 2.0**48  # the integer that represents probability 1


def sample_categorical_reference(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Return independent samples of categorical variables, shape (..., num_samples, variables).

    Row v of the table, shape (..., variables, values), has the probabilities of the values of
    variable v; a row of zeros is a uniform distribution. This is the operator
    ``sample_categorical`` in plain PyTorch, bit for bit; nothing is checked.
    """
    # Probabilities become integers, so that their sums are exact on every device.
    weights = (table * _SCALE).round().long()
    is_zero_row = (weights == 0).all(-1, keepdim=True)
    sums = torch.where(is_zero_row, 1, weights).cumsum(-1)
    totals = sums[..., -1].unsqueeze(-2)

    # bits * total / 2^64 is a uniform integer below the total. It selects the value in whose
    # interval of the sums it lies.
    bits = random_words(seed, generation, num_samples, table.shape[-2], is_permutation=False)
    uniform = _multiply_high(bits, totals)
    values = torch.searchsorted(sums, uniform.mT.contiguous(), right=True).mT
    return values.to(dtype).contiguous()


def sample_permutation_reference(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Return random permutations of n items, shape (..., num_samples, n).

    Row 0 of the table, shape (..., n + 1, n), has the probabilities of the first item, and row
    i + 1 those of the item after item i. Items that were drawn already have probability 0; if
    no other is left with a positive one, the remaining items are equally likely. This is the
    operator ``sample_permutation`` in plain PyTorch, bit for bit; nothing is checked.
    """
    # Probabilities become integers, so that their sums are exact on every device.
    weights = (table * _SCALE).round().long()
    bits = random_words(seed, generation, num_samples, table.shape[-1], is_permutation=True)
    is_remaining = torch.ones_like(bits)  # 1 for an item that was not drawn yet, else 0
    row = weights[..., :1, :]
    items: list[Tensor] = []
    for position_bits in bits.split(1, dim=-1):
        row = row * is_remaining
        is_zero_row = (row == 0).all(-1, keepdim=True)
        sums = torch.where(is_zero_row, is_remaining, row).cumsum(-1)
        # bits * total / 2^64 is a uniform integer below the total. It selects the item in whose
        # interval of the sums it lies.
        uniform = _multiply_high(position_bits, sums[..., -1:])
        item = (sums <= uniform).sum(-1, keepdim=True)
        items.append(item)
        is_remaining = is_remaining.scatter(-1, item, 0)
        next_row = item.expand_as(is_remaining)
        row = weights[..., 1:, :].take_along_dim(next_row, dim=-2)
    return torch.cat(items, dim=-1).to(dtype)


def random_words(
    seed: Tensor, generation: Tensor, candidates: int, places: int, is_permutation: bool
) -> Tensor:
    """Return 64 random bits for every candidate and place, shape (..., N, places), int64.

    discrete.h says how they are made.
    """
    key = (seed ^ DOMAIN)[..., None, None]
    pair = torch.arange((candidates + 1) // 2, device=seed.device).unsqueeze(-1)
    place = torch.arange(places, device=seed.device)
    upper = generation >> 32 & WORD >> 1 | is_permutation << 31
    counter = pair, place, generation & WORD, upper
    a, b, c, d = philox4x32(counter, (key & WORD, key >> 32 & WORD))
    pairs = torch.stack([a | b << 32, c | d << 32], dim=-2)
    return pairs.flatten(-3, -2)[..., :candidates, :]


def _multiply_high(words: Tensor, totals: Tensor) -> Tensor:
    """Return floor(word total / 2^64), for words taken as unsigned and totals below 2^63."""
    high = words >> 32 & WORD
    low = words & WORD
    total_high = totals >> 32
    total_low = totals & WORD
    middle = high * total_low + (low * total_low >> 32 & WORD)  # below 2^64, though int64 wraps
    rest = low * total_high + (middle & WORD)
    return high * total_high + (middle >> 32 & WORD) + (rest >> 32 & WORD)
