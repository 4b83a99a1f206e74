"""Loads the operators of value iteration: a C++ and a CUDA library, compiled when first wanted."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernels.loader import Extension
from tetris.play.engines import INCLUDES, load

_SOURCES = Path(__file__).parent / "iteration"
_NAME = "tetris_solver"


@functools.cache
def operators(*, cuda: bool = False) -> Any:
    """Return the operators; see `tetris.play.engines.load`."""
    library = Extension(
        name=_NAME,
        sources=(_SOURCES / "iteration.cpp",),
        include_dirs=(_SOURCES, *INCLUDES),
        defines=(("TETRIS_LIBRARY", _NAME),),
        native=True,
        reason="Tetris solver",
    )
    return load(library, cuda=cuda)
