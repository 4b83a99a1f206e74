"""Loads the step operators in C++ and CUDA, and compiles them on first use."""

from functools import cache
from pathlib import Path
from typing import Any

from kernels.loader import CompilerMissingError, Extension
from tetris.play.engines import ENGINE_FLAGS, describe_library, feature_definitions, load

_STEP = Path(__file__).parent / "step"
_FEATURES = Path(__file__).parent / "features"


def extension() -> Extension:
    """Return the library of the step operators."""
    return describe_library("tetris_step", _STEP / "step.cpp", "Tetris vector environment")


def feature_extension(names: tuple[str, ...]) -> Extension:
    """Return the library that computes features; ValueError if one exists in Python only."""
    digest, includes, defines = feature_definitions(names)
    return describe_library(
        f"tetris_placements_{digest}",
        _FEATURES / "placement_features.cpp",
        f"Tetris vector environment, {len(names)} features",
        (_STEP, *includes),
        defines,
        cflags=ENGINE_FLAGS,
    )


@cache
def operators(names: tuple[str, ...] = (), *, cuda: bool = False) -> Any:
    """Return the step operators or, with names, the operator that computes these features."""
    library = feature_extension(names) if names else extension()
    try:
        return load(library, cuda=cuda)
    except CompilerMissingError as error:
        remedy = f'{error.remedy}, or use vectorization_mode="sync", which plays in Python'
        raise CompilerMissingError(error.problem, remedy) from error
