"""scripts/measure/soak.py: growth is seen, and none where there is none."""

from __future__ import annotations

import argparse
import mmap
import time
from collections.abc import Callable

import pytest

pytest.importorskip("scipy")
from measure import soak

Samples = list[dict[str, float]]


def samples(resident: Callable[[int], float]) -> Samples:
    return [
        {"seconds": 6.0 * i, "resident": resident(i) * soak.MIB, "files": 8, "threads": 1}
        for i in range(1, 601)
    ]


def test_flat_memory_has_no_slope_whatever_happens_in_the_warm_up() -> None:
    figures, ranges = soak.growth(samples(lambda i: min(i, 60) * 5 + (i % 3)))
    assert figures["soak.resident_mib_per_hour"] == pytest.approx(0.0, abs=0.1)
    assert figures["soak.files_per_hour"] == figures["soak.threads_per_hour"] == 0
    assert "soak.cuda_mib_per_hour" not in figures
    low, high = ranges["soak.resident_mib_per_hour"]
    assert low <= 0 <= high


def test_a_leak_is_measured_in_spite_of_single_peaks() -> None:
    figures, _ = soak.growth(samples(lambda i: 300 + i / 100 + 500 * (i % 50 == 0)))
    assert figures["soak.resident_mib_per_hour"] == pytest.approx(6.0, rel=0.02)


def test_a_round_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[mmap.mmap] = []

    def leak(device: str, seed: int) -> None:
        kept.append(mmap.mmap(-1, 8 * soak.MIB))  # not from the heap, which may have as much free
        kept[-1].write(b"x" * len(kept[-1]))
        time.sleep(0.1)

    monkeypatch.setattr(soak, "work", leak)
    figures, data, series = soak.measure(argparse.Namespace(seconds=2.0), "cpu")
    assert figures["soak.resident_mib_per_hour"] > 1000
    assert figures["soak.rounds"] == len(kept) == len(series[""])
    assert data["ranges"]["soak.resident_mib_per_hour"][0] > 0


def test_too_few_rounds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "work", lambda device, seed: None)
    with pytest.raises(RuntimeError, match="three rounds"):
        soak.measure(argparse.Namespace(seconds=1e-9), "cpu")


def test_a_command_that_fails_ends_the_soak() -> None:
    with pytest.raises(RuntimeError, match=r"evaluate_tetris ended with 2:\n.*nobody"):
        soak.command("evaluate_tetris", "nobody")


@pytest.mark.slow
def test_a_round_does_everything() -> None:
    soak.work("cpu", 1)
