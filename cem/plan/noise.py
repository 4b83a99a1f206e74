"""The noise of plans: a function of the seed, the environment and the generation."""

from typing import NamedTuple

import torch
from torch import Tensor

from cem.core.backend import mix_seed
from kernels.ops.normal import sample_normal_rows

_CHOICES = 1 << 37  # From this generation on the noise chooses elites, not plans.


class NoiseKey(NamedTuple):
    """What determines the noise of an iteration, for the B environments that are planned for.

    Attributes:
        envs: The numbers of the environments, shape (B,), int64.
        seeds: Their seeds, shape (B,), int64.
        generation: The iterations that each of them has had, shape (B,), int64.
    """

    envs: Tensor
    seeds: Tensor
    generation: Tensor

    def advance(self) -> "NoiseKey":
        """Return the key of the next iteration."""
        return NoiseKey(self.envs, self.seeds, self.generation + 1)


class Noise:
    """Draws normal noise, by the operators of ``kernels`` or by torch.

    Attributes:
        backend: As for ``CrossEntropyMethod``.
        seeds: A seed for each environment of the planner, shape (num_envs,), int64.
    """

    def __init__(self, seed: int, num_envs: int, backend: str, device: torch.device) -> None:
        """Make the noise of a planner's environments from its seed."""
        self.backend = backend
        unrelated_seeds = [mix_seed(seed, number) >> 1 for number in range(num_envs)]
        self.seeds = torch.tensor(unrelated_seeds, device=device)
        self._all_envs = torch.arange(num_envs, device=device)

    def make_key(self, envs: Tensor | None, generation: Tensor) -> NoiseKey:
        """Return the key of some environments, all for None."""
        if envs is None:
            return NoiseKey(self._all_envs, self.seeds, generation)
        return NoiseKey(envs, self.seeds[envs], generation)

    def draw(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise, shape (B, size, d), for ``like`` of shape (B, d)."""
        if self.backend == "torch":
            return self._draw_by_torch(like, size, key)
        rows = torch.stack([torch.zeros_like(like), torch.ones_like(like)], dim=1)
        return sample_normal_rows(rows, size, seed=key.seeds, generation=key.generation)

    def draw_choice(self, count: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise that no plan has, shape (B, count), float64."""
        key = key._replace(generation=key.generation + _CHOICES)
        like = torch.zeros(len(key.seeds), 1, dtype=torch.float64, device=key.seeds.device)
        return self.draw(like, count, key).squeeze(-1)

    def _draw_by_torch(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise, shape (B, size, d), for ``like`` of shape (B, d).

        Each generation has noise for all environments, so that the noise of one does not depend
        on which others are planned for.
        """
        shape = (len(self.seeds), size, like.shape[-1])
        noise = like.new_empty(len(like), *shape[1:])
        generator = torch.Generator(like.device)
        for generation in key.generation.unique().tolist():
            generator.manual_seed(mix_seed(int(self.seeds[0]), generation))
            noise_of_all = like.new_empty(shape).normal_(generator=generator)
            is_drawn = key.generation == generation
            noise[is_drawn] = noise_of_all[key.envs[is_drawn]]
        return noise


def color(noise: Tensor, coloring: Tensor) -> Tensor:
    """Return white noise (B, N, d) as noise whose spectrum over time is ``1 / f^beta``.

    The d numbers of white noise may be read in any order: here they are a series of T steps for
    every number of an action, which the symmetric matrix ``coloring``, shape (T, T), correlates
    in time. The result has the order of a plan: all numbers of the first step, then all of the
    second one.
    """
    series = noise.view(*noise.shape[:2], -1, len(coloring))
    with torch.autocast(noise.device.type, enabled=False):
        colored = series @ coloring
    return colored.transpose(2, 3).reshape(noise.shape)


def coloring_matrix(length: int, beta: float) -> Tensor:
    """Return a symmetric matrix M with which M z has the power spectrum ``1 / f^beta``.

    Here z is white noise. As in J. Timmer and M. Koenig, On Generating Power Law Noise,
    Astronomy and Astrophysics 300, 1995, the Fourier coefficients are independent normal
    numbers with standard deviations of ``f^(-beta / 2)``, which is a circular convolution of
    white noise. Frequency 0 has the power of the lowest frequency above it. Each element of M z
    is N(0, 1), and the covariance of two elements only depends on their circular distance. A
    ``beta`` of 0 is white, 1 pink, 2 red noise.

    Returns:
        The matrix, shape (length, length), float64.
    """
    frequencies = torch.fft.rfftfreq(length, dtype=torch.float64)
    frequencies[0] = frequencies[min(1, length // 2)]
    lowest = frequencies.min().clamp(min=0.5 / length)
    scale = (frequencies / lowest).clamp(min=1.0) ** (-beta / 2)  # at most 1: never overflows
    row: Tensor = torch.fft.irfft(scale.to(torch.complex128), length)
    row = row / row.square().sum().sqrt()
    steps = torch.arange(length)
    matrix: Tensor = row[(steps[:, None] - steps) % length]
    return matrix
