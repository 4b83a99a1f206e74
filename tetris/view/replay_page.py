"""A replay as a web page that needs no network, or as a fragment for other pages.

Markup and style are ``replay_page.html``, the program is ``replay_games.js`` and ``replay_page.js``, beside
this file. The player is an element, ``<tetris-player>``, with a shadow root: its style and the page's do not
mix.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from kernels.support.printable import printable
from tetris.game.pieces import PIECES
from tetris.record.replay import Replay
from tetris.view.game_view import shape_cells

DEFAULT_SPEED = 5.0
"""Default speed of a player, in pieces a second."""

_FOLDER = Path(__file__).parent
_PROGRAM = ("replay_games.js", "replay_page.js")


def player_assets() -> str:
    """Return markup, style and program of the player; a page needs them once."""
    template = (_FOLDER / "replay_page.html").read_text(encoding="utf-8")
    program = "".join((_FOLDER / name).read_text(encoding="utf-8") for name in _PROGRAM)
    # A page may hold the program several times: only the first one defines the element.
    once = 'if (!customElements.get("tetris-player")) (() => {'
    return f"{template}<script>\n{once}\n{program}}})();\n</script>\n"


def player_fragment(
    replay: Replay, title: str = "", speed: float = DEFAULT_SPEED, *, assets: bool = True
) -> str:
    """Return the player of a replay, to be put anywhere in the body of a page.

    Args:
        replay: The replay, at least one placement.
        title: Title; the controller's name if empty.
        speed: Pieces a second at first.
        assets: Whether to add `player_assets`; otherwise the page has to hold them.

    Raises:
        ValueError: If the replay is empty, or the speed is not above 0.
    """
    return _element(replay, title, speed) + (player_assets() if assets else "")


def player_page(replay: Replay, title: str = "", speed: float = DEFAULT_SPEED) -> str:
    """Return a whole page with the player of a replay; see `player_fragment`."""
    name = html.escape(printable(title or "Tetris"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}</title>
<style>
body {{ margin: 0; padding: 1rem; background: #ffffff; }}
tetris-player {{ margin: 0 auto; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #16181d; }} }}
</style>
</head>
<body>
{_element(replay, title, speed, " page-keys")}{player_assets()}</body>
</html>
"""


def _element(replay: Replay, title: str, speed: float, attributes: str = "") -> str:
    if not replay.placements:
        raise ValueError("expected a replay of at least one placement, got none")
    if not speed > 0:
        raise ValueError(f"expected a speed above 0, got {speed}")
    rules = replay.rules
    values = {
        "title": title or (replay.controller.name if replay.controller else "") or "Tetris",
        "subtitle": _subtitle(replay),
        "width": rules.width,
        "height": rules.height,
        "clear_on_overflow": rules.clear_on_overflow,
        # By the original rule the next piece has to appear: that after the last placement, too.
        "last_next": replay.piece_after(len(replay.placements) - 1) if rules.original else None,
        "speed": speed,
        "shapes": _shapes(),
        "placements": base64.b64encode(zlib.compress(replay.placements, 9)).decode("ascii"),
    }
    return f"<tetris-player{attributes}>{json_script(values)}</tetris-player>\n"


def json_script(values: Mapping[str, object], attributes: str = "") -> str:
    """Return values as JSON in a script element that is not executed; no text can end it."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{text}</script>'


def _subtitle(replay: Replay) -> str:
    rules = replay.rules
    parts = [f"{rules.board} board", f"{rules.rule} rule", f"pieces {rules.pieces}"]
    return ", ".join([*parts, *([] if replay.seed is None else [f"seed {replay.seed}"])])


def _shapes() -> list[dict[str, object]]:
    return [
        {"piece": x.piece, "width": x.width, "height": x.height, "cells": shape_cells(x)}
        for shapes in PIECES
        for x in shapes
    ]
