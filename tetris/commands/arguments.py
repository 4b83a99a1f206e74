"""The arguments that the commands share: controllers, board, rule, pieces, seed, device."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tetris.commands.command_line import one_of, print_json, seed
from tetris.evaluation import DEFAULT_SEED
from tetris.game.policy import Lookahead
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES, Rules
from tetris.play.controller import PUBLISHED, LinearController, known_names, resolve
from tetris.play.devices import DEVICES
from tetris.play.own_features import run_header

if TYPE_CHECKING:
    from tetris.evaluation.scores import Trial

DEFAULT_BOARD = "10x20"

Group = argparse._ActionsContainer
"""A parser, an argument group, or a mutually exclusive group."""


def add_controllers(parser: argparse.ArgumentParser) -> None:
    """Add the controllers, at least one; `read_controllers` reads them."""
    parser.add_argument(
        "controllers",
        nargs="+",
        metavar="CONTROLLER",
        help=f"one by name ({', '.join(known_names())}), a controller.json or a run folder",
    )


def add_game(
    parser: argparse.ArgumentParser, add_source: Callable[[Group], None] | None = None
) -> argparse._ArgumentGroup:
    """Add and return the group of a game: board, rule, pieces, what is known, seed, features of one's own."""
    game = parser.add_argument_group("game")
    for add in (add_board, add_rule, add_source or add_pieces, add_lookahead, add_seed, add_feature_header):
        add(game)
    return game


def add_json(group: Group) -> None:
    """Add ``--json``, see `print_scores`."""
    text = "print one object per controller, a list, to stdout"
    group.add_argument("--json", action="store_true", help=text)


def print_scores(scores: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print scores as plain values on stdout: as JSON or as a table."""
    from tetris.evaluation.text_table import score_table

    if as_json:
        print_json(scores)
    else:
        print(score_table(scores))


def add_board(group: Group, *, default: str | None = DEFAULT_BOARD) -> None:
    """Add ``--board``, None where it is not given; ``default`` is what the help says, None for nothing."""
    sizes = f"{MIN_WIDTH}..{MAX_WIDTH} x {MIN_HEIGHT}..{MAX_HEIGHT}"
    group.add_argument("--board", metavar="WxH", help=f"columns x rows, {sizes}{_by_default(default)}")


def add_rule(group: Group, known: Sequence[str] = RULES, *, default: str | None = RULES[0]) -> None:
    """Add ``--rule`` with the known names, by which a game ends; see `add_board`."""
    text = ", ".join(f"{rule} (default)" if rule == default else rule for rule in known)
    group.add_argument("--rule", metavar="NAME", type=one_of("rule", known), help=text)


def add_pieces(group: Group, *, default: str | None = "uniform") -> None:
    """Add ``--pieces``; see `add_board`."""
    text = f"uniform, bag, or letters of IOTZSJL such as SZ{_by_default(default)}"
    group.add_argument("--pieces", metavar="SOURCE", help=text)


def add_pieces_known(group: Group, *, default: int | None = 1) -> None:
    """Add ``--pieces-known``; see `add_board`."""
    text = "1, or 2: the next piece is known, too"
    group.add_argument("--pieces-known", type=int, choices=(1, 2), help=f"{text}{_by_default(default)}")


def add_lookahead(group: argparse._ArgumentGroup) -> None:
    """Add ``--pieces-known`` and ``--lookahead``, one of them."""
    either = group.add_mutually_exclusive_group()
    add_pieces_known(either)
    text = "compare the two best placements by all pieces that may come next: some 15 times as slow"
    either.add_argument("--lookahead", action="store_true", help=text)


def chosen_lookahead(arguments: argparse.Namespace) -> Lookahead:
    """Return what `add_lookahead` asks for."""
    return Lookahead.of(arguments.pieces_known or 1, arguments.lookahead)


def add_seed(group: Group) -> None:
    """Add ``--seed``, the seed of the pieces; see `add_board`."""
    group.add_argument("--seed", type=seed, metavar="N", help=f"of the pieces{_by_default(DEFAULT_SEED)}")


def add_device(group: Group, known: Sequence[str] = DEVICES, *, what: str = "engine") -> None:
    """Add ``--device`` with the known names; ``"auto"`` by default."""
    text = f"{what}: {', '.join(known)}{_by_default('auto')}"
    group.add_argument("--device", metavar="NAME", type=one_of("device", known), default="auto", help=text)


def add_feature_header(group: Group) -> None:
    """Add ``--feature-header``, which is read as soon as it is parsed."""
    group.add_argument(
        "--feature-header",
        type=_feature_header,
        metavar="FILE.h",
        help="features of your own in C++, beside FILE.py with their twins in Python (docs/features.md)",
    )


def _feature_header(text: str) -> Path:
    path = Path(text)
    try:
        run_header(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def game_rules(arguments: argparse.Namespace) -> Rules:
    """Return the rules of the arguments."""
    width, height = Rules.parse_board(arguments.board or DEFAULT_BOARD)
    return Rules.of(width, height, arguments.rule or RULES[0], arguments.pieces or "uniform")


def chosen_seed(arguments: argparse.Namespace) -> int:
    """Return what `add_seed` asks for."""
    return DEFAULT_SEED if arguments.seed is None else int(arguments.seed)


def read_trials(arguments: argparse.Namespace, device: str, file: Path | None = None) -> list[Trial]:
    """Return the trial of each controller of the arguments; ``file`` holds its pieces."""
    from tetris.evaluation.scores import Trial  # torch: not for --help

    rules, lookahead = game_rules(arguments), chosen_lookahead(arguments)
    seed, name = (None, file.name) if file else (chosen_seed(arguments), "")
    return [
        Trial(label, controller, rules, device, seed, lookahead, name)
        for label, controller in read_controllers(arguments.controllers, rules)
    ]


def read_controllers(texts: Sequence[str], rules: Rules) -> list[tuple[str, LinearController]]:
    """Return the controllers of the arguments with their labels, see `controller_label`."""
    controllers = [resolve(text) for text in texts]
    for controller in controllers:
        controller.names_on(rules)
    return [(controller_label(each, text), each) for each, text in zip(controllers, texts, strict=True)]


def controller_label(controller: LinearController, given: str) -> str:
    """Return the label of a controller: the name of a published one, otherwise the argument."""
    known = controller.name in PUBLISHED and controller is resolve(controller.name)
    return controller.name if known else given


def _by_default(value: str | int | None) -> str:
    return "" if value is None else f" (default: {value})"
