"""A replay as a web page that needs no network, or as a fragment for other pages.

Markup and style are ``replay_page.html``, the program is ``replay_page.js``, beside this file; ``board.css``
and ``board.js`` are what other pages with boards share with them. The player is an element,
``<tetris-player>``, with a shadow root: its style and the page's do not mix. The page holds where each piece
comes to rest, and what that does; why the controller put it there the engine in WebAssembly says.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from kernels.support.printable import printable
from tetris.game.feature_sets import feature_sets
from tetris.game.features import DENOMINATORS
from tetris.game.pieces import PIECES
from tetris.game.policy import Lookahead
from tetris.play.engines import INCLUDES
from tetris.play.own_features import BUILT_IN
from tetris.play.quantized_weights import engine_features
from tetris.record.replay import Replay
from tetris.view.game_view import scenes, shape_cells

WASM = INCLUDES[0] / "browser.wasm"
_FOLDER = Path(__file__).parent


def player_assets() -> str:
    """Return markup, style and program of the player; a page needs them once."""
    # A module runs when the page is read, and its names are its own.
    program = "\n".join(map(asset, ("board.js", "engine.js", "replay_page.js")))
    template = asset("replay_page.html").replace("/* board.css */\n", asset("board.css"))
    parts = json_script(engine_parts(), ' id="tetris-engine"')
    return f'{template}{parts}\n<script type="module">\n{program}</script>\n'


def engine_parts() -> dict[str, object]:
    """Return what ``engine.js`` has to know, as plain values: the engine in WebAssembly, features, shapes."""
    return {
        "wasm": base64.b64encode(zlib.compress(WASM.read_bytes(), 9)).decode("ascii"),
        "features": [name for name in engine_features(BUILT_IN) if name in BUILT_IN],
        "denominators": DENOMINATORS,
        "sets": {name: ",".join(names) for name, names in feature_sets().items()},
        "shapes": page_shapes(),
    }


def asset(name: str) -> str:
    """Return a file that lies beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def player_fragment(
    replay: Replay,
    title: str = "",
    speed: float = 5.0,
    lookahead: Lookahead = Lookahead.NONE,
    *,
    assets: bool = True,
) -> str:
    """Return the player of a replay, to be put anywhere in the body of a page.

    Args:
        replay: The replay, at least one placement.
        title: Title; the controller's name if empty.
        speed: Pieces per second at first.
        lookahead: What the controller considered, for the reasons of its placements.
        assets: Whether to add `player_assets`; otherwise the page has to hold them.

    Raises:
        ValueError: If the replay is empty or contradicts its seed, or the speed is not above 0.
    """
    if not replay.placements:
        raise ValueError("expected a replay of at least one placement, got none")
    if not speed > 0:
        raise ValueError(f"expected a speed above 0, got {speed}")
    rules = replay.rules
    about = [f"{rules.board} board", f"{rules.rule} rule", f"pieces {rules.pieces}"]
    if replay.seed is not None:
        about.append(f"seed {replay.seed}")
    values = {
        "title": title or (replay.controller.name if replay.controller else "") or "Tetris",
        "subtitle": ", ".join(about),
        **{"width": rules.width, "height": rules.height, "rule": rules.rule, "pieces": rules.pieces},
        "seed": str(replay.seed or 0),
        "lookahead": lookahead.value,
        "controller": _explained(replay),
        "speed": speed,
        "shapes": page_shapes(),
        "placements": base64.b64encode(zlib.compress(_played(replay), 9)).decode("ascii"),
    }
    element = f"<tetris-player>{json_script(values)}</tetris-player>\n"
    return element + (player_assets() if assets else "")


def page_shapes() -> list[dict[str, object]]:
    """Return the pieces as they are turned, in the order of placements, as plain values."""
    numbers = {"piece": "piece", "turn": "orientation", "width": "width", "height": "height"}
    return [
        {**{key: getattr(x, name) for key, name in numbers.items()}, "cells": shape_cells(x)}
        for orientations in PIECES
        for x in orientations
    ]


def player_page(
    replay: Replay, title: str = "", speed: float = 5.0, lookahead: Lookahead = Lookahead.NONE
) -> str:
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
<body data-page-keys>
{player_fragment(replay, title, speed, lookahead)}</body>
</html>
"""


def _explained(replay: Replay) -> dict[str, object] | None:
    """The controller, if a page can tell its reasons: it knows no features of one's own."""
    controller = replay.controller
    if controller is None or not set(controller.names_on(replay.rules)).issubset(BUILT_IN):
        return None
    return {**controller.to_dict(), "provenance": {}}


def _played(replay: Replay) -> bytes:
    """The numbers of all placements, then the rows of the pieces, then what they do.

    Of that bits 0 to 3 are the rows of the piece that become full, bit 4 is the end of the game.
    """
    rows, marks = bytearray(), bytearray()
    for scene in scenes(replay.rules, replay.after_states()):
        row = scene.after.landing_row
        rows.append(row)
        marks.append(sum(1 << y - row for y in scene.full) | scene.after.game_over << 4)
    return replay.placements + rows + marks


def json_script(values: Mapping[str, object], attributes: str = "") -> str:
    """Return values as JSON in a script element that is not executed; no text can end it."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{text}</script>'
