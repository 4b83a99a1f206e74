"""The headers that the CPU engine is made of compile as device code, too."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels
import tetris
from kernels.build import CompilerMissingError, compile_check
from tetris.features import feature_names
from tetris.native import feature_struct


def test_shared_headers_compile_for_a_gpu() -> None:
    names = (*feature_names("dt"), "wells", "max_height", "column_height_0", "height_difference_0")
    try:
        compile_check(
            Path(__file__).parent / "engine_device.cu",
            include_dirs=(Path(tetris.__file__).parent / "engine", Path(kernels.__file__).parent),
            defines=(("TETRIS_FEATURES", ",".join(map(feature_struct, names))),),
        )
    except CompilerMissingError as error:
        pytest.skip(str(error))
