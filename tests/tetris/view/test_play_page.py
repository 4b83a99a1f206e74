"""tetris/view/play_page.py: a browser plays as the engine does, by a person's rules, with the
same hints."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from engine_games import every_feature, weights_for
from pages import wasm

from tetris import LinearController, Lookahead, Rules, Streams, published
from tetris.commands.play import main
from tetris.game.decisions import after_states, landing_row, place, play, with_next
from tetris.game.feature_sets import feature_names
from tetris.game.features import column_heights
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.play.rollouts import Rollout
from tetris.record.explanation import explain
from tetris.view.play_page import play_page
from tetris.view.replay_page import WASM

SEED = (1 << 64) - 3
AGENT = """(() => {
  const { other, rules: { width } } = race, shown = [];
  for (let piece = 0; piece < COUNT; piece += 1) {
    other.step();
    shown.push([...other.columns.subarray(0, width), other.lines, other.games]);
    const isFull = (at) => Boolean(other.columns[at % width] >> Math.floor(at / width) & 1);
    if (other.board.some((cell, at) => (cell > 0) !== isFull(at))) throw new Error("cells");
  }
  return shown;
})()"""


def opened(page: Page, folder: Path, *options: Any) -> Page:
    """Open the page of some options; nothing moves by itself on it."""
    (folder / "play.html").write_text(play_page(*options), encoding="utf-8")
    page.open(folder / "play.html", "globalThis.race")
    page.evaluate("race.frame = () => {}, document.querySelector('#start').close()")
    page.wait_for("race.phase === 'play'")
    return page


def every_feature_weighed(rules: Rules) -> LinearController:
    """A controller of all features."""
    features = every_feature(rules.width)
    return LinearController(
        features, tuple(weights_for(features, rules.width)[1].tolist()), rules, "every"
    )


def test_the_library_is_compiled_from_these_sources() -> None:
    assert WASM.read_bytes().endswith(wasm.digest()), "python scripts/pages/wasm.py compiles it"


@pytest.mark.parametrize(
    ("name", "rules", "lookahead", "count"),
    [
        ("dt20", Rules(10, 20), Lookahead.NONE, 4000),
        ("best", Rules(10, 20), Lookahead.NONE, 4000),
        ("bcts", Rules(10, 20, pieces="bag"), Lookahead.NONE, 4000),
        (
            "bertsekas",
            Rules(10, 9, clear_on_overflow=True, pieces="SZ"),
            Lookahead.PREVIEW,
            400,
        ),
        ("anywidth", Rules(5, 8, original=True, pieces="bag"), Lookahead.EXPECTIMAX, 400),
        ("every", Rules(6, 24), Lookahead.NONE, 800),
    ],
)
def test_the_agent_plays_as_the_engine_does(
    name: str,
    rules: Rules,
    lookahead: Lookahead,
    count: int,
    tmp_path: Path,
    browser_page: Page,
) -> None:
    controller = every_feature_weighed(rules) if name == "every" else published(name)
    page = opened(browser_page, tmp_path, controller, rules, SEED, lookahead)
    engine = Rollout(controller.policy(lookahead), Streams(rules, seed=SEED))
    for shown in page.evaluate(AGENT.replace("COUNT", str(count))):
        result = engine.advance(1)
        assert shown == [
            *engine.columns.flatten().tolist(),
            result.lines.item(),
            result.games.item(),
        ]


@pytest.mark.parametrize(
    ("name", "lookahead"), [("dt20", Lookahead.NONE), ("every", Lookahead.PREVIEW)]
)
def test_hints_and_their_reasons_are_those_of_the_reference(
    name: str, lookahead: Lookahead, tmp_path: Path, browser_page: Page
) -> None:
    rules = Rules(6, 24, pieces="bag")
    controller = every_feature_weighed(rules) if name == "every" else published(name)
    page = opened(browser_page, tmp_path, controller, rules, 5, lookahead)
    player, pieces, rows = controller.player(rules, lookahead), PieceStream(rules, 5, 0), ()
    for t, after in enumerate(islice(play(pieces, player, rules), 10)):
        hint = page.evaluate(
            "race.you.hint = null, race.you.ask(), "
            "[race.you.hint.shape.turn, race.you.hint.column]"
        )
        assert hint == [after.shape.orientation, after.column]
        for other in [after, *[*after_states(rows, pieces[t], rules)][::7]]:
            page.evaluate(f"race.you.put({other.shape.orientation}, {other.column})")
            found = page.evaluate(
                "race.engine.explain(race.you.columns, race.you.now, race.you.next)"
            )
            if other.game_over:
                assert found is None
                continue
            wanted = explain(rows, other, player, pieces[t + 1])
            shown = [(row["name"], row["value"], row["lead"]) for row in found["rows"]]
            assert shown == [*zip(wanted.names, wanted.features, wanted.leads, strict=True)]
            assert (found["value"], found["margin"]) == (wanted.value, wanted.margin)
        page.evaluate(
            f"race.you.put({after.shape.orientation}, {after.column}), race.act('drop')"
        )
        rows = after.rows


class Person:
    """What a person's acts do, written again with the game's own functions."""

    def __init__(self, rules: Rules, pieces: PieceStream) -> None:
        self.rules, self.pieces = rules, pieces
        self.rows: tuple[int, ...] = ()
        self.drawn = self.lines = 0
        self.held: int | None = None
        self.over = False
        self.take()

    def take(self, piece: int | None = None, may_hold: bool = True) -> None:
        if piece is None:
            piece, self.drawn = self.pieces[self.drawn], self.drawn + 1
        self.piece, self.may_hold = piece, may_hold
        self.height = self.rules.height
        self.put(0, (self.rules.width - PIECES[piece][0].width) // 2)
        self.height = max(self.height, self.now.landing_row)

    def put(self, turn: int, column: int) -> None:
        shape = PIECES[self.piece][turn % len(PIECES[self.piece])]
        column = min(max(column, 0), self.rules.width - shape.width)
        row = landing_row(column_heights(self.rows, self.rules.width), shape, column)
        if self.height >= self.rules.height:  # above the board, or on a stack as high
            self.height = max(self.rules.height, row)
        if row <= self.height:
            self.now = place(self.rows, shape, column, row, self.rules)

    def act(self, act: str) -> None:
        turn, column = self.now.shape.orientation, self.now.column
        if act in ("left", "right"):
            self.put(turn, column + (1 if act == "right" else -1))
        elif act == "rotate":
            self.put(turn + 1, column)
        elif act == "hold":
            if self.may_hold and not self.rules.original:
                held, self.held = self.held, self.piece
                self.take(held, may_hold=False)
        elif act == "lower" and self.height > self.now.landing_row:
            self.height -= 1
        else:
            after = with_next(self.now, self.pieces[self.drawn])
            self.rows, self.lines, self.over = (
                after.rows,
                self.lines + after.lines,
                after.game_over,
            )
            self.take()


ACTS = ("left", "right", "rotate", "lower", "drop", "hold")


@pytest.mark.parametrize("original", [False, True])
def test_a_person_plays_by_a_person_s_rules(
    original: bool, tmp_path: Path, browser_page: Page
) -> None:
    rules, controller = Rules(6, 8, original=original), published("dt20")
    page = opened(browser_page, tmp_path, controller, rules, 4)
    person = Person(rules, PieceStream(rules, 4, 0))
    for act in random.Random(1).choices(ACTS, [9, 9, 9, 9, 2, 1], k=300):
        person.act(act)
        page.evaluate(f"race.act('{act}')")
        shown = page.evaluate(
            "(({ piece, now: { shape: { turn }, column }, height, columns, lines, held }) =>"
            "({ phase: race.phase, now: [piece, turn, column, height], "
            "columns: [...columns], lines, held }))"
            "(race.you)"
        )
        if person.over:
            assert shown["phase"] == "end"
            return
        now = person.now
        assert shown["now"] == [
            now.shape.piece,
            now.shape.orientation,
            now.column,
            person.height,
        ]
        assert (shown["lines"], shown["held"]) == (person.lines, person.held)
        assert shown["columns"][:6] == [
            sum((row >> x & 1) << y for y, row in enumerate(person.rows)) for x in range(6)
        ]
    raise AssertionError("expected the game to end")


def test_keys_and_fingers_move_and_a_link_carries_the_result(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(pieces="IO"))
    seed = page.evaluate("race.rules.seed")
    column = "race.you.now.column"
    before = page.evaluate(column)
    page.press("ArrowLeft")
    assert page.evaluate(column) == before - 1
    page.touch((1, 1))  # the layout is that for fingers then
    x, y, width = page.evaluate(
        "(({ x, y, width }) => [x, y, width])"
        "(document.querySelector('.you .board').getBoundingClientRect())"
    )
    page.touch((x + width / 2, y + 200), (x + width / 2 + 2 * width / 10, y + 200))
    assert page.evaluate(column) == before + 1
    for _ in range(40):
        page.press(" ")
    page.wait_for("race.phase === 'end' && document.querySelector('#end').open")
    lines, link = page.evaluate("[race.you.lines, location.href]")
    assert f"seed={seed}&" in link
    page.open("about:blank")
    page.open(link, "globalThis.race")
    assert page.evaluate("[race.rules.seed, race.rules.pieces]") == [seed, "IO"]
    assert f"A friend cleared {lines} line" in page.evaluate(
        "document.querySelector('#challenge').textContent"
    )


def test_a_controller_is_dropped_on_the_page(tmp_path: Path, browser_page: Page) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(8, 9))
    mine = json.dumps(
        LinearController("holes, max_height", (-4.0, -1.0), name="mine").to_dict()
    )
    for text, name, wrong in (
        (mine, "mine", ""),
        ("{}", "mine", "This is no controller.json."),
        (
            json.dumps(published("best").to_dict()),
            "mine",
            "This controller cannot play on 8x9.",
        ),
    ):
        page.evaluate(f"race.read(new File([{json.dumps(text)}], 'controller.json'))")
        assert page.evaluate(
            "[race.agent.name, document.querySelector('.wrong').textContent]"
        ) == [
            name,
            wrong,
        ]
    assert page.evaluate("race.engine.names('dt_columns', 8).join()") == ",".join(
        feature_names("dt_columns", 8)
    )


def test_the_command_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "play.html"
    assert (
        main(["bcts", "--board", "10x10", "--seed", "3", "--no-open", "--out", str(out)]) == 0
    )
    assert capsys.readouterr().out.startswith(f"{out}: ")
    text = out.read_text(encoding="utf-8")
    assert '"board":"10x10","rule":"published","pieces":"uniform","seed":"3"' in text
    assert len(text) < 1_500_000
