"""Loads the operators of value iteration: a C++ and a CUDA library, compiled when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

import kernels
import tetris
from kernels.build import Extension

_SOURCES = Path(__file__).parent / "iteration"
_INCLUDES = (_SOURCES, Path(tetris.__file__).parent / "engine", Path(kernels.__file__).parent)
_NAME = "tetris_solver"


def extension(*, cuda: bool = False) -> Extension:
    """Return the library of the operators, or the one that adds CUDA to it."""
    return Extension(
        name=f"{_NAME}_cuda" if cuda else _NAME,
        sources=(_SOURCES / ("iteration.cu" if cuda else "iteration.cpp"),),
        include_dirs=_INCLUDES,
        defines=(("TETRIS_LIBRARY", _NAME),),
        native=not cuda,
        reason=f"Tetris solver{', CUDA' if cuda else ''}",
        cuda=cuda,
    )


@functools.cache
def operators(*, cuda: bool = False) -> Any:
    """Return the operators, built if need be (``torch.ops.tetris_solver``).

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
