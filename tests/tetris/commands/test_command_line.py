"""What the commands share: errors and interruptions in one line, checked arguments, devices."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from measure.table import MEASUREMENTS, command

from kernels import BuildError, CompilerMissingError
from kernels.loader import prebuilt
from kernels.support import ranks
from kernels.support.progress import progress
from tetris.commands import command_line, train
from tetris.play import devices
from tetris.play.controller import known_names
from tetris.training import training
from tetris.training.recipe import make_recipe
from tetris.training.settings import SETTINGS

Script = Callable[..., Any]
ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(path.stem for path in (ROOT / "scripts").glob("[a-z]*.py"))
COMMANDS = [
    ([str(ROOT / "scripts" / "train_tetris.py")], "torch"),
    ([str(ROOT / "scripts" / "watch_tetris.py"), "dt20"], "argparse"),
    ([str(ROOT / "scripts" / "plan_control.py"), "pendulum"], "torch"),
    ([str(ROOT / "scripts" / "measure"), "equality"], "argparse"),
    (["-m", "tetris", "train"], "torch"),
    (["-m", "kernels", "check"], "argparse"),
]
# What happens in C++ and in modules that catch everything: the interruption is turned into
# another error.
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException:
    pass
raise ImportError("cannot load module more than once per process")
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("expected 1,\n  got 2"), "error: expected 1, got 2\n"),
        (BuildError("no ninja", "install it"), "error: no ninja: install it\n"),
        (
            OSError(28, "No space left on device", "out.json"),
            "error: out.json: No space left on device\n",
        ),
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
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["scripts/x.py"])
    monkeypatch.setattr(ranks, "joined", contextlib.nullcontext)
    monkeypatch.setattr(ranks, "rank", lambda: 3)
    with command_line.joined_ranks():
        print("a table")
        with pytest.raises(SystemExit), command_line.one_line_errors():
            raise error
    assert capsys.readouterr() == ("", said and f"rank 3: x.py: {said}")


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (command_line.positive_int, "0", "a whole number from 1 to 2^62, got '0'"),
        (command_line.positive_seconds, "0", "a number of seconds above 0, got '0'"),
        (
            command_line.path_ending(".gif"),
            "a.gfi",
            "a file name that ends in .gif, got 'a.gfi'",
        ),
    ],
)
def test_an_argument_out_of_range_is_refused(
    read: Callable[[str], Any], text: str, message: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"expected {re.escape(message)}$"):
        read(text)


def test_an_argument_may_be_either_end_of_its_range() -> None:
    read = command_line.up_to(5, low=2)
    assert [read("2"), read("5")] == [2, 5]
    assert command_line.seed(f"{2**64 - 1}") == 2**64 - 1
    for text in ("1", "6", "2.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="a whole number from 2 to 5, got"):
            read(text)


@pytest.mark.parametrize(
    "name", [*SCRIPTS, *{row.module: row.name for row in MEASUREMENTS.values()}.values()]
)
def test_help_names_the_defaults(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    parsers: list[argparse.ArgumentParser] = []

    def stop(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parsers.append(parser)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(SystemExit):
        importlib.import_module(name).main() if name in SCRIPTS else command(name)([])
    for action in parsers[0]._actions:
        named = re.search(
            r"\(default: ([^ )]+)\)$", parsers[0]._get_formatter()._expand_help(action)
        )
        if (
            named
            and isinstance(action.default, int | float | str)
            and action.default != argparse.SUPPRESS
        ):
            assert type(action.default)(named[1]) == action.default, action.dest


def test_a_run_has_the_defaults_that_its_help_names(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {
        name: found[1]
        for name, setting in SETTINGS.items()
        if (found := re.search(r"\(default: (\w+)\)", setting.metadata["help"]))
    }
    assert named == {"preset": "quick", "backend": "auto", "device": "auto"}
    asked: list[str] = []
    monkeypatch.setattr(
        training, "choose_device", lambda device, _: asked.append(device) or "python"
    )
    monkeypatch.setattr(sys, "argv", ["train"])
    recipe, _, _ = train.choose_run(train.parse_arguments())
    assert asked == [named.pop("device")]
    assert recipe == make_recipe("python", named)


def test_auto_falls_back_to_python_without_a_compiler_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert devices.choose_device("auto") == "python"
    (line,) = capsys.readouterr().err.splitlines()
    assert "slower" in line
    assert "/nowhere/c++" in line


def test_auto_plays_features_in_python_that_a_wheel_has_no_engine_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(tmp_path))
    monkeypatch.setattr(prebuilt, "read_index", lambda: {"another library": ""})
    assert training.choose_recipe("auto", {"features": "holes"}).device == "python"
    (line,) = capsys.readouterr().err.splitlines()
    assert "slower" in line
    assert training.choose_recipe("cpu", {"features": "holes"}).device == "cpu"


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
def test_auto_leaves_a_gpu_without_nvcc_alone_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert devices.choose_device("auto") == "cpu"
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line
        == "note: playing on the CPU, not on the GPU: no nvcc found: install the CUDA toolkit"
    )


@pytest.mark.usefixtures("no_gpu")
def test_cuda_without_a_gpu_is_an_error_with_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"expected a GPU for device cuda, .* or take --device cpu"
    ):
        devices.choose_device("cuda")


@pytest.mark.parametrize(("stream", "closed"), [("stdout", ">&-"), ("stderr", "2>&-")])
def test_a_closed_stream_is_no_error(stream: str, closed: str) -> None:
    script = "import sys; from tetris.commands.command_line import run; "
    script += f"run(lambda: sys.{stream}.write('hello') * 0)"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env=environment,
        capture_output=True,
        check=False,
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
    programs = (
        f"-m tetris {name.removesuffix('_tetris')}",
        f"scripts/{name}.py",
        "scripts/measure ",
    )
    assert any(f"  python {program}" in ended.out for program in programs)
    assert "None" not in ended.out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "train --device python --noise constnt:1",
            "got 'constnt:1'; did you mean 'constant'?",
        ),
        (
            "train --device python --curriculum 10x10",
            "a curriculum as BOARD:GENERATIONS[:DECISIONS]",
        ),
        ("train --config /no/such.json", "/no/such.json: No such file or directory"),
        ("train --resume /no/such", "expected a run in /no/such, found no config.json there"),
        ("train --resume x --seed 3", "a resumed run keeps its settings: expected no --seed"),
        ("evaluate dt200", f"{', '.join(known_names())}; got 'dt200'; did you mean 'dt20'?"),
        (
            "watch dt20 --replay /no/such/out.json",
            "/no/such: expected a folder to write to, found none",
        ),
        ("evaluate dt20 --lookahead --pieces-known 2", "not allowed with argument"),
        ("watch '' --html a.html", "got ''"),  # an empty variable is not the default
        ("estimate dt20 --streams 127", "a whole number from 128 to 8,192, got '127'"),
        (
            "estimate bdu --board 8x8",
            "expected a board of width 10 for the features bdu, got 8x8",
        ),
        (
            "watch --speed 0",
            "--speed: expected a number of pieces per second from 0.1 to 1000, got '0'",
        ),
        ("watch --gif a.gif --speed 100", "expected a speed of at most 50 for a GIF, got 100"),
        ("report /no/such", "expected a run in /no/such, found no config.json there"),
        ("report x --plot a.gif", "a file name that ends in .png, .svg, .pdf, got 'a.gif'"),
        ("report x --out a.htm", "--out: expected a file name that ends in .html, got 'a.htm'"),
    ],
)
def test_bad_input_is_one_line_and_status_2_and_leaves_nothing(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(command)
    ended = script(f"{name}_tetris", *words)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{name}_tetris.py: error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["train_tetris", "evaluate_tetris", "plan_control"])
def test_an_option_that_is_not_there_is_one_line_with_the_one_that_was_meant(
    script: Script, name: str
) -> None:
    needed = ["x"] if re.search(r"\] [A-Z]", script(name, "--help").out.splitlines()[0]) else []
    ended = script(name, *needed, "--hepl=1")
    assert (ended.status, ended.out) == (2, "")
    assert (
        ended.err
        == f"{name}.py: error: unrecognized arguments: --hepl=1; did you mean '--help'?\n"
    )


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


@pytest.mark.parametrize("module", ["tetris.__main__", "kernels.__main__"])
def test_a_command_without_arguments_shows_its_help(script: Script, module: str) -> None:
    ended = script(module)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("usage: ")


@pytest.mark.parametrize(("command", "module"), COMMANDS)
def test_ctrl_c_while_a_module_is_imported(
    tmp_path: Path, command: list[str], module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED)
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=functools.partial(
            signal.signal, signal.SIGINT, signal.SIG_DFL
        ),  # the tests may ignore it
    )
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")
