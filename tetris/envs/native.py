"""Loads the step operators: a C++ and a CUDA library, compiled on this machine when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernels.loader import Extension
from tetris.play.engines import ENGINE_FLAGS, INCLUDES, feature_definitions, load

_STEP, _FEATURES = (Path(__file__).parent / name for name in ("step", "features"))


def extension() -> Extension:
    """Return the library of the step operators."""
    return Extension(
        name="tetris_step",
        sources=(_STEP / "step.cpp",),
        include_dirs=(_STEP, *INCLUDES),
        defines=(("TETRIS_LIBRARY", "tetris_step"),),
        native=True,
        reason="Tetris vector environment",
    )


def feature_extension(names: tuple[str, ...]) -> Extension:
    """Return the library of the placements' features; ValueError if one is defined in Python only."""
    digest, includes, defines = feature_definitions(names)
    name = f"tetris_placements_{digest}"
    return Extension(
        name=name,
        sources=(_FEATURES / "placement_features.cpp",),
        include_dirs=(_FEATURES, _STEP, *INCLUDES, *includes),
        defines=(("TETRIS_LIBRARY", name), *defines),
        native=True,
        flags=ENGINE_FLAGS,
        reason=f"Tetris vector environment, {len(names)} features",
    )


@functools.cache
def operators(names: tuple[str, ...] = (), *, cuda: bool = False) -> Any:
    """Return the step operators, or with names that of the placements' features; see `engines.load`."""
    return load(feature_extension(names) if names else extension(), cuda=cuda)
