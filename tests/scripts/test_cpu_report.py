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
    monkeypatch.setattr(cpu_report, "source_digest", lambda: json.loads(result)["sources"])
    ended = script("cpu_report", "--part", "speed", "--out", out)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"expected speed.py to succeed, got exit code 3; {out} is as it was\n"
    assert out.read_text() == result
