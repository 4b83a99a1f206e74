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
PLAIN = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}


def test_a_controller_has_the_same_bits_on_a_plain_processor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    ended = subprocess.run(command, env={**os.environ, **PLAIN}, capture_output=True, text=True, check=True)
    assert ended.stdout.split()[-1] == DIGEST


def test_a_controller_has_the_same_bits_on_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", str(tmp_path / "run")])
    exec(PROGRAM, {})
    assert capsys.readouterr().out.split()[-1] == DIGEST
