"""scripts/reproduce.py: its parts, its file, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from measure import reproduce
from measure.noisy_ce import Plan

from kernels.loader import CompilerMissingError

Script = Callable[..., Any]
NOISES = ("none", "constant", "linear")


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan("dellacherie", "6x6", seeds=1, generations=1, limit=100, score_decisions=640)
    monkeypatch.setattr(reproduce, "PLANS", dict.fromkeys(reproduce.PLANS, plan))
    monkeypatch.setattr(reproduce, "QUICK_SEEDS", 1)
    monkeypatch.setattr(reproduce, "decisions_for", lambda controller, board, precision: 6400)
    monkeypatch.setattr(reproduce, "QUICK_SECONDS", 0.01)


@pytest.mark.usefixtures("no_gpu")
def test_published_controllers_are_measured_and_written_down(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "published.json"
    ended = script("reproduce", "published", "--quick", "--json", out)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    assert result["data"]["precision"] == {"10x10": 0.03}
    assert len(result["figures"]) == len(result["data"]["measurements"]) == 10
    unfinished = next(each for each in result["data"]["measurements"] if each["games"] == 0)
    name = f"reproduce.published.{unfinished['controller']}.{unfinished['board']}.lines_per_game_at_least"
    assert result["figures"][name] == unfinished["ci95"][0]


@pytest.mark.usefixtures("no_gpu")
def test_searches_are_written_down_with_their_series_beside_them(script: Script, tmp_path: Path) -> None:
    out = tmp_path / "noisy.json"
    ended = script("reproduce", "noisy_ce_bcts_10x10", "--json", out)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    assert result["data"]["plan"]["features"] == "dellacherie"
    names = {f"reproduce.noisy_ce_bcts_10x10.{noise}.lines_per_game_median" for noise in NOISES}
    assert result["figures"].keys() == names
    series = [json.loads(line) for line in (tmp_path / "noisy.jsonl").read_text().splitlines()]
    searches = [(each["noise"], each["seed"]) for each in result["data"]["searches"]]
    assert [(each["noise"], each["seed"]) for each in series] == searches
    assert [len(each["mean_lines"]) for each in series] == [2] * 3
    assert "mean_lines" not in result["data"]["searches"][0]


@pytest.mark.usefixtures("no_gpu")
def test_without_a_name_what_suits_a_processor_is_measured(script: Script) -> None:
    ended = script("reproduce", "--quick")
    assert ended.status == 0, ended.err
    assert ended.out.count("lines_per_game_median") == 2 * len(NOISES)
    assert "reproduce.published.dt20.10x20.lines_per_game" in ended.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all",), "expected an experiment among published, noisy_ce_bertsekas_10x10"),
        (("--json", "x.json"), "expected one experiment with --json, got 3"),
        (("--device", "cuda"), "expected a GPU for device cuda"),
        (("published", "--json", "/nowhere/result.json"), "expected a folder to write to, found none"),
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
    out = tmp_path / "result.json"
    ended = script("reproduce", "noisy_ce_bcts_10x20", "--json", out)
    assert ended.status == 0
    searches = json.loads(out.read_text())["data"]["searches"]
    assert {search["score"]["decisions"] for search in searches} == {128}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_searches_on_a_gpu_are_those_on_a_cpu() -> None:
    plan = Plan("dellacherie", "10x10", seeds=2, generations=3, limit=2000, score_decisions=64_000)
    on_cpu, on_gpu = (reproduce.run_experiment(plan, device) for device in ("cpu", "cuda"))
    assert on_gpu["searches"] == on_cpu["searches"]
    assert on_gpu["decisions"] == on_cpu["decisions"]
