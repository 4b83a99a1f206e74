"""scripts/watch_tetris.py: what it shows and writes, and its errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pseudo_terminal import Pty
from sample_scenes import sample_scenes

from tetris import Lookahead, Rules, Streams, play_game, published, rollout
from tetris.commands import watch
from tetris.record.replay import Replay
from tetris.view.images import PALETTE, frame

Script = Callable[..., Any]
ROOT = Path(__file__).parents[3]
SMALL = ("--board", "6x6", "--seed", 7)


def recorded(script: Script, folder: Path, *arguments: object) -> Path:
    file = folder / "game.json"
    ended = script("watch_tetris", *arguments, "--replay", file)
    assert (ended.status, ended.err) == (0, "")
    return file


@pytest.mark.parametrize(
    ("arguments", "rules", "lookahead"),
    [
        (("--rule", "original"), Rules(6, 6, original=True), "none"),
        (("--rule", "clear-on-overflow", "--pieces", "SZ"), Rules(6, 6, True, "SZ"), "none"),
        (("--pieces-known", "2"), Rules(6, 6), "preview"),
        (("--lookahead",), Rules(6, 6), "expectimax"),
    ],
)
def test_a_game_is_the_one_that_is_rolled_out(
    script: Script, tmp_path: Path, arguments: tuple[str, ...], rules: Rules, lookahead: str
) -> None:
    replay = Replay.load(
        recorded(script, tmp_path, "bcts", *SMALL, *arguments, "--decisions", 250)
    )
    played = rollout(published("bcts").policy(lookahead), Streams(rules, seed=7), 250, "python")
    assert (replay.lines, replay.games) == (played.lines.item(), played.games.item())
    assert (replay.rules, replay.seed, replay.stream) == (rules, 7, 0)
    assert replay.controller == published("bcts")
    assert replay.lookahead == lookahead


def test_the_errors_of_a_script_leave_out_lines_of_progress(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.support.progress.LOG_SECONDS", 0.0)
    recorded(script, tmp_path, *SMALL, "--decisions", 10)
    recorded(script, tmp_path, *SMALL, "--games", 1)


def test_a_pipe_gets_plain_frames(script: Script) -> None:
    ended = script("watch_tetris", *SMALL, "--decisions", 40)
    assert (ended.status, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    frames = ended.out.strip().split("\n\n")
    assert len(frames) == 40
    first = frames[0].splitlines()
    assert re.fullmatch(r"piece 1 [A-Z], next [A-Z], lines 0, games over 0", first[0])


def test_a_replay_shows_what_was_played(script: Script, tmp_path: Path) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 30)
    live, again = (
        script("watch_tetris", *arguments).out
        for arguments in ((*SMALL, "--decisions", 30), (file,))
    )
    assert live == again
    assert script("watch_tetris", file, "--decisions", 2).out.count("piece ") == 2


def test_the_progress_of_a_recording_ends_at_its_last_piece(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 12)
    totals = []

    def note_total(steps: Any, **options: Any) -> Any:
        totals.append(options["total"])
        return nullcontext(steps)

    monkeypatch.setattr(watch, "progress", note_total)
    assert script("watch_tetris", file, "--html", tmp_path / "a.html").status == 0
    assert totals == [12]


def test_games_are_watched_to_their_ends(script: Script, tmp_path: Path) -> None:
    replay = Replay.load(recorded(script, tmp_path, "bcts", *SMALL, "--games", 2))
    *_, last = replay.after_states()
    assert (replay.games, last.game_over) == (2, True)


def test_a_gif_holds_a_picture_a_piece(script: Script, tmp_path: Path) -> None:
    file, shown = tmp_path / "a.gif", sample_scenes(Rules(6, 6), 20, 7)
    ended = script(
        "watch_tetris",
        "dt20",
        *SMALL,
        "--decisions",
        15,
        "--from",
        6,
        "--speed",
        10,
        "--gif",
        file,
    )
    assert (ended.status, ended.err) == (0, "")
    assert re.fullmatch(r".*a\.gif: 20 pieces, \d+ kB\n", ended.out)
    with Image.open(file) as gif:
        assert (gif.n_frames, gif.info["duration"], gif.info["loop"]) == (15, 100, 0)
        for number in (0, 7, 13):  # of the last one a replay does not know the next piece
            gif.seek(number)
            assert np.array_equal(
                np.asarray(gif.convert("RGB")), PALETTE[frame(shown[5 + number], "dt20")]
            )


@pytest.mark.parametrize("flags", [(), ("--gif", "a.gif")])
def test_a_game_that_ends_before_the_first_piece_to_show(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = script(
        "watch_tetris",
        recorded(script, tmp_path, *SMALL, "--decisions", 3),
        "--from",
        4,
        *flags,
    )
    assert (ended.status, ended.out) == (2, "")
    assert "expected --from up to the last piece, got 4" in ended.err


def test_an_mp4_is_a_video(script: Script, tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip(
        "imageio_ffmpeg", reason='needs imageio-ffmpeg: pip install -e ".[watch]"'
    )
    file = tmp_path / "a.mp4"
    ended = script("watch_tetris", *SMALL, "--decisions", 20, "--speed", 10, "--mp4", file)
    assert (ended.status, ended.err) == (0, "")
    video = next(ffmpeg.read_frames(str(file)))
    assert (video["codec"], video["fps"], video["duration"]) == ("h264", 10.0, 2.0)


def test_a_page_is_written_beside_a_replay(script: Script, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    file = recorded(script, tmp_path, *SMALL, "--decisions", 20, "--html", page)
    assert "<title>anywidth</title>" in page.read_text(encoding="utf-8")
    assert len(Replay.load(file).placements) == 20


def test_a_replay_keeps_its_lookahead(script: Script, tmp_path: Path) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 3, "--pieces-known", 2)
    capitals = file.rename(tmp_path / "GAME.JSON")
    page = tmp_path / "a.html"
    again = recorded(script, tmp_path, capitals, "--html", page)
    assert again.read_bytes() == capitals.read_bytes()
    assert '"lookahead":"preview"' in page.read_text(encoding="utf-8")
    game = play_game("bcts", most_pieces=2, lookahead="preview")
    assert game.replay().lookahead is Lookahead.PREVIEW


def test_an_evolution_has_no_other_options(script: Script, tmp_path: Path) -> None:
    ended = script("watch_tetris", tmp_path, "--evolution", tmp_path / "a.gif", *SMALL)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "--evolution shows a run in its own game: expected no other option" in ended.err


def test_a_fumen_is_written_and_watched(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "game.txt"
    board = ("--board", "10x4", "--pieces", "sz")
    played = Replay.load(recorded(script, tmp_path, "dt20", *board, "--decisions", 19))
    ended = script("watch_tetris", "dt20", *board, "--decisions", 19, "--fumen", file)
    assert ended.status == 0
    fumen = file.read_text().strip()
    for source in (file, f"https://fumen.zui.jp/?{fumen}"):
        shown = Replay.load(recorded(script, tmp_path, source, *board))
        assert (shown.placements, shown.rules) == (played.placements, Rules(10, 4, pieces="ZS"))
        assert shown.games == played.games > 0
    ended = script("watch_tetris", file, "--seed", 2)
    assert "a replay has its own rules and pieces: expected no --seed" in ended.err


def test_a_replay_keeps_its_own_rules(script: Script, tmp_path: Path) -> None:
    ended = script(
        "watch_tetris", recorded(script, tmp_path, *SMALL, "--decisions", 3), "--board", "10x10"
    )
    assert ended.status == 2
    assert "a replay has its own rules and pieces: expected no --board" in ended.err


@pytest.mark.parametrize("damage", ["cut", "other pieces"])
def test_a_damaged_replay_is_one_line_and_status_2(
    script: Script, tmp_path: Path, damage: str
) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 10)
    text = file.read_text()
    replay = Replay.load(file)
    if damage == "cut":
        file.write_text(text[: len(text) // 2])
    else:
        Replay(replay.rules, replay.placements[1:], replay.lines, replay.games, 7, 0).save(file)
    ended = script("watch_tetris", file)
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.startswith(f"watch_tetris.py: error: {file} holds no valid replay: ")


def test_a_missing_extra_is_one_line_with_the_remedy(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    ended = script("watch_tetris", "--mp4", tmp_path / "out.mp4")
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.endswith(': pip install -e ".[watch]"')


def start(person: Pty, *arguments: object) -> subprocess.Popen[bytes]:
    """Start the command in a terminal."""
    return subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "watch_tetris.py", *map(str, (*SMALL, *arguments))],
        stdin=person.side,
        stdout=person.side,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        # Where it is ignored here, as under `nohup pytest &`, it would be in the child, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_ctrl_c_in_a_terminal_gives_it_back(person: Pty) -> None:
    program = start(person)
    person.wait_for("margin")
    program.send_signal(signal.SIGINT)
    person.wait_for("\x1b[?25h\x1b[?1049l")
    assert (program.communicate(timeout=30)[1], program.returncode) == (b"interrupted\n", 130)
