"""What the operators of op.py return, in plain PyTorch, on any device: the same bits."""

import torch
from torch import Tensor

from kernels.ops.philox import WORD, philox4x32

DOMAIN = int.from_bytes(b"discrete", "big")
_ONE = 2.0**48  # the weight of probability 1


def sample_categorical_reference(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Return what ``sample_categorical`` returns, in plain PyTorch; nothing is checked."""
    weights = (table * _ONE).round().long()
    is_empty = (weights == 0).all(-1, keepdim=True)
    sums = torch.where(is_empty, 1, weights).cumsum(-1)
    words = random_words(seed, generation, num_samples, table.shape[-2], 0)
    below = _multiply_high(words, sums[..., -1].unsqueeze(-2))
    return torch.searchsorted(sums, below.mT.contiguous(), right=True).mT.to(dtype).contiguous()


def sample_permutation_reference(
    table: Tensor,
    num_samples: int,
    *,
    seed: Tensor,
    generation: Tensor,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Return what ``sample_permutation`` returns, in plain PyTorch; nothing is checked."""
    weights = (table * _ONE).round().long()
    words = random_words(seed, generation, num_samples, table.shape[-1], 1)
    remaining = torch.ones_like(words)  # 1 for an item that was not drawn yet, else 0
    row = weights[..., :1, :]
    items: list[Tensor] = []
    for word in words.split(1, dim=-1):
        row = row * remaining
        is_empty = (row == 0).all(-1, keepdim=True)
        sums = torch.where(is_empty, remaining, row).cumsum(-1)
        item = (sums <= _multiply_high(word, sums[..., -1:])).sum(-1, keepdim=True)
        items.append(item)
        remaining = remaining.scatter(-1, item, 0)
        row = weights[..., 1:, :].take_along_dim(item.expand_as(remaining), dim=-2)
    return torch.cat(items, dim=-1).to(dtype)


def random_words(
    seed: Tensor, generation: Tensor, candidates: int, places: int, mark: int
) -> Tensor:
    """Return 64 random bits for every candidate and place, shape (..., N, places), int64.

    discrete.h says how they are made.
    """
    key = (seed ^ DOMAIN)[..., None, None]
    pair = torch.arange((candidates + 1) // 2, device=seed.device).unsqueeze(-1)
    place = torch.arange(places, device=seed.device)
    upper = generation >> 32 & WORD >> 1 | mark << 31
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
