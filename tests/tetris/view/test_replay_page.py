"""tetris/view/replay_page.py: the page holds all it needs, and plays what the engine played."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from chromium import Page

from tetris import LinearController, Lookahead, Rules, play_game, published
from tetris.envs import replay_of
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import placement_numbers, placements_on
from tetris.record.explanation import explain
from tetris.record.replay import Replay
from tetris.view.game_view import scenes
from tetris.view.replay_page import engine_parts, player_fragment, player_page

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
    assert zlib.decompress(base64.b64decode(values["placements"])) == replay.placements
    table = [
        (shape["piece"], column)
        for shape in engine_parts()["shapes"]
        for column in range(RULES.width - shape["width"] + 1)
    ]
    assert table == [(shape.piece, column) for shape, column in placements_on(RULES.width)]
    assert (values["width"], values["height"]) == (6, 6)
    assert values["subtitle"] == "6x6 board, clear-on-overflow rule, pieces uniform, seed 4"


def test_nothing_to_play_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="expected a replay of at least one placement, got none"
    ):
        player_fragment(Replay(RULES, b"", 0, 0))


READY = "document.querySelector('tetris-player')?.board"
DROP = "document.querySelector('tetris-player').take(new File([%s], 'x.json'))"
PLACED = """document.querySelector('tetris-player').games.placements.map(
    ({shape: {piece, turn}, column}) => [piece, turn, column])"""
STATE = """(() => {
  const player = document.querySelector("tetris-player");
  const part = (name) => player.shadowRoot.querySelector(name);
  const text = (name) => Number(part(name).textContent.replaceAll(",", ""));
  const cells = Array.from(player.games.state.cells);
  return [text(".pieces"), text(".lines"), text(".game"), text(".games"), cells];
})()"""


@pytest.mark.parametrize(
    "rules", [RULES, Rules(10, 5), Rules(5, 7, pieces="bag"), Rules(6, 6, original=True)]
)
def test_a_browser_shows_what_the_engine_plays(
    rules: Rules, tmp_path: Path, browser_page: Page
) -> None:
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


@pytest.mark.parametrize("name", ["Tetris-Garbage-v0", "Tetris-KeyPress-v0"])
def test_a_browser_shows_given_boards_risen_rows_and_pieces_that_slide(
    name: str, tmp_path: Path, browser_page: Page
) -> None:
    is_by_keys = "KeyPress" in name
    env = gymnasium.make(
        f"CemTetris/{name}", height=8, **({"gravity": 99} if is_by_keys else {})
    )
    env.action_space.seed(1)
    keys = [3, *[4] * 8, 1, 1, 5] if is_by_keys else []  # The first piece slides.
    actions = [*keys, *(env.action_space.sample() for _ in range(150))]
    options = {"board": "XXXX......\nXX........", "pieces": "I"}
    replay = replay_of(env, actions, seed=2, options=options)
    assert replay.boards
    assert bool(replay.landings) == is_by_keys
    (tmp_path / "page.html").write_text(player_page(replay), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    for scene in scenes(replay.rules, replay.after_states(), replay.boards):
        pieces, lines, _, _, cells = browser_page.evaluate(STATE)
        assert (pieces, lines) == (scene.pieces, scene.lines)
        assert cells == scene.cells.ravel().tolist()
        browser_page.press("ArrowRight")


def test_a_link_leads_to_a_piece_and_the_page_says_why(
    tmp_path: Path, browser_page: Page
) -> None:
    replay, rules = recorded(Rules(10, 8), 60), Rules(10, 8)
    (tmp_path / "page.html").write_text(player_page(replay), encoding="utf-8")
    browser_page.open(f"{(tmp_path / 'page.html').as_uri()}#piece=31", READY)
    player = "document.querySelector('tetris-player').shadowRoot"
    why = f"{player}.querySelector('.why pre').textContent"
    browser_page.wait_for(why)
    scene = list(scenes(rules, replay.after_states()))[30]
    assert browser_page.evaluate(STATE)[0] == 31
    explained = explain(scene.rows, scene.after, published("dt20").player(rules))
    lines = browser_page.evaluate(why).splitlines()
    assert lines[0].split() == ["margin", f"{explained.margin:.2f}"]
    first = max(
        zip(explained.names, explained.features, explained.leads, strict=True),
        key=lambda x: abs(x[2]),
    )
    assert lines[2].split()[-2:] == [f"{first[1]:g}", f"{first[2]:.2f}"]
    browser_page.press("ArrowRight")
    browser_page.wait_for("location.hash === '#piece=32'")
    browser_page.evaluate("location.hash = 'piece=7'")
    browser_page.wait_for(f"({STATE})[0] === 7")


def test_the_reasons_of_the_last_piece_know_the_next_one(
    tmp_path: Path, browser_page: Page
) -> None:
    replay = play_game("dt20", 1, most_pieces=1, lookahead="preview").replay()
    (tmp_path / "page.html").write_text(player_page(replay), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    player = published("dt20").player(replay.rules, Lookahead.PREVIEW)
    explained = explain((), next(replay.after_states()), player, replay.pieces[1])
    margin = browser_page.evaluate(
        "((shown) => shown.reasons(shown.games.now))(document.querySelector('tetris-player'))"
    ).splitlines()[0]
    assert margin.split() == ["margin", f"{explained.margin:.2f}"]


def test_the_timeline_is_as_high_as_the_stack_and_leads_to_a_piece(
    tmp_path: Path, browser_page: Page
) -> None:
    replay = recorded(count=80)
    (tmp_path / "page.html").write_text(player_page(replay), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    inside = "document.querySelector('tetris-player').shadowRoot"
    path = browser_page.evaluate(f"{inside}.querySelector('.heights path').getAttribute('d')")
    tops = [len(scene.rows) / RULES.height for scene in scenes(RULES, replay.after_states())]
    assert [1 - float(y) for y in re.findall(r"V([\d.]+)H", path)] == pytest.approx(
        tops, abs=1e-3
    )
    box = f"{inside}.querySelector('.position').getBoundingClientRect()"
    x, y, width, height = browser_page.evaluate(
        f"(({{x, y, width, height}}) => [x, y, width, height])({box})"
    )
    for kind in ("mousePressed", "mouseReleased"):
        at = {"x": x + width / 2, "y": y + height / 2, "button": "left", "clickCount": 1}
        browser_page.call("Input.dispatchMouseEvent", type=kind, **at)
    assert abs(browser_page.evaluate(STATE)[0] - 40) <= 1


def test_of_a_person_no_reasons_are_told(tmp_path: Path) -> None:
    assert data(player_page(recorded()))["controller"]["features"] == "dt"
    assert data(player_page(replace(recorded(), controller=None)))["controller"] is None


@pytest.mark.parametrize("rules", [Rules(6, 6), RULES, Rules(6, 8, original=True)])
def test_a_dropped_controller_plays_and_a_dropped_replay_is_shown(
    rules: Rules, tmp_path: Path, browser_page: Page
) -> None:
    page, bcts = browser_page, published("bcts")
    file = tmp_path / "page.html"
    file.write_text(player_page(recorded()), encoding="utf-8")
    page.open(file, "document.querySelector('tetris-player')?.board")
    counts = "(({games}) => { games.goTo(%d); return [games.state.lines, games.state.games]; })"
    other = recorded(rules, 60, "mine")
    page.evaluate(DROP % json.dumps(json.dumps(other.to_dict())))
    numbers = placement_numbers(rules.width)
    assert [numbers[tuple(each)] for each in page.evaluate(PLACED)] == list(other.placements)
    player = "(document.querySelector('tetris-player'))"
    before_last = Replay.of(islice(other.after_states(), 59), rules, 4, 0)
    assert page.evaluate(counts % 59 + player) == [before_last.lines, before_last.games]
    page.evaluate(DROP % json.dumps(json.dumps(bcts.to_dict())))
    played = islice(play(PieceStream(rules, 4, 0), bcts.player(rules), rules), 60)
    expected = Replay.of(played, rules, 4, 0, bcts)
    assert [numbers[tuple(each)] for each in page.evaluate(PLACED)] == list(expected.placements)
    page.evaluate(DROP % "'{}'")
    assert "Neither a replay nor a controller" in page.evaluate(
        "document.querySelector('tetris-player').shadowRoot.querySelector('.rules').textContent"
    )


@pytest.mark.parametrize("options", [{"stream": 3}, {"pieces": "TSZJIOL" * 9, "board": "X.XX"}])
def test_a_dropped_controller_plays_the_pieces_and_the_board_of_the_replay(
    options: dict[str, Any], tmp_path: Path, browser_page: Page
) -> None:
    rules = Rules(4, 8)
    played = play_game("anywidth", rules=rules, **options)
    (tmp_path / "page.html").write_text(player_page(played.replay()), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    dropped = LinearController("holes, max_height", (-1.0, -1.0), rules)
    browser_page.evaluate(DROP % json.dumps(json.dumps(dropped.to_dict())))
    expected = play_game(dropped, rules=rules, **options)
    placed = [[step.piece, step.orientation, step.column] for step in expected.steps]
    count = min(len(expected.steps), len(played.steps))
    assert count > 5
    assert browser_page.evaluate(PLACED)[:count] == placed[:count]


def test_a_dropped_replay_is_shown_without_reasons_that_the_page_does_not_know(
    tmp_path: Path, browser_page: Page
) -> None:
    (tmp_path / "page.html").write_text(player_page(recorded()), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    units = LinearController("holes+1", (-1.0, 1.0, 0.0, 1.0), RULES, "units")
    replay = replace(recorded(), controller=units)
    browser_page.evaluate(DROP % json.dumps(json.dumps(replay.to_dict())))
    root = "document.querySelector('tetris-player').shadowRoot"
    shown = f"['h2', '.rules', '.why'].map((each) => {root}.querySelector(each))"
    title, _, why = browser_page.evaluate(
        f"{shown}.map((each) => each.hidden || each.innerText)"
    )
    assert (title, why) == ("units", True)
    browser_page.evaluate(DROP % json.dumps(json.dumps(units.to_dict())))
    _, wrong, _ = browser_page.evaluate(f"{shown}.map((each) => each.innerText)")
    assert wrong.endswith("This page does not know the feature holes+1.")


def test_a_dropped_replay_is_whole_and_has_its_lookahead(
    tmp_path: Path, browser_page: Page
) -> None:
    (tmp_path / "page.html").write_text(player_page(recorded()), encoding="utf-8")
    browser_page.open(tmp_path / "page.html", READY)
    part = "document.querySelector('tetris-player')"
    shown = f"[{part}.shadowRoot.querySelector('.rules').textContent, {part}.engine.lookahead]"
    values = replace(recorded(count=20), lookahead=Lookahead.PREVIEW).to_dict()
    for edited in ({**values, "lines": values["lines"] + 1}, {**values, "version": 3}):
        browser_page.evaluate(DROP % json.dumps(json.dumps(edited)))
        refusal = "Expected a replay of version 2 that was not edited."
        assert browser_page.evaluate(shown) == [refusal, 0]
    browser_page.evaluate(DROP % json.dumps(json.dumps(values, indent=2)))
    assert browser_page.evaluate(shown) == [
        "6x6 board, clear-on-overflow rule, pieces uniform",
        1,
    ]
