"""tetris/view/terminal.py and what is drawn there: keys, sizes, and the terminal as it was afterwards."""

from __future__ import annotations

import os
import re
import termios
import threading
from itertools import islice
from pathlib import Path

import pytest
from pseudo_terminal import ESCAPES, Pty
from sample_scenes import sample_scenes

from tetris import Rules, published
from tetris.game.decisions import appears, play
from tetris.game.piece_stream import PieceStream
from tetris.view.game_view import GameTracker, scene_kinds
from tetris.view.human_player import HumanPlayer
from tetris.view.terminal import Terminal, is_interactive, parse_keys, screen
from tetris.view.watcher import Watcher

RULES = Rules(6, 6)
DT20 = published("dt20")


def typed(person: Pty, *steps: tuple[str, str]) -> None:
    """Type, in a thread: each time a text is seen, the keys that follow it."""

    def type_all() -> None:
        for text, keys in steps:
            person.wait_for(text)
            person.press(keys)

    threading.Thread(target=type_all, daemon=True).start()


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("a\x1b[A\x1b[B\x1bOC\x1b[D b", ["a", "up", "down", "right", "left", " ", "b"]),
        ("\x1b[15~\x1b[1;5Hx", ["x"]),
    ],
)
def test_keys_are_distinguished(sent: str, keys: list[str]) -> None:
    assert parse_keys(sent) == keys


def test_watching_ends_with_q_and_leaves_the_terminal_as_it_was(person: Pty) -> None:
    typed(person, ("pieces 1 ", " "), ("paused", ".."), ("pieces 2 ", "q"))
    with Terminal(person.output, person.side) as terminal:
        watcher = Watcher(terminal, iter(sample_scenes(RULES, 50)), DT20.player(RULES), ["dt20"], 1.0)
        watcher.run()
        assert termios.tcgetattr(person.side) != person.before
    assert termios.tcgetattr(person.side) == person.before
    person.wait_for("\x1b[0m\x1b[?25h\x1b[?1049l")
    assert person.text().startswith("\x1b[?1049h\x1b[?25l")
    assert "margin" in person.text()
    assert watcher.paused


def test_a_person_plays_and_asks_for_a_hint(person: Pty) -> None:
    pieces = PieceStream(RULES, 3, 0)
    typed(person, ("pieces 0 ", "h"), ("margin", "\x1b[D\x1b[D\x1b[D\x1b[D\x1b[A "), ("pieces 1 ", "q"))
    with Terminal(person.output, person.side) as terminal:
        player = HumanPlayer(terminal, RULES, pieces, DT20, ["you"])
        player.run()
    (after,) = player.played
    assert (after.shape.piece, after.shape.orientation % 2, after.column) == (pieces[0], 1, 0)


def test_a_game_over_waits_for_a_key_and_the_end_sums_up(person: Pty) -> None:
    pieces = PieceStream(RULES, 3, 0)
    with Terminal(person.output, person.side) as terminal:
        player = HumanPlayer(terminal, RULES, pieces, DT20, ["you"])
        while not player.tracker.games:
            player._press(" ")
        count = len(player.played)
        player._draw()
        player._press(" ")
        assert len(player.played) == count
        player._press(" ")
        assert len(player.played) == count + 1
    assert [after.shape.piece for after in player.played] == [pieces[t] for t in range(count + 1)]
    person.wait_for("GAME OVER: 0 lines")
    person.wait_for("any key: the next game")
    expected = rf"0 lines with {count + 1} pieces in \d+ s \(.* pieces per second\), games over: 1; dt20 with"
    assert re.match(expected, player.summary())


def beside(person: Pty, rules: Rules = RULES) -> HumanPlayer:
    return HumanPlayer(Terminal(person.output, person.side), rules, PieceStream(rules, 3, 0), DT20, ["you"])


def test_a_piece_is_lowered_row_by_row_and_placed_where_it_rests(person: Pty) -> None:
    player = beside(person)
    for _ in range(RULES.height):
        player._press("down")
    assert (player._height(), player.played) == (0, [])
    player._press("down")
    assert (len(player.played), player.played[0].landing_row) == (1, 0)


def test_a_piece_is_kept_once_and_comes_back_for_another(person: Pty) -> None:
    player, pieces = beside(person), PieceStream(RULES, 3, 0)
    player._press("c")
    assert (player._piece, player._held, player.in_order) == (pieces[1], pieces[0], False)
    player._press("c")  # only one is kept before a piece is placed
    assert player._piece == pieces[1]
    player._press(" ")
    assert player._piece == pieces[2]
    player._press("c")
    player._press(" ")
    assert [after.shape.piece for after in player.played] == [pieces[1], pieces[0]]
    assert player._held == pieces[2]


def test_no_piece_is_kept_by_the_original_rule(person: Pty) -> None:
    rules = Rules(6, 6, original=True)
    player, pieces = beside(person, rules), PieceStream(rules, 3, 0)
    player._press("c")
    assert (player._piece, player._held, player.in_order) == (pieces[0], None, True)
    while not player.played or not player.played[-1].game_over:
        player._press(" ")
    last = player.played[-1]
    assert not appears(last.rows, pieces[len(player.played)], rules)
    assert len(last.rows) <= rules.height


def test_the_controller_races_on_the_same_pieces(person: Pty) -> None:
    player, pieces = beside(person), PieceStream(RULES, 3, 0)
    count = 30
    for _ in range(count):
        player._press("x")  # a game that is over waits for a key
        player._press(" ")
    expected = GameTracker(RULES)
    for after in islice(play(pieces, DT20.player(RULES), RULES), len(player.played)):
        expected.carry_out(expected.scene(after, None))
    assert player.rival.pieces == len(player.played)
    assert (player.rival.cells == expected.cells).all()
    assert player.rival.lines == expected.lines > player.tracker.lines


@pytest.mark.parametrize("depth", [24, 0])
@pytest.mark.parametrize("size", [(80, 24), (20, 9), (1, 1)])
def test_a_screen_fits_its_terminal_with_a_second_board_where_there_is_room(
    size: tuple[int, int], depth: int
) -> None:
    text = ["a long line of text " * 5] * 50, "keys " * 30
    for scene in sample_scenes(RULES, 40):
        both = [(scene_kinds(scene), name) for name in ("you", "a controller of a long name")]
        for boards in (both[:1], both):
            drawn, _ = screen(scene, boards, *text, os.terminal_size(size), depth)
            assert len(drawn) <= size[1]
            assert max(len(ESCAPES.sub("", line)) for line in drawn) <= size[0]
            floors = [line for line in drawn if "you" in line]
            assert len(floors) == (len(boards) == 2 and size[0] >= 80)
            assert all("a contr" in floor for floor in floors)


@pytest.mark.parametrize("depth", [24, 0])
@pytest.mark.parametrize("rules", [Rules(10, 20), Rules(4, 7)])
def test_a_window_that_is_too_small_says_which_size_is_enough(rules: Rules, depth: int) -> None:
    (scene,) = sample_scenes(rules, 1)

    def drawn(columns: int, lines: int) -> tuple[list[str], bool]:
        size = os.terminal_size((columns, lines))
        return screen(scene, [(scene_kinds(scene, rules.height), "")], [], "keys", size, depth)

    (message,), fits = drawn(80, 1)
    found = re.search(r"(\d+) x (\d+) needed", message)
    assert found is not None
    assert not fits
    columns, lines = map(int, found.groups())
    for narrower, lower in ((0, 0), (1, 0), (0, 1)):
        text, fits = drawn(columns - narrower, lines - lower)
        assert fits == (narrower == lower == 0) == (text[-1] == "keys")


def test_a_pipe_and_a_dumb_terminal_are_no_screen(
    tmp_path: Path, person: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("w") as file, open(person.side, closefd=False) as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        monkeypatch.setenv("TERM", "xterm")
        assert is_interactive(person.output)
        assert not is_interactive(file)
        monkeypatch.setenv("TERM", "dumb")
        assert not is_interactive(person.output)
