"""The CUDA engine compiles for old, usual and the newest GPUs: needs nvcc, but no GPU and no CUDA torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels.ops
import tetris
from kernels.loader import CompilerMissingError, compile_check
from kernels.loader.cuda import find_nvcc, known_architectures
from tetris.game.feature_sets import feature_names
from tetris.play.engines import feature_list

ENGINE = Path(tetris.__file__).parent / "engine"
FOLDERS = (ENGINE, Path(kernels.ops.__file__).parent)


@pytest.mark.slow
@pytest.mark.parametrize(("features", "lookahead"), [("dt", "none"), ("dellacherie", "expectimax")])
def test_the_cuda_engine_compiles_for_every_gpu(features: str, lookahead: str) -> None:
    try:
        newest = known_architectures(find_nvcc())[-1]
    except CompilerMissingError as error:
        pytest.skip(str(error))
    compile_check(
        ENGINE / "rollout.cu",
        ["sm_75", newest] if features == "dt" else ["sm_75"],
        include_dirs=FOLDERS,
        defines=(
            ("TETRIS_FEATURES", feature_list(feature_names(features))),
            ("TETRIS_LIBRARY", "tetris_engine_test"),
            ("TETRIS_LOOKAHEAD", lookahead),
        ),
    )
