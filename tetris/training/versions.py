"""The versions of the software."""

from __future__ import annotations

import platform

import numpy as np
import torch

from kernels.version import __version__


def versions() -> dict[str, str]:
    """Return the versions of the software by name."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cem-tetris": __version__,
    }
