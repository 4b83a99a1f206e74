"""scripts/benchmark_env.py: what it measures, prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import benchmark_env

from tetris.envs import TetrisVectorEnv

Script = Callable[..., Any]
QUICK = ("--num-envs", 8, "--repeats", 2, "--seconds", 0.01)


@pytest.mark.usefixtures("no_gpu")
def test_every_environment_is_measured_and_written_down(script: Script, tmp_path: Path) -> None:
    ended = script("benchmark_env", *QUICK, "--json", tmp_path / "speed.json")
    assert ended.status == 0, ended.err
    written = json.loads((tmp_path / "speed.json").read_text())
    assert list(written["figures"]) == [
        "env.python.placements_per_second",
        "env.cpu.numpy.8.placements_per_second",
        "env.cpu.torch.8.placements_per_second",
        "env.cpu.dt.8.placements_per_second",
    ]
    for name, (least, most) in written["data"]["ranges"].items():
        assert 0 < least <= written["figures"][name] <= most
        assert written["data"]["of_processor_time"][name] > 0
    assert len(ended.out.splitlines()) == 1 + 2 + 4  # title, header, figures


def test_a_step_that_only_begins_a_game_is_no_placement() -> None:
    envs = TetrisVectorEnv(3, 4, 4, output="torch")
    assert 0 < benchmark_env.make_course("", envs, "torch").play(60) < 3 * 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cpy"), "expected a device among auto, cpu, cuda; got 'cpy'; did you mean 'cpu'?"),
        (("--num-envs", "0"), "--num-envs: expected a whole number of at least 1, got '0'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("benchmark_env", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
