"""The clip of a training run: the means of three generations play the same pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from kernels.support.printable import counted
from tetris import Policy, Rollout, Rules, Streams
from tetris.evaluation.comparison import BEST_PUBLISHED, LEARNED, is_estimate
from tetris.game.positions import stack_rows
from tetris.play.devices import NATIVE
from tetris.record.numbers import format_lines
from tetris.training.run_folder import RunRecord
from tetris.view.game_view import (
    FAINT,
    HEADROOM,
    TEXT,
    GameTracker,
    board_kinds,
    scene_kinds,
)
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

_PLAY_SECONDS = 8.5  # The duration of the games in the clip.
_STILL_SECONDS = 2.5  # How long the last picture is shown.
_MAX_PER_SECOND = 20.0  # The maximum number of pictures per second.
_MIN_WIDTH = 800  # Pixels.
_TEXT_SIZE = 26  # Height of the letters in pixels.
_EMPTY_ROWS = HEADROOM - 1  # Rows above a board that the clip does not show.
_STEP = 10  # The lengths of the games that choose the pieces are multiples of this number.


def write_evolution(path: Path, run: RunRecord, device: str) -> None:
    """Write the clip of a run as a looping GIF; with imageio-ffmpeg also as an MP4 beside it.

    The means of the first, a middle and the last generation play on the lowest board of the
    run, all with the same pieces. The pieces are chosen from 256 sequences, or from four if the
    device is ``"python"``. The game of the first mean should end soon, the game of the second
    one after it, and the game of the last one should go on.
    """
    pictures, speed = _draw_evolution(run, device)
    write_gif(path, pictures, speed)
    if has_mp4():
        write_mp4(path.with_suffix(".mp4"), pictures, speed)


def _draw_evolution(run: RunRecord, device: str) -> tuple[list[Picture], float]:
    """Return the pictures of a clip that shows how a run learned, and its pictures per second.

    Three policies play side by side, all with the same pieces. Their weights are the mean of
    the search distribution after the first, a middle and the last generation.
    """
    # The training had stages, on boards of different heights. Show the lowest board.
    lowest_stage = min(run.recipe.stages, key=lambda stage: stage.rules.height)
    rules = lowest_stage.rules
    # The early generations change the policy most. So the middle generation is the geometric
    # mean of the first and the last one. A run of one or two generations has as many
    # policies.
    generations = sorted({1, round(math.sqrt(run.generations)), run.generations})
    means = [run.metrics[generation - 1]["mean"] for generation in generations]
    policies = Policy(means, run.recipe.features, run.recipe.lookahead)
    streams, length = _choose_pieces(policies, rules, run.recipe.seed, device)
    boards = []
    for generation in generations:
        boards.append(_Board(f"generation {generation}", rules, len(generations)))
    pictures = _draw_games(Rollout(policies, streams, device), boards, length)
    speed = min(_MAX_PER_SECOND, len(pictures) / _PLAY_SECONDS)
    # The clip ends with a still of some seconds, which has a line more: the score of the
    # learned controller. A blank line gives the other pictures the same height.
    still = _with_line(pictures[-1], _score_line(run))
    num_stills = round(_STILL_SECONDS * speed)
    clip = [_with_line(picture, " ") for picture in pictures] + [still] * num_stills
    return clip, speed


def _draw_games(games: Rollout, boards: Sequence[_Board], length: int) -> list[Picture]:
    """Return pictures of games side by side, one game for each policy, with the same pieces.

    Args:
        games: The games of the policies, on a single stream of pieces.
        boards: The boards on which the games are drawn, one for each policy.
        length: The number of pieces to play.
    """
    pieces = games.streams.pieces(candidate=0, index=0)  # All policies play these pieces.
    # The duration of the clip limits the number of pictures. So there may be only one picture
    # for several pieces.
    max_pictures = _MAX_PER_SECOND * _PLAY_SECONDS
    pieces_per_picture = math.ceil(length / max_pictures)
    pictures = []
    for t in range(length):
        games.advance(decisions=1)
        # Both tensors begin with the dimensions (policies, streams), and there is one stream.
        # `games.boards` has the stacks, and `stream_games` counts the games that have ended.
        stacks = games.boards[:, 0].tolist()
        ended_games = games.stream_games[:, 0].tolist()
        for board, stack, num_ended in zip(boards, stacks, ended_games, strict=True):
            is_over = num_ended > 0
            board.place(pieces[t], stack, is_over)
        if t % pieces_per_picture == 0:
            pictures.append(on_page([board.picture() for board in boards], gap=8))
    return pictures


def _score_line(run: RunRecord) -> str:
    """Return a line of text with the scores of the learned and the best published controller.

    The scores are in lines per game on the run's board. The line is a blank if one of the two
    controllers has no score on this board.
    """
    scores = {}  # Texts by the name of the controller.
    for score in run.scores:
        if score["board"] == run.recipe.board and score["lines_per_game"]:
            method = "an estimated " if is_estimate(score) else ""
            scores[score["controller"]] = method + format_lines(score["lines_per_game"])
    if LEARNED not in scores or BEST_PUBLISHED not in scores:
        return " "
    return (
        f"{scores[LEARNED]} lines per game on {run.recipe.board}; "
        f"{BEST_PUBLISHED}: {scores[BEST_PUBLISHED]}"
    )


def _with_line(picture: Picture, text: str) -> Picture:
    """Return a picture with a line of text below it."""
    line = on_page([text_picture(text, _TEXT_SIZE)], gap=8)
    return column([picture, line], picture.shape[1])


def _choose_pieces(
    policies: Policy, rules: Rules, seed: int, device: str
) -> tuple[Streams, int]:
    """Choose the sequence of pieces that shows progress best, and how many pieces to show.

    There are up to three policies, from the earliest generation to the latest. They play one
    game on each of many random sequences. On the best sequence every policy survives longer
    than the policy before it. The last policy survives for long, and the others lose soon.

    Returns:
        Streams that contain only the chosen sequence.
        The number of pieces to show, a little more than the last policy but one survives.
    """
    num_sequences = 4
    limit = 60  # The maximum number of pieces in a game.
    if device in NATIVE:  # The engine in C++ or CUDA is much faster than the one in Python.
        num_sequences = 256
        limit = 600
    # A stream is a random sequence of pieces. It stops at the end of its first game.
    streams = Streams(rules, num_sequences, seed, games=1)
    lengths = _play_lengths(Rollout(policies, streams, device), limit)
    # The cost of a sequence is small if the last policy survives for long and the others lose
    # soon. The penalty for a policy that does not survive longer than the policy before it
    # outweighs the lengths of all games together.
    misordered_pairs = (lengths.diff(dim=0) <= 0).sum(0)
    penalties = 3 * limit * misordered_pairs
    costs = lengths[:-1].sum(0) - lengths[-1] + penalties
    sequence = int(costs.argmin())
    last_but_one = max(0, len(lengths) - 2)  # A short run has a single policy, number 0.
    length = min(limit, int(1.3 * lengths[last_but_one, sequence]) + _STEP)
    return replace(streams, count=1, first=sequence), length


def _play_lengths(games: Rollout, limit: int) -> torch.Tensor:
    """Play games; return how many pieces each policy survives on each sequence of pieces.

    The numbers are multiples of _STEP, ``limit`` at most: shape (policies, sequences).
    """
    lengths = torch.zeros_like(games.stream_games, device="cpu")
    for _ in range(0, limit, _STEP):
        games.advance(_STEP)
        is_running = games.stream_games.cpu() == 0
        lengths += _STEP * is_running
    return lengths


class _Board:
    """A board of the clip with its captions."""

    def __init__(self, caption: str, rules: Rules, count: int) -> None:
        """Set up an empty board. The clip shows ``count`` boards side by side."""
        self._caption = caption
        self._tracker = GameTracker(rules)
        self._is_over = False
        self._cell = math.ceil(_MIN_WIDTH / count / rules.width)
        self._kinds = board_kinds(self._tracker.cells, rules.height)

    def place(self, piece: int, stack: list[int], is_over: bool) -> None:
        """Place a piece so that the stack becomes ``stack``, the rows of the engine as bits.

        After the end of the game nothing changes.
        """
        self._is_over = is_over
        if not self._is_over:
            scene = self._tracker.follow(piece, stack_rows(stack))
            assert scene is not None
            self._kinds = scene_kinds(scene)

    def picture(self) -> Picture:
        """Return the board between its captions, in grey if the game is over."""
        board = framed_board(self._kinds, self._cell)[_EMPTY_ROWS * self._cell :]
        text = counted(self._tracker.lines, "line")
        color = TEXT
        if self._is_over:
            board = board + GREY
            text = f"over after {text}"
            color = FAINT
        title = text_picture(self._caption, _TEXT_SIZE)
        return column([title, board, text_picture(text, _TEXT_SIZE, color)], board.shape[1])
