"""The memory of a planner: what a step passes to the next one."""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Memory(NamedTuple):
    """What a step passes to the next one, for B environments and vectors of d numbers.

    Attributes:
        mean: The mean of the last distribution, shape (B, d); at the start of an episode the
            initial mean.
        elites: The best vectors of the last iteration, shape (B, num_reused, d); at the start
            of an episode NaN.
        generation: The number of iterations that each environment has had, shape (B,), int64.
            Each iteration draws the noise of its number.
    """

    mean: Tensor
    elites: Tensor
    generation: Tensor

    def select(self, envs: Tensor | None) -> "Memory":
        """Return the memory of the environments with the indices ``envs``; None: of all."""
        if envs is None:
            return self
        return Memory(*(part[envs] for part in self))

    def replace_rows(self, envs: Tensor | None, rows: "Memory") -> "Memory":
        """Return a memory in which ``rows`` replace those of the environments ``envs``.

        With None they replace all rows.
        """
        if envs is None:
            return rows
        return Memory(
            *(old.index_copy(0, envs, new) for old, new in zip(self, rows, strict=True))
        )

    def overwrite(self, new: "Memory") -> None:
        """Copy another memory into the tensors of this one, to which CUDA graphs refer."""
        for old_part, new_part in zip(self, new, strict=True):
            old_part.copy_(new_part)


def make_memory(first_mean: Tensor, num_envs: int, num_reused: int) -> Memory:
    """Return the memory of all environments at the start of an episode."""
    dim = len(first_mean)
    return Memory(
        mean=first_mean.expand(num_envs, dim).clone(),
        elites=first_mean.new_full((num_envs, num_reused, dim), math.nan),
        generation=torch.zeros(num_envs, dtype=torch.int64, device=first_mean.device),
    )
