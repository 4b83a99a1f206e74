"""scripts/ppo_tetris.py: PPO learns a controller that the engines play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels import CompilerMissingError
from tetris import LinearController, Rules
from tetris.envs import native

Script = Callable[..., Any]


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Skip without a compiler; torch's random state is as before afterwards."""
    try:
        native.operators()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def test_it_prints_a_curve_and_writes_a_controller(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    ended = script("ppo_tetris", "--seconds", 0.01, "--features", "dt", "--out", file)
    assert ended.status == 0, ended.err
    first, last = (line.split() for line in ended.out.splitlines())
    assert (first[2], last[2]) == ("0", "16,384")
    controller = LinearController.load(file)
    assert controller.features == "dt"
    assert controller.rules == Rules(10, 10)
