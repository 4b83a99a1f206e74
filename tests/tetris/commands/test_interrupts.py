"""Ctrl-C in the middle of an import: one line and status 130, for every command."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
COMMANDS = [
    ([str(SCRIPTS / "train_tetris.py")], "torch"),
    ([str(SCRIPTS / "watch_tetris.py"), "dt20"], "argparse"),
    ([str(SCRIPTS / "plan_control.py"), "pendulum"], "torch"),
    ([str(SCRIPTS / "measure"), "equality"], "argparse"),
    (["-m", "tetris", "train"], "torch"),
    (["-m", "kernels", "check"], "argparse"),
]
# What happens in C++ and in modules that catch everything: the interruption is turned into another error.
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass
raise ImportError("cannot load module more than once per process")
"""


@pytest.mark.parametrize(("command", "module"), COMMANDS)
def test_ctrl_c_while_a_module_is_imported(tmp_path: Path, command: list[str], module: str) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED)
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # the tests may ignore it
    )
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")
