"""scripts/cpu_report.py: what it runs."""

from __future__ import annotations

from pathlib import Path

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
