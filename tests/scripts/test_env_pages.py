"""scripts/_env_pages.py: the speed of the environments as a page shows it."""

from __future__ import annotations

from typing import Any

from _env_pages import env_speed


def result(figures: dict[str, float], **machine: Any) -> dict[str, Any]:
    return {
        "figures": {f"env.{name}.placements_per_second": value for name, value in figures.items()},
        "ranges": {
            f"env.{name}.placements_per_second": [value / 2, value * 2] for name, value in figures.items()
        },
        "machine": {"processor": "Tuned", "cores": 2, **machine},
        "versions": {"torch": "2", "python": "3"},
        "date": "2026-01-01",
        "sources": "0" * 64,
    }


def test_it_says_when_nothing_was_measured() -> None:
    assert env_speed({"cpu.json": {}, "gpu.json": {"parts": {}}}) == "Not measured yet."


def test_each_engine_has_a_row_and_a_gpu_s_file_only_that_of_the_gpu() -> None:
    on_cpu = result({"python": 200.0, "cpu.numpy.1024": 3_456_789.0, "cpu.torch.1024": 4e6})
    on_gpu = result({"python": 300.0, "cuda.1048576": 1.5e9}, gpu="Card", cuda="13")
    text = env_speed({"cpu.json": {"env": on_cpu}, "gpu.json": {"parts": {"env": on_gpu}}})
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + 4
    assert rows[2].endswith("| 1 | 200 | 100 to 400 |")
    assert rows[3].endswith("| 1,024 | 3,460,000 | 1,730,000 to 6,910,000 |")
    assert rows[5] == (
        "| CUDA engine, torch tensors on the GPU | 1,048,576 | 1,500,000,000 | 750,000,000 to 3,000,000,000 |"
    )
    assert [line.count("<sub>") for line in text.splitlines() if ".json" in line] == [1, 1]
