"""Names and paths of others reach terminal, page and picture without control characters or
markup."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sample_runs import measurements

from kernels.support import printable
from kernels.support.progress import progress
from tetris import Rules, published
from tetris.evaluation.comparison import score_table
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.record.replay import Replay
from tetris.view.game_view import scene_kinds, scenes
from tetris.view.terminal import screen

ROOT = Path(__file__).parents[2]
# Ends a script element, clears the screen, sets the window's title, turns the writing, has no
# encoding.
HOSTILE = "</script><b>\x1b[2J\x1b]0;mine\x07\r\n\x9b31m\u202e\u2028\udc80\x00$\\frac$"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e\ud800-\udfff]")  # newlines aside
SMALL = Rules(6, 6)


def hostile_replay() -> Replay:
    controller = replace(published("dt20"), name=HOSTILE)
    played = islice(play(PieceStream(SMALL, 1, 0), controller.player(SMALL), SMALL), 5)
    return Replay.of(played, SMALL, 1, 0, controller)


def test_every_character_becomes_one_that_can_be_printed_and_written() -> None:
    text = printable.printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert text.isprintable()
    text.encode()
    assert printable.printable("a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"


def test_tables_have_the_lines_that_they_should() -> None:
    scores = [
        {**each, "controller": HOSTILE, "features": "dt", "pieces": HOSTILE}
        for each in measurements()
    ]
    text = score_table(scores)
    assert not CONTROL.search(text)
    assert len(text.splitlines()) == 3 + len(scores)


def test_the_panel_of_the_screen_is_text() -> None:
    played = play(PieceStream(SMALL, 1, 0), published("dt20").player(SMALL), SMALL)
    scene = next(iter(scenes(SMALL, played)))
    lines = screen(scene, scene_kinds(scene), [HOSTILE], "", os.terminal_size((120, 40)))
    (line,) = (line for line in lines if "</script>" in line)
    assert not CONTROL.search(line[line.index("</script>") :])


def test_labels_of_progress_are_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernels.support.progress.LOG_SECONDS", 0.0)
    for length in ({"total": 2}, {"unit": " steps"}):
        with progress(desc=HOSTILE, **length) as bar:
            bar.update()
    error = capsys.readouterr().err
    assert "</script>" in error
    assert not CONTROL.search(error)
    done = [
        line.rpartition(": ")[2].removesuffix(" after 00:00") for line in error.splitlines()
    ]
    assert done == ["0%", "50%", "0 steps", "1 steps"]


def test_a_replay_of_a_hostile_name_is_watched(
    tmp_path: Path, script: Callable[..., Any]
) -> None:
    hostile_replay().save(tmp_path / "replay.json")
    for output in ([], ["--html", tmp_path / "out.html"]):
        ended = script("watch_tetris", tmp_path / "replay.json", *output)
        assert ended.status == 0
        assert not CONTROL.search(ended.out + ended.err)
