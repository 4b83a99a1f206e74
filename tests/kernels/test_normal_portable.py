"""The CPU's draws have the same bits on every processor, with every vector width and number of
threads."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernels import sample_normal

ROOT = Path(__file__).parents[2]
SHAPES = [(1000, 1024), (37, 301), (20, 128)]
DIGESTS = {
    torch.float32: "84b9c127603c175a8bd3626130e892f2a15383e0b7a77e1cfb39fc60ea5c07ca",
    torch.float64: "bc7fb70a255407a16cf92f2e455a592493647b1ec82155d7ba45d1ee9ea07e66",
    torch.bfloat16: "213271d44fc2e8174781cf81aa737b0f5959cba2b960d9b9f992ea0670fd1a05",
}


def parameters(d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Whole multiples of a power of two: no function of torch has a say in them."""
    numbers = torch.arange(d, dtype=torch.float32)
    return ((numbers % 16 - 8) * 0.25).to(dtype), ((numbers % 8 + 1) * 0.125).to(dtype)


def digest(dtype: torch.dtype) -> str:
    """Returns the SHA-256 of draws of a type."""
    result = hashlib.sha256()
    for d, n in SHAPES:
        for dim_first in (True, False):
            noise = {"seed": 2**63 + 3, "generation": 5, "dim_first": dim_first}
            samples = sample_normal(*parameters(d, dtype), n, bounds=(-3.0, 3.0), **noise)
            result.update(samples.view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def digests_of_a_process(**variables: str) -> str:
    """Returns what a fresh process with these variables of the environment finds."""
    code = "import test_normal_portable as t; print(*map(t.digest, t.DIGESTS))"
    path = os.pathsep.join(
        [str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


@pytest.mark.parametrize("dtype", DIGESTS)
def test_the_bits_are_the_ones_that_were_published(dtype: torch.dtype) -> None:
    assert digest(dtype) == DIGESTS[dtype]


COMPILERS = ["g++ -mno-avx2 -mno-fma", "clang++"]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_instruction_set_changes_anything(compiler: str, tmp_path: Path) -> None:
    """The operator compiled for less than this processor has."""
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip(f"needs {compiler.split()[0]}")
    found = digests_of_a_process(CXX=compiler, CEM_TETRIS_CACHE=str(tmp_path))
    assert found == " ".join(DIGESTS.values())
