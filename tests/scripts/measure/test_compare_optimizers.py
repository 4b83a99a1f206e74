"""scripts/compare_optimizers.py: the parts are run and written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import behaviour, compare_optimizers
from measure.generation_peers import cmaes_generations, pycma_generations

Script = Callable[..., Any]


def test_a_part_is_measured_and_written_down(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behaviour, "OPTIMISERS", {"numpy": ("", behaviour.TenLines)})
    monkeypatch.setattr(behaviour, "SEEDS", (1,))
    file = tmp_path / "optimizers.json"
    ended = script("compare_optimizers", "behaviour", "--device", "cpu", "--json", file)
    assert ended.status == 0, ended.err
    written = json.loads(file.read_text())
    assert written["figures"]["behaviour.numpy.resume.same"] == 1
    assert set(written["data"]) == {"behaviour"}
    assert written["data"]["behaviour"]["numpy"]["nan"]["refused_generations"] == 0


def test_all_parts_are_the_default(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: (lambda arguments, device, name=name: ({name: 1.0}, {})) for name in ("quality", "speed")}
    monkeypatch.setattr(compare_optimizers, "PARTS", parts)
    ended = script("compare_optimizers", "--device", "cpu")
    assert ended.status == 0, ended.err
    assert "quality" in ended.out
    assert "speed" in ended.out


def test_the_parts_of_the_command_are_those_there_are(script: Script) -> None:
    ended = script("compare_optimizers", "quantity")
    assert ended.status == 2
    for name in compare_optimizers.PARTS:
        assert name in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(("module", "make"), [("cmaes", cmaes_generations), ("cma", pycma_generations)])
def test_a_peer_runs_on_after_it_has_converged(module: str, make: Callable[..., Any]) -> None:
    pytest.importorskip(module)
    make(20, 5)(1000)


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cmaes_generations(8, 2) is None
    assert pycma_generations(8, 2) is None
