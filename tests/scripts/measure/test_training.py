"""What training comes to, and how much of a run the GPU computes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from measure import training
from measure.training import busy, cpu_figures, kernel_spans


def test_time_in_which_a_kernel_runs_counts_once() -> None:
    # 1 to 3, 2 to 2.5 within it, 3 to 4 right after, 6 to 7 after a gap of 2, 6.5 to 8 over its end.
    spans = [(6.0, 7.0), (1.0, 3.0), (2.0, 2.5), (3.0, 4.0), (6.5, 8.0)]
    assert busy(10.0, spans) == {"seconds": 10.0, "kernel_seconds": 5.0, "kernels": 5, "longest_gap": 2.0}


def test_kernels_alone_are_taken_from_a_trace() -> None:
    events = [
        {"ph": "M", "name": "process_name", "ts": 1.0},
        {"ph": "X", "cat": "kernel", "name": "play_pool", "ts": 1_500_000.5, "dur": 250_000.0},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 9e9},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 2_000_000.0, "dur": 10.0},
    ]
    assert kernel_spans(events) == [pytest.approx((1.5000005, 1.7500005))]


def test_a_trace_without_kernels_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="expected kernels in the profiler's trace, found none"):
        kernel_spans([])


SCORES = [
    {"controller": "/x", "lines_per_game": 48e6, "ci95": [44e6, 52e6], "games": 500},
    {"controller": "dt20", "lines_per_game": 51e6, "ci95": [47e6, 55e6], "games": 470},
]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands, which are not run, on a machine with a GPU and compiled engines."""
    given: list[list[str]] = []

    def python(*arguments: object) -> str:
        words = list(map(str, arguments))
        given.append(words)
        if words[0] == "scripts/train_tetris.py":
            out = Path(words[words.index("--out") + 1])
            out.mkdir()
            estimate = {"controller": "learned", "board": "10x20", "lines_per_game": 9e6}
            score = {"controller": "learned", "board": "10x10", "lines_per_game": 4e3}
            provenance = {"seconds": 33.5, "decisions": 72_000, "config": {"preset": "quick"}}
            provenance |= {"score": [score], "estimates": [estimate]}
            (out / "controller.json").write_text(json.dumps({"weights": [1.0], "provenance": provenance}))
            (out / "metrics.jsonl").write_text('{"generation": 1, "mean": [0.0], "std": [1.0]}\n')
            return "10x10: 4,000 lines a game\n309 M lines a game on 10x20, 6.1 times dt20\nnext: watch\n"
        return json.dumps(SCORES) if words[0] == "scripts/evaluate_tetris.py" else ""

    busy = {"seconds": 40.0, "kernel_seconds": 38.0, "kernels": 1000, "longest_gap": 0.01}
    monkeypatch.setattr(training, "python", python)
    monkeypatch.setattr("measure.processes.python", python)
    monkeypatch.setattr(training, "prepare_engine", lambda recipe: None)
    monkeypatch.setattr(training, "watch_training", lambda recipe, folder: busy)
    return given


def test_on_a_gpu_the_process_is_timed_and_its_controller_scored(
    commands: list[list[str]], tmp_path: Path
) -> None:
    figures, data, _ = training.on_gpu(tmp_path)
    train, evaluate = commands
    assert train[:7] == ["scripts/train_tetris.py", "--preset", "quick", "--device", "cuda", "--seed", "1"]
    assert train[7:9] == ["--score-decisions", "0"]
    assert evaluate[:4] == ["scripts/evaluate_tetris.py", train[-1], "dt20", "--board"]
    assert figures["train.seconds_to_45M_lines"] == figures["train.total_seconds"] > 0
    assert (figures["train.10x20.lines_per_game"], figures["train.gpu_busy_fraction"]) == (48e6, 0.95)
    assert [score["controller"] for score in data["score"]] == ["learned", "dt20"]
    assert data["reached"] is True


@pytest.mark.usefixtures("commands")
def test_a_controller_below_the_goal_has_no_time_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "GOAL", 48.1e6)
    figures, data, _ = training.on_gpu(tmp_path)
    assert data["reached"] is False
    assert "train.seconds_to_45M_lines" not in figures


def test_on_a_processor_every_seed_is_a_command_with_its_series(
    commands: list[list[str]], tmp_path: Path
) -> None:
    figures, data, series = training.on_cpu(2, tmp_path)
    assert [words[4] for words in commands] == ["1", "2"]
    assert [run["seed"] for run in data["runs"]] == [1, 2]
    assert series == {"-seed1": [{"generation": 1}], "-seed2": [{"generation": 1}]}
    assert figures["train.quick.10x20.estimated_lines_per_game_worst"] == 9e6


def test_the_first_command_runs_cold_and_warm_with_one_cache(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]], tmp_path: Path
) -> None:
    monkeypatch.setenv("CEM_TETRIS_CACHE", "elsewhere")
    figures, data, _ = training.first_run("cpu", tmp_path)
    assert [words[:3] for words in commands] == [["scripts/train_tetris.py", "--device", "cpu"]] * 2
    assert os.environ["CEM_TETRIS_CACHE"] == str(tmp_path / "cache")
    assert list(figures) == [
        "first_run.cold.seconds",
        "first_run.warm.seconds",
        "first_run.times_dt20",
    ]
    assert (figures["first_run.times_dt20"], data["cold"]["training_seconds"]) == (6.1, 33.5)


def test_without_an_estimate_of_every_run_there_is_no_figure_of_them() -> None:
    score = [{"controller": "learned", "board": "10x10", "lines_per_game": 4e3}]
    run = {"score": score, "estimates": [], "training_seconds": 1.0, "total_seconds": 2.0}
    assert not any("estimated" in name for name in cpu_figures([run]))
