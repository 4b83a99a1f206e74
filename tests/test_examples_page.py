"""docs/examples.md: its programs run, and do what the page says."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import CompilerMissingError
from kernels.ops import normal
from tetris.envs import native

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "examples.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROGRAMS = {
    match[1]: (TEXT[: match.start(2)].count("\n"), match[2])
    for match in re.finditer(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", TEXT, re.M | re.S)
}


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder to write to; threads and random state of torch are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def run(title: str) -> dict[str, Any]:
    """Run the program under a heading; returns its variables."""
    line, text = PROGRAMS[title]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile("\n" * line + text, PAGE, "exec"), names)
    return names


def test_a_function_in_numpy_is_minimised() -> None:
    result = run("The optimiser on a function of yours")["result"]
    assert result.x.tolist() == pytest.approx([2.0, 0.5, 4.0], abs=1e-2)


def test_a_long_search_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = run("A long search")
    assert first["optimizer"].best_fitness < 0.1
    again = run("A long search")
    assert again["optimizer"].generation == 60
    assert torch.equal(again["optimizer"].mean, first["optimizer"].mean)
    assert len((tmp_path / "search" / "metrics.jsonl").read_text().splitlines()) == 60


def test_a_pendulum_is_swung_up() -> None:
    # Seeds are fixed. From six starts the score was -232 to -1, and without a torque -680 to -1,594.
    assert run("Planning: model-predictive control")["score"] > -150


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_sampler_is_compiled_without_a_graph_break(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """On the default backend, inductor, it takes half a minute; the other one does all but generate code."""
    try:
        normal.sample_normal(torch.zeros(1), torch.ones(1), 1)
    except CompilerMissingError as error:
        pytest.skip(str(error))
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    names = run("The sampler in `torch.compile`")
    assert names["mean"].tolist() == pytest.approx([3.0] * 5, abs=0.1)
    assert names["log_std"].exp().tolist() == pytest.approx([0.5**0.5] * 5, abs=0.1)


def test_a_policy_sees_the_features_of_every_placement() -> None:
    try:
        native.operators()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    names = run("Reinforcement learning: PPO on the features of every placement")
    assert names["observation"]["features"].shape == (64, 40, 9)


def test_maskable_ppo_takes_the_environment() -> None:
    pytest.importorskip("sb3_contrib", reason='needs sb3-contrib: pip install -e ".[sb3]"')
    names = run("Reinforcement learning: Stable-Baselines3")
    assert names["terminated"]
    assert names["lines"] >= 0
