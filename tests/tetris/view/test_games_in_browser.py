"""docs/play.html: games of two minutes, by keys and by fingers, on windows of three sizes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from chromium import Page
from webdriver import DrivenPage, firefox, webkit

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "play.html"
SECONDS = 120
# In place of the browser's clock: `pass` shows the frames of so many milliseconds at once.
CLOCK = """(() => {
  let now = performance.now();
  window.waiting = [];
  performance.now = () => now;
  window.requestAnimationFrame = (act) => waiting.push(act);
  window.pass = (milliseconds) => {
    for (const end = now + milliseconds; now < end;) {
      now += 1000 / 60;
      for (const act of waiting.splice(0)) act(now);
    }
  };
})()"""
# The turns and steps of the person's piece to where the agent would place it.
PLAN = """(({ columns, piece, next, now, engine }) => {
  const { shape, column } = engine.choose(columns, piece, next);
  const shapes = engine.shapes[piece];
  const count = shapes.length;
  const turns = (shapes.indexOf(now.shape) - shapes.indexOf(shape) + count) % count;
  for (let turn = 0; turn < turns; turn += 1) race.you.turn(1);
  const steps = column - race.you.now.column;
  for (let turn = 0; turn < turns; turn += 1) race.you.turn(3);
  return [turns, steps];
})(race.you)"""
KEYS = {"rotate": "ArrowUp", "left": "ArrowLeft", "right": "ArrowRight", "drop": " "}
FITS = """[...document.querySelectorAll(SELECTOR)].every((element) => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight;
})"""


def play_a_game(page: Page | DrivenPage, act: Callable[[str], None]) -> None:
    """Play a piece per second where the agent would place it, then drop pieces to the end."""
    page.wait_for("globalThis.race")
    page.evaluate(CLOCK)
    page.wait_for("waiting.length")  # The last frame by the browser's clock is over.
    page.evaluate("document.querySelector('#sounds').value = 1")
    page.evaluate("document.querySelector('#play').click()")
    page.wait_for("race.phase === 'play'")
    for _ in range(SECONDS):
        turns, steps = page.evaluate(PLAN)
        for action in ["rotate"] * turns + ["left" if steps < 0 else "right"] * abs(steps):
            act(action)
        act("drop")
        page.evaluate("pass(1000)")
    assert page.evaluate("race.you.seconds") >= SECONDS
    assert page.evaluate("race.you.lines") > SECONDS * 4 // 10 - 10
    while page.evaluate("race.phase") == "play":
        act("drop")


@pytest.mark.parametrize(
    ("width", "height", "by_touch"),
    [(1280, 800, False), (390, 844, True), (844, 390, True)],
    ids=["desk", "phone", "sideways"],
)
def test_a_game_of_two_minutes_ends_with_the_result_card(
    width: int, height: int, by_touch: bool, browser_page: Page
) -> None:
    page = browser_page
    page.resize(width, height)
    if by_touch:
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.open(PAGE)

    def touch(action: str) -> None:
        page.touch(
            page.evaluate(f"""(() => {{
          const box = document.querySelector("[data-act={action}]").getBoundingClientRect();
          return [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        )

    play_a_game(page, touch if by_touch else lambda action: page.press(KEYS[action]))
    shown = ".you .board, .rival .board" + (", .pad button" if by_touch else "")
    assert page.evaluate(FITS.replace("SELECTOR", f"'{shown}'"))
    assert page.evaluate("document.querySelector('#end').open")
    assert page.evaluate("document.querySelector('#card').toDataURL().length") > 5000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("needed", "open_browser"),
    [(["firefox"], firefox), (["WebKitWebDriver", "xvfb-run"], webkit)],
)
def test_other_browsers_play_it_too(
    needed: list[str], open_browser: Callable[[Path], DrivenPage], tmp_path: Path
) -> None:
    if not all(map(shutil.which, needed)):
        pytest.skip(f"needs {' and '.join(needed)} on the path")
    with closing(open_browser(tmp_path)) as page:
        page.open(PAGE)
        play_a_game(page, lambda action: page.press(KEYS[action]))
        assert page.evaluate("document.querySelector('#end').open")
        assert page.evaluate("document.querySelector('#card').toDataURL().length") > 5000
