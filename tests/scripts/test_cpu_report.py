"""scripts/cpu_report.py: what it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cpu_report
import pytest


def test_scripts_run_as_on_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = "import os, sys; print(sys.argv[1:], repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    (tmp_path / "scripts" / "say.py").write_text(script)
    monkeypatch.setattr(cpu_report, "ROOT", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert cpu_report.script("say", 1) == "['1'] ''\n"


def test_the_time_to_given_scores_is_measured_without_what_the_runs_knew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[str] = []

    def script(*arguments: object) -> str:
        given.extend(map(str, arguments))
        result = {"figures": {"x": 1.0}, "runs": [{"seed": 1, "moments": [1, 2]}]}
        Path(given[-1]).write_text(json.dumps(result))
        return "a table"

    monkeypatch.setattr(cpu_report, "script", script)
    assert cpu_report.time_to_quality(tmp_path, 5) == {"figures": {"x": 1.0}, "runs": [{"seed": 1}]}
    assert given[:5] == ["time_to_quality", "--device", "cpu", "--seeds", "5"]
    assert "--goal" not in given


def test_a_part_that_says_what_it_was_measured_with_leaves_the_others(
    script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "cpu.json"
    score = {"controller": "learned", "board": "10x10", "lines_per_game": 4000.0}
    estimate = {"controller": "learned", "board": "10x20", "lines_per_game": 3e8}
    run = {"score": [score], "estimates": [estimate], "training_seconds": 50.0, "total_seconds": 60.0}
    described = {"date": "2026-01-01", "machine": {}, "versions": {}, "sources": "older", "figures": {}}
    out.write_text(json.dumps({**described, "speed": described, "training": [run], "published": {}}))
    timed = {"figures": {"time_to_quality.10x10.3900.seconds": 12.5}}
    monkeypatch.setattr(cpu_report, "time_to_quality", lambda folder, seeds: timed)
    ended = script("cpu_report", "--out", out, "--part", "time_to_quality")
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    assert (result["sources"], result["time_to_quality"]) == ("older", timed)
    assert result["figures"]["time_to_quality.10x10.3900.seconds"] == 12.5


def test_a_script_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cpu_report, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match=r"expected .*/none.py to succeed, got exit code 2"):
        cpu_report.script("none")


def test_where_a_script_fails_the_status_is_1_and_the_result_stays(
    script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(folder: Path) -> None:
        raise RuntimeError("expected speed.py to succeed, got exit code 3")

    monkeypatch.setattr(cpu_report, "speed", fail)
    ended = script("cpu_report", "--part", "speed", "--out", out := tmp_path / "cpu.json")
    assert (ended.status, ended.err.count("\n")) == (2, 1)  # there is none yet for the other parts
    out.write_text(result := cpu_report.RESULT.read_text())
    monkeypatch.setattr(cpu_report, "source_digest", lambda device: json.loads(result)["sources"])
    monkeypatch.setattr(cpu_report, "machine", lambda: {"processor": "Abacus"})
    ended = script("cpu_report", "--part", "speed", "--out", out)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "expected a report of the processor Abacus, got one of " in ended.err
    monkeypatch.setattr(cpu_report, "machine", lambda: json.loads(result)["machine"])
    ended = script("cpu_report", "--part", "speed", "--out", out)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"expected speed.py to succeed, got exit code 3; {out} is as it was\n"
    assert out.read_text() == result
