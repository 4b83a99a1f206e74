"""The clip of a training run: the means of three generations play the same pieces."""

import math
from dataclasses import replace
from pathlib import Path

import torch

from kernels.support.printable import counted
from tetris import Policy, Rollout, Rules, Streams
from tetris.play.devices import NATIVE
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

_SECONDS = 8.5  # Length of the play.
_STILL_SECONDS = 1.5  # How long the last picture is shown.
_FASTEST = 20.0  # Pictures per second.
_MIN_WIDTH = 800  # Pixels.
_TEXT_SIZE = 26  # Height of the letters in pixels.
_STEP = 10  # Decisions between two looks at the games that choose the pieces.


def write_evolution(path: Path, run: RunRecord, device: str) -> None:
    """Write the clip of a run as a looping GIF; with imageio-ffmpeg also as an MP4 beside it.

    The means of the first, a middle and the last generation play on the lowest board of the
    run, all with the same pieces. The pieces are chosen from 256 sequences (from four, if the
    device is Python): the game of the first mean should end soon, the game of the second one
    after it, and the game of the last one should go on.
    """
    pictures, speed = _evolution(run, device)
    write_gif(path, pictures, speed)
    if has_mp4():
        write_mp4(path.with_suffix(".mp4"), pictures, speed)


def _evolution(run: RunRecord, device: str) -> tuple[list[Picture], float]:
    """Return the pictures of the clip, and its speed in pictures per second."""
    all_rules = (stage.rules for stage in run.recipe.stages)
    rules = min(all_rules, key=lambda rules: rules.height)  # The lowest board.
    # Early generations differ most; so the middle one is the geometric mean.
    numbers = sorted({1, round(math.sqrt(run.generations)), run.generations})
    means = [run.metrics[number - 1]["mean"] for number in numbers]
    policy = Policy(means, run.recipe.features, run.recipe.lookahead)
    streams, length = _choose_stream(policy, rules, run.recipe.seed, device)
    games = Rollout(policy, streams, device)
    pieces = streams.pieces(0, 0)
    boards = [_Board(f"generation {number}", rules, len(numbers)) for number in numbers]
    pieces_per_picture = math.ceil(length / (_FASTEST * _SECONDS))
    pictures = []
    for t in range(length):
        games.advance(1)
        stacks = games.boards[:, 0].tolist()
        games_ended = games.stream_games[:, 0].tolist()
        for board, stack, is_over in zip(boards, stacks, games_ended, strict=True):
            board.place(pieces[t], stack, bool(is_over))
        if t % pieces_per_picture == 0:
            pictures.append(on_page([board.picture() for board in boards], gap=8))
    speed = min(_FASTEST, len(pictures) / _SECONDS)
    still_pictures = pictures[-1:] * round(_STILL_SECONDS * speed)
    return pictures + still_pictures, speed


def _choose_stream(policy: Policy, rules: Rules, seed: int, device: str) -> tuple[Streams, int]:
    """Return the stream on which the policies' games end in the best order, one after another.

    Also return how many pieces to show: some more than the last but one of the games has.
    """
    is_fast = device in NATIVE
    count = 256 if is_fast else 4
    limit = 600 if is_fast else 60  # Decisions of a game.
    streams = Streams(rules, count, seed, games=1)
    games = Rollout(policy, streams, device)
    # About how many pieces each game has: shape (policies, streams).
    lengths = torch.zeros_like(games.stream_games, device="cpu")
    for _ in range(0, limit, _STEP):
        games.advance(_STEP)
        lengths += _STEP * (games.stream_games.cpu() == 0)
    # The best stream has short games of the earlier means, and a long one of the last mean. A
    # pair of games in the wrong order costs more than all lengths.
    wrong_order = (lengths.diff(dim=0) <= 0).sum(0)
    costs = lengths[:-1].sum(0) - lengths[-1] + 3 * limit * wrong_order
    stream = int(costs.argmin())
    last_but_one = lengths[max(0, len(lengths) - 2), stream]
    length = min(limit, int(1.3 * last_but_one) + _STEP)
    return replace(streams, count=1, first=stream), length


class _Board:
    """A board of the clip with its captions."""

    def __init__(self, caption: str, rules: Rules, count: int) -> None:
        """Set up an empty board; ``count`` of them are beside each other."""
        self._caption = caption
        self._tracker = GameTracker(rules)
        self._is_over = False
        self._cell = math.ceil(_MIN_WIDTH / count / rules.width)
        self._kinds = board_kinds(self._tracker.cells, rules.height)

    def place(self, piece: int, stack: list[int], is_over: bool) -> None:
        """Place a piece so that the stack becomes the engine's; nothing after the game."""
        self._is_over = self._is_over or is_over
        if not self._is_over:
            scene = self._tracker.follow(piece, stack_rows(stack))
            assert scene is not None
            self._kinds = scene_kinds(scene)

    def picture(self) -> Picture:
        """Return the board between its captions, in grey if the game is over."""
        board = framed_board(self._kinds, self._cell)
        text = counted(self._tracker.lines, "line")
        color = TEXT
        if self._is_over:
            board = board + GREY
            text = f"over after {text}"
            color = FAINT
        title = text_picture(self._caption, _TEXT_SIZE)
        return column([title, board, text_picture(text, _TEXT_SIZE, color)], board.shape[1])
