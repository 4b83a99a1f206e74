"""A seed gives the same controller on every processor: on the CPU training is IEEE operations alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib, sys
import numpy as np
from tetris.training import train
controller = train(
    "quick", seed=1, out=sys.argv[1], device="cpu", features="dt", population=24, elites=5, streams=8,
    curriculum="10x6:4:60,10x8:3:250:split", decisions=60,
)
print(hashlib.sha256(np.array(controller.weights).tobytes()).hexdigest()[:16])
"""
DIGEST = "981d7f7f9e93189a"
ENVIRONMENTS = [
    {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    {"OMP_NUM_THREADS": "2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=["plain", "avx2"])
def test_a_controller_has_the_same_bits(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.split()[-1] == DIGEST
