"""Loads the step operators: a C++ and a CUDA library, compiled on this machine when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

import kernels
import tetris
from kernels.build import Extension

_STEP = Path(__file__).parent / "step"
_INCLUDES = (_STEP, Path(tetris.__file__).parent / "engine", Path(kernels.__file__).parent)
_NAME = "tetris_step"


def extension(*, cuda: bool = False) -> Extension:
    """Return the library of the step operators, or the one that adds CUDA to it."""
    return Extension(
        name=f"{_NAME}_cuda" if cuda else _NAME,
        sources=(_STEP / ("step.cu" if cuda else "step.cpp"),),
        include_dirs=_INCLUDES,
        defines=(("TETRIS_LIBRARY", _NAME),),
        native=not cuda,
        reason=f"Tetris vector environment{', CUDA' if cuda else ''}",
        cuda=cuda,
    )


@functools.cache
def operators(*, cuda: bool = False) -> Any:
    """Return the step operators, built if need be (``torch.ops.tetris_step``).

    Args:
        cuda: Whether they shall take CUDA tensors, too.

    Raises:
        kernels.build.CompilerMissingError: There is no C++ compiler.
        kernels.build.BuildError: The library could not be built or loaded.
    """
    extension().load()
    if cuda:
        extension(cuda=True).load()
    return getattr(torch.ops, _NAME)
