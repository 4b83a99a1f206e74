"""The noise of plans: a function of the seed, the environment and the generation."""

from typing import NamedTuple

import torch
from torch import Tensor

from cem.core.backend import mix_seed, multiply
from kernels.ops.normal import sample_normal_rows

_CHOICES = 1 << 37  # The noise of later generations serves to choose elites, not to draw plans.


class NoiseKey(NamedTuple):
    """Everything that determines the noise of an iteration, for B environments.

    Attributes:
        envs: The indices of the environments, shape (B,), int64.
        seeds: Their seeds, shape (B,), int64.
        generation: The number of iterations that each has had so far, shape (B,), int64.
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
        seeds: The seed of each environment of the planner, shape (num_envs,), int64.
    """

    def __init__(self, seed: int, num_envs: int, backend: str, device: torch.device) -> None:
        """Derive the seeds of all environments from the seed of the planner."""
        self.backend = backend
        unrelated_seeds = [mix_seed(seed, number) >> 1 for number in range(num_envs)]
        self.seeds = torch.tensor(unrelated_seeds, device=device)
        self._all_envs = torch.arange(num_envs, device=device)

    def make_key(self, envs: Tensor | None, generation: Tensor) -> NoiseKey:
        """Return the key of the environments with the indices ``envs``; None: all."""
        if envs is None:
            return NoiseKey(self._all_envs, self.seeds, generation)
        return NoiseKey(envs, self.seeds[envs], generation)

    def draw(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise, shape (B, size, d).

        ``like``, shape (B, d), sets the dtype and the device.
        """
        if self.backend == "torch":
            return self._draw_by_torch(like, size, key)
        # The two rows are the mean and the standard deviation.
        rows = torch.stack([torch.zeros_like(like), torch.ones_like(like)], dim=1)
        return sample_normal_rows(rows, size, seed=key.seeds, generation=key.generation)

    def draw_choice(self, count: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise, shape (B, count), float64, to choose elites by.

        It is independent of the noise of all plans.
        """
        key = key._replace(generation=key.generation + _CHOICES)
        like = torch.zeros(len(key.seeds), 1, dtype=torch.float64, device=key.seeds.device)
        return self.draw(like, count, key).squeeze(-1)

    def _draw_by_torch(self, like: Tensor, size: int, key: NoiseKey) -> Tensor:
        """Return standard normal noise of torch's generator, shape (B, size, d).

        The noise of a generation is drawn for all environments of the planner. So the noise of
        one environment does not depend on which others are planned for.
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
    """Return noise with the power spectrum ``1 / f^beta`` over time, made from white noise.

    White noise may be read in any order. Here its d numbers are read as one series of T steps
    for each number of an action. The result is in the order of a plan: all numbers of the first
    step, then all numbers of the second, and so on.

    Args:
        noise: White noise, shape (B, N, d).
        coloring: The matrix that correlates the T steps, shape (T, T); see ``coloring_matrix``.
    """
    series: Tensor = noise.unflatten(-1, (-1, len(coloring)))
    colored = multiply(series, coloring)
    return colored.transpose(2, 3).reshape(noise.shape)


def coloring_matrix(length: int, beta: float) -> Tensor:
    """Return a symmetric matrix that gives white noise the power spectrum ``1 / f^beta``.

    The product of the matrix and white noise is a circular convolution, whose Fourier
    coefficients are independent normal numbers with standard deviations of ``f^(-beta / 2)``.
    This is the method of J. Timmer and M. Koenig, On Generating Power Law Noise, Astronomy and
    Astrophysics 300, 1995. Each element of the product is N(0, 1), and the covariance of two
    elements only depends on their circular distance. The noise is white if ``beta`` is 0, pink
    if it is 1 and red if it is 2.

    Returns:
        The matrix, shape (length, length), float64.
    """
    frequencies = torch.fft.rfftfreq(length, dtype=torch.float64, device="cpu")
    # Frequency 0 gets the power of the lowest frequency above 0, if there is one.
    frequencies[0] = frequencies[min(1, length // 2)]
    lowest = frequencies.min().clamp(min=0.5 / length)
    # Relative to the lowest frequency the scale is at most 1, so that it cannot overflow.
    scale = (frequencies / lowest).clamp(min=1.0) ** (-beta / 2)
    kernel: Tensor = torch.fft.irfft(scale.to(torch.complex128), length)
    kernel = kernel / kernel.square().sum().sqrt()
    # Each row of the matrix is the kernel, rotated by one more step.
    steps = torch.arange(length, device="cpu")
    matrix: Tensor = kernel[(steps[:, None] - steps) % length]
    return matrix
