"""A replay as a web page that needs no network, or as a fragment for other pages.

The player is an HTML element, ``<tetris-player>``, with a shadow root: its style and that of
the page do not affect each other. The engine in WebAssembly plays the placements, and explains
why the controller chose them. The files beside this one are the parts of the player: markup and
style are in ``replay_page.html``, and the program is ``replay_page.js``. It shares
``board.css`` and ``board.js`` with other pages.
"""

import base64
import html
import json
import zlib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from kernels.support.printable import printable
from kernels.version import REPOSITORY
from tetris.game.feature_sets import feature_sets
from tetris.game.features import DENOMINATORS
from tetris.game.pieces import PIECES
from tetris.play.engines import INCLUDES
from tetris.play.own_features import BUILT_IN
from tetris.play.quantized_weights import engine_features
from tetris.record.replay import Replay

WASM = INCLUDES[0] / "browser.wasm"
_FOLDER = Path(__file__).parent


def player_assets() -> str:
    """Return the markup, style and program of the player. A page needs them only once."""
    # A program of the type "module" runs after the page has loaded, and its names are local.
    program = "\n".join(map(asset, ("board.js", "engine.js", "replay_page.js")))
    template = asset("replay_page.html").replace("/* board.css */\n", asset("board.css"))
    parts = json_script(engine_parts(), ' id="tetris-engine"')
    return f'{template}{parts}\n<script type="module">\n{program}</script>\n'


def engine_parts() -> dict[str, object]:
    """Return the data that the game engine of a web page needs, to be written as JSON.

    Returns:
        "wasm": The engine, compiled to WebAssembly and encoded as text.
        "features": The names of the features that the engine computes.
        "denominators": A factor for each feature whose values are fractions. The value times
            the factor is an integer.
        "sets": The features of each named set, separated by commas.
        "shapes": The shapes of all pieces in all orientations. A cell of a shape is (x, y) from
            its bottom left corner.
    """
    shapes = []
    # The engine numbers the placements in this order of shapes.
    for shape in chain.from_iterable(PIECES):
        shapes.append(
            {
                "piece": shape.piece,
                "turn": shape.orientation,
                "width": shape.width,
                "height": shape.height,
                "cells": shape.cells,
            }
        )
    # The compiled engine has only the features of the package, not those of a user.
    features = [name for name in engine_features(BUILT_IN) if name in BUILT_IN]
    sets = {name: ",".join(members) for name, members in feature_sets().items()}
    return {
        "wasm": _pack(WASM.read_bytes()),
        "features": features,
        "denominators": DENOMINATORS,
        "sets": sets,
        "shapes": shapes,
    }


def project_link() -> str:
    """Return a paragraph of HTML that links to the project; empty without a public address."""
    if not REPOSITORY:
        return ""
    return f'<p class="project"><a href="{html.escape(REPOSITORY)}">cem-tetris</a></p>\n'


def _pack(content: bytes) -> str:
    """Return bytes as text for a page: compressed by zlib and written in base64."""
    return base64.b64encode(zlib.compress(content, 9)).decode("ascii")


def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def player_fragment(
    replay: Replay,
    title: str = "",
    speed: float = 5.0,
    *,
    assets: bool = True,
) -> str:
    """Return HTML that plays a replay, and can be put anywhere in the body of a page.

    Args:
        replay: The replay, with at least one placement.
        title: The title; if it is empty, the name of the controller is used.
        speed: The initial speed in pieces per second, which a viewer can change.
        assets: Whether to add `player_assets`. If a page has several players, only one of them
            needs to add them.

    Raises:
        ValueError: If the replay is empty.
    """
    if not replay.placements:
        raise ValueError("expected a replay of at least one placement, got none")
    if not title and replay.controller is not None:
        title = replay.controller.name
    # The piece after the last placement is known only if the pieces come from a seed.
    next_piece = None
    if replay.pieces is not None:
        next_piece = replay.pieces[len(replay.placements)]
    rules = replay.rules
    values = {
        "title": title or "Tetris",
        "subtitle": _subtitle(replay),
        "width": rules.width,
        "height": rules.height,
        "rule": rules.rule,
        "pieces": rules.pieces,
        # The seed is written as a text, because JavaScript's numbers have only 53 bits.
        "seed": str(replay.seed or 0),
        "lookahead": replay.lookahead.value,
        "controller": _explaining_controller(replay),
        "speed": speed,
        "placements": _pack(replay.placements),
        "boards": replay.boards,
        "landings": replay.landings,
        "after": next_piece,
    }
    player = f"<tetris-player>{json_script(values)}</tetris-player>\n"
    return player + player_assets() if assets else player


def _subtitle(replay: Replay) -> str:
    """Return the board, the rule and the pieces of a replay as text."""
    rules = replay.rules
    seed = "" if replay.seed is None else f", seed {replay.seed}"
    return f"{rules.board} board, {rules.rule} rule, pieces {rules.pieces}{seed}"


def player_page(replay: Replay, title: str = "", speed: float = 5.0) -> str:
    """Return a web page, as HTML, that plays a replay of a game.

    The body of the page is a `player_fragment` with the same arguments.
    """
    page_title = html.escape(printable(title or "Tetris"))
    # In an f-string a doubled brace stands for a single one.
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{page_title}</title>
<style>
body {{ margin: 0; padding: 1rem; background: #ffffff; }}
tetris-player {{ margin: 0 auto; }}
.project {{ text-align: center; font: 13px/1.4 system-ui, sans-serif; }}
.project a {{ color: #2f6fd0; }}
@media (prefers-color-scheme: dark) {{
body {{ background: #16181d; }}
.project a {{ color: #6aa2f5; }}
}}
</style>
</head>
<body data-page-keys>
<main>
{player_fragment(replay, title, speed)}{project_link()}</main>
</body>
</html>
"""


def _explaining_controller(replay: Replay) -> dict[str, object] | None:
    """Return the controller as a dictionary, or None if the page cannot explain its placements.

    The page lacks the features that a user defined.
    """
    controller = replay.controller
    if controller is None or not set(controller.names_on(replay.rules)).issubset(BUILT_IN):
        return None
    return {**controller.to_dict(), "provenance": {}}


def json_script(values: Mapping[str, object], attributes: str = "") -> str:
    """Return values as JSON in a script element, which the browser does not execute.

    The character ``<`` is escaped, so that no text in the values can end the element.
    """
    text = json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json"{attributes}>{text}</script>'
