"""The versions of the software."""

from __future__ import annotations

import platform
from importlib import metadata

import numpy as np
import torch


def versions() -> dict[str, str]:
    """Return the versions of the software by name."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__}
    try:
        found["cem-tetris"] = metadata.version("cem-tetris")
    except metadata.PackageNotFoundError:  # run from a checkout that is only on the path
        found["cem-tetris"] = "unknown"
    return found
