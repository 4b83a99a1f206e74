"""How much of a training run the GPU computes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import _gpu_busy
import pytest
import torch
from _gpu_busy import Busy, busy, kernel_spans, watch, watch_training

from tetris.training.recipe import Recipe, make_recipe


def test_time_in_which_a_kernel_runs_counts_once() -> None:
    # 1 to 3, 2 to 2.5 within it, 3 to 4 right after, 6 to 7 after a gap of 2, 6.5 to 8 over its end.
    spans = [(6.0, 7.0), (1.0, 3.0), (2.0, 2.5), (3.0, 4.0), (6.5, 8.0)]
    assert busy(10.0, spans) == Busy(seconds=10.0, kernel_seconds=5.0, kernels=5, longest_gap=2.0)
    assert busy(10.0, spans).fraction == 0.5


def test_kernels_alone_are_taken_from_a_trace(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name", "ts": 1.0},
        {"ph": "X", "cat": "kernel", "name": "play_pool", "ts": 1_500_000.5, "dur": 250_000.0},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1.0, "dur": 9e9},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 2_000_000.0, "dur": 10.0},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    assert kernel_spans(tmp_path / "trace.json") == [pytest.approx((1.5000005, 1.7500005))]


def test_a_trace_without_kernels_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    with pytest.raises(RuntimeError, match="expected kernels in the profiler's trace, found none"):
        kernel_spans(tmp_path / "trace.json")


@pytest.fixture
def recipe() -> Recipe:
    settings = {"features": "holes,max_height", "population": 4, "elites": 2, "streams": 1, "board": "5x7"}
    return make_recipe("python", {**settings, "curriculum": "5x6:3:8,5x7:2:9"})


def test_the_whole_run_is_watched_after_one_of_two_generations_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe
) -> None:
    finished: list[list[str]] = []

    def watched(work: object, trace: Path) -> Busy:
        finished.append(sorted(path.name for path in tmp_path.iterdir()))
        work()  # type: ignore[operator]
        return Busy(2.0, 1.0, 3, 0.1)

    monkeypatch.setattr(_gpu_busy, "watch", watched)
    assert watch_training(recipe, tmp_path).fraction == 0.5
    assert finished == [["warm-up"]]
    generations = [
        len((tmp_path / name / "metrics.jsonl").read_text().splitlines()) for name in ("warm-up", "run")
    ]
    assert generations == [4, 5]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_that_only_computes_is_busy_and_one_that_waits_is_not(tmp_path: Path) -> None:
    block = torch.empty(1 << 28, device="cuda")

    def fill() -> None:
        for _ in range(200):
            block.fill_(1.0)

    fill()
    assert watch(fill, tmp_path / "trace.json").fraction > 0.8

    def wait() -> None:
        fill()
        torch.cuda.synchronize()
        time.sleep(1.0)

    assert watch(wait, tmp_path / "trace.json").fraction < 0.5
