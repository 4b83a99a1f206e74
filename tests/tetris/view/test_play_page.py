"""tetris/view/play_page.py: in a browser the agent plays as the C++ engine does, and a person by the rules."""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from engine_games import every_feature, weights_for
from pages import wasm

from tetris import LinearController, Lookahead, Policy, Rules, Streams, published
from tetris.game.decisions import after_states, choose, landing_row, play
from tetris.game.feature_sets import feature_names
from tetris.game.features import column_heights
from tetris.game.piece_stream import PieceStream
from tetris.play.rollouts import Rollout
from tetris.record.explanation import explain
from tetris.view.play_page import play_page

READY = "globalThis.race"
AGENT = """(() => {
  const { other } = race, height = race.rules.height * race.rules.width, told = [];
  for (let piece = 0; piece < %d; piece += 1) {
    other.step();
    told.push([...other.columns.subarray(0, race.rules.width), other.lines, other.games]);
    const stack = other.board.subarray(0, height);
    for (let column = 0; column < race.rules.width; column += 1)
      for (let row = 0; row < race.rules.height; row += 1)
        if ((stack[row * race.rules.width + column] > 0) !== Boolean(other.columns[column] >> row & 1)) throw new Error("cells");
  }
  return told;
})()"""


def opened(page: Page, folder: Path, *options: Any, hash: str = "") -> Page:  # noqa: A002
    """Open the page of options with nothing moving by itself."""
    (folder / "play.html").write_text(play_page(*options), encoding="utf-8")
    page.open(f"{(folder / 'play.html').as_uri()}{hash}", READY)
    page.evaluate("race.frame = () => {}, race.restart()")
    return page


def random_controller(rules: Rules, features: str) -> LinearController:
    weights = weights_for(features, rules.width)[1]
    return LinearController(features, tuple(weights.tolist()), rules, "random")


GAMES = [
    (published("dt20"), Rules(10, 20), Lookahead.NONE, 3000),
    (published("best"), Rules(10, 20), Lookahead.NONE, 3000),
    (published("bcts"), Rules(10, 20, pieces="bag"), Lookahead.NONE, 2000),
    (published("best"), Rules(10, 9, clear_on_overflow=True, pieces="SZ"), Lookahead.NONE, 1000),
    (published("anywidth"), Rules(5, 8, original=True, pieces="bag"), Lookahead.EXPECTIMAX, 500),
    (published("bcts"), Rules(7, 13, clear_on_overflow=True), Lookahead.PREVIEW, 500),
    (random_controller(Rules(6, 24), every_feature(6)), Rules(6, 24), Lookahead.NONE, 1000),
]


@pytest.mark.parametrize(("controller", "rules", "lookahead", "count"), GAMES)
def test_a_browser_plays_as_the_engine_does(
    controller: LinearController, rules: Rules, lookahead: Lookahead, count: int, tmp_path: Path, browser_page: Page
) -> None:
    seed = (1 << 64) - 3
    page = opened(browser_page, tmp_path, controller, rules, seed, lookahead)
    shown = page.evaluate(AGENT % count)
    engine = Rollout(controller.policy(lookahead), Streams(rules, 1, seed=seed))
    for told in shown:
        result = engine.advance(1)
        assert told == [*engine.columns.flatten().tolist(), result.lines.item(), result.games.item()]


@pytest.mark.parametrize("name", ["dt20", "random"])
@pytest.mark.parametrize("lookahead", [Lookahead.NONE, Lookahead.PREVIEW])
def test_hints_and_their_reasons_are_those_of_the_reference(
    name: str, lookahead: Lookahead, tmp_path: Path, browser_page: Page
) -> None:
    rules = Rules(6, 10)
    features = "dellacherie" if name == "dt20" else every_feature(6)
    controller = published(name) if name == "dt20" else random_controller(rules, every_feature(6))
    page = opened(browser_page, tmp_path, controller, rules, 5, lookahead)
    player, pieces = controller.player(rules, lookahead), PieceStream(rules, 5, 0)
    rows: tuple[int, ...] = ()
    for t, after in enumerate(islice(play(pieces, player, rules), 12)):
        hint = page.evaluate("(() => { const { shape, column } = race.engine.choose(race.you.columns, race.you.piece, race.you.next); return [race.engine.shapes[shape.piece].indexOf(shape), column]; })()")
        assert hint == [after.shape.orientation, after.column]
        for other in [*after_states(rows, pieces[t], rules)][::5]:
            found = page.evaluate(
                f"race.engine.explain(race.you.columns, {{ shape: race.engine.shapes[{pieces[t]}][{other.shape.orientation}], column: {other.column} }}, race.you.next)"
            )
            if other.game_over:
                assert found is None
                continue
            wanted = explain(rows, other, player, pieces[t + 1])
            assert tuple(row["name"] for row in found["rows"]) == wanted.names
            assert tuple(row["value"] for row in found["rows"]) == wanted.features
            assert tuple(row["lead"] for row in found["rows"]) == wanted.leads
            assert (found["value"], found["margin"]) == (wanted.value, wanted.margin)
        page.evaluate(f"race.you.put({after.shape.orientation}, {after.column}), race.act('drop'), race.phase = 'play'")
        page.evaluate("race.act('drop')") if False else None
        rows = after.rows
    del features
