"""What the operators of op.py return, in plain PyTorch, on any device: the same bits."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.ops.philox import WORD, philox4x32

DOMAIN = int.from_bytes(b"discrete", "big")
_ONE = 2.0**48  # the weight of probability 1


def sample_categorical_reference(
    table: Tensor, num_samples: int, *, seed: Tensor, generation: Tensor, dtype: torch.dtype = torch.int64
) -> Tensor:
    """Return what ``sample_categorical`` returns; the arguments are the same, and nothing is checked."""
    weights = (table * _ONE).round().long()
    none = (weights == 0).all(-1, keepdim=True)
    sums = torch.where(none, 1, weights).cumsum(-1)
    words = random_words(seed, generation, num_samples, table.shape[-2], 0)
    below = _multiply_high(words, sums[..., -1].unsqueeze(-2))
    return torch.searchsorted(sums, below.mT.contiguous(), right=True).mT.to(dtype).contiguous()


def sample_permutation_reference(
    table: Tensor, num_samples: int, *, seed: Tensor, generation: Tensor, dtype: torch.dtype = torch.int64
) -> Tensor:
    """Return what ``sample_permutation`` returns; the arguments are the same, and nothing is checked."""
    weights = (table * _ONE).round().long()
    words = random_words(seed, generation, num_samples, table.shape[-1], 1)
    left, row, items = torch.ones_like(words), weights[..., :1, :], list[Tensor]()
    for word in words.split(1, dim=-1):
        row = row * left
        sums = torch.where((row == 0).all(-1, keepdim=True), left, row).cumsum(-1)
        items.append((sums <= _multiply_high(word, sums[..., -1:])).sum(-1, keepdim=True))
        left = left.scatter(-1, items[-1], 0)
        row = weights[..., 1:, :].take_along_dim(items[-1].expand_as(left), dim=-2)
    return torch.cat(items, dim=-1).to(dtype)


def random_words(seed: Tensor, generation: Tensor, candidates: int, places: int, mark: int) -> Tensor:
    """Return 64 random bits for every candidate and place, shape (..., N, places), int64: discrete.h."""
    key = (seed ^ DOMAIN)[..., None, None]
    pair = torch.arange((candidates + 1) // 2, device=seed.device).unsqueeze(-1)
    place = torch.arange(places, device=seed.device)
    counter = pair, place, generation & WORD, generation >> 32 & WORD >> 1 | mark << 31
    a, b, c, d = philox4x32(counter, (key & WORD, key >> 32 & WORD))
    return torch.stack([a | b << 32, c | d << 32], dim=-2).flatten(-3, -2)[..., :candidates, :]


def _multiply_high(words: Tensor, totals: Tensor) -> Tensor:
    """Return floor(word total / 2^64), of a word taken as unsigned and a total below 2^63."""
    high, low, total_high, total_low = words >> 32 & WORD, words & WORD, totals >> 32, totals & WORD
    middle = high * total_low + (low * total_low >> 32 & WORD)  # modulo 2^64, which it is below
    rest = low * total_high + (middle & WORD)
    return high * total_high + (middle >> 32 & WORD) + (rest >> 32 & WORD)
