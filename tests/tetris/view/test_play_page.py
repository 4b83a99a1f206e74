"""tetris/view/play_page.py: a browser plays as the engine does, by a person's rules, with the
same hints."""

from __future__ import annotations

import html
import json
import random
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from chromium import Page
from engine_games import every_feature, weights_for
from pages import wasm

from tetris import LinearController, Lookahead, Rules, Streams, published
from tetris.game.decisions import after_states, landing_row, place, play, with_next
from tetris.game.feature_sets import feature_names
from tetris.game.features import AfterState, column_heights
from tetris.game.piece_stream import PieceStream
from tetris.game.pieces import PIECES
from tetris.play.rollouts import Rollout
from tetris.record.explanation import explain
from tetris.view.play_page import play_page
from tetris.view.played_game import play_game
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


def placed(after: AfterState) -> str:
    """JavaScript that moves the person's piece above the place of an after-state."""
    shape = f"race.engine.shapes[race.you.piece][{after.shape.orientation}]"
    return f"race.you.put({{ shape: {shape}, column: {after.column} }})"


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
            page.evaluate(placed(other))
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
        page.evaluate(f"{placed(after)}, race.act('drop')")
        rows = after.rows


FIRST_TURNS = (1, 0, 1, 1, 1, 0, 2)  # of IOTZSJL: the shapes whose flat side is below
STATE = """(({ piece, now: { shape: { turn }, column, row }, columns, lines, held }) =>
  ({ phase: race.phase, now: [piece, turn, column, row], columns: [...columns], lines, held }))
  (race.you)"""
# The wall kicks of the Super Rotation System as they are published, by the states before and
# after a turn: 0 as a piece appears, 1 turned right, 2 twice, 3 turned left.
KICKS = {
    (0, 1): [(0, 0), (-1, 0), (-1, 1), (0, -2), (-1, -2)],
    (1, 2): [(0, 0), (1, 0), (1, -1), (0, 2), (1, 2)],
    (2, 3): [(0, 0), (1, 0), (1, 1), (0, -2), (1, -2)],
    (3, 0): [(0, 0), (-1, 0), (-1, -1), (0, 2), (-1, 2)],
    (1, 0): [(0, 0), (1, 0), (1, -1), (0, 2), (1, 2)],
    (0, 3): [(0, 0), (1, 0), (1, 1), (0, -2), (1, -2)],
}
KICKS_OF_I = {
    (0, 1): [(0, 0), (-2, 0), (1, 0), (-2, -1), (1, 2)],
    (1, 2): [(0, 0), (-1, 0), (2, 0), (-1, 2), (2, -1)],
    (2, 3): [(0, 0), (2, 0), (-1, 0), (2, 1), (-1, -2)],
    (3, 0): [(0, 0), (1, 0), (-2, 0), (1, -2), (-2, 1)],
    (1, 0): [(0, 0), (2, 0), (-1, 0), (2, 1), (-1, -2)],
    (0, 3): [(0, 0), (-1, 0), (2, 0), (-1, 2), (2, -1)],
}


def test_turns_try_the_published_kicks(tmp_path: Path, browser_page: Page) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(pieces="IT"))
    page.evaluate("race.you.fits = (at) => { tried.push([at.column, at.row]); }, tried = []")
    for piece, kicks in ((0, KICKS_OF_I), (2, KICKS)):
        for (before, after), wanted in kicks.items():
            rights = (after - before) % 4
            tried = page.evaluate(
                f"tried.length = 0, race.you.take({piece}), race.you.now.state = {before}, "
                f"race.you.turn({rights}), tried"
            )
            (x, y), *_ = tried  # without a kick
            assert [(column - x, row - y) for column, row in tried] == wanted


def test_a_piece_turns_in_its_square(tmp_path: Path, browser_page: Page) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules())
    cells = """race.you.now.shape.cells.map(([x, y]) =>
      [race.you.now.column + x - 3, race.you.now.row + y - 20])"""
    turned = {
        0: [[2, -2], [2, -1], [2, 0], [2, 1]],  # I in columns 3 to 6 stands in column 5
        2: [[1, -1], [1, 0], [1, 1], [2, 0]],
        5: [[1, -1], [1, 0], [1, 1], [2, 1]],
    }
    for piece, wanted in turned.items():
        turned_cells = page.evaluate(f"race.you.take({piece}), race.act('rotate'), {cells}")
        assert sorted(turned_cells) == wanted
        page.evaluate("race.act('back')")
        assert page.evaluate("race.you.now.state") == 0


@pytest.mark.parametrize("original", [False, True])
def test_straight_drops_are_those_of_the_engine(
    original: bool, tmp_path: Path, browser_page: Page
) -> None:
    rules = Rules(6, 8, original=original)
    page = opened(browser_page, tmp_path, published("dt20"), rules, 4)
    pieces, drawn, lines, held = PieceStream(rules, 4, 0), 1, 0, None
    rows: tuple[int, ...] = ()
    chance = random.Random(1)
    for _ in range(300):
        if chance.random() < 0.1:
            before = page.evaluate(STATE)
            page.evaluate("race.act('hold')")
            after = page.evaluate(STATE)
            if not original and held != after["held"]:
                drawn += held is None
                held = before["now"][0]
            assert after["held"] == held
        for act in chance.choices(("left", "right", "rotate", "back", "lower"), k=6):
            now = page.evaluate(STATE)["now"]
            is_at_rest = now[3] == landing_row(
                column_heights(rows, rules.width), PIECES[now[0]][now[1]], now[2]
            )
            if act != "lower" or not is_at_rest:
                page.evaluate(f"race.act('{act}')")
        piece, turn, column, row = page.evaluate(STATE)["now"]
        rest = landing_row(column_heights(rows, rules.width), PIECES[piece][turn], column)
        assert row >= rest
        page.evaluate("race.act('drop')")
        after_state = with_next(
            place(rows, PIECES[piece][turn], column, rest, rules), pieces[drawn]
        )
        rows, lines = after_state.rows, lines + after_state.lines
        drawn += 1
        shown = page.evaluate(STATE)
        assert shown["lines"] == lines
        if after_state.game_over:
            assert shown["phase"] == "end"
            return
        assert shown["columns"][:6] == [
            sum((row >> x & 1) << y for y, row in enumerate(rows)) for x in range(6)
        ]
        assert shown["now"][:2] == [pieces[drawn - 1], FIRST_TURNS[pieces[drawn - 1]]]
    raise AssertionError("expected the game to end")


def test_a_piece_slides_under_others_and_may_lie_for_the_lock_delay(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(4, 8, pieces="I"), 1)
    page.evaluate(
        "document.querySelector('#moves').value = 'slide', race.restart(), "
        # Rows 0 and 1: a roof over column 3, which a standing piece cannot reach from above.
        "race.you.columns.set([0b01, 0b11, 0b11, 0b10]), race.you.rest(race.you.now)"
    )
    page.evaluate(
        "race.you.now = { ...race.you.now, column: 3, row: 0, "
        "shape: { ...race.engine.shapes[0][0], cells: [[0, 0]], height: 1 } }"
    )
    page.evaluate("race.you.fall(0.4, 0.5)")
    assert page.evaluate("race.you.pieces") == 0
    page.evaluate("race.you.fall(0.2, 0.5)")
    # Row 0 is full and goes; the roof falls by a row.
    assert page.evaluate(
        "[race.you.pieces, race.you.lines, [...race.you.columns.slice(0, 4)]]"
    ) == [
        1,
        1,
        [0, 1, 1, 1],
    ]


def test_a_piece_that_slides_under_others_above_the_top_row_ends_the_game(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(4, 8, pieces="L"))
    page.evaluate(
        "document.querySelector('#moves').value = 'slide', race.restart(), "
        # The foot of the piece lies in row 6, below a roof in row 7; its top is in row 8.
        "race.you.columns.set([0, 0b111111, 0b10111111]), "
        "race.you.put({ shape: race.engine.shapes[6][1], column: 0, row: 6 }), "
        "race.act('right')"
    )
    assert page.evaluate("race.you.now.column") == 1
    page.evaluate("race.you.ask(), race.you.show(true)")
    reasons = page.evaluate("document.querySelector('.reasons pre').textContent")
    assert reasons.startswith("none: its pieces")  # The agent values straight drops only.
    page.evaluate("race.act('drop')")
    assert page.evaluate("race.phase") == "end"


@pytest.mark.parametrize("rate", [60, 144])
def test_a_piece_falls_as_fast_on_every_screen(
    rate: int, tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules())
    frames = page.evaluate(f"""(() => {{
      let frames = 0;
      race.you.lines = 190;
      for (; race.you.pieces < 1; frames += 1) race.you.fall(1 / {rate}, 0.5);
      return frames;
    }})()""")
    assert frames / rate == pytest.approx(21 * 0.5 * 0.85**19, rel=0.05)


def test_keys_repeat_after_the_delay_at_the_rate(tmp_path: Path, browser_page: Page) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(), 1)
    columns = page.evaluate("""(() => {
      const seen = [], before = performance.now();
      race.you.take(0);
      race.press("right");
      const due = race.held.get("right");
      if (due < before + 167) throw new Error("too early");
      for (const later of [-1, 0, 32, 33]) {
        race.repeat(due + later);
        seen.push(race.you.now.column);
      }
      return seen;
    })()""")
    assert columns == [4, 5, 5, 6]


def test_a_keyboard_of_another_script_has_the_same_keys(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules())
    russian = "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'С', code: 'KeyC' }))"
    assert page.evaluate(f"{russian}, race.you.held !== null")


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
    page.touch((x + 20, y + 100), (x + 60, y + 300))  # a flick down that drifts
    assert page.evaluate("race.you.pieces") == 1
    for _ in range(40):
        page.press(" ")
    page.wait_for("race.phase === 'end' && document.querySelector('#end').open")
    assert page.evaluate("document.querySelector('#card').toDataURL().length") > 5000
    lines, link = page.evaluate("[race.you.lines, location.href]")
    assert f"seed={seed}&" in link
    page.open("about:blank")
    page.open(link, "globalThis.race")
    assert page.evaluate("[race.rules.seed, race.rules.pieces]") == [seed, "IO"]
    assert f"A friend cleared {lines} line" in page.evaluate(
        "document.querySelector('#challenge').textContent"
    )
    address, _, _ = link.partition("#")
    for pieces in ("zs", "JLSZTOI"):
        page.open("about:blank")
        page.open(f"{address}#pieces={pieces}&seed={SEED}", "globalThis.race")
        assert page.evaluate("race.rules.pieces") == Rules(pieces=pieces).pieces
    page.open("about:blank")
    page.open(f"{address}#you=3&agent=4&by=mine", "globalThis.race")
    assert "does not know the agent mine" in page.evaluate(
        "document.querySelector('.wrong').textContent"
    )
    for wrong in ("pieces=SSZ", f"seed={1 << 64}", "you=x", "toString=x"):
        page.open("about:blank")
        page.open(f"{address}#{wrong}", "globalThis.race")
        assert page.evaluate("document.querySelector('.wrong').textContent").startswith(
            f"The link cannot be read ({wrong})"
        )
    assert page.evaluate("document.querySelector('#challenge').textContent") == ""


def test_the_picture_of_a_result_has_room_for_its_text(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("anywidth"), Rules(10, 4))
    rooms = page.evaluate("""(() => {
      const rooms = [];
      CanvasRenderingContext2D.prototype.fillText = (...values) => rooms.push(values[3]);
      race.end();
      return rooms;
    })()""")
    assert min(rooms) >= 240


def test_a_finger_moves_its_piece_alone_and_another_finger_turns_it(
    tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("dt20"), Rules(pieces="T"))
    page.touch((1, 1))  # the layout is that for fingers then
    x, y, cell = page.evaluate(
        "(({ x, y, width }) => [x, y + 200, width / 10])"
        "(document.querySelector('.you .board').getBoundingClientRect())"
    )

    def seen(kind: str, *columns: float) -> list[int]:
        points = [{"x": x + cell * at, "y": y, "id": n} for n, at in enumerate(columns)]
        ended = points[-1:] if kind == "touchEnd" else points
        page.call("Input.dispatchTouchEvent", type=kind, touchPoints=ended)
        return list(page.evaluate("[race.you.now.column, race.you.now.state]"))

    seen("touchStart", 2.0)
    assert seen("touchMove", 4.1) == [5, 0]
    page.evaluate("race.act('drop')")
    assert seen("touchMove", 4.3) == [3, 0]
    seen("touchStart", 4.3, 9.0)
    assert seen("touchEnd", 4.3, 9.0) == [4, 1]
    seen("touchMove", 5.3)
    page.wait_for("race.you.now.column === 5")


def test_a_race_ends_inside_a_notebook(tmp_path: Path, browser_page: Page) -> None:
    page = html.escape(play_page(published("dt20"), Rules(8, 9)))
    (tmp_path / "notebook.html").write_text(f'<iframe srcdoc="{page}"></iframe>', "utf-8")
    browser_page.open(tmp_path / "notebook.html", "frames[0].race")
    browser_page.evaluate("frames[0].race.end()")
    shown, link = browser_page.evaluate(
        "[frames[0].document.querySelector('#end').open, frames[0].location.hash]"
    )
    assert shown
    assert "board=8x9&you=0&agent=0&by=dt20" in link


def test_a_keyboard_reaches_every_choice_of_a_menu(tmp_path: Path, browser_page: Page) -> None:
    (tmp_path / "play.html").write_text(play_page(published("dt20"), Rules()), "utf-8")
    browser_page.open(tmp_path / "play.html", "globalThis.race")
    menu = "document.querySelector('#pace')"
    browser_page.evaluate(f"{menu}.value = '0', {menu}.focus()")
    for _ in range(2):
        browser_page.press("ArrowDown")
    assert browser_page.evaluate(f"{menu}.value") == "0.5"


def test_no_kept_setting_keeps_the_game_from_beginning(
    tmp_path: Path, browser_page: Page
) -> None:
    (tmp_path / "play.html").write_text(play_page(published("dt20"), Rules()), "utf-8")
    browser_page.open(tmp_path / "play.html", "globalThis.race")
    browser_page.evaluate("Object.assign(localStorage, { das: 1000, arr: '', previews: 9 })")
    browser_page.open(tmp_path / "play.html", "globalThis.race")
    settings = "['das', 'arr', 'previews'].map((name) => race.setting(name))"
    assert browser_page.evaluate(settings) == [1000, 33, 3]
    browser_page.evaluate("document.querySelector('#play').click()")
    browser_page.wait_for("race.phase === 'play'")


@pytest.mark.parametrize(("size", "rules"), [((800, 600), Rules()), ((360, 640), Rules(4, 24))])
def test_the_next_pieces_are_in_sight_in_a_small_window(
    size: tuple[int, int], rules: Rules, tmp_path: Path, browser_page: Page
) -> None:
    browser_page.resize(*size)
    page = opened(browser_page, tmp_path, published("anywidth"), rules)
    bottoms = page.evaluate(
        "[...document.querySelectorAll('.board, .next')].map((each) => "
        "each.getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= size[1]


def test_the_agents_board_can_be_read_on_a_low_tablet(
    tmp_path: Path, browser_page: Page
) -> None:
    browser_page.resize(960, 520)
    browser_page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page = opened(browser_page, tmp_path, published("dt20"), Rules())
    assert page.evaluate("document.querySelector('.rival .board').clientWidth") >= 60


def test_a_screen_reader_names_every_dialog() -> None:
    page = play_page(published("dt20"), Rules())
    names = re.findall(r'<dialog id="\w+" aria-labelledby="(\w+)">', page)
    assert len(names) == page.count("<dialog") == 2
    assert all(f'<h2 id="{name}"' in page for name in names)


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
    chosen = page.evaluate(f"""(() => {{
      const file = document.querySelector("#file"), chosen = new DataTransfer();
      chosen.items.add(new File([{json.dumps(mine)}], "controller.json"));
      file.files = chosen.files;
      file.dispatchEvent(new Event("change"));
      return file.files.length;
    }})()""")
    assert chosen == 0  # The same file can be chosen again.
    page.wait_for("race.agents.at(-2).name === 'mine'")
    page.evaluate("race.you.lines = 7, race.end()")
    page.evaluate(f"race.read(new File([{json.dumps(mine)}], 'controller.json'))")
    assert page.evaluate("race.score") == "you 7, agent 0"
    assert page.evaluate("race.engine.names('dt_columns', 8).join()") == ",".join(
        feature_names("dt_columns", 8)
    )


@pytest.mark.parametrize("rules", [Rules(10, 6), Rules(6, 8, original=True), Rules(10, 20)])
def test_a_game_of_learning_has_the_lines_of_the_reference(
    rules: Rules, tmp_path: Path, browser_page: Page
) -> None:
    page = opened(browser_page, tmp_path, published("anywidth"), rules)
    for seed in (1, 2, SEED):
        lines = page.evaluate(
            f"race.learner.prepare({{ ...race.rules, seed: '{seed}' }}, race.agent), "
            "race.learner.calls.play(0, 100)"
        )
        assert lines == play_game("anywidth", seed, rules=rules, most_pieces=100).lines


def test_a_controller_is_learned_on_the_page(tmp_path: Path, browser_page: Page) -> None:
    (tmp_path / "play.html").write_text(play_page(published("dt20"), Rules()), "utf-8")
    browser_page.open(tmp_path / "play.html", "globalThis.race")
    button = "document.querySelector('#train')"
    browser_page.evaluate(f"{button}.click()")
    browser_page.wait_for(f"race.agent.name === 'learned here' && !{button}.disabled")
    told = browser_page.evaluate("document.querySelector('#learning').textContent")
    assert told.startswith("Generation 10 of 10")
    # The random numbers are the browser's. Of 14,000 games of 70 such players, one was lost
    # within 1,000 pieces.
    browser_page.evaluate("race.restart()")
    lines, games = browser_page.evaluate(
        "[...Array(1000)].forEach(() => race.other.step()), "
        "[race.other.lines, race.other.games]"
    )
    assert lines > 380
    assert games == 0


def test_a_controller_that_is_loaded_during_training_stays(
    tmp_path: Path, browser_page: Page
) -> None:
    (tmp_path / "play.html").write_text(play_page(published("dt20"), Rules(4, 4)), "utf-8")
    browser_page.open(tmp_path / "play.html", "globalThis.race")
    mine = LinearController("holes, max_height", (-4.0, -1.0), name="mine").to_dict()
    browser_page.evaluate(
        "document.querySelector('#train').click(), "
        f"race.read(new File([{json.dumps(json.dumps(mine))}], 'mine.json'))"
    )
    browser_page.wait_for("!document.querySelector('#train').disabled")
    assert browser_page.evaluate("race.agent.name") == "mine"
    assert browser_page.evaluate("Array.from(race.agent.weights)") == [-4.0, -1.0]
    menu = browser_page.evaluate(
        "[...document.querySelector('#agent')].map(({ text, value }) => "
        "[text, race.agents[value].name, race.agents[value].weights.length])"
    )
    assert sorted(menu[-2:]) == [["learned here", "learned here", 9], ["mine", "mine", 2]]


def test_the_command_writes_the_page(tmp_path: Path, script: Any) -> None:
    out = tmp_path / "play.html"
    arguments = ("--board", "10x10", "--seed", 3, "--no-open", "--out", out)
    size, address = script("tetris.commands.play", "bcts", *arguments).out.splitlines()
    assert size.startswith(f"{out}: ")
    assert address == f"to play, open {out.as_uri()} in a browser"
    text = out.read_text(encoding="utf-8")
    assert '"board":"10x10","rule":"published","pieces":"uniform","seed":"3"' in text
    assert len(text) < 1_500_000
