"""Builds, loads and calls the smallest operator there is: the program that the doctor runs.

Usage: ``python -m kernels.loader.probe cpu`` or ``python -m kernels.loader.probe cuda``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kernels.loader import BuildError, Extension

_HERE = Path(__file__).parent


def extension(device: str) -> Extension:
    """Returns the operator's library for ``"cpu"``, or for ``"cuda"`` and the CPU."""
    sources = (_HERE / "probe.cpp", _HERE / "probe.cu")
    if device == "cuda":
        return Extension("probe_cuda", sources, reason="doctor", cuda=True)
    return Extension("probe", sources[:1], reason="doctor")


def run(device: str) -> str:
    """Calls the operator on a device, after building and loading it.

    Returns:
        One line for the doctor's report.

    Raises:
        BuildError: it cannot be built or loaded, or it computes something else.
    """
    import torch

    library = extension(device)
    cached = library.is_built()
    began = time.monotonic()
    library.load()
    values = torch.ops.cem_tetris_probe.twice(torch.arange(4, dtype=torch.float32, device=device)).tolist()
    if values != [0.0, 2.0, 4.0, 6.0]:
        raise BuildError(f"the operator doubled 0, 1, 2, 3 to {values}")
    return f"{'loaded' if cached else 'built, loaded'} and called in {time.monotonic() - began:.1f} s"


if __name__ == "__main__":
    try:
        print(run(sys.argv[1]))
    except BuildError as error:
        sys.exit(str(error))
