"""tetris/view/replay_page.py: the page holds all it needs, and plays what the engine played."""

from __future__ import annotations

import base64
import json
import re
import zlib
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pytest
from chromium import Page

from tetris import LinearController, Rules, published
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import placements_on
from tetris.record.replay import Replay
from tetris.view.game_view import scenes
from tetris.view.replay_page import player_fragment, player_page

RULES = Rules(6, 6, clear_on_overflow=True)


def recorded(rules: Rules = RULES, count: int = 120, name: str = "dt20") -> Replay:
    controller = published("dt20")
    mine = LinearController(controller.features, controller.weights, controller.rules, name)
    played = islice(play(PieceStream(rules, 4, 0), mine.player(rules), rules), count)
    return Replay.of(played, rules, 4, 0, mine)


def data(fragment: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', fragment, re.DOTALL)
    assert found is not None
    values: dict[str, Any] = json.loads(found[1])
    return values


def test_page_holds_the_placements_and_what_they_mean() -> None:
    replay = recorded()
    values = data(player_page(replay))
    assert zlib.decompress(base64.b64decode(values["placements"])).startswith(replay.placements)
    table = [
        (shape["piece"], column)
        for shape in values["shapes"]
        for column in range(RULES.width - shape["width"] + 1)
    ]
    assert table == [(shape.piece, column) for shape, column in placements_on(RULES.width)]
    assert (values["width"], values["height"]) == (6, 6)
    assert values["subtitle"] == "6x6 board, clear-on-overflow rule, pieces uniform, seed 4"


def test_nothing_to_play_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected a replay of at least one placement, got none"):
        player_fragment(Replay(RULES, b"", 0, 0))
    with pytest.raises(ValueError, match="expected a speed above 0, got 0"):
        player_fragment(recorded(), speed=0)


READY = "document.querySelector('tetris-player')?.board"
STATE = """(() => {
  const player = document.querySelector("tetris-player");
  const text = (name) => Number(player.shadowRoot.querySelector(name).textContent.replaceAll(",", ""));
  const cells = Array.from(player.games.state.cells);
  return [text(".pieces"), text(".lines"), text(".game"), text(".games"), cells];
})()"""


@pytest.mark.parametrize(
    "rules", [RULES, Rules(10, 5), Rules(5, 7, pieces="bag"), Rules(6, 6, original=True)]
)
def test_a_browser_shows_what_the_engine_plays(rules: Rules, tmp_path: Path, browser_page: Page) -> None:
    replay = recorded(rules, 300)
    (tmp_path / "page.html").write_text(player_page(replay), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    shown = []
    for _ in range(300):
        shown.append(browser_page.evaluate(STATE))
        browser_page.press("ArrowRight")
    browser_page.press("ArrowLeft")
    back = browser_page.evaluate(STATE)
    browser_page.press("Home")
    start = browser_page.evaluate(STATE)
    for state, scene in zip_longest(shown, scenes(rules, replay.after_states())):
        over = scene.games + scene.after.game_over
        counts = [scene.pieces, scene.lines, scene.game_lines, over]
        assert state == [*counts, scene.cells.ravel().tolist()]
    assert (back, start) == (shown[-2], shown[0])
