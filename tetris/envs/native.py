"""Loads the step operators: a C++ and a CUDA library, compiled on this machine when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

import kernels
import tetris
from kernels.build import Extension
from tetris.native import ENGINE_FLAGS, feature_definitions

_STEP = Path(__file__).parent / "step"
_FEATURES = Path(__file__).parent / "features"
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


def feature_extension(names: tuple[str, ...], *, cuda: bool = False) -> Extension:
    """Return the library of the operator of the placements' features, or the one that adds CUDA to it.

    Args:
        names: Feature names, as `tetris.feature_sets.feature_names` gives them.
        cuda: See `extension`.

    Raises:
        ValueError: If a feature is defined in Python only.
    """
    digest, includes, defines = feature_definitions(names)
    name = f"tetris_placements_{digest}"
    return Extension(
        name=f"{name}_cuda" if cuda else name,
        sources=(_FEATURES / ("placement_features.cu" if cuda else "placement_features.cpp"),),
        include_dirs=(_FEATURES, *_INCLUDES, *includes),
        defines=(("TETRIS_LIBRARY", name), *defines),
        native=not cuda,
        flags=ENGINE_FLAGS,
        reason=f"Tetris vector environment, {len(names)} features{', CUDA' if cuda else ''}",
        cuda=cuda,
    )


@functools.cache
def feature_operators(names: tuple[str, ...], *, cuda: bool = False) -> Any:
    """Return the operator of the placements' features, built if need be (``torch.ops.<library>``).

    Args:
        names: See `feature_extension`.
        cuda: See `operators`.

    Raises:
        ValueError: A feature is defined in Python only.
        kernels.build.CompilerMissingError: There is no C++ compiler.
        kernels.build.BuildError: The library could not be built or loaded.
    """
    library = feature_extension(names)
    library.load()
    if cuda:
        feature_extension(names, cuda=True).load()
    return getattr(torch.ops, library.name)
