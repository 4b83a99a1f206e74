"""The objective of a training run: candidates play a generation's games, and their fitness is lines per game.

The choices of a linear controller do not depend on the length of its weight vector. Candidates are scaled to
length 1 before they play, and the scaled ones are told to the optimizer. All candidates of a generation play
the same streams (common random numbers). Every generation has new streams; none is a stream of a score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem import CrossEntropyMethod, Evaluation, ranks
from tetris import RolloutResult, SplitResult, rollout, split_rollout
from tetris.training.recipe import Recipe, Stage

MOST_LINES = 1e12
"""Lines per game of a candidate for which splitting saw no game end."""

_LEAST_LENGTH = 1e-12


def piece_seed(seed: int) -> int:
    """Return the seed of the pieces of a run: the first 64 bits of SHA-256 of a text with the run's seed.

    Scores use the seed itself, so that training plays none of their streams.
    """
    digest = hashlib.sha256(f"cem-tetris training pieces {seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def unit_length(weights: Tensor) -> Tensor:
    """Return weight vectors, shape (population, features), scaled to length 1; a zero vector stays zero.

    Squares are added in float64 as a tree, and NumPy takes the root on the CPU: IEEE operations in a fixed
    order, so that every processor has the same bits. Torch's own follow the width of its vectors.
    """
    total = weights.double().square()
    while (count := total.shape[1]) > 1:
        half = (count + 1) // 2
        total = total[:, :half] + torch.nn.functional.pad(total[:, half:], (0, 2 * half - count))
    length = torch.from_numpy(np.sqrt(total.numpy())) if total.device.type == "cpu" else total.sqrt()
    return (weights / length.clamp(min=_LEAST_LENGTH)).to(weights.dtype)


def learned_weights(state: Mapping[str, Any]) -> Tensor:
    """Return the learned weights of an optimizer state: shape (features,), float64, of length 1."""
    return unit_length(state["averaged_mean"].double().unsqueeze(0))[0]


def lines_per_game(result: RolloutResult | SplitResult) -> Tensor:
    """Return lines per game ended, shape (population,), float64; with none ended, half a game counts.

    A candidate without a game over has greater fitness than one with as many lines and a game over. With
    importance splitting it is the estimate, at most `MOST_LINES`.
    """
    if isinstance(result, SplitResult):
        return result.lines_per_game.clamp(max=MOST_LINES)
    lines, games = result.lines.double(), result.games.double()
    return torch.where(games > 0, lines / games.clamp(min=1), 2 * lines)


class LinesPerGame:
    """The objective of a run: maps (candidates, generation) to fitness, the same for the same arguments.

    Ranks play their share of the candidates each; see `cem.ranks`.
    """

    def __init__(
        self,
        recipe: Recipe,
        optimizer: CrossEntropyMethod,
        check: Callable[[], None],
        stop: ranks.AgreedStop | None = None,
    ) -> None:
        """Set up.

        Args:
            recipe: The recipe of the run.
            optimizer: The optimizer, whose averaged mean plays as well.
            check: Called a few times a second during a generation; may raise to end it.
            stop: As of `cem.ranks.together`.
        """
        self._stop = stop
        self._recipe = recipe
        self._optimizer = optimizer
        self._check = check
        self._piece_seed = piece_seed(recipe.seed)

    def __call__(self, candidates: Tensor, generation: int) -> Evaluation:
        """Play a generation. On a GPU it is queued: fitness and metrics are tensors on the device.

        Raises:
            Exception: What ``check`` raises.
        """
        number, stage = self._recipe.stage_at(generation)
        players = unit_length(torch.cat([candidates, self._optimizer.averaged_mean.unsqueeze(0)]))
        fitness, counts = self._play(players, stage, generation)
        lines, games, decisions = counts.unbind(1)
        metrics: dict[str, float | Tensor] = {
            "stage": number + 1,
            "board_width": stage.rules.width,
            "board_height": stage.rules.height,
            "learned_mean_fitness": fitness[-1],
            "lines": lines.sum(),
            "games": games.sum(),
            "decisions": decisions.sum(),
        }
        return Evaluation(fitness[:-1], metrics, players[:-1], rates=("lines", "decisions"))

    def _play(self, players: Tensor, stage: Stage, generation: int) -> tuple[Tensor, Tensor]:
        """Return fitness, shape (players,), float64, and lines, games and decisions, shape (players, 3)."""
        recipe = self._recipe
        own = players[ranks.share(len(players))]

        def play() -> Tensor:
            result = (split_rollout if stage.split else rollout)(
                own,
                stage.rules,
                recipe.streams,
                stage.decisions,
                self._piece_seed,
                recipe.device,
                features=recipe.features,
                first_stream=generation * recipe.streams,
                check=self._check,
            )
            bits = lines_per_game(result).view(torch.int64)
            return torch.stack([bits, result.lines, result.games, result.decisions], dim=1)

        rows = ranks.gather(ranks.together(play, self._stop), len(players))
        return rows[:, 0].contiguous().view(torch.float64), rows[:, 1:]
