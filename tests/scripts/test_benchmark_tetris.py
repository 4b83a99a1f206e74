"""scripts/benchmark_tetris.py: what it measures, prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmark_tetris
import pytest
import torch
from _machine import source_digest

Script = Callable[..., Any]
QUICK = ("--board", "6x6", "--repeats", 2, "--seconds", 0.01)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [
        benchmark_tetris.Engine(each.name, each.figure, each.device, 4, 5, each.threads, each.portable)
        for each in benchmark_tetris.ENGINES
    ]
    monkeypatch.setattr(benchmark_tetris, "ENGINES", engines)


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
    for name, (least, most) in written["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
    assert written["machine"]["processor"]
    assert (written["machine"]["cores"], written["machine"]["threads"]) >= (1, 1)
    assert written["versions"]["torch"] == str(torch.__version__)
    assert written["sources"] == source_digest()
    assert (written["board"], written["repeats"]) == ("6x6", 2)
    rows = ended.out.splitlines()[3:]
    assert [row.split()[0] for row in rows] == ["dt20"] * 4
    assert torch.get_num_threads() == before


def test_controllers_stand_side_by_side(script: Script) -> None:
    ended = script("benchmark_tetris", *QUICK, "--device", "python")
    assert ended.status == 0
    assert [row.split()[:2] for row in ended.out.splitlines()[3:]] == [["dt20", "python"], ["bcts", "python"]]


def test_figure_is_the_median_of_steady_play(monkeypatch: pytest.MonkeyPatch) -> None:
    (engine,) = benchmark_tetris.choose_engines("python")
    rules, controllers = benchmark_tetris.Rules(6, 6), [benchmark_tetris.published("dt20")]
    (course,) = benchmark_tetris.make_courses([engine], controllers, rules)
    seconds = iter([0.0, 1.0, 1.0, 2.0, 2.0, 6.0])
    monkeypatch.setattr(benchmark_tetris.time, "perf_counter", lambda: next(seconds))
    played = []
    monkeypatch.setattr(course.rollout, "advance", lambda decisions: played.append(decisions) or _Played())
    course.prepare(2.0)
    course.measure()
    # 5 decisions on 4 streams in a second, so 10 in two; these then took four.
    assert played == [5, 5, 10]
    assert course.speeds == [10 * 4 / 4]


class _Played:
    lines = torch.zeros(1, dtype=torch.int64)


def test_thread_count_is_given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), benchmark_tetris.threads(before + 1):
        raise ZeroDivisionError(torch.get_num_threads())
    assert torch.get_num_threads() == before


def test_source_digest_changes_with_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest()
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + (b" " if path.name == "board.h" else b"")
    )
    assert source_digest() != before


def test_without_a_compiler_python_is_measured(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    ended = script("benchmark_tetris", "dt20", *QUICK)
    assert ended.status == 0
    assert [row.split()[1] for row in ended.out.splitlines()[3:]] == ["python"]
    assert ended.err.count("slower") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dt2",), "got 'dt2'; did you mean 'dt20'?"),
        (("dt10", "dt20"), "expected controllers of different feature sets, got dt twice"),
        (("--board", "30x3"), "expected the board's width to be 4 to 10, got 30"),
        (("bdu", "--board", "6x6"), "expected a board of width 10 for the features bdu, got 6x6"),
        (
            ("--device", "pyton"),
            "expected a device among auto, python, cpu; got 'pyton'; did you mean 'python'?",
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
