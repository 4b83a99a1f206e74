"""tetris/view/terminal.py and what is drawn there: keys, sizes, and the terminal as it was
afterwards."""

from __future__ import annotations

import os
import re
import termios
import threading
from pathlib import Path
from typing import cast

import pytest
from pseudo_terminal import ESCAPES, Pty
from sample_scenes import sample_scenes

from tetris import Rules, published
from tetris.record.explanation import Explanation, explain
from tetris.view.game_view import Scene, scene_kinds
from tetris.view.terminal import Terminal, explanation_lines, is_interactive, parse_keys, screen
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
        watcher = Watcher(
            terminal, iter(sample_scenes(RULES, 50)), DT20.player(RULES), ["dt20"], 1.0
        )
        watcher.run()
        assert termios.tcgetattr(person.side) != person.before
    assert termios.tcgetattr(person.side) == person.before
    person.wait_for("\x1b[0m\x1b[?25h\x1b[?1049l")
    assert person.text().startswith("\x1b[?1049h\x1b[?25l")
    assert "margin" in person.text()
    assert watcher.paused


@pytest.mark.parametrize("size", [(80, 24), (20, 9), (1, 1)])
def test_a_screen_fits_its_terminal(size: tuple[int, int]) -> None:
    text = ["a long line of text " * 5] * 50, "keys " * 30
    for scene in sample_scenes(RULES, 40):
        drawn = screen(scene, scene_kinds(scene), *text, os.terminal_size(size))
        assert len(drawn) <= size[1]
        assert max(len(ESCAPES.sub("", line)) for line in drawn) <= size[0]


@pytest.mark.parametrize("rules", [Rules(10, 20), Rules(4, 7)])
def test_a_window_that_is_too_small_says_which_size_is_enough(rules: Rules) -> None:
    (scene,) = sample_scenes(rules, 1)

    def drawn(columns: int, lines: int) -> list[str]:
        size = os.terminal_size((columns, lines))
        return screen(scene, scene_kinds(scene, rules.height), [], "keys", size)

    (message,) = drawn(80, 1)
    found = re.search(r"(\d+) x (\d+) needed", message)
    assert found is not None
    columns, lines = map(int, found.groups())
    for narrower, lower in ((0, 0), (1, 0), (0, 1)):
        text = drawn(columns - narrower, lines - lower)
        assert (narrower == lower == 0) == (text[-1] == "keys")


def test_a_pipe_and_a_dumb_terminal_are_no_screen(
    tmp_path: Path, person: Pty, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("w") as file, open(person.side, closefd=False) as keyboard:
        monkeypatch.setattr("sys.stdin", keyboard)
        monkeypatch.setenv("TERM", "xterm")
        assert is_interactive(person.output)
        assert not is_interactive(file)
        for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
            with monkeypatch.context() as context:
                context.setenv(name, value)
                assert not is_interactive(person.output)


class Keyboard:
    """A terminal on which some keys are pressed, one a picture, and then q."""

    def __init__(self, *keys: str) -> None:
        self.waiting = [*keys, "q"]
        self.panels: list[list[str]] = []
        self.explanations: list[Explanation | None] = []

    def keys(self, seconds: float) -> list[str]:
        return [self.waiting.pop(0)]

    def show(
        self, scene: Scene, kinds: object, panel: list[str], why: Explanation | None, *_: str
    ) -> None:
        self.panels.append(panel)
        self.explanations.append(why)


def test_keys_change_the_speed_by_a_step_and_the_panel_counts_the_game_that_ends() -> None:
    last = next(scene for scene in sample_scenes(RULES, 250) if scene.after.game_over)
    keyboard = Keyboard("+", "-", "-", " ")
    Watcher(cast("Terminal", keyboard), iter([last]), None, ["title"], 5.0).run()
    states = [panel[4] for panel in keyboard.panels]
    assert states == [*(f"{speed} pieces/s" for speed in (5, 10, 5, 2)), "paused"]
    assert keyboard.panels[0][2:4] == [
        f"lines {last.lines}   this game {last.lines}",
        f"pieces {last.pieces}   games over 1",
    ]


def test_each_placement_has_an_explanation_of_its_own() -> None:
    keyboard, player, both = Keyboard(".", "."), DT20.player(RULES), sample_scenes(RULES, 2)
    Watcher(cast("Terminal", keyboard), iter(both), player, [], 1.0).run()
    assert keyboard.explanations[-1] == explain(both[1].rows, both[1].after, player)


def test_the_most_decisive_features_come_first_and_those_without_room_are_counted() -> None:
    found = Explanation(("a", "b", "c"), (1.0, 2.0, 3.0), (0.5, -2.0, 1.0), -1.5, None)
    for room, words in ((5, ["b", "c", "a"]), (4, ["b", "2"])):
        assert [line.split()[0] for line in explanation_lines(found, room)] == [
            "margin",
            "value",
            *words,
        ]
