"""What a planner remembers from one step to the next."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Memory(NamedTuple):
    """What a step passes to the next one, for B environments and vectors of d numbers.

    Attributes:
        mean: The mean of the last distribution, shape (B, d); at the start of an episode the
            first.
        elites: The best vectors of the last iteration, shape (B, reused, d); at the start NaN.
        generation: The iterations that each environment has had, shape (B,), int64, which
            number its noise.
    """

    mean: Tensor
    elites: Tensor
    generation: Tensor

    def select(self, envs: Tensor | None) -> "Memory":
        """Return the memory of some environments, all for None."""
        if envs is None:
            return self
        return Memory(*(part[envs] for part in self))

    def replace_rows(self, envs: Tensor | None, rows: "Memory") -> "Memory":
        """Return the memory with that of some environments, all for None, replaced by rows."""
        if envs is None:
            return rows
        return Memory(
            *(old.index_copy(0, envs, new) for old, new in zip(self, rows, strict=True))
        )

    def overwrite(self, new: "Memory") -> None:
        """Copy another memory into the tensors of this one, which a CUDA graph reads."""
        for old_part, new_part in zip(self, new, strict=True):
            old_part.copy_(new_part)


def make_memory(first_mean: Tensor, num_envs: int, num_reused: int) -> Memory:
    """Return the memory at the start of an episode."""
    dim = len(first_mean)
    # With a CUDA graph these tensors change in place later.
    with torch.inference_mode(False):
        return Memory(
            mean=first_mean.expand(num_envs, dim).clone(),
            elites=first_mean.new_full((num_envs, num_reused, dim), math.nan),
            generation=torch.zeros(num_envs, dtype=torch.int64, device=first_mean.device),
        )
