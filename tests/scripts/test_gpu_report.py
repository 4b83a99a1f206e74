"""scripts/gpu_report.py: its parts, its file, and what it makes of the sanitizer's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gpu_report
import pytest
import torch
from _continued import Continued, Unfinished
from _gpu_busy import Busy
from _machine import kernel_digest, part_digest, source_digest
from _results import merged, stale_parts
from _sanitizer import count_tests, name_failures, run_tool, split_records
from time_to_quality import GOALS

Script = Callable[..., Any]

LOG = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void cem_tetris::normal_kernel<float>(float *, long)+0x120
=========     by thread (31,0,0) in block (0,0,0)
=========     Address 0x7f0000000100 is out of bounds
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::reduce_kernel<512>(T1)+0x10
=========
=========
========= Invalid __shared__ read of size 4 bytes
=========     at void tetris::play_pool<tetris::FeatureList<tetris::Holes>, (int)12>(tetris::Job)+0x80
=========
========= ERROR SUMMARY: 3 errors
"""


def part(name: str, **figures: float) -> dict[str, Any]:
    return {
        "benchmark": name,
        "date": "2026-01-01",
        "machine": {"gpu": "NVIDIA H200"},
        "versions": {},
        "operators": [],
        "sources": "0",
        "figures": figures,
    }


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """A machine with a GPU, on which every part is measured at once."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("_results.gpu", lambda: {"gpu": "NVIDIA H200"})

    def made(names: Iterable[str]) -> dict[str, Callable[[Any], dict[str, Any]]]:
        return {name: lambda given, name=name: part(name, **{f"{name}.x": 1.0}) for name in names}

    quick = made(gpu_report.PARTS)
    monkeypatch.setattr(gpu_report, "PARTS", quick)
    monkeypatch.setattr(gpu_report, "LONG_PARTS", made(gpu_report.LONG_PARTS))
    monkeypatch.setattr(gpu_report, "KEPT", tmp_path / "kept")
    return quick


@pytest.mark.usefixtures("parts")
def test_all_parts_go_into_one_file(script: Script, tmp_path: Path) -> None:
    ended = script("gpu_report", "--out", tmp_path / "h200.json")
    assert ended.status == 0, ended.err
    report = json.loads((tmp_path / "h200.json").read_text())
    assert list(report["parts"]) == [
        *("tests", "sampling", "operators", "rollout", "equality", "env", "training"),
        *("memcheck", "racecheck", "initcheck"),
        *("time_to_quality", "record_training", "record_score"),
    ]
    assert set(report["figures"]) == {f"{name}.x" for name in report["parts"]}


def test_a_part_that_fails_is_told_and_leaves_the_file_and_the_others(
    script: Script, parts: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "h200.json"
    assert script("gpu_report", "--out", out).status == 0

    def fail(folder: Path) -> dict[str, Any]:
        raise RuntimeError("two tests failed")

    parts["tests"] = fail
    parts["sampling"] = lambda folder: part("sampling", **{"sampling.x": 2.0})
    ended = script("gpu_report", "--out", out, "--part", "tests", "--part", "sampling")
    assert ended.status == 1
    assert "tests failed: two tests failed" in ended.err
    figures = json.loads(out.read_text())["figures"]
    assert (figures["tests.x"], figures["sampling.x"]) == (1.0, 2.0)


@pytest.mark.usefixtures("parts")
def test_what_is_not_done_keeps_its_folder_until_it_is(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, kept = tmp_path / "h200.json", tmp_path / "mine"
    sessions: list[Continued] = []

    def train(session: Continued) -> dict[str, Any]:
        sessions.append(session)
        progress = session.kept / "progress"
        if not progress.exists():
            progress.touch()
            raise Unfinished("3 of 9 generations")
        return part("record_training", trained=1.0)

    monkeypatch.setitem(gpu_report.LONG_PARTS, "record_training", train)
    arguments = ("gpu_report", "--out", out, "--part", "record_training", "--part", "record_score")
    arguments += ("--keep", kept, "--stop-after", "540", "--commit", "abc")
    ended = script(*arguments)
    assert ended.status == 1
    assert ended.err.splitlines() == [
        "record_training is not done: 3 of 9 generations; run it again to go on",
        "record_score waits for record_training",
    ]
    assert not out.exists()
    assert (kept / "record_training" / "progress").is_file()
    assert script(*arguments).status == 0
    assert list(json.loads(out.read_text())["parts"]) == ["record_training", "record_score"]
    assert not (kept / "record_training").exists()
    assert (sessions[0].stop_after_s, sessions[0].commit) == (540.0, "abc")


@pytest.mark.usefixtures("parts")
def test_the_same_command_finds_what_is_done_as_long_as_anything_is_not(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[bool] = []

    def train(session: Continued) -> dict[str, Any]:
        found.append((session.kept / "trained").exists())
        (session.kept / "trained").touch()
        return part("record_training", trained=1.0)

    def score(session: Continued) -> dict[str, Any]:
        if len(found) < 2:
            raise Unfinished("no time")
        return part("record_score")

    monkeypatch.setitem(gpu_report.LONG_PARTS, "record_training", train)
    monkeypatch.setitem(gpu_report.LONG_PARTS, "record_score", score)
    arguments = ("gpu_report", "--out", tmp_path / "h200.json", "--keep", tmp_path / "kept")
    arguments += ("--part", "record_training", "--part", "record_score")
    assert [script(*arguments).status for _ in range(2)] == [1, 0]
    assert found == [False, True]
    assert list((tmp_path / "kept").iterdir()) == []


def test_parts_are_measured_in_their_order_and_see_what_was_measured_before(
    script: Script, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    def score(session: Continued) -> dict[str, Any]:
        seen.extend(session.report["parts"])
        return part("record_score")

    monkeypatch.setitem(gpu_report.LONG_PARTS, "record_score", score)
    arguments = ("--out", tmp_path / "h200.json", "--part", "record_score", "--part", "record_training")
    assert script("gpu_report", *arguments).status == 0
    assert seen == ["record_training"]


def test_without_a_gpu_it_says_so_in_one_line(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    ended = script("gpu_report")
    assert ended.status == 2
    assert "expected a GPU for a report of a GPU" in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("NVIDIA H200", "h200.json"),
        ("NVIDIA GeForce RTX 3070", "rtx-3070.json"),
        ("Tesla T4", "tesla-t4.json"),
    ],
)
def test_the_file_is_named_for_the_gpu(monkeypatch: pytest.MonkeyPatch, name: str, file: str) -> None:
    monkeypatch.setattr(gpu_report, "gpu", lambda: {"gpu": name})
    assert gpu_report.result_path().name == file


def test_the_sanitizers_records_are_told_apart_by_whose_kernel_it_is() -> None:
    ours, others = split_records(LOG)
    assert [record.splitlines()[0] for record in ours] == [
        "Invalid __global__ write of size 4 bytes",
        "Invalid __shared__ read of size 4 bytes",
    ]
    assert [record.splitlines()[0] for record in others] == [
        "Uninitialized __global__ memory read of size 4 bytes"
    ]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("91 passed, 3 skipped, 800 deselected in 12.3s", (91, 0)),
        ("2 failed, 89 passed in 12.3s", (89, 2)),
        ("89 passed, 1 error in 3s", (89, 1)),
        ("no tests ran in 0.1s", (0, 0)),
    ],
)
def test_pytests_last_line_is_understood(line: str, counts: tuple[int, int]) -> None:
    assert count_tests(line) == counts


def test_failures_are_named() -> None:
    output = "FF.\n== summary ==\nFAILED tests/a.py::b[1] - assert 0\nERROR tests/c.py\n2 failed"
    assert name_failures(output) == ["tests/a.py::b[1] - assert 0", "tests/c.py"]


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        ('echo "3 passed in 1s"', (3, 0)),
        ('echo "1 failed, 2 passed in 1s"; exit 1', (2, 1)),
        ('echo "5 deselected in 1s"; exit 5', (0, 0)),
        ("kill -SEGV $$", (0, 1)),
        ('echo "3 passed in 1s"; exit 3', (3, 1)),
    ],
)
def test_a_crash_under_the_sanitizer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, counts: tuple[int, int]
) -> None:
    (tmp_path / "compute-sanitizer").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = run_tool("memcheck", tmp_path / "log", Path("test_nothing.py"), 10.0)
    assert (found.passed, found.failed) == counts


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the parts, which are not run, on a machine with a GPU and compiled engines."""
    given: list[list[str]] = []

    def python(*arguments: object, timeout_s: float) -> str:
        words = list(map(str, arguments))
        given.append(words)
        script = Path(words[0]).stem
        if script == "benchmark_tetris":
            Path(words[words.index("--json") + 1]).write_text(
                json.dumps(SPEEDS[words[words.index("--device") + 1]])
            )
        if script == "train_tetris":
            out = Path(words[words.index("--out") + 1])
            out.mkdir()
            config = {"preset": "quick", "seed": 1}
            provenance = {"seconds": 33.5, "decisions": 72_000, "config": config}
            (out / "controller.json").write_text(json.dumps({"weights": [1.0], "provenance": provenance}))
        return json.dumps(SCORES) if script == "evaluate_tetris" else "3 passed in 1s"

    monkeypatch.setattr(gpu_report, "python", python)
    monkeypatch.setattr(gpu_report, "build_engines", list)
    monkeypatch.setattr(gpu_report, "watch_training", lambda recipe, folder: Busy(40.0, 38.0, 1000, 0.01))
    monkeypatch.setattr("_results.gpu", lambda: {"gpu": "NVIDIA H200"})
    monkeypatch.setattr(
        "cem.sampling._FACTORIES", {"cuda": lambda device: None, "torch": lambda device: None}
    )
    return given


SPEEDS = {
    "cuda": {
        "figures": {"rollout.cuda.dt.10x20.decisions_per_second": 3e9},
        "ranges": {"rollout.cuda.dt.10x20.decisions_per_second": [2.9e9, 3.1e9]},
        "controllers": {"dt20": ["holes"]},
    },
    "cpu": {
        "figures": {"rollout.cpu.dt.10x20.decisions_per_second_per_core": 7e6},
        "ranges": {"rollout.cpu.dt.10x20.decisions_per_second_per_core": [6e6, 8e6]},
        "controllers": {"dt20": ["holes"]},
    },
}
SCORES = [
    {"controller": "/tmp/x", "lines_per_game": 48e6, "ci95": [44e6, 52e6], "games": 500},
    {"controller": "dt20", "lines_per_game": 51e6, "ci95": [47e6, 55e6], "games": 470},
]


def test_speed_is_measured_on_the_gpu_and_on_the_processor_beside_it(
    commands: list[list[str]], tmp_path: Path
) -> None:
    result = gpu_report.rollout(tmp_path)
    assert result["figures"] == {
        "rollout.cuda.dt.10x20.decisions_per_second": 3e9,
        "rollout.cpu.dt.10x20.decisions_per_second_per_core": 7e6,
    }
    played = [[word for word in command if not word.startswith(("-", "/"))] for command in commands]
    script = "scripts/benchmark_tetris.py"
    assert played == [
        [script, "dt20", "bcts", "bdu", "bertsekas", "10x20", "cuda"],
        [script, "dt20", "10x20", "cpu"],
    ]
    assert (result["sources"], result["machine"]["gpu"]) == (source_digest("cpu", "cuda"), "NVIDIA H200")


@pytest.mark.usefixtures("commands")
def test_all_configurations_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compared: list[tuple[int, str]] = []

    def compare_all(chosen: list[Any], device: str) -> dict[str, int]:
        compared.append((len(chosen), device))
        return {"equality.decisions": 7}

    monkeypatch.setattr(gpu_report, "compare_all", compare_all)
    assert gpu_report.equality(tmp_path)["figures"] == {"equality.decisions": 7}
    assert compared == [(280, "cuda")]


def test_the_time_to_given_scores_is_measured_over_five_seeds(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []

    def measure(*arguments: Any) -> dict[str, Any]:
        given.extend(arguments)
        return {"goals": [], "figures": {}, "runs": [{"seed": 1, "moments": [1, 2], "reached": {}}]}

    monkeypatch.setattr(gpu_report, "measure", measure)
    result = gpu_report.time_to_quality(Continued(tmp_path, {}, 540.0))
    assert given == ["cuda", 5, {"preset": "quick"}, GOALS, None, tmp_path, 540.0]
    assert commands == [["-m", "kernels", "build", "normal"]]
    assert result["runs"] == [{"seed": 1, "reached": {}}]


def test_training_is_timed_from_nothing_and_scored(commands: list[list[str]], tmp_path: Path) -> None:
    result = gpu_report.training(tmp_path)
    build, train, evaluate = commands
    assert build[:3] == ["-m", "kernels", "build"]
    assert train[:7] == ["scripts/train_tetris.py", "--preset", "quick", "--device", "cuda", "--seed", "1"]
    assert train[7:9] == ["--score-decisions", "0"]
    assert evaluate[:4] == ["scripts/evaluate_tetris.py", train[-1], "dt20", "--board"]
    figures = result["figures"]
    assert figures["train.seconds_to_45M_lines"] == figures["train.total_seconds"] > 0
    assert (figures["train.10x20.lines_per_game"], figures["train.gpu_busy_fraction"]) == (48e6, 0.95)
    assert [score["controller"] for score in result["score"]] == ["learned", "dt20"]
    assert (result["reached"], result["sources"]) == (True, part_digest(result))
    assert result["sources"] not in (source_digest("cuda"), source_digest("cpu", "cuda"))


@pytest.mark.usefixtures("commands")
def test_a_controller_below_the_goal_has_no_time_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_report, "GOAL", 48.1e6)
    result = gpu_report.training(tmp_path)
    assert result["reached"] is False
    assert "train.seconds_to_45M_lines" not in result["figures"]
    assert "below the goal" in capsys.readouterr().out


@pytest.mark.usefixtures("commands")
def test_parts_of_operators_and_engine_are_stale_where_either_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = {name: getattr(gpu_report, name)(tmp_path) for name in ("tests", "rollout", "training")}
    parts["old"] = {"device": "cuda", "operators": ["normal"], "sources": kernel_digest("normal")}
    assert stale_parts(merged({}, {name: part("x") | each for name, each in parts.items()})["parts"]) == []
    read = Path.read_bytes
    for file, stale in (
        ("play.cuh", ["tests", "rollout", "training"]),
        ("rollout.cu", ["tests", "rollout", "training"]),
        ("rollout.cpp", ["tests", "rollout"]),
        ("op.cu", ["tests", "old"]),
        ("resample.cuh", ["tests", "training"]),
        ("splitting.py", ["tests", "training"]),
        ("step.cu", ["tests"]),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(
                Path, "read_bytes", lambda path, file=file: read(path) + b" " * (path.name == file)
            )
            assert stale_parts(parts) == stale
