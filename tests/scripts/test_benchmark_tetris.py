"""scripts/benchmark_tetris.py: what it measures, prints and writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import _machine
import benchmark_tetris
import pytest
import torch
from _machine import source_digest

from kernels.build import Extension
from kernels.toolchain import find_compiler, find_torch
from tetris import Rollout, native
from tetris.envs.native import extension as step_extension

Script = Callable[..., Any]
QUICK = ("--board", "6x6", "--repeats", 2, "--seconds", 0.01)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [replace(each, streams=4, warm_up=5) for each in benchmark_tetris.ENGINES]
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
    for name, (least, most) in written["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
    assert written["machine"]["processor"]
    assert (written["machine"]["cores"], written["machine"]["threads"]) >= (1, 1)
    assert written["versions"]["torch"] == str(torch.__version__)
    assert written["sources"] == source_digest("cpu")
    assert (written["board"], written["repeats"]) == ("6x6", 2)
    rows = ended.out.splitlines()[3:]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [("dt20", "decisions/s")] * 4
    assert torch.get_num_threads() == before


def test_speeds_are_drawn(script: Script, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "speed.png"
    ended = script("benchmark_tetris", *QUICK, "--device", "python", "--plot", plot)
    assert (ended.status, ended.err) == (0, "")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_controllers_stand_side_by_side(script: Script) -> None:
    ended = script("benchmark_tetris", *QUICK, "--device", "python")
    assert ended.status == 0
    assert [row.split()[:2] for row in ended.out.splitlines()[3:]] == [["dt20", "python"], ["bcts", "python"]]


def test_figure_is_the_median_of_steady_play(monkeypatch: pytest.MonkeyPatch) -> None:
    (engine,) = benchmark_tetris.choose_engines("python")
    rules, controllers = benchmark_tetris.Rules(6, 6), [benchmark_tetris.resolve("dt20")]
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


@pytest.mark.usefixtures("gpu_and_nvcc")
def test_engines_are_those_that_work_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices(requested: str) -> list[str]:
        return [engine.device for engine in benchmark_tetris.choose_engines(requested)]

    assert devices("auto") == ["python", "cpu", "cpu", "cpu", "cuda", "cuda"]
    assert devices("cuda") == ["cuda", "cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices("auto") == ["python", "cpu", "cpu", "cpu"]
    with pytest.raises(ValueError, match="expected a GPU for device cuda"):
        devices("cuda")


@pytest.fixture
def gpu_that_is_the_cpu(monkeypatch: pytest.MonkeyPatch, gpu_and_nvcc: None) -> None:
    """A machine on which rollouts on "cuda" are played by the readable engine."""

    def rollout(
        weights: torch.Tensor, rules: object, streams: int, seed: int, device: str, **named: Any
    ) -> Any:
        assert device == "cuda"
        return Rollout(weights, rules, streams, seed, "python", **named)

    monkeypatch.setattr(benchmark_tetris, "Rollout", rollout)
    monkeypatch.setattr(benchmark_tetris, "gpu", lambda: {"gpu": "NVIDIA Test"})


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
    for name, (least, most) in written["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
    # The readable engine takes some milliseconds a decision wherever it runs.
    assert written["figures"]["rollout.cuda.single_game.us_per_decision"] > 20
    assert (written["machine"]["gpu"], written["sources"]) == ("NVIDIA Test", source_digest("cpu", "cuda"))
    title, header, _, *rows = ended.out.splitlines()
    assert title.endswith("threads, NVIDIA Test")
    assert header.split()[-4:] == ["median", "least", "most", "unit"]
    assert [row.split()[-1] for row in rows] == ["decisions/s", "us/decision", "decisions/s"]


def test_a_speed_in_microseconds_is_that_of_one_decision() -> None:
    assert benchmark_tetris.MICROSECONDS.value(400_000.0) == 2.5


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_cuda_engine_is_measured(script: Script, tmp_path: Path) -> None:
    arguments = ("--repeats", 2, "--seconds", 0.05, "--device", "cuda", "--json", tmp_path / "speed.json")
    ended = script("benchmark_tetris", "dt20", *arguments)
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "speed.json").read_text())
    assert len(written["figures"]) == 2
    assert written["machine"]["gpu"]


class _Played:
    lines = torch.zeros(1, dtype=torch.int64)


def test_thread_count_is_given_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), benchmark_tetris.threads(before + 1):
        raise ZeroDivisionError(torch.get_num_threads())
    assert torch.get_num_threads() == before


def test_source_digest_changes_with_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest("cpu")
    read = Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + (b" " if path.name == "board.h" else b"")
    )
    assert source_digest("cpu") != before


@pytest.mark.parametrize(
    ("name", "cpu", "cuda"),
    [
        ("board.h", True, True),
        ("philox.h", True, True),
        ("rollout.cpp", True, False),
        ("lanes_avx2.h", True, False),
        ("rollout.cu", False, True),
        ("warp_lanes.h", False, True),
        ("step.cpp", False, False),
    ],
)
def test_files_count_for_the_engines_that_are_compiled_from_them(
    monkeypatch: pytest.MonkeyPatch, name: str, cpu: bool, cuda: bool
) -> None:
    before = [source_digest(*devices) for devices in (["cpu"], ["cuda"], ["cpu", "cuda"])]
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" " * (path.name == name))
    after = [source_digest(*devices) for devices in (["cpu"], ["cuda"], ["cpu", "cuda"])]
    assert [one != other for one, other in zip(before, after, strict=True)] == [cpu, cuda, cpu or cuda]


@pytest.mark.parametrize("extension", [native.extension(("holes",)), step_extension()])
def test_what_the_compiler_reads_counts(extension: Extension) -> None:
    compiler, found = find_compiler(), find_torch()
    folders = [word for folder in extension.include_dirs for word in ("-I", str(folder))]
    system = [word for folder in found.include_dirs for word in ("-isystem", str(folder))]
    defines = [f"-D{name}={value}" for name, value in extension.defines]
    command = [*compiler.command, "-MM", "-std=c++17", *defines, *folders, *system, str(extension.sources[0])]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = {Path(word).resolve() for word in listed.replace("\\\n", " ").split()[1:]}
    counted = {path.resolve() for path in _machine.compiled_files(extension)}
    assert read <= counted
    assert {path.name for path in counted - read} <= {"lanes_vector.h"}  # of SSE4 and more


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text('#include "nowhere.h"\n')
    with pytest.raises(ValueError, match=r"^expected nowhere\.h, which .*a\.cpp includes, in "):
        _machine.compiled_files(Extension("a", (source,), ()))


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
        (("no/such.json",), "expected a controller at no/such.json, found no such file"),
        (("dt10", "dt20"), "expected controllers of different feature sets, got dt twice"),
        (("--board", "30x3"), "expected the board's width to be 4 to 10, got 30"),
        (("bdu", "--board", "6x6"), "expected a board of width 10 for the features bdu, got 6x6"),
        (
            ("--device", "pyton"),
            "expected a device among auto, python, cpu, cuda; got 'pyton'; did you mean 'python'?",
        ),
        (("--repeats", "0"), "--repeats: expected a whole number of at least 1, got '0'"),
        (("--seconds", "inf"), "--seconds: expected a number of seconds above 0, got 'inf'"),
        (("--json", "/no/such/speed.json"), "/no/such: expected a folder to write to, found none"),
        (("--plot", "/no/such/speed.png"), "/no/such: expected a folder to write to, found none"),
        (("--plot", "speed.gif"), "expected a picture whose name ends with .png, .svg, .pdf, got speed.gif"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("benchmark_tetris", "--device", "python", *arguments)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert message in line
