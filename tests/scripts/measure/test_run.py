"""scripts/measure/run.py: the table of measurements, and how one is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from measure import run
from measure.__main__ import MODULES
from measure.cli import UNFINISHED
from measure.provenance import ROOT

Script = Callable[..., Any]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands, which write an empty result; the commit is told."""
    given: list[list[str]] = []

    def called(words: list[str], **options: Any) -> SimpleNamespace:
        given.append([Path(words[1]).name, *words[2:]])
        Path(words[words.index("--json") + 1]).write_text("{}")
        return SimpleNamespace(returncode=0)

    monkeypatch.setenv("CEM_TETRIS_COMMIT", "abc")
    processes = SimpleNamespace(run=called, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(run, "subprocess", processes)
    return given


def test_every_measurement_is_a_script_that_is_there() -> None:
    for one in run.MEASUREMENTS.values():
        script, module, *_ = one.command.split()
        assert (ROOT / "scripts" / script).exists()
        assert script != "measure" or (ROOT / "scripts" / "measure" / f"{module}.py").is_file()


def test_the_measurements_are_listed(script: Script) -> None:
    ended = script("measure.run", "--list")
    assert ended.status == 0
    assert len(ended.out.splitlines()) == 2 + len(run.MEASUREMENTS)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_name_all_of_the_device_are_measured(
    script: Script, commands: list[list[str]], tmp_path: Path
) -> None:
    assert script("measure.run", "--out", tmp_path).status == 0
    names = [Path(words[words.index("--json") + 1]).stem for words in commands]
    assert names == [name for name, one in run.MEASUREMENTS.items() if "cpu" in one.devices]


def test_what_another_measurement_found_is_read(commands: list[list[str]], tmp_path: Path) -> None:
    run.measure(run.MEASUREMENTS["record_score"], tmp_path, "cuda", None)
    training = str(tmp_path / "record_training.json")
    assert commands[0][:5] == ["measure", "record", "score", "--training", training]


@pytest.mark.parametrize(
    ("program", "state"),
    [
        ("pass", "done"),
        (f"raise SystemExit({UNFINISHED})", "not done: run it again to go on"),
        ("raise SystemExit(3)", "failed with 3"),
        ("import time; time.sleep(60)", "not done in 2 s"),
    ],
)
def test_what_came_of_a_command_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, state: str
) -> None:
    (tmp_path / "x.py").write_text(program)
    monkeypatch.setattr(run, "_SCRIPTS", tmp_path)
    one = run.MEASUREMENTS["env"]._replace(command="x.py", timeout_s=2.0)
    assert run.measure(one, tmp_path, "cpu", None) == state


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tests",), "expected a measurement of cpu, got tests: see --list"),
        (("rollot",), "did you mean 'rollout'?"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_measured_is_one_line(
    script: Script, arguments: tuple[str, ...], message: str
) -> None:
    ended = script("measure.run", *arguments)
    assert ended.status == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


def test_every_measurement_can_be_called_by_its_name() -> None:
    words = [one.command.split() for one in run.MEASUREMENTS.values()]
    assert {word[1] for word in words if word[0] == "measure"} <= set(MODULES)
