"""What the scripts share: errors in one line, checked arguments, devices, tables."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from kernels import BuildError, CompilerMissingError
from kernels.support import ranks
from kernels.support.progress import progress
from tetris.commands import command_line
from tetris.play import devices

Script = Callable[..., Any]
SCRIPTS = sorted(path.stem for path in (Path(__file__).parents[3] / "scripts").glob("[a-z]*.py"))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("expected 1,\n  got 2"), "error: expected 1, got 2\n"),
        (BuildError("no ninja", "install it"), "error: no ninja: install it\n"),
        (OSError(28, "No space left on device", "out.json"), "error: out.json: No space left on device\n"),
    ],
)
def test_what_a_person_can_do_wrong_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    with pytest.raises(SystemExit) as ended, command_line.one_line_errors():
        raise error
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(line)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BuildError("no ninja", "install it"), "error: no ninja: install it\n"),
        (ValueError("bad input, of all ranks alike"), ""),
    ],
)
def test_another_rank_than_the_first_says_only_what_it_alone_may_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/x.py"])
    monkeypatch.setattr(ranks, "joined", contextlib.nullcontext)
    monkeypatch.setattr(ranks, "rank", lambda: 3)
    with command_line.joined_ranks():
        print("a table")
        with pytest.raises(SystemExit), command_line.one_line_errors():
            raise error
    assert capsys.readouterr() == ("", said and f"rank 3: x.py: {said}")


def _printing(stdout: str) -> subprocess.CompletedProcess[str]:
    code = "from tetris.commands.command_line import run\nrun(lambda: print('x' * 100_000) or 0)"
    path = str(Path(command_line.__file__).parents[2])
    command = f'"{sys.executable}" -c "$CODE" {stdout}'
    environment = {**os.environ, "PYTHONPATH": path, "CODE": code}
    return subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (command_line.positive_int, "0", "a whole number from 1 to 2^62, got '0'"),
        (command_line.positive_seconds, "0", "a number of seconds above 0, got '0'"),
        (command_line.path_ending(".gif"), "a.gfi", "a file name that ends in .gif, got 'a.gfi'"),
    ],
)
def test_an_argument_out_of_range_is_refused(read: Callable[[str], Any], text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected {re.escape(message)}$"):
        read(text)


def test_auto_falls_back_to_python_without_a_compiler_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert devices.choose_device("auto") == "python"
    (line,) = capsys.readouterr().err.splitlines()
    assert "slower" in line
    assert "/nowhere/c++" in line


@pytest.mark.usefixtures("gpu_and_nvcc")
@pytest.mark.parametrize(("requested", "taken"), [("auto", "cuda"), ("cpu", "cpu")])
def test_auto_takes_a_gpu_where_nvcc_is_there(
    capsys: pytest.CaptureFixture[str], requested: str, taken: str
) -> None:
    assert devices.choose_device(requested) == taken
    assert capsys.readouterr().err == ""


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(cuda: str | None) -> NoReturn:
        raise CompilerMissingError("no nvcc found", "install the CUDA toolkit")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "find_nvcc", find)


@pytest.mark.usefixtures("no_nvcc")
def test_auto_leaves_a_gpu_without_nvcc_alone_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.choose_device("auto") == "cpu"
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "note: playing on the CPU, not on the GPU: no nvcc found: install the CUDA toolkit"


@pytest.mark.usefixtures("no_gpu")
def test_cuda_without_a_gpu_is_an_error_with_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"expected a GPU for device cuda, .* or take --device cpu"):
        devices.choose_device("cuda")


@pytest.mark.parametrize(("stream", "closed"), [("stdout", ">&-"), ("stderr", "2>&-")])
def test_a_closed_stream_is_no_error(stream: str, closed: str) -> None:
    script = "import sys; from tetris.commands.command_line import run; "
    script += f"run(lambda: sys.{stream}.write('hello') * 0)"
    command = [sys.executable, "-c", script]
    folder = str(Path(command_line.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command], env=environment, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_short_fits_80_columns_and_names_every_option(
    script: Script, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = script(name, "--help")
    lines = ended.out.splitlines()
    assert (ended.status, ended.err) == (0, "")
    assert lines[0].startswith(f"usage: {name}.py ")
    assert len(lines) < 60
    assert [line for line in lines if len(line) > 80] == []
    assert f"  python scripts/{name}.py" in ended.out
    assert "None" not in ended.out


@pytest.mark.parametrize("name", ["train_tetris", "evaluate_tetris", "plan_control"])
def test_an_option_that_is_not_there_is_one_line_with_the_one_that_was_meant(
    script: Script, name: str
) -> None:
    needed = ["x"] if re.search(r"\] [A-Z]", script(name, "--help").out.splitlines()[0]) else []
    ended = script(name, *needed, "--hepl=1")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"{name}.py: error: unrecognized arguments: --hepl=1; did you mean '--help'?\n"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_bar_is_shown_on_a_terminal_that_can_move_its_cursor_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    assert list(progress(range(3))) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert list(progress(range(3))) == [0, 1, 2]
    assert bool(capsys.readouterr().err) == (term == "xterm")
