"""The arguments that the commands share: controllers, board, rule, pieces, seed, device."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tetris import LinearController, Lookahead, Rules, resolve
from tetris.commands.command_line import (
    Parser,
    one_line_errors,
    one_of,
    positive_int,
    positive_seconds,
    seed,
)
from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.comparison import score_table
from tetris.evaluation.measurement import Trial
from tetris.game.rules import RULES
from tetris.play.controller import PUBLISHED, known_names
from tetris.play.devices import DEVICES, choose_device, fall_back
from tetris.play.own_features import run_header
from tetris.training.settings import SETTINGS

DEFAULT_BOARD = "10x20"

DEFAULT_SECONDS = 10.0
"""The length of a score or an estimate, by default."""

GAME = {
    "board": DEFAULT_BOARD,
    "rule": RULES[0],
    "pieces": "uniform",
    "pieces_known": 1,
    "lookahead": False,
    "seed": DEFAULT_SEED,
}
"""The options of a game, by default."""

DEFAULT_CONTROLLER = "best"
"""The default controller on ten columns."""

DEFAULT_ELSEWHERE = "anywidth"
"""The default controller on other boards."""

Group = argparse._ActionsContainer
"""A parser, an argument group, or a mutually exclusive group."""


def score_parser(
    description: str | None, devices: Sequence[str] = DEVICES
) -> tuple[Parser, Group]:
    """Return the parser of a command that scores controllers, such as ``evaluate``.

    The parser has arguments for the controllers, the game, the device, the length of play and
    the form of the output. `add_option` takes the name of an option, the placeholder of its
    value in the help, the help text, and a function that reads the value.

    Returns:
        The parser.
        The group of the options that limit the length of play. A user can give at most one of
        them. A command can add its own options to the group.
    """
    parser = Parser(
        description=description, usage="%(prog)s [option ...] CONTROLLER [CONTROLLER ...]"
    )
    parser.add_argument(
        "controllers",
        nargs="+",
        metavar="CONTROLLER",
        help=f"a name ({', '.join(known_names())}), a controller.json or a run folder",
    )
    game = add_game(parser)
    add_device(game, devices)
    length = parser.add_argument_group("length, one of")
    limit = length.add_mutually_exclusive_group()
    text = f"play at least S seconds per controller (default: {DEFAULT_SECONDS:g})"
    add_option(limit, "--seconds", "S", text, read=positive_seconds)
    text = "play at least N decisions per controller"
    add_option(limit, "--decisions", "N", text, read=positive_int)
    output = parser.add_argument_group("output")
    text = "print a JSON list with one object per controller"
    add_flag(output, "--json", text)
    return parser, limit


def add_game(parser: argparse.ArgumentParser, **seed_options: Any) -> argparse._ArgumentGroup:
    """Add the options that describe a game to a parser, and return their group.

    The options set the board, the rule, the pieces, the lookahead, the seed, and a C++ header
    with features that the user has written. `add_setting` adds an option that has the default
    and the help text of a setting, unless the arguments replace them.

    Args:
        parser: The parser.
        seed_options: Arguments of `add_setting` for ``--seed``, such as ``text``, the help
            text. They replace the usual ones.
    """
    game = parser.add_argument_group("game")
    add_setting(game, "board")
    add_setting(game, "rule")
    add_setting(game, "pieces")
    # A user can choose at most one of the two kinds of lookahead.
    lookahead = game.add_mutually_exclusive_group()
    # Without a metavar the help shows the choices.
    add_setting(lookahead, "pieces_known", choices=(1, 2), metavar=None)
    text = (
        "compare the two best placements over every piece that may come next "
        "(about 15 times as slow)"
    )
    add_flag(lookahead, "--lookahead", text)
    # The function `seed` converts the text of the option to a number.
    usual_options = {"read": seed, "text": "seed of the pieces"}
    add_setting(game, "seed", **(usual_options | seed_options))
    add_feature_header(game)
    return game


def add_controller(parser: argparse.ArgumentParser, alternative: str = "") -> None:
    """Add an optional argument for a controller, which `controller_for` reads.

    If the argument may also be something else, ``alternative`` says so in the help.
    """
    text = (
        f"a name ({', '.join(known_names())}), a controller.json, a run folder"
        f"{alternative} (default: {DEFAULT_CONTROLLER}; on a board that is not ten columns "
        f"wide, {DEFAULT_ELSEWHERE})"
    )
    parser.add_argument("source", nargs="?", metavar="CONTROLLER", help=text)


def controller_for(source: str | None, rules: Rules) -> tuple[str, LinearController]:
    """Return the label and the controller that an argument names.

    Without an argument, return the default controller of the board. Raise ValueError if the
    controller cannot play by the rules.
    """
    if source is None:  # The default controller has a feature for each of ten columns.
        source = DEFAULT_CONTROLLER if rules.width == 10 else DEFAULT_ELSEWHERE
    controller = resolve(source)
    controller.names_on(rules)  # It raises if the controller cannot play.
    return controller_label(controller, Path(source).resolve().name), controller


def print_json(values: Any) -> None:
    """Print plain values on stdout as JSON."""
    print(json.dumps(values, indent=2, allow_nan=False))


def print_scores(scores: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print scores as plain values on stdout: as JSON or as a table."""
    if as_json:
        print_json(scores)
    else:
        print(score_table(scores))


def add_option(
    group: Group,
    name: str,
    metavar: str | None,
    text: str,
    read: Callable[[str], Any] = str,
    **options: Any,
) -> None:
    """Add an option to a parser or a group. Its help ends with the default, if there is one.

    Args:
        group: The parser or the group.
        name: The option, such as ``--seed``.
        metavar: The placeholder of the value in the help.
        text: The help.
        read: Converts the text of the value, and raises an error if the text is not valid.
        options: Other arguments of `argparse`'s ``add_argument``.
    """
    if options.get("default", argparse.SUPPRESS) is not argparse.SUPPRESS:
        text += " (default: %(default)s)"
    group.add_argument(name, metavar=metavar, help=text, type=read, **options)


def add_flag(group: Group, name: str, text: str) -> None:
    """Add an option without a value to a parser or a group; ``text`` is its help."""
    group.add_argument(name, action="store_true", help=text)


def add_setting(group: Group, name: str, **options: Any) -> None:
    """Add the option of a setting, such as ``--pieces-known`` for ``pieces_known``.

    ``options`` are arguments of `add_option` that replace those of the setting.
    """
    setting = SETTINGS[name]
    defaults = {
        "read": setting.type,
        "metavar": setting.metadata["metavar"],
        "text": setting.metadata["help"],
        "default": GAME.get(name),
    }
    add_option(group, f"--{name.replace('_', '-')}", **defaults | options)


def add_device(group: Group, known: Sequence[str], *, what: str = "engine") -> None:
    """Add the option ``--device``, whose value is one of ``known``, by default ``"auto"``."""
    text = f"{what}: {', '.join(known)}"
    add_option(group, "--device", "NAME", text, one_of("device", known), default="auto")


def add_feature_header(group: Group) -> None:
    """Add the option ``--feature-header``.

    The parser reads the header at once, so that later arguments can name its features.
    """
    text = "own features in C++ and FILE.py (docs/features.md)"
    add_option(group, "--feature-header", "FILE.h", text, _read_header)


def _read_header(text: str) -> Path:
    header = Path(text)
    with one_line_errors():
        run_header(header)
    return header


def game_rules(arguments: argparse.Namespace) -> Rules:
    """Return the rules of the arguments."""
    return Rules.of(*Rules.parse_board(arguments.board), arguments.rule, arguments.pieces)


def read_game(arguments: argparse.Namespace) -> tuple[Rules, Lookahead]:
    """Return the rules and the lookahead of the options that `add_game` adds."""
    return game_rules(arguments), Lookahead.of(arguments.pieces_known, arguments.lookahead)


def read_trials(arguments: argparse.Namespace) -> list[Trial]:
    """Return a trial for each controller that was given to a `score_parser`.

    Raise an error if the device is not available, or if a controller is not valid or cannot
    play by the rules.
    """
    device = choose_device(arguments.device)
    rules, lookahead = read_game(arguments)
    trials = []
    for text in arguments.controllers:
        controller = resolve(text)
        names = controller.names_on(rules)  # It raises if the controller cannot play.
        engine = fall_back(arguments.device, device, names, lookahead)
        label = controller_label(controller, text)
        trials.append(Trial(label, controller, rules, engine, arguments.seed, lookahead))
    return trials


def controller_label(controller: LinearController, argument: str) -> str:
    """Return the name of a published controller; for any other one, the argument itself."""
    is_published = controller.name in PUBLISHED and controller is resolve(controller.name)
    return controller.name if is_published else argument
