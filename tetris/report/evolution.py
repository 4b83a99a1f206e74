"""The clip of a training run: the means of three of its generations play the same pieces side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from kernels.support.printable import counted
from tetris.game.piece_stream import Streams
from tetris.game.policy import Policy
from tetris.game.rules import Rules
from tetris.play.devices import NATIVE
from tetris.play.rollouts import Rollout
from tetris.training.run_folder import RunRecord
from tetris.view.game_view import FAINT, TEXT, GameTracker, board_kinds, scene_kinds, stack_rows
from tetris.view.images import (
    GREY,
    Picture,
    column,
    framed_board,
    has_mp4,
    on_page,
    text_picture,
    write_gif,
    write_mp4,
)

_SECONDS, _STILL = 8.5, 1.5  # of play, and of its last picture
_FASTEST = 20.0  # pictures a second
_WIDTH, _TEXT = 800, 26  # pixels: the least width, and the height of the letters
_STEP = 10  # pieces from one look at the games to the next while pieces are chosen


def write_evolution(path: Path, run: RunRecord, device: str) -> None:
    """Write the clip of a run as a looping GIF; as an MP4 beside it, too, where imageio-ffmpeg is installed.

    The means of the first, a middle and the last generation play on the lowest board of the run. Of 256
    sequences of pieces (of four, where the device is Python) they play the one on which the games of the
    earlier two end soonest, the first one first, while the last one's goes on.
    """
    pictures, speed = _evolution(run, device)
    write_gif(path, pictures, speed)
    if has_mp4():
        write_mp4(path.with_suffix(".mp4"), pictures, speed)


def _evolution(run: RunRecord, device: str) -> tuple[list[Picture], float]:
    """Return the pictures of the clip, and how many of them a second has."""
    rules = min((stage.rules for stage in run.recipe.stages), key=lambda rules: rules.height)
    numbers = sorted({1, round(math.sqrt(run.generations)), run.generations})
    means = [run.metrics[number - 1]["mean"] for number in numbers]
    policy = Policy(means, run.recipe.features, run.recipe.lookahead)
    count, most = (256, 600) if device in NATIVE else (4, 60)
    streams = Streams(rules, count, run.recipe.seed, games=1)
    games, ends = Rollout(policy, streams, device), torch.zeros(len(numbers), count, dtype=torch.int64)
    for _ in range(0, most, _STEP):
        games.advance(_STEP)
        ends += _STEP * (games.stream_games.cpu() == 0)
    unsorted = (ends.diff(dim=0) <= 0).sum(0)
    chosen = int((ends[:-1].sum(0) - ends[-1] + 3 * most * unsorted).argmin())
    length = min(most, int(1.3 * ends[max(0, len(numbers) - 2), chosen]) + _STEP)
    shown = math.ceil(length / (_FASTEST * _SECONDS))  # pieces from one picture to the next
    streams = replace(streams, count=1, first=chosen)
    games, pieces = Rollout(policy, streams, device), streams.pieces(0, 0)
    boards = [_Board(f"generation {number}", rules, len(numbers)) for number in numbers]
    pictures = []
    for t in range(length):
        games.advance(1)
        stacks, ended = games.boards[:, 0].tolist(), games.stream_games[:, 0].tolist()
        for board, stack, over in zip(boards, stacks, ended, strict=True):
            board.place(pieces[t], stack, bool(over))
        if t % shown == 0:
            pictures.append(on_page([board.picture() for board in boards], 8))
    speed = min(_FASTEST, len(pictures) / _SECONDS)
    return pictures + pictures[-1:] * round(_STILL * speed), speed


class _Board:
    """A board of the clip with its captions."""

    def __init__(self, caption: str, rules: Rules, count: int) -> None:
        """Set up an empty board, one of so many beside each other."""
        self._caption, self._tracker, self._over = caption, GameTracker(rules), False
        self._cell = math.ceil(_WIDTH / count / rules.width)
        self._kinds = board_kinds(self._tracker.cells, rules.height)

    def place(self, piece: int, stack: list[int], over: bool) -> None:
        """Place a piece as the engine did, whose stack is then this one; where the game is over, it stays."""
        self._over = self._over or over
        if not self._over:
            scene = self._tracker.follow(piece, stack_rows(stack))
            assert scene is not None
            self._kinds = scene_kinds(scene)

    def picture(self) -> Picture:
        """Return the board, in grey where the game is over, between its captions."""
        board, size = framed_board(self._kinds, self._cell), _TEXT
        lines = counted(self._tracker.lines, "line")
        words = f"over after {lines}" if self._over else lines
        below = text_picture(words, size, FAINT if self._over else TEXT)
        return column([text_picture(self._caption, size), board + GREY * self._over, below], board.shape[1])
