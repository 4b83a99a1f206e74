"""A web page without network on which a person and a controller play the same pieces.

Markup and style are ``play_page.html``, the programs are the files of `_PROGRAMS`, beside this
file. The engine is ``tetris/engine/browser.wasm``, which ``scripts/pages/wasm.py`` compiles.
"""

from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, known_names, published
from tetris.play.own_features import BUILT_IN
from tetris.view.replay_page import asset, engine_parts, json_script

_PROGRAMS = ("board.js", "engine.js", "play_sides.js", "result_card.js", "play_page.js")


def play_page(
    controller: LinearController,
    rules: Rules,
    seed: int | None = None,
    lookahead: Lookahead = Lookahead.NONE,
) -> str:
    """Return a web page, as HTML, on which a person plays against a controller.

    The page also offers the other controllers of the package.

    Args:
        controller: The controller that the page begins with.
        rules: The rules of the games.
        seed: Seed of the pieces; None: other pieces whenever the page is opened.
        lookahead: What the controller considers beside the falling piece.

    Raises:
        ValueError: If the controller cannot play on the board, or if it has a feature that a
            user defined, because the page has only the features of the package.
    """
    user_features = set(controller.names_on(rules)).difference(BUILT_IN)
    if user_features:
        names = ", ".join(user_features)
        raise ValueError(
            f"expected features of the package, which the page plays with, got {names}"
        )
    controllers = [controller]
    controllers += [published(name) for name in known_names() if name != controller.name]
    # The provenance of a controller, which the page does not need, would make it large.
    agents = [{**agent.to_dict(), "provenance": {}} for agent in controllers]
    game = {"board": rules.board, "rule": rules.rule, "pieces": rules.pieces}
    if seed is not None:
        game["seed"] = str(seed)  # A text, because a number of JavaScript has 53 bits only.
    parts = {
        **engine_parts(),
        "agents": agents,
        "lookahead": lookahead.value,
        "rules": game,
    }
    # Insert the style, the data and the programs into the template of the page.
    page = asset("play_page.html").replace("/* board.css */\n", asset("board.css"))
    data = json_script(parts, ' id="parts"')
    programs = "\n".join(map(asset, _PROGRAMS))
    return page.replace(
        "<!-- parts -->\n", f'{data}\n<script type="module">\n{programs}</script>\n'
    )
