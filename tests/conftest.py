"""Fixtures for all tests."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from chromium import Page, find_chromium

from kernels.loader import CompilerMissingError
from kernels.support import system

WORKER = "PYTEST_XDIST_WORKER" in os.environ
if WORKER:  # one of as many as there are cores; torch, which reads it, is not imported yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Heed the signal of a closed terminal, which nohup ignores, and all that it starts."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not system.IS_LINUX:
        config.addinivalue_line("filterwarnings", "ignore:taking backend 'torch'")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test of compiled code on a system where nothing is compiled."""
    try:
        yield
    except Exception as error:
        if system.IS_LINUX or not needs_compiler(error):
            raise
        pytest.skip("needs a compiler")


def needs_compiler(error: BaseException | None) -> bool:
    """Return whether an error is, or was caused by, a missing compiler."""
    while error is not None:
        if isinstance(error, CompilerMissingError):
            return True
        error = error.__cause__
    return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests that take longest, or a worker is left alone with one at the
    end."""
    markers = {item: item.get_closest_marker("slow") for item in items}
    items.sort(key=lambda item: markers[item] is None or "first" not in markers[item].kwargs)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write down what was skipped, for .ci/run to try again with all extras."""
    if "CEM_TETRIS_SKIPPED" in os.environ:
        skipped = {report.nodeid for report in terminalreporter.stats.get("skipped", ())}
        Path(os.environ["CEM_TETRIS_SKIPPED"]).write_text("\n".join(sorted(skipped)))


@pytest.fixture
def browser_page(tmp_path: Path) -> Iterator[Page]:
    """A page in a headless Chromium, about which nothing may be left to complain when the test
    ends."""
    program = find_chromium()
    if program is None:
        pytest.skip("needs Chromium or Chrome on the path")
    with Page(program, tmp_path / "chromium") as page:
        yield page
    assert page.problems == []


@pytest.fixture(autouse=True)
def _gpu(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Lets workers share the GPU, but for what is heavy or measures time: that has it for
    itself."""
    node = request.node
    if not WORKER or node.get_closest_marker("cuda") is None:
        yield
        return
    alone = any(node.get_closest_marker(name) for name in ("heavy", "timing"))
    with (tmp_path_factory.getbasetemp().parent / "gpu.lock").open("w") as lock:
        system.lock(lock.fileno(), is_shared=not alone, waits=True)
        yield


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """Give the next test as many threads as this one had: with more, workers wait for each
    other's cores."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Outcome:
    """How a script ended and what it said."""

    status: int
    out: str
    err: str  # Without the lines of progress, which only a slow machine prints.


# For example "playing: 79% after 00:10", or "estimating: 8 estimates after 1:02:03, 5 lines".
_PROGRESS_LINE = re.compile(r"^.*: [\d,]+(%| \w+) after [\d:]+.*\n", re.MULTILINE)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.fixture
def gpu_and_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and nvcc, as far as the choice of a device looks at it."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("tetris.play.devices.find_nvcc", lambda cuda: None)
    large = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda: large)


@pytest.fixture
def short_world_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program docs/world_model.py plays and learns little."""
    import gymnasium

    monkeypatch.setattr("world_model.TRAINING_STEPS", 2)
    monkeypatch.setattr("gymnasium.make_vec", partial(gymnasium.make_vec, max_episode_steps=4))


@pytest.fixture
def script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run a script, in this process to save the seconds of importing torch: ``script("name",
    "--flag")``."""

    def run_script(name: str, *arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", [f"scripts/{name}.py", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            importlib.import_module("tetris.commands.command_line").run(
                importlib.import_module(name).main
            )
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        err = _PROGRESS_LINE.sub("", captured.err)
        return Outcome(ended.value.code, captured.out, err)

    return run_script
