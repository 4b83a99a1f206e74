"""scripts/watch_tetris.py: what it shows, what it writes, what it refuses."""

from __future__ import annotations

import builtins
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tetris import LinearController, Rules, published, rollout
from tetris.replay import Replay

Script = Callable[..., Any]
ROOT = Path(__file__).parents[2]
SMALL = ("--board", "6x6", "--seed", 7)


def read_until(hand: int, text: bytes) -> None:
    """Read what a program writes to its terminal until a text comes."""
    seen, due = b"", time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < due, seen[-2000:]
        if select.select([hand], [], [], 1)[0]:
            seen += os.read(hand, 65536)


def recorded(script: Script, folder: Path, *arguments: object) -> Path:
    file = folder / "game.json"
    ended = script("watch_tetris", *arguments, "--replay", file)
    assert (ended.status, ended.err) == (0, "")
    return file


@pytest.mark.parametrize(
    ("arguments", "rules"),
    [
        ((), Rules(6, 6)),
        (("--rule", "clear-on-overflow"), Rules(6, 6, clear_on_overflow=True)),
        (("--pieces", "SZ"), Rules(6, 6, pieces="SZ")),
    ],
)
def test_a_game_is_the_one_that_the_engines_play(
    script: Script, tmp_path: Path, arguments: tuple[str, ...], rules: Rules
) -> None:
    replay = Replay.load(recorded(script, tmp_path, "bcts", *SMALL, *arguments, "--decisions", 250))
    for device in ("python", "cpu"):
        played = rollout([published("bcts").weights], rules, 1, 250, 7, device, features="bcts")
        assert (replay.lines, replay.games) == (played.lines.item(), played.games.item())
    assert (replay.rules, replay.seed, replay.stream) == (rules, 7, 0)
    assert replay.controller == published("bcts")


def test_without_arguments_the_best_published_controller_plays(script: Script, tmp_path: Path) -> None:
    replay = Replay.load(recorded(script, tmp_path, "--decisions", 5))
    assert (replay.controller, replay.rules, replay.seed) == (published("dt20"), Rules(), 12345)


def test_a_pipe_gets_plain_frames(script: Script) -> None:
    ended = script("watch_tetris", *SMALL, "--decisions", 40)
    assert (ended.status, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    frames = ended.out.strip().split("\n\n")
    assert len(frames) == 40
    first = frames[0].splitlines()
    assert re.fullmatch(r"piece 1 [A-Z], next [A-Z], lines 0, games over 0", first[0])
    assert first[-2].startswith("landing_height ")
    assert re.fullmatch(r"value -?[\d.]+, margin [\d.]+", first[-1])


def test_games_are_played_until_so_many_have_ended(script: Script, tmp_path: Path) -> None:
    replay = Replay.load(recorded(script, tmp_path, *SMALL, "--games", 3))
    *_, last = replay.after_states()
    assert (replay.games, last.game_over) == (3, True)


def test_a_replay_shows_what_was_played(script: Script, tmp_path: Path) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 30)
    live, again = (
        script("watch_tetris", *arguments).out for arguments in ((*SMALL, "--decisions", 30), (file,))
    )
    # A replay ends, and with it what is known of the pieces.
    assert re.sub(r"(piece 30 .), next .", r"\1", live) == again
    assert script("watch_tetris", file, "--decisions", 2).out.count("piece ") == 2


def test_a_replay_of_evaluate_tetris_is_shown_too(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    script("evaluate_tetris", "dt20", "--board", "6x6", "--seed", 7, "--decisions", 30, "--replay", file)
    assert (
        script("watch_tetris", file).out
        == script("watch_tetris", recorded(script, tmp_path, *SMALL, "--decisions", 30)).out
    )


def test_a_gif_holds_a_picture_a_piece(script: Script, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason='needs Pillow: pip install -e ".[watch]"')
    ended = script("watch_tetris", *SMALL, "--decisions", 20, "--speed", 10, "--gif", tmp_path / "a.gif")
    assert (ended.status, ended.err) == (0, "")
    assert re.fullmatch(r".*a\.gif: 20 pieces, \d+ kB\n", ended.out)
    with image.open(tmp_path / "a.gif") as gif:
        assert (gif.n_frames, gif.info["duration"], gif.info["loop"]) == (20, 100, 0)
        gif.seek(19)
        colors = {color for _, color in gif.convert("RGB").getcolors()}
    assert (0x16, 0x18, 0x1D) in colors  # the page: the palette is kept as it is
    assert len(colors) < 70


def test_an_mp4_is_a_video(script: Script, tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason='needs imageio-ffmpeg: pip install -e ".[watch]"')
    file = tmp_path / "a.mp4"
    ended = script("watch_tetris", *SMALL, "--decisions", 20, "--speed", 10, "--mp4", file)
    assert (ended.status, ended.err) == (0, "")
    told = next(ffmpeg.read_frames(str(file)))
    assert (told["codec"], told["fps"], told["duration"]) == ("h264", 10.0, 2.0)


def test_a_page_is_written_beside_a_replay(script: Script, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    file = recorded(script, tmp_path, *SMALL, "--decisions", 20, "--html", page)
    assert "<title>dt20</title>" in page.read_text(encoding="utf-8")
    assert len(Replay.load(file).placements) == 20


def test_a_controller_of_ones_own_is_called_by_its_file(script: Script, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    LinearController("holes", (-1.0,), Rules(6, 6)).save(folder / "controller.json")
    page = tmp_path / "a.html"
    assert script("watch_tetris", folder, *SMALL, "--decisions", 3, "--html", page).status == 0
    assert "<title>run</title>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dt200",), "dellacherie, bcts, bdu, dt10, dt20, bertsekas; got 'dt200'; did you mean 'dt20'?"),
        (("no/such.json",), "expected a controller at no/such.json, found no such file"),
        (("--board", "wide"), "expected a board as WIDTHxHEIGHT such as 10x20, got 'wide'"),
        (("bdu", "--board", "8x8"), "expected a board of width 10 for the features bdu, got 8x8"),
        (("--seed", "-1"), "--seed: expected a whole number from 0 to 2^64 - 1, got '-1'"),
        (("--speed", "0"), "--speed: expected a number of pieces a second from 0.1 to 1000, got '0'"),
        (("--speed", "nan"), "--speed: expected a number of pieces a second"),
        (("--games", "1", "--decisions", "1"), "not allowed with argument"),
        (("--html", "/no/such/out.html"), "/no/such: expected a folder to write to, found none"),
        (("--gif", "a.gif", "--speed", "100"), "expected a speed of at most 50 for a GIF, got 100"),
        (("--play",), "--play needs a terminal"),
        (("--play", "--games", "1"), "--play goes on until you quit: expected no --games or --decisions"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script: Script, arguments: tuple[str, ...], message: str) -> None:
    ended = script("watch_tetris", *arguments)
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("watch_tetris.py: error: ")
    assert message in line


@pytest.mark.parametrize(
    "flag", [("--board", "10x10"), ("--seed", "1"), ("--rule", "published"), ("--play",)]
)
def test_a_replay_keeps_its_own_rules(script: Script, tmp_path: Path, flag: tuple[str, ...]) -> None:
    ended = script("watch_tetris", recorded(script, tmp_path, *SMALL, "--decisions", 3), *flag)
    assert ended.status == 2
    assert f"a replay has its own rules and pieces: expected no {flag[0]}" in ended.err


@pytest.mark.parametrize("damage", ["cut", "edited", "other pieces"])
def test_a_damaged_replay_is_one_line_and_status_2(script: Script, tmp_path: Path, damage: str) -> None:
    file = recorded(script, tmp_path, *SMALL, "--decisions", 10)
    text = file.read_text()
    replay = Replay.load(file)
    if damage == "cut":
        file.write_text(text[: len(text) // 2])
    elif damage == "edited":
        file.write_text(text.replace('"height": 6', '"height": 7', 1))
    else:
        Replay(replay.rules, replay.placements[1:], replay.lines, replay.games, 7, 0).save(file)
    ended = script("watch_tetris", file)
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.startswith(f"watch_tetris.py: error: {file} holds no valid replay: ")


@pytest.mark.parametrize(("flag", "module"), [("--gif", "PIL.Image"), ("--mp4", "imageio_ffmpeg")])
def test_a_missing_extra_is_one_line_with_the_remedy(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, module: str
) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    ended = script("watch_tetris", flag, tmp_path / "out")
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert line.endswith(': pip install -e ".[watch]"')


def test_a_full_disk_leaves_no_file(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "a.html"
    ended = script("watch_tetris", *SMALL, "--decisions", 3, "--html", out)
    assert (ended.status, ended.err) == (2, f"watch_tetris.py: error: {out}: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


def test_what_a_person_played_is_written_when_they_quit(tmp_path: Path) -> None:
    hand, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    file = tmp_path / "mine.json"
    script = ROOT / "scripts" / "watch_tetris.py"
    command = [sys.executable, script, "--play", "--board", "6x6", "--seed", "7", "--replay", file]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    program = subprocess.Popen(command, stdin=side, stdout=side, stderr=subprocess.PIPE, env=environment)
    read_until(hand, b"pieces 0 ")
    os.write(hand, b"   q")
    read_until(hand, b"mine.json: 3 pieces")
    _, err = program.communicate(timeout=30)
    os.close(side)
    os.close(hand)
    assert (program.returncode, err) == (0, b"")
    replay = Replay.load(file)
    assert (len(replay.placements), replay.controller, replay.seed) == (3, None, 7)
    assert len(list(replay.after_states())) == 3


def test_ctrl_c_in_a_terminal_gives_it_back() -> None:
    hand, side = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, str(ROOT / "scripts" / "watch_tetris.py"), "--board", "6x6"]
    program = subprocess.Popen(
        command,
        stdin=side,
        stdout=side,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        # Where it is ignored here, as under `nohup pytest &`, it would be in the child, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    read_until(hand, b"margin")
    program.send_signal(signal.SIGINT)
    read_until(hand, b"\x1b[?25h\x1b[?1049l")
    _, err = program.communicate(timeout=30)
    os.close(side)
    os.close(hand)
    assert (program.returncode, err) == (130, "interrupted\n")


def test_another_file_is_no_controller(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"format": "other"}))
    ended = script("watch_tetris", file)
    assert ended.status == 2
    assert f"{file} holds no valid controller" in ended.err
