"""Noise coloured in time: normal numbers whose power spectrum falls as ``1 / f^beta``.

J. Timmer and M. Koenig, On Generating Power Law Noise, Astronomy and Astrophysics 300, 1995: the Fourier
coefficients of the noise are independent normal numbers with a standard deviation of ``f^(-beta / 2)``. Those
of white noise are independent with equal standard deviations, so the noise is a circular convolution of white
noise, which is a product with a matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor


def coloring_matrix(length: int, beta: float) -> Tensor:
    """Return the matrix that colours white noise: ``matrix @ z`` has the power spectrum ``1 / f^beta``.

    Frequency 0 has the power of the lowest frequency above it. Each element of the noise is N(0, 1), and the
    covariance of two depends on their circular distance alone. The matrix, of shape (length, length) and
    float64, is symmetric and circulant. A ``beta`` of 0 is white, 1 pink, 2 red noise.
    """
    frequencies = torch.fft.rfftfreq(length, dtype=torch.float64)
    frequencies[0] = frequencies[min(1, length // 2)]
    lowest = frequencies.min().clamp(min=0.5 / length)
    scale = (frequencies / lowest).clamp(min=1.0) ** (-beta / 2)  # at most 1: no beta is too great
    row: Tensor = torch.fft.irfft(scale.to(torch.complex128), length)
    row = row / row.square().sum().sqrt()
    step = torch.arange(length)
    matrix: Tensor = row[(step[:, None] - step) % length]
    return matrix
