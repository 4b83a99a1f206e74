"""tetris/training/run_record.py: a run as it was read from its folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_runs import make_run

from tetris import LinearController, play_game, resolve
from tetris.commands.training_run import restore
from tetris.training import StopRequest, load_run
from tetris.training.run_folder import RunFolder
from tetris.training.training import Training

Script = Callable[..., Any]


def test_a_run_is_shown_in_a_line(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert repr(run) == "<RunRecord mine: holes,max_height, population 4, seed 3, on 5x6, 3 generations>"


def test_a_run_is_taken_for_its_controller(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "mine"))
    assert LinearController.load(run) == resolve(run) == LinearController.load(tmp_path / "mine")
    assert play_game(run, most_pieces=5).controller == run.controller


def _resumed(path: Path) -> Training:
    folder = RunFolder(path)
    return Training(folder.recipe(), folder, StopRequest())


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace('"lines"', '"lanes"'),
        lambda line: line.replace('"mean": [', '"mean": [1.0, '),
    ],
    ids=["name", "mean"],
)
def test_what_resuming_keeps_of_the_metrics_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str], str]
) -> None:
    path = make_run(tmp_path / "mine")
    metrics = path / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    changed = change(lines[1])
    assert changed != lines[1]
    metrics.write_text("".join(f"{line}\n" for line in (lines[0], changed, lines[2])))
    assert restore(_resumed(path))
    assert f"{metrics}: line 2 is damaged; the old file is {metrics}.damaged" in capsys.readouterr().err
    assert [record["generation"] for record in load_run(path).metrics] == [1, 3]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "mine")


@pytest.mark.parametrize("name", ["report.html", "checkpoints/x.json"])
def test_a_link_in_a_run_is_neither_read_nor_written_through(
    script: Script, sound: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(sound, run)
    if (run / name).exists():
        (run / name).rename(tmp_path / "mine")
    (run / name).symlink_to(tmp_path / "mine")
    before = _content(tmp_path)
    for command in (("train_tetris", "--resume"), ("report_tetris",), ("report_tetris", "--serve")):
        ended = script(*command, run)
        assert (ended.status, ended.err.count("\n")) == (2, 1)
        assert f"{run / name}: expected a file of its own, got a link" in ended.err
    assert _content(tmp_path) == before


def test_a_run_whose_controller_is_a_link_is_not_played(script: Script, sound: Path, tmp_path: Path) -> None:
    (tmp_path / "controller.json").symlink_to(sound / "controller.json")
    ended = script("watch_tetris", tmp_path)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "controller.json: expected a file of its own, got a link" in ended.err


def _content(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}
