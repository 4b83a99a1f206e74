"""A web page on which a person and a controller play the same pieces; it needs no network.

The files beside this one are its parts: markup and style are in ``play_page.html``, and the
programs are the files of `_PROGRAMS`. The engine is ``tetris/engine/browser.wasm``, which
``scripts/pages/wasm.py`` compiles.
"""

from tetris.game.policy import Lookahead
from tetris.game.rules import Rules
from tetris.play.controller import LinearController, known_names, published
from tetris.play.own_features import BUILT_IN
from tetris.view.replay_page import asset, engine_parts, json_script, project_link

_PROGRAMS = (
    "board.js",
    "engine.js",
    "learning.js",
    "play_sides.js",
    "result_card.js",
    "play_page.js",
)


def play_page(
    controller: LinearController,
    rules: Rules,
    seed: int | None = None,
    lookahead: Lookahead = Lookahead.NONE,
) -> str:
    """Return a web page, as HTML, on which a person plays against a controller.

    The page also offers the other controllers of the package.

    Args:
        controller: The controller that plays first.
        rules: The rules of the games.
        seed: The seed of the pieces; None: a new seed whenever the page is opened.
        lookahead: Which later pieces the controller considers.

    Raises:
        ValueError: If the controller cannot play on the board, or if it has hidden units or a
            feature that a user defined.
    """
    # The page has only the features of the package.
    if not set(controller.names_on(rules)).issubset(BUILT_IN):
        raise ValueError(
            "expected features of the package without hidden units, which the page plays with, "
            f"got {controller.features}"
        )
    controllers = [controller]
    controllers += [published(name) for name in known_names() if name != controller.name]
    # The page does not need the provenance of the controllers, which is large.
    agents = [{**agent.to_dict(), "provenance": {}} for agent in controllers]
    game = {"board": rules.board, "rule": rules.rule, "pieces": rules.pieces}
    if seed is not None:
        # The seed is written as a text, because JavaScript's numbers have only 53 bits.
        game["seed"] = str(seed)
    parts = {
        **engine_parts(),
        "agents": agents,
        "lookahead": lookahead.value,
        "rules": game,
    }
    # Replace the comments in the template of the page by the style, the data and the programs.
    page = asset("play_page.html").replace("/* board.css */\n", asset("board.css"))
    page = page.replace("<!-- project -->\n", project_link())
    data = json_script(parts, ' id="parts"')
    programs = "\n".join(map(asset, _PROGRAMS))
    return page.replace(
        "<!-- parts -->\n", f'{data}\n<script type="module">\n{programs}</script>\n'
    )
