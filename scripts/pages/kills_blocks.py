"""What comes before the end of a game, what survives it, and what S and Z do to any player: blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pages.result_files import Result, load, load_all, table_block, with_provenance
from pages.wording import count
from tetris import Rules
from tetris.rules import PIECE_LETTERS

SNAKES = [PIECE_LETTERS.index(letter) for letter in "SZ"]
ALTERNATING = 70_000
"""Pieces before which a game on 10x20 ends in which S and Z alternate: H. Burgiel, How to Lose at Tetris,
Mathematical Gazette 81, 1997."""

BOARD, RANGE = "10x20", 2  # of the claim; the range of pieces before the end
TOLD = 40  # the window whose error and share of I are told
SHOWN_WINDOWS = (1, 5, 10, 20, 40, 80, 160)
SHOWN_BEFORE = (1, 5, 10, 20, 50, 100, 200)


def kills_claim() -> str:
    """Return in sentences what comes before the end, and what survives it."""
    kills, chances = load_all("kills"), load_all("second_chance")
    words = []
    for result in kills:
        each = measured(result, BOARD, "dt20")
        share = np.array(each["shares"]["mean"][result.data["windows"].index(80)])
        words.append(
            f"Of the last 80 pieces of a game of dt20 on {BOARD} {share[SNAKES].sum():.1%} are S or Z, where "
            f"{2 / 7:.1%} are usual: {each['excess']['mean'][79]:.1f} pieces more than usual. "
            f"{share[PIECE_LETTERS.index('I')]:.1%} are I, where {1 / 7:.1%} are usual. A hundred pieces "
            f"before the end the stack is {each['heights']['mean'][result.data['before'].index(100)]:.1f} "
            f"rows high, where {each['usual']['mean'][0]:.1f} are usual."
        )
    for result in chances:
        (each,) = (row for row in result.data["measurements"] if row["controller"] == "dt20")
        shares = {
            (other["controller"], other["pieces_known"]): other["survived"][RANGE] / each["ended"][RANGE]
            for other in each["others"]
        }
        first, last = result.data["ahead"][RANGE - 1] + 1, result.data["ahead"][RANGE]
        words.append(
            f"Of the games of dt20 on {each['board']} that end {first} to {last} pieces later, dt20 survives "
            f"{shares['dt20', 2]:.0%} once it knows the next piece; `best`, which knows one, survives "
            f"{shares['best', 1]:.0%}."
        )
    return with_provenance(" ".join(words), *kills, *chances)


def last_pieces() -> str:
    """Return the share of S and Z among the last pieces of a game, and of I."""
    results, rows = load_all("kills"), []
    for result in results:
        windows = [result.data["windows"].index(window) for window in SHOWN_WINDOWS]
        told = result.data["windows"].index(TOLD)
        for each in result.data["measurements"]:
            mean, error = (np.array(each["shares"][name]) for name in ("mean", "error"))
            shares = [f"{share:.1%}" for share in mean[windows][:, SNAKES].sum(1)]
            worst = error[told, SNAKES].sum()  # at least that of the sum
            rows.append(
                [*_who(each), *shares, f"± {worst:.1%}", f"{mean[told, PIECE_LETTERS.index('I')]:.1%}"]
            )
    header = [*_WHO, "last", *(f"last {window}" for window in SHOWN_WINDOWS[1:])]
    return table_block([*header, f"error of last {TOLD}", f"I in the last {TOLD}"], rows, *results)


def runs() -> str:
    """Return how long runs of S and Z are among the last 40 pieces, beside 40 pieces from anywhere."""
    results, rows = load_all("kills"), []
    for result in results:
        for pieces, usual in result.data["anywhere"].items():
            rows.append(
                ["", pieces, "any 40 pieces", "", "", *_run_cells(usual["runs"], usual["alternations"])]
            )
            rows += [
                [*_who(each), *_run_cells(each["runs"]["mean"], each["alternations"]["mean"])]
                for each in result.data["measurements"]
                if each["pieces"] == pieces
            ]
    header = [*_WHO, "longest run, mean", "at least 6", "at least 8", "alternating, mean", "at least 4"]
    return table_block(header, rows, *results)


def last_stacks() -> str:
    """Return the height of the stack and its holes before the end of a game."""
    results, rows = load_all("kills"), []
    for result in results:
        places = [result.data["before"].index(back) for back in SHOWN_BEFORE]
        for each in result.data["measurements"]:
            heights, holes = (np.array(each[name]["mean"])[places] for name in ("heights", "holes"))
            usual = each["usual"]["mean"]
            pairs = [*zip(heights, holes, strict=True), usual]
            rows.append([*_who(each), *(f"{height:.1f}, {hole:.1f}" for height, hole in pairs)])
    return table_block([*_WHO, *(str(back) for back in SHOWN_BEFORE), "usual"], rows, *results)


def second_chances() -> str:
    """Return what share of the ends of a controller others survive who take over before them."""
    results, rows = load_all("second_chance"), []
    header: list[str] = []
    for result in results:
        ahead = result.data["ahead"]
        begins = [1, *(last + 1 for last in ahead)]
        header = ["plays until then", "takes over", "next piece known"]
        header += [f"{first} to {last} pieces before" for first, last in zip(begins, ahead, strict=False)]
        for each in result.data["measurements"]:
            for other in each["others"]:
                if (other["controller"], other["pieces_known"]) == (each["controller"], 1):
                    continue  # the same decisions again
                counts = zip(other["survived"], each["ended"], strict=True)
                known = "yes" if other["pieces_known"] == 2 else "no"
                rows.append(
                    [
                        *(each["controller"], other["controller"], known),
                        *(f"{survived / ended:.0%} of {ended:,}" for survived, ended in counts),
                    ]
                )
    return table_block(header, rows, *results)


def worst_pieces() -> str:
    """Return how long any player lasts where only S and Z come, and the bound that follows."""
    results, rows = load_all("worst_pieces"), []
    for result in results:
        for each in result.data["measurements"]:
            rows.append(
                [
                    each["board"],
                    *(_lasting(each[name]) for name in ("alternating", "adaptive")),
                    f"{each['probabilities'][11]:.2g}" if len(each["probabilities"]) > 11 else "0",
                    *(count(each["bound"]), f"{each['perfect']:.4g}"),
                    *(count(each["bound"] / each["perfect"]), count(each["bound_next_known"])),
                ]
            )
    header = [
        *("board", "alternating S and Z", "the worse of the two", "12 random ones"),
        *("bound, lines a game", "perfect play", "times", "bound, the next piece known"),
    ]
    return table_block(header, rows, *results)


def high_boards_bound() -> str:
    """Return in a sentence what bound would follow from `ALTERNATING` on 10x20, beside the best score."""
    results = [load("h200/record_score")]
    best = max(each["lines_per_game"] for each in results[0].data["score"])
    words = (
        f"If {ALTERNATING:,} such pieces were enough from any board, they come with probability "
        f"7^-{ALTERNATING:,} = 10^-{ALTERNATING * math.log10(7):,.0f}, and the bound would be "
        f"10^{alternating_bound():,} lines a game. `best` clears {count(best)}."
    )
    return with_provenance(words, *results)


def alternating_bound() -> int:
    """Return the exponent of ten of the lines a game that `ALTERNATING` would bound on ten columns."""
    width = Rules.parse_board(BOARD)[0]
    return math.ceil(math.log10(_CELLS / width * ALTERNATING) + ALTERNATING * math.log10(7))


def measured(result: Result, board: str, controller: str) -> Any:
    """Return the estimate of the result `kills` with uniform pieces."""
    wanted = (board, controller, "uniform", True)
    return next(
        each
        for each in result.data["measurements"]
        if (each["board"], each["controller"], each["pieces"], each["split"]) == wanted
    )


_CELLS = 4  # of a piece
_WHO = ["board", "pieces", "controller", "", "ends"]


def _who(each: dict[str, Any]) -> list[str]:
    how = "estimated" if each["split"] else "played"
    return [each["board"], each["pieces"], each["controller"], how, f"{each['looked_at']:,}"]


def _run_cells(lengths: Sequence[float], alternations: Sequence[float]) -> list[str]:
    return [
        f"{_mean(lengths):.2f}",
        *(f"{sum(lengths[least:]):.1%}" for least in (6, 8)),
        f"{_mean(alternations):.2f}",
        f"{sum(alternations[4:]):.1%}",
    ]


def _mean(shares: Iterable[float]) -> float:
    return sum(length * share for length, share in enumerate(shares))


def _lasting(most: Sequence[int | None]) -> str:
    """Return the pieces that can be placed from the empty board and from the best one."""
    empty, best = ("for ever" if each is None else str(each) for each in most)
    return empty if empty == best else f"{empty}; {best}"
