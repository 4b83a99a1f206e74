"""A race with the agent as a web page that needs no network: a person and a controller on the same pieces.

Markup and style are ``play_page.html``, the programs ``board.js``, ``engine.js`` and ``play_page.js`` beside this
file; the engine is ``tetris/engine/browser.wasm``, which ``scripts/pages/wasm.py`` compiles.
"""

from __future__ import annotations

import base64
import zlib

from tetris.game.feature_sets import feature_sets
from tetris.game.features import DENOMINATORS, FEATURES
from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, known_names, published
from tetris.play.engines import INCLUDES
from tetris.play.quantized_weights import engine_features
from tetris.view.replay_page import asset, json_script, page_shapes

WASM = INCLUDES[0] / "browser.wasm"


def play_page(
    controller: LinearController, rules: Rules, seed: int | None = None, lookahead: Lookahead = Lookahead.NONE
) -> str:
    """Return the page, which plays against a controller or another one of the package.

    Args:
        controller: The agent at first; ValueError if it cannot play on the board.
        rules: The rules; a link to the page may ask for others.
        seed: Chooses the pieces; None: other ones whenever the page is opened.
        lookahead: What the agent's decisions consider.
    """
    controller.names_on(rules)
    packaged = [published(name) for name in known_names()]
    agents = [each for each in packaged if each.name != controller.name] + [controller]
    parts = {
        "wasm": base64.b64encode(zlib.compress(WASM.read_bytes(), 9)).decode("ascii"),
        "features": [name for name in engine_features(tuple(FEATURES)) if name in FEATURES],
        "denominators": DENOMINATORS,
        "sets": {name: ",".join(names) for name, names in feature_sets().items()},
        "shapes": page_shapes(),
        "agents": [each.to_dict() | {"provenance": {}} for each in agents],
        "agent": controller.name,
        "lookahead": lookahead.value,
        "rules": {"board": rules.board, "rule": rules.rule, "pieces": rules.pieces}
        | ({} if seed is None else {"seed": str(seed)}),
    }
    programs = "\n".join(map(asset, ("board.js", "engine.js", "play_page.js")))
    page = asset("play_page.html").replace("/* board.css */\n", asset("board.css"))
    data = json_script(parts, ' id="parts"')
    return page.replace("<!-- parts -->\n", f'{data}\n<script type="module">\n{programs}</script>\n')
