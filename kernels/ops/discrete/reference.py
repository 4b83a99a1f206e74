"""The operators of op.py in plain PyTorch, for any device. They return the same bits."""

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

    Row v of the table, shape (..., variables, values), contains the probabilities of the values
    of variable v. A row of zeros is a uniform distribution. The results equal those of the
    operator ``sample_categorical`` bit for bit, but the arguments are not checked.
    """
    # Convert probabilities to integers, whose sums are exact. _SCALE stands for probability 1.
    weights = (table * _SCALE).round().long()
    # In a row of zeros all values get the weight 1.
    is_zero_row = (weights == 0).all(-1, keepdim=True)
    sums = torch.where(is_zero_row, 1, weights).cumsum(-1)
    totals = sums[..., -1].unsqueeze(-2)  # shape (..., 1, variables)

    # With 64 random bits, floor(bits * total / 2^64) is a uniform integer below the total.
    bits = random_words(seed, generation, num_samples, table.shape[-2], is_permutation=False)
    uniform = _multiply_high(bits, totals)
    # Inverse transform sampling: the value is the number of cumulative sums <= uniform. For
    # searchsorted, the variables must come before the samples.
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

    Row 0 of the table, shape (..., n + 1, n), contains the probabilities of the first item, and
    row i + 1 those of the item after item i. Every item is drawn once. If all remaining items
    have probability 0, they are equally likely. The results equal those of the operator
    ``sample_permutation`` bit for bit, but the arguments are not checked.
    """
    # Convert probabilities to integers, whose sums are exact. _SCALE stands for probability 1.
    weights = (table * _SCALE).round().long()
    bits = random_words(seed, generation, num_samples, table.shape[-1], is_permutation=True)

    # Shape (..., num_samples, n): 1 for items that have not been drawn, otherwise 0.
    remaining = torch.ones_like(bits)
    # The row of the table for the next item of each sample. All samples start with row 0.
    row = weights[..., :1, :]
    items: list[Tensor] = []
    for position_bits in bits.split(1, dim=-1):
        # Items that have been drawn get the weight 0. If all weights are 0, each of the
        # remaining items gets the weight 1.
        row = row * remaining
        is_zero_row = (row == 0).all(-1, keepdim=True)
        item_weights = torch.where(is_zero_row, remaining, row)
        item = _draw_index(item_weights, position_bits)
        items.append(item)
        remaining = remaining.scatter(-1, item, 0)
        # The item after item i is drawn from row i + 1. This gives a row for every sample.
        row_index = item.expand_as(remaining)
        row = weights[..., 1:, :].take_along_dim(row_index, dim=-2)
    return torch.cat(items, dim=-1).to(dtype)


def _draw_index(weights: Tensor, bits: Tensor) -> Tensor:
    """Draw an index for each row of weights from 64 random bits, shape (..., 1)."""
    sums = weights.cumsum(-1)
    # With 64 random bits, floor(bits * total / 2^64) is a uniform integer below the total.
    uniform = _multiply_high(bits, sums[..., -1:])
    # Inverse transform sampling: the index is the number of cumulative sums <= uniform.
    return (sums <= uniform).sum(-1, keepdim=True)


def random_words(
    seed: Tensor, generation: Tensor, candidates: int, places: int, is_permutation: bool
) -> Tensor:
    """Return 64 random bits for every candidate and place, shape (..., N, places), int64.

    A place is a variable of a candidate, or a position in a permutation. Philox4x32 computes
    the bits from a key and a counter. The key is the seed, shape (...). The counter contains
    the number of the candidate, the place and the generation.
    """
    # Every sampler changes the seed differently, so that their bits differ. Two dimensions are
    # inserted, for candidates and places.
    changed_seed = (seed ^ DOMAIN)[..., None, None]
    # WORD is 2^32 - 1, the mask of the lower word.
    key = changed_seed & WORD, (changed_seed >> 32) & WORD
    # A counter gives 128 bits, which two successive candidates share.
    pair = torch.arange((candidates + 1) // 2, device=seed.device).unsqueeze(-1)
    place = torch.arange(places, device=seed.device)
    # The upper 31 bits of the generation, and a bit that separates the two samplers.
    upper = ((generation >> 32) & (WORD >> 1)) | (is_permutation << 31)
    word_0, word_1, word_2, word_3 = philox4x32((pair, place, generation & WORD, upper), key)
    first_of_pair = word_0 | (word_1 << 32)
    second_of_pair = word_2 | (word_3 << 32)
    # Shape (..., pairs, 2, places). The last pair may have one candidate too many.
    pairs = torch.stack([first_of_pair, second_of_pair], dim=-2)
    return pairs.flatten(-3, -2)[..., :candidates, :]


def _multiply_high(words: Tensor, totals: Tensor) -> Tensor:
    """Return floor(word total / 2^64) for unsigned 64-bit words and totals below 2^63."""
    # This is long multiplication with digits of 32 bits. The masks remove copies of sign bits.
    high = (words >> 32) & WORD
    low = words & WORD
    total_high = totals >> 32
    total_low = totals & WORD
    middle = high * total_low + ((low * total_low >> 32) & WORD)  # below 2^64, but int64 wraps
    rest = low * total_high + (middle & WORD)
    return high * total_high + ((middle >> 32) & WORD) + ((rest >> 32) & WORD)
