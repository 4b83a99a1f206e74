"""A replay as a web page that needs no network, or as a fragment for other pages.

Markup and style are ``replay_page.html``, the program is ``replay_page.js``, beside this file;
``board.css`` and ``board.js`` are shared with other pages. The player is an element,
``<tetris-player>``, with a shadow root: its style and the page's do not mix. The engine in
WebAssembly plays the placements, and says why the controller chose them.
"""

import base64
import html
import json
import zlib
from collections.abc import Mapping
from itertools import chain
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
from tetris.view.game_view import shape_cells

WASM = INCLUDES[0] / "browser.wasm"
_FOLDER = Path(__file__).parent


def player_assets() -> str:
    """Return markup, style and program of the player; a page needs them once."""
    # As a module the program runs after the page is read, and its names are local.
    program = "\n".join(map(asset, ("board.js", "engine.js", "replay_page.js")))
    template = asset("replay_page.html").replace("/* board.css */\n", asset("board.css"))
    parts = json_script(engine_parts(), ' id="tetris-engine"')
    return f'{template}{parts}\n<script type="module">\n{program}</script>\n'


def engine_parts() -> dict[str, object]:
    """Return the data that the game engine of a web page needs, to be written as JSON.

    These are the engine itself, compiled to WebAssembly and encoded as text; the names of the
    features that it computes, their denominators and the named sets of them; and the shapes
    of all pieces in all orientations, whose cells are (x, y) from the bottom left.
    """
    shapes = []
    # The engine numbers placements in this order of shapes.
    for shape in chain.from_iterable(PIECES):
        shapes.append(
            {
                "piece": shape.piece,
                "turn": shape.orientation,
                "width": shape.width,
                "height": shape.height,
                "cells": shape_cells(shape),
            }
        )
    # Features that a user has defined are not in the compiled engine.
    features = [name for name in engine_features(BUILT_IN) if name in BUILT_IN]
    sets = {name: ",".join(members) for name, members in feature_sets().items()}
    return {
        "wasm": _pack(WASM.read_bytes()),
        "features": features,
        "denominators": DENOMINATORS,
        "sets": sets,
        "shapes": shapes,
    }


def _pack(content: bytes) -> str:
    """Return bytes as text for a page: compressed, in base64."""
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def player_fragment(
    replay: Replay,
    title: str = "",
    speed: float = 5.0,
    lookahead: Lookahead = Lookahead.NONE,
    *,
    assets: bool = True,
) -> str:
    """Return a player of a replay as HTML, which can be put anywhere in the body of a page.

    Args:
        replay: The replay, at least one placement.
        title: The title; if it is empty, the name of the controller.
        speed: Pieces per second at first; a viewer can change it.
        lookahead: What the controller considered. The page explains its placements by it.
        assets: Whether to add `player_assets`, of which a page needs one copy.

    Raises:
        ValueError: If the replay is empty.
    """
    if not replay.placements:
        raise ValueError("expected a replay of at least one placement, got none")
    rules = replay.rules
    subtitle = f"{rules.board} board, {rules.rule} rule, pieces {rules.pieces}"
    if replay.seed is not None:
        subtitle += f", seed {replay.seed}"
    if not title and replay.controller is not None:
        title = replay.controller.name
    # Without a seed the piece after the last placement is not known.
    next_piece = None
    if replay.pieces is not None:
        next_piece = replay.pieces[len(replay.placements)]
    values = {
        "title": title or "Tetris",
        "subtitle": subtitle,
        "width": rules.width,
        "height": rules.height,
        "rule": rules.rule,
        "pieces": rules.pieces,
        # A text, because a number of JavaScript has 53 bits only.
        "seed": str(replay.seed or 0),
        "lookahead": lookahead.value,
        "controller": _explaining_controller(replay),
        "speed": speed,
        "placements": _pack(replay.placements),
        "boards": replay.boards,
        "landings": replay.landings,
        "after": next_piece,
    }
    player = f"<tetris-player>{json_script(values)}</tetris-player>\n"
    if assets:
        player += player_assets()
    return player


def player_page(
    replay: Replay, title: str = "", speed: float = 5.0, lookahead: Lookahead = Lookahead.NONE
) -> str:
    """Return a web page, as HTML, that plays a replay of a game.

    The arguments are those of `player_fragment`, which makes the element for the body.
    """
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


def _explaining_controller(replay: Replay) -> dict[str, object] | None:
    """Return the controller as plain values, or None if the page lacks one of its features."""
    controller = replay.controller
    if controller is None or not set(controller.names_on(replay.rules)).issubset(BUILT_IN):
        return None
    return {**controller.to_dict(), "provenance": {}}


def json_script(values: Mapping[str, object], attributes: str = "") -> str:
    """Return values as JSON in a script element that is not executed; no text can end it."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{text}</script>'
