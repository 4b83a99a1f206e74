"""What docs/reliability.md says, from results made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measure.reliability import KINDS
from pages import reliability_blocks, result_files
from pages.reliability_blocks import TRIALS, reliability, soak

HEAD: dict[str, Any] = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-01-02T03:04:05+00:00",
    "command": "python x.py",
    "versions": {"torch": "2.13.0+cpu"},
}
CPU = {"processor": "Test CPU", "cores": 2}
GPU = {**CPU, "gpu": "NVIDIA Test", "cuda": "13.0"}
SOAK = {
    "soak.seconds": 3600.5,
    "soak.rounds": 512,
    "soak.resident_mib_per_hour": 0.125,
    "soak.files_per_hour": 0.0,
    "soak.threads_per_hour": 0.0,
    "soak.resident_mib_after_warm_up": 301.0,
    "soak.resident_mib_at_the_end": 302.0,
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of result files."""
    monkeypatch.setattr(result_files, "RESULTS", tmp_path)
    return tmp_path


def write(path: Path, machine: Any, figures: Any, ranges: Any = None, year: int = 2026) -> None:
    """Write a result file."""
    path.parent.mkdir(exist_ok=True)
    date = HEAD["date"].replace("2026", str(year))
    path.write_text(
        json.dumps({**HEAD, "date": date, "machine": machine, "figures": figures, "data": {"ranges": ranges}})
    )


def test_every_trial_has_a_row() -> None:
    assert TRIALS.keys() == KINDS.keys()


def test_losses_are_told(results: Path) -> None:
    figures = {"attempts": 1000, "hit": 900, "lost": 2}
    told = {f"reliability.kill.1.{name}": value for name, value in figures.items()}
    told |= {"reliability.hung.attempts": 3, "reliability.hung.lost": 0}
    write(results / "x" / "reliability.json", CPU, told | {"reliability.hung.slowest_seconds": 3.0421})
    kill, hung = reliability().splitlines()[2:4]
    assert kill == f"| {TRIALS['kill.1']} | 1,000 | 2 |  | `kill.1` |"
    assert hung == f"| {TRIALS['hung']} | 3 | 0 | 3.04 | `hung` |"


def test_a_trial_that_was_made_again_is_told_by_its_newest_result(results: Path) -> None:
    for name, lost, year in (("reliability", 3, 2026), ("reliability_again", 0, 2027)):
        told = {"reliability.hung.attempts": 5, "reliability.hung.lost": lost}
        told |= {"reliability.kill.1.attempts": 50, "reliability.kill.1.lost": lost} if lost else {}
        write(results / "x" / f"{name}.json", CPU, told, year=year)
    text = reliability()
    assert f"| {TRIALS['kill.1']} | 50 | 3 |" in text
    assert f"| {TRIALS['hung']} | 5 | 0 |" in text
    assert "[x/reliability.json]" in text
    assert "[x/reliability_again.json]" in text


def test_growth_is_told_with_its_interval_machine_by_machine(results: Path) -> None:
    ranges = {f"soak.{name}": [-0.5, 0.75] for name in reliability_blocks._GROWTH}
    write(results / "a" / "soak.json", GPU, {**SOAK, "soak.cuda_mib_per_hour": 2.0}, ranges)
    write(results / "b" / "soak.json", CPU, SOAK, ranges)
    first, second = soak().split("\n\n| soak")
    assert "| growth of resident memory, MiB an hour | 0.12 (-0.50 to 0.75) |" in first
    assert "| duration, s; rounds | 3,600; 512 |" in first
    assert "GPU" not in first
    assert "| growth of memory of tensors on the GPU, MiB an hour | 2.00 (-0.50 to 0.75) |" in second


def test_without_a_result_there_is_nothing(results: Path) -> None:
    assert reliability() == soak() == ""
