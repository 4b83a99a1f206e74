"""scripts/benchmark_tetris.py: what it measures, prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from measure import benchmark_tetris, provenance
from measure.benchmark_tetris import Course, measure_courses

from tetris import Rollout

Script = Callable[..., Any]
QUICK = ("--board", "6x6", "--repeats", 2, "--seconds", 0.01)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [each._replace(streams=4, warm_up=5) for each in benchmark_tetris.ENGINES]
    monkeypatch.setattr(benchmark_tetris, "ENGINES", engines)


@pytest.mark.usefixtures("no_gpu")
def test_all_engines_are_measured_and_written_down(script: Script, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    ended = script("benchmark_tetris", "dt20", *QUICK, "--json", tmp_path / "speed.json")
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "speed.json").read_text())
    assert list(written["figures"]) == [
        "rollout.python.dt.6x6.decisions_per_second",
        "rollout.portable.dt.6x6.decisions_per_second_per_core",
        "rollout.cpu.dt.6x6.decisions_per_second_per_core",
        "rollout.cpu.dt.6x6.decisions_per_second_all",
    ]
    for name, (least, most) in written["data"]["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
    assert written["machine"]["processor"]
    assert (written["machine"]["cores"], written["machine"]["threads"]) >= (1, 1)
    assert written["versions"]["torch"] == str(torch.__version__)
    assert (written["data"]["board"], written["data"]["repeats"]) == ("6x6", 2)
    rows = ended.out.splitlines()[3:]
    assert [row.split()[0] for row in rows] == list(written["figures"])
    assert torch.get_num_threads() == before


def test_controllers_stand_side_by_side(script: Script) -> None:
    ended = script("benchmark_tetris", *QUICK, "--device", "python")
    assert ended.status == 0
    figures = [f"rollout.python.{each}.6x6.decisions_per_second" for each in ("dt", "bcts")]
    assert [row.split()[0] for row in ended.out.splitlines()[3:]] == figures


def test_a_measurement_takes_as_long_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []
    now = 0.0

    def play(steps: int) -> int:
        nonlocal now
        played.append(steps)
        now += steps / 5  # five steps in a second
        return 4 * steps

    monkeypatch.setattr("measure.benchmark_tetris.time.perf_counter", lambda: now)
    monkeypatch.setattr("measure.benchmark_tetris.time.process_time", lambda: now / 2)
    for inverse, value in ((False, 20.0), (True, 1e6 / 20)):
        played.clear()
        figures, data, _ = measure_courses([Course("x", play, 5, inverse)], repeats=2, seconds=2.0)
        assert figures == {"x": pytest.approx(value)}
        assert data["ranges"] == {"x": pytest.approx([value] * 2)}
        assert data["of_processor_time"] == {"x": pytest.approx(40.0)}
        assert played == [5, 5, 10, 10]


def test_engines_are_those_that_work_here() -> None:
    def devices(requested: str, best: str) -> list[str]:
        return [engine.device for engine in benchmark_tetris.choose_engines(requested, best)]

    assert devices("auto", "cuda") == ["python", "cpu", "cpu", "cpu", "cuda", "cuda"]
    assert devices("cuda", "cuda") == ["cuda", "cuda"]
    assert devices("auto", "cpu") == ["python", "cpu", "cpu", "cpu"]


@pytest.fixture
def gpu_that_is_the_cpu(monkeypatch: pytest.MonkeyPatch, gpu_and_nvcc: None) -> None:
    """A machine on which rollouts on "cuda" are played by the reference implementation."""

    def rollout(
        weights: torch.Tensor, rules: object, streams: int, seed: int, device: str, **named: Any
    ) -> Any:
        assert device == "cuda"
        return Rollout(weights, rules, streams, seed, "python", **named)

    monkeypatch.setattr(benchmark_tetris, "Rollout", rollout)
    monkeypatch.setattr(provenance, "gpu", lambda: {"gpu": "NVIDIA Test"})


@pytest.mark.usefixtures("gpu_that_is_the_cpu")
def test_a_gpu_is_measured_in_steady_play_and_in_a_single_game(script: Script, tmp_path: Path) -> None:
    arguments = ("--board", "10x20", "--repeats", 3, "--seconds", 0.01, "--device", "cuda")
    ended = script("benchmark_tetris", "dt20", "bertsekas", *arguments, "--json", tmp_path / "speed.json")
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "speed.json").read_text())
    assert list(written["figures"]) == [
        "rollout.cuda.dt.10x20.decisions_per_second",
        "rollout.cuda.single_game.us_per_decision",
        "rollout.cuda.bertsekas.10x20.decisions_per_second",
    ]
    for name, (least, most) in written["data"]["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
    # The reference implementation takes some milliseconds a decision wherever it runs.
    assert written["figures"]["rollout.cuda.single_game.us_per_decision"] > 20
    assert written["machine"]["gpu"] == "NVIDIA Test"
    title, header, _, *rows = ended.out.splitlines()
    assert title.startswith("NVIDIA Test")
    assert header.split() == ["figure", "value", "least", "most"]
    assert len(rows) == 3


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_cuda_engine_is_measured(script: Script, tmp_path: Path) -> None:
    arguments = ("--repeats", 2, "--seconds", 0.05, "--device", "cuda", "--json", tmp_path / "speed.json")
    ended = script("benchmark_tetris", "dt20", *arguments)
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "speed.json").read_text())
    assert len(written["figures"]) == 2
    assert written["machine"]["gpu"]


def test_without_a_compiler_python_is_measured(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    ended = script("benchmark_tetris", "dt20", *QUICK)
    assert ended.status == 0
    (row,) = ended.out.splitlines()[3:]
    assert row.startswith("rollout.python.dt.6x6.decisions_per_second ")
    assert ended.err.count("slower") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dt2",), "got 'dt2'; did you mean 'dt20'?"),
        (("no/such.json",), "expected a controller at no/such.json, found no such file"),
        (("dt10", "dt20"), "expected controllers of different feature sets, got dt, dt"),
        (("--board", "30x3"), "expected the board's width from 4 to 10, got 30"),
        (("bdu", "--board", "6x6"), "expected a board of width 10 for the features bdu, got 6x6"),
        (
            ("--device", "pyton"),
            "expected a device among auto, cpu, cuda, python; got 'pyton'; did you mean 'python'?",
        ),
        (("--repeats", "0"), "--repeats: expected a whole number of at least 1, got '0'"),
        (("--seconds", "inf"), "--seconds: expected a number of seconds above 0, got 'inf'"),
        (("--json", "/no/such/speed.json"), "/no/such: expected a folder to write to, found none"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("benchmark_tetris", "--device", "python", *arguments)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert message in line
