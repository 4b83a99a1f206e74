"""Loads the step operators: a C++ and a CUDA library, compiled on this machine when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernels.loader import Extension
from tetris.play.engines import ENGINE_FLAGS, feature_definitions, load, operators_of

_STEP, _FEATURES = (Path(__file__).parent / name for name in ("step", "features"))


def extension() -> Extension:
    """Return the library of the step operators."""
    return operators_of("tetris_step", _STEP / "step.cpp", "Tetris vector environment")


def feature_extension(names: tuple[str, ...]) -> Extension:
    """Return the library of the placements' features; ValueError if one is defined in Python only."""
    digest, includes, defines = feature_definitions(names)
    name, source = f"tetris_placements_{digest}", _FEATURES / "placement_features.cpp"
    reason = f"Tetris vector environment, {len(names)} features"
    return operators_of(name, source, reason, (_STEP, *includes), defines, cflags=ENGINE_FLAGS)


@functools.cache
def operators(names: tuple[str, ...] = (), *, cuda: bool = False) -> Any:
    """Return the step operators, or with names that of the placements' features; see `engines.load`."""
    return load(feature_extension(names) if names else extension(), cuda=cuda)
