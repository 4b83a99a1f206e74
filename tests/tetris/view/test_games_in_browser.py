"""docs/play.html: games of two minutes, by keys and by fingers, on windows of three sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chromium import Page

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "play.html"
SECONDS = 120
# In place of the browser's clock: `pass` shows the frames of so many milliseconds at once.
CLOCK = """(() => {
  let now = 0;
  const frames = [];
  performance.now = () => now;
  globalThis.requestAnimationFrame = (act) => frames.push(act);
  globalThis.pass = (milliseconds) => {
    for (const end = now + milliseconds; now < end;) {
      now += 1000 / 60;
      for (const act of frames.splice(0)) act(now);
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


def play_a_game(page: Page, act: Callable[[str], None]) -> None:
    """Play a piece per second where the agent would place it, then drop pieces to the end."""
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
    page.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    page.open(PAGE, "globalThis.race")

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
