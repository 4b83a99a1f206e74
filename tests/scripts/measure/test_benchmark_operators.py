"""scripts/benchmark_operators.py: what it measures, prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import benchmark_operators
from measure.timing import Plan, wall_times

from kernels import CompilerMissingError

Script = Callable[..., Any]

ELEMENTWISE = {"rows": [], "figures": {"sigmoid.fraction_of_copy": 0.8}}
LLTM = {"sizes": [], "figures": {"lltm.forward_speedup": 1.5}}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Results at once; the list holds what was asked for."""
    asked = []

    def measure(result: dict[str, Any]) -> Callable[..., dict[str, Any]]:
        return lambda device: asked.append(device) or result

    monkeypatch.setattr(benchmark_operators, "measure_elementwise", measure(ELEMENTWISE))
    monkeypatch.setattr(benchmark_operators, "measure_lltm", measure(LLTM))
    return asked


def test_both_families_are_measured_and_written_down(
    script: Script, measured: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    ended = script("benchmark_operators", "--device", "cpu", "--json", out)
    assert ended.status == 0, ended.err
    assert measured == ["cpu", "cpu"]
    written = json.loads(out.read_text())
    assert written["data"] == {"elementwise": ELEMENTWISE, "lltm": LLTM}
    # The names without cpu are a GPU's.
    assert written["figures"] == {"sigmoid.cpu.fraction_of_copy": 0.8, "lltm.cpu.forward_speedup": 1.5}


@pytest.mark.usefixtures("measured")
def test_figures_are_printed(script: Script) -> None:
    printed = script("benchmark_operators", "--device", "cpu").out
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert lines[1:] == [
        "figure value",
        "---------------------------- -----",
        "sigmoid.cpu.fraction_of_copy 0.8",
        "lltm.cpu.forward_speedup 1.5",
    ]


def test_a_real_look_at_the_cpu_has_the_figures(
    script: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    once = Plan(rounds=1, calls=1, warm_up=0)
    monkeypatch.setattr(
        "measure.benchmark_operators.wall_times",
        lambda functions, plan: wall_times(functions, once, seconds=0.0),
    )
    monkeypatch.setattr(benchmark_operators, "ELEMENTS", {"cpu": 1 << 14})
    monkeypatch.setattr("measure.benchmark_operators.SIZES", {(4, 8, 8): once})
    monkeypatch.setattr("torch.compile", lambda module, **options: module)  # it takes a minute
    out = tmp_path / "result.json"
    ended = script("benchmark_operators", "--device", "cpu", "--json", out)
    assert ended.status == 0, ended.err
    figures = json.loads(out.read_text())["figures"]
    wanted = {f"{name}.cpu.fraction_of_copy" for name in ("sigmoid", "vector_add", "elementwise_mult")}
    assert wanted | {"lltm.cpu.forward_speedup", "lltm.cpu.backward_speedup"} <= figures.keys()
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "gpu"), "expected a device among auto, cpu, cuda; got 'gpu'"),
        (("--json", "/no/such/result.json"), "/no/such: expected a folder to write to, found none"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("benchmark_operators", *arguments)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert message in line


def test_without_a_compiler_it_says_so_in_one_line(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> dict[str, Any]:
        raise CompilerMissingError("no C++ compiler found", "install one")

    monkeypatch.setattr(benchmark_operators, "measure_elementwise", refuse)
    ended = script("benchmark_operators", "--device", "cpu")
    assert ended.status == 2
    assert "no C++ compiler found" in ended.err
    assert len(ended.err.splitlines()) == 1
