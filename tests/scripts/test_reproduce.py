"""scripts/reproduce.py: its parts, its file, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _published
import pytest
import reproduce
import torch
from _machine import source_digest
from _noisy_ce import Plan
from _results import read_result, stale_parts

from kernels.build import CompilerMissingError

Script = Callable[..., Any]


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan("dellacherie", "6x6", seeds=1, generations=1, limit=100, score_decisions=640)
    monkeypatch.setattr(reproduce, "PLANS", dict.fromkeys(reproduce.PLANS, plan))
    monkeypatch.setattr(reproduce, "QUICK_SEEDS", 1)
    monkeypatch.setattr(_published, "decisions_for", lambda controller, board, precision: 6400)
    monkeypatch.setattr(reproduce, "QUICK_SECONDS", 0.01)


@pytest.mark.usefixtures("no_gpu")
def test_all_parts_are_measured_and_written_down(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    ended = script("reproduce", "--quick", "--out", out)
    assert ended.status == 0, ended.err
    assert "note: cut down to searches on 10x10" in ended.err
    report = json.loads(out.read_text())
    assert list(report["parts"]) == ["published", "noisy_ce_bertsekas_10x10", "noisy_ce_bcts_10x10"]
    assert set(report["sources"].values()) == {source_digest("cpu")}
    assert stale_parts(report["parts"]) == []
    assert report["parts"]["published"]["precision"] == {"10x10": 0.03}
    assert "reproduce.published.dt20.10x10.lines_per_game" in report["figures"]
    for noise in ("none", "constant", "linear"):
        assert f"reproduce.noisy_ce_bcts_10x10.{noise}.lines_per_game_median" in report["figures"]
    assert read_result(out, "noisy_ce_bcts_10x10")["plan"]["generations"] == 1
    assert "MDPTetris itself" in ended.out
    assert "of 480 games cut off after 100 decisions" in ended.out


@pytest.mark.usefixtures("no_gpu")
def test_a_part_measured_again_leaves_the_others(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    arguments = ("--quick", "--out", out, "--part")
    assert script("reproduce", *arguments, "noisy_ce_bcts_10x20").status == 0
    before = json.loads(out.read_text())["parts"]["noisy_ce_bcts_10x20"]
    flags = ("--seeds", 2, "--generations", 2, "--limit", 7)
    assert script("reproduce", *arguments, "noisy_ce_bertsekas_10x20", *flags).status == 0
    parts = json.loads(out.read_text())["parts"]
    assert parts["noisy_ce_bcts_10x20"] == before
    plan = parts["noisy_ce_bertsekas_10x20"]["plan"]
    assert (plan["seeds"], plan["generations"], plan["limit"]) == (2, 2, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--part", "all"), "expected a part among published, noisy_ce_bertsekas_10x10"),
        (("--seeds", "0"), "expected a whole number of at least 1, got '0'"),
        (("--seconds", "-1"), "expected a number of seconds above 0, got '-1'"),
        (("--device", "cuda"), "expected a GPU for device cuda"),
        (("--out", "/nowhere/result.json"), "expected a folder to write to, found none"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_done_is_said_in_a_line(
    script: Script, arguments: tuple[str, ...], message: str
) -> None:
    ended = script("reproduce", *arguments)
    assert ended.status == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.usefixtures("no_gpu")
def test_without_a_compiler_it_says_so(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CompilerMissingError("no C++ compiler found: install g++")

    monkeypatch.setattr(reproduce, "find_compiler", missing)
    ended = script("reproduce", "--quick")
    assert ended.status == 2
    assert "install g++" in ended.err


@pytest.mark.usefixtures("no_gpu")
def test_a_cpu_scores_for_a_bounded_time(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reproduce, "CPU_SCORE_DECISIONS", 128)
    arguments = ("--part", "noisy_ce_bcts_10x20", "--seeds", 1, "--out", tmp_path / "result.json")
    ended = script("reproduce", *arguments)
    assert ended.status == 0
    assert "take a CPU a day" in ended.err
    experiment = read_result(tmp_path / "result.json", "noisy_ce_bcts_10x20")
    assert {search["score"]["decisions"] for search in experiment["searches"]} == {128}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_searches_on_a_gpu_are_those_on_a_cpu() -> None:
    plan = Plan("dellacherie", "10x10", seeds=2, generations=3, limit=2000, score_decisions=64_000)
    on_cpu, on_gpu = (reproduce.run_experiment(plan, device) for device in ("cpu", "cuda"))
    assert on_gpu["searches"] == on_cpu["searches"]
    assert on_gpu["decisions"] == on_cpu["decisions"]


def test_what_is_cut_down_does_not_replace_what_the_pages_are_written_from(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("--part", "noisy_ce_bertsekas_10x10", "--device", "cpu", "--generations", 1, "--limit", 100)
    assert script("reproduce", "--quick", *arguments).status == 0
    assert (tmp_path / "runs" / "reproduce-cpu.json").is_file()
