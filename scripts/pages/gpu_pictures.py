"""The pictures of docs/gpu_engine.md: a board as words, a multiprocessor at work, a generation, splitting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tetris import Rollout, Rules, play_game, published
from tetris.pieces import PIECES
from tetris.report.figures import COLORS, new_figure, save_figure
from tetris.rules import PIECE_LETTERS
from tetris.splitting import STEP, StreamWeights, levels

RULES = Rules(10, 20)
PIECES_PLAYED, ROWS_SHOWN, TOP = 223, 8, 31
"""Pieces of the game whose board is drawn; rows drawn; the bit of row 0 on a GPU (tetris/engine/board.h)."""

STREAMS, RESAMPLINGS = 512, 250
"""Streams and resamplings of the rollouts whose levels are drawn."""

_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE, _SKY = COLORS
_SCHEDULERS = 4
_WARPS = 20  # of a block, with few features (POOL_WARPS of tetris/engine)


def draw_gpu_pictures(folder: Path) -> None:
    """Draw every picture of the page into a folder."""
    draw_board(folder / "gpu_board.png")
    draw_multiprocessor(folder / "gpu_multiprocessor.png")
    draw_generation(folder / "gpu_generation.png")
    draw_splitting(folder / "gpu_splitting.png")


def draw_board(picture: Path) -> None:
    """Draw a board of a game of dt20, and the words that it is on a GPU."""
    board = (
        np.asarray(play_game(published("dt20"), seed=1, rules=RULES, most_pieces=PIECES_PLAYED).boards[-1])
        > 0
    )
    figure = new_figure(9.0, 4.0)
    cells, words = figure.subplots(1, 2, width_ratios=(1.0, 2.1))
    cells.imshow(np.where(board[:ROWS_SHOWN], 0.45, 1.0), cmap="gray", vmin=0, vmax=1, origin="lower")
    cells.set_xticks(range(RULES.width))
    cells.set_yticks(range(ROWS_SHOWN))
    cells.set(xlabel="column", ylabel="row")
    cells.set_xticks(np.arange(RULES.width + 1) - 0.5, minor=True)
    cells.set_yticks(np.arange(ROWS_SHOWN + 1) - 0.5, minor=True)
    cells.grid(which="minor", color="0.85")
    cells.tick_params(which="minor", length=0)
    cells.set_title("the board", loc="left", fontsize="medium")
    bits = TOP + 1 - ROWS_SHOWN
    for column in range(RULES.width):
        y = RULES.width - 1 - column
        for row in range(ROWS_SHOWN):
            colour = "0.45" if board[row, column] else "white"
            _box(words, (row, y + 0.12), (1, 0.76), "1" if board[row, column] else "0", face=colour, size=7)
        _box(words, (ROWS_SHOWN, y + 0.12), (4, 0.76), f"{bits} more zeros", face="white", size=7)
        words.text(-0.3, y + 0.5, f"column {column}", ha="right", va="center", fontsize=8)
        words.text(
            ROWS_SHOWN + 4.3,
            y + 0.5,
            f"0x{word(board[:, column]):08X}",
            va="center",
            fontsize=8,
            family="monospace",
        )
    words.set(xlim=(-2.5, ROWS_SHOWN + 8), ylim=(-0.6, RULES.width))
    words.text(0.5, -0.4, f"bit {TOP}: row 0", ha="center", fontsize=8)
    words.set_title("ten words of 32 bits", loc="left", fontsize="medium")
    words.axis("off")
    save_figure(figure, picture)


def word(column: Any) -> int:
    """Return a column of cells, from the floor up, as the word of the engine."""
    return sum(1 << (TOP - row) for row, cell in enumerate(column) if cell)


def draw_multiprocessor(picture: Path) -> None:
    """Draw a block of the kernel for many games: queues, warp groups, the way of a batch of games."""
    figure = new_figure(10.0, 4.6)
    axes = figure.subplots()
    placements = [sum(RULES.width + 1 - shape.width for shape in shapes) for shapes in PIECES]
    lengths = (5, 9, 6, 4, 7, 3, 6)  # of the queues
    for i, letter in enumerate(PIECE_LETTERS):
        y = 6 - i
        axes.text(-0.15, y + 0.4, letter, ha="right", va="center", fontsize=11, weight="bold")
        for k in range(lengths[i]):
            _box(axes, (0.22 * k, y + 0.1), (0.2, 0.6), "", face=_SKY)
        axes.text(2.75, y + 0.4, f"{placements[i]} placements", va="center", fontsize=8, color="0.3")
    axes.text(
        -0.4,
        7.35,
        "seven queues in shared memory:\ngames that wait to place a piece",
        fontsize=9,
        va="bottom",
    )
    longest = int(np.argmax(lengths))
    for group in range(_SCHEDULERS):
        low = 5.35 - 1.7 * group
        _box(axes, (6.0, low), (4.1, 1.3), "", face="#eef4fb")
        for k in range(_WARPS // _SCHEDULERS):
            _box(
                axes,
                (6.15 + 0.79 * k, low + 0.15),
                (0.72, 0.62),
                f"warp {group + _SCHEDULERS * k}\n32 games",
                face="white",
                size=6,
            )
        axes.text(6.15, low + 0.95, f"warp group {group}: the warps of scheduler {group}", fontsize=8)
    axes.text(
        6.0,
        7.35,
        f"{_WARPS} warps of 32 threads, a thread a game,\nin four warp groups",
        fontsize=9,
        va="bottom",
    )
    _arrow(axes, (4.1, 6 - longest + 0.4), (5.95, 6.0))
    axes.text(
        4.2,
        6.75,
        f"up to {_WARPS // _SCHEDULERS * 32} games of the\nlongest queue, one piece",
        fontsize=8,
        color=_BLUE,
        ha="left",
    )
    axes.text(10.6, 7.35, "one decision in each game", fontsize=9, va="bottom")
    for place, text in enumerate(
        (
            "load board, prepare features",
            "score the placements that\ncomplete no row",
            "deal out and score those that do",
            "play the best, draw the next piece",
        )
    ):
        _box(axes, (10.6, 5.6 - 1.45 * place), (3.6, 1.05), text, face="#fdf3e7", size=8)
        if place:
            _arrow(axes, (12.4, 7.05 - 1.45 * place), (12.4, 6.68 - 1.45 * place))
    _arrow(axes, (10.15, 6.0), (10.55, 6.1))
    axes.plot([12.4, 12.4, 1.5], [1.2, -0.3, -0.3], color=_BLUE, linewidth=1.4)
    _arrow(axes, (1.5, -0.33), (1.5, 0.05))
    axes.text(6.0, -0.75, "into the queue of its next piece", fontsize=8, color=_BLUE)
    axes.set(xlim=(-0.6, 14.4), ylim=(-1.0, 8.4))
    axes.axis("off")
    save_figure(figure, picture)


def draw_generation(picture: Path) -> None:
    """Draw what host and GPU do in three generations; not to scale."""
    figure = new_figure(10.0, 2.4)
    axes = figure.subplots()
    launch, small, generations, launches = 0.72, 0.13, 3, 5
    whole = launches * launch + 2 * small + 0.1
    axes.text(-0.1, 2.4, "host", ha="right", va="center")
    axes.text(-0.1, 0.9, "GPU", ha="right", va="center")
    free = 0.0  # when the host has queued what it does next
    for t in range(generations):
        start = 0.4 + whole * t
        queued = start + small + (launches - 2) * launch  # it stays two launches ahead
        steps = [("ask", 0.33), ("play: queue launches", queued - free - 0.33), ("tell", 0.33)]
        steps += [(f"record {t}", 0.68)] if t else []
        for name, width in steps:
            _box(
                axes,
                (free, 2.05),
                (width - 0.03, 0.7),
                name,
                face="#eafaf1" if name[0] == "r" else "#eef4fb",
                size=7,
            )
            free += width
        _box(axes, (start, 0.5), (small, 0.8), "", face=_SKY)
        for k in range(launches):
            _box(axes, (start + small + launch * k, 0.5), (launch - 0.03, 0.8), "", face="#fdf3e7")
        axes.text(
            start + whole / 2,
            0.9,
            f"games of generation {t + 1}, in launches",
            ha="center",
            va="center",
            fontsize=8,
        )
        _box(axes, (start + small + launch * launches, 0.5), (small, 0.8), "", face=_ORANGE)
    axes.text(0.4, 0.1, "sampler", fontsize=8, color=_BLUE)
    axes.text(0.4 + whole - 0.1, 0.1, "update", fontsize=8, color=_ORANGE, ha="right")
    axes.set(xlim=(-0.7, 0.6 + whole * generations), ylim=(0.0, 3.0))
    axes.axis("off")
    save_figure(figure, picture)


def stream_levels(split: bool) -> Any:
    """Return how many streams of a rollout of dt20 are at each level, in the mean; shape (32,).

    Args:
        split: Whether streams are resampled, as in importance splitting.
    """
    games = Rollout([published("dt20").weights], RULES, STREAMS, 1, features=published("dt20").features)
    weighted, bits, found = StreamWeights(games), np.random.default_rng(1), []
    for step in range(RESAMPLINGS):
        games.play_on(STEP)
        if split:
            games.branch(weighted.resample(int(bits.integers(1 << 12))))
        if 2 * step >= RESAMPLINGS:
            found.append(np.bincount(levels(games).numpy().ravel(), minlength=32))
    return np.mean(found, axis=0)


def draw_splitting(picture: Path) -> None:
    """Draw at which levels streams are, without splitting and with it."""
    figure = new_figure(7.0, 3.2)
    axes = figure.subplots()
    for split, label, color, offset in (
        (False, "plain rollout", _VERMILION, -0.2),
        (True, "importance splitting", _BLUE, 0.2),
    ):
        counts = np.trim_zeros(stream_levels(split), "b")
        axes.bar(np.arange(len(counts)) + offset, counts, 0.4, color=color, label=label)
    axes.set(xlabel="level of the stack", ylabel=f"streams, of {STREAMS}", yscale="log")
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.legend()
    save_figure(figure, picture)


def _box(axes: Any, corner: Any, extent: Any, text: str, face: Any, size: int = 8) -> None:
    """Draw a box with a text of a size in points in its middle."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle(corner, *extent, facecolor=face, edgecolor="0.4", linewidth=0.7))
    middle = corner[0] + extent[0] / 2, corner[1] + extent[1] / 2
    axes.text(*middle, text, ha="center", va="center", fontsize=size)


def _arrow(axes: Any, start: Any, end: Any) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": _BLUE, "linewidth": 1.4})
