"""Every .cu file compiles for old and the newest GPUs: needs nvcc, but no GPU and no CUDA torch."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels.ops
from kernels import CompilerMissingError, compile_check
from kernels.loader.cuda import find_nvcc, known_architectures

FOLDER = Path(kernels.ops.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.cu"))


def test_every_operator_has_a_cuda_side() -> None:
    operators = {source.parent.name for source in FOLDER.glob("*/op.cpp")}

    assert operators
    assert {source.parent.name for source in SOURCES if source.name == "op.cu"} == operators


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(FOLDER)))
def test_it_compiles_for_old_or_the_newest_gpus(source: Path) -> None:
    try:
        newest = known_architectures(find_nvcc())[-1]
    except CompilerMissingError as error:
        pytest.skip(str(error))

    old = source.parent.name in ("normal", "cem_update")  # launched early where a GPU can
    assert compile_check(source, "sm_80" if old else newest, include_dirs=(FOLDER,)) > 0
