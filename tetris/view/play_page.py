"""A race with a controller as a web page that needs no network: it and a person play the same pieces.

Markup and style are ``play_page.html``, the programs ``board.js``, ``engine.js`` and ``play_page.js``, beside
this file. The engine is ``tetris/engine/browser.wasm``, which ``scripts/pages/wasm.py`` compiles.
"""

from __future__ import annotations

from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, known_names, published
from tetris.play.own_features import BUILT_IN
from tetris.view.replay_page import asset, engine_parts, json_script


def play_page(
    controller: LinearController, rules: Rules, seed: int | None = None, lookahead: Lookahead = Lookahead.NONE
) -> str:
    """Return the page, on which one may also play against the other controllers of the package.

    Without a seed the pieces are other ones whenever it is opened. ValueError if the controller cannot play
    on the board, or has features of one's own.
    """
    own = set(controller.names_on(rules)).difference(BUILT_IN)
    if own:
        raise ValueError(f"expected features of the package, which the page plays with, got {', '.join(own)}")
    packaged = (published(name) for name in known_names() if name != controller.name)
    game = {"board": rules.board, "rule": rules.rule, "pieces": rules.pieces}
    parts = {
        **engine_parts(),
        "agents": [{**each.to_dict(), "provenance": {}} for each in (controller, *packaged)],
        "lookahead": lookahead.value,
        "rules": game if seed is None else {**game, "seed": str(seed)},
    }
    programs = "\n".join(map(asset, ("board.js", "engine.js", "play_page.js")))
    page = asset("play_page.html").replace("/* board.css */\n", asset("board.css"))
    data = json_script(parts, ' id="parts"')
    return page.replace("<!-- parts -->\n", f'{data}\n<script type="module">\n{programs}</script>\n')
