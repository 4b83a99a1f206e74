"""The objective of a training run: candidates play a generation's games, and their fitness is lines per game.

The choices of a linear controller do not depend on the length of its weight vector: it is scaled to length 1
before it plays, and the optimizer is given the scaled one. No stream is a stream of a score.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from cem import CrossEntropyMethod, Evaluation, StopRequest
from cem.run import ranks
from kernels.support.checks import check_integer
from tetris import Lookahead, Policy, Rollout, RolloutResult, Rules, SplitResult, Streams, feature_names
from tetris.play.devices import choose_device
from tetris.play.splitting import BURN_IN, SplitRollout
from tetris.training.recipe import Recipe

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

    Squares are added in float64 as a tree, and NumPy takes the root on the CPU: the same bits on every
    processor. The order of torch's own sums follows the width of its vectors.
    """
    total = weights.double().square()
    while (count := total.shape[1]) > 1:
        half = (count + 1) // 2
        total = total[:, :half] + torch.nn.functional.pad(total[:, half:], (0, 2 * half - count))
    length = torch.from_numpy(np.sqrt(total.numpy())) if total.device.type == "cpu" else total.sqrt()
    return (weights / length.clamp(min=_LEAST_LENGTH)).to(weights.dtype)


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
    """Lines per game of linear controllers, as an objective for `cem.maximize`.

    Weights are scaled to length 1 before they play. All candidates of a generation play the same streams of
    pieces (common random numbers), and every generation has new ones: the same arguments give the same
    fitness.

    Examples:
        >>> import torch
        >>> from cem import maximize
        >>> from tetris import Rules
        >>> from tetris.training import LinesPerGame
        >>> f = LinesPerGame("holes, max_height", Rules(8, 8), streams=4, decisions=500)
        >>> result = maximize(f, torch.zeros(2), 1.0, budget=100, seed=1)
        >>> result.mean.shape
        torch.Size([2])

    With noisy fitness the mean of the distribution is the result; the best candidate is the luckiest one.

    Attributes:
        names: The names of the features, a dimension of a candidate each.
        with_generation: True: `cem.maximize` passes the number of the generation, which chooses the pieces.
    """

    with_generation = True

    def __init__(
        self,
        features: str,
        rules: Rules | None = None,
        *,
        streams: int = 32,
        decisions: int = 1000,
        split: bool = False,
        burn_in: int = BURN_IN,
        lookahead: Lookahead | str = Lookahead.NONE,
        seed: int = 1,
        device: str = "auto",
    ) -> None:
        """Set up.

        Args:
            features: Name of a feature set, or feature names separated by commas.
            rules: The rules of the games.
            streams: Streams of games that a candidate plays.
            decisions: Decisions on each.
            split: Estimate by importance splitting, for controllers whose games hardly end.
            burn_in: With it, decisions on each stream before they count.
            lookahead: What decisions consider; see `tetris.Policy`.
            seed: Chooses the pieces; 0 to 2^64 - 1.
            device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"python"``.

        Raises:
            ValueError: If an argument is out of range, or there is no GPU.
        """
        number = piece_seed(check_integer("seed", seed, 0, (1 << 64) - 1))
        self.streams = Streams(Rules() if rules is None else rules, streams, number)
        self.names = feature_names(features, self.streams.rules.width)
        self._features, self._lookahead = features, Lookahead(lookahead)
        self._burn_in = burn_in if split else None
        self._decisions = check_integer("decisions", decisions, 1)
        self._device = choose_device(device)

    def __call__(self, candidates: Tensor, generation: int = 0) -> Tensor:
        """Return the fitness of weight vectors, shape (N, features): shape (N,), float64, without gradient.

        Raises:
            ValueError: If their shape is another one, or a number is not finite.
        """
        weights = torch.as_tensor(candidates).detach()
        if weights.dim() != 2 or weights.shape[1] != len(self.names):
            wanted = f"candidates of shape (N, {len(self.names)})"
            raise ValueError(f"expected {wanted}, got {tuple(weights.shape)}")
        real = torch.promote_types(weights.dtype, torch.float32)  # whole numbers have no length 1
        return lines_per_game(self.games(unit_length(weights.to(real)), generation).advance(self._decisions))

    def games(self, players: Tensor, generation: int) -> Rollout | SplitRollout:
        """Return the games of weight vectors of length 1, shape (players, features), in a generation."""
        streams = replace(self.streams, first=generation * self.streams.count)
        games = Policy(players, self._features, self._lookahead), streams, self._device
        return Rollout(*games) if self._burn_in is None else SplitRollout(*games, self._burn_in)


def run_objective(
    recipe: Recipe,
    optimizer: CrossEntropyMethod,
    check: Callable[[], None],
    stop: StopRequest | None = None,
) -> Callable[[Tensor, int], Evaluation]:
    """Return the objective of a run, from (candidates, generation) to fitness and metrics.

    The averaged mean of the optimizer plays as well, to the end. With halvings, candidates race: those that
    drop out after a round of `Recipe.rounds` have fitness minus infinity, the others play on and have in the
    end what they have without halvings. It is successive halving (K. Jamieson and A. Talwalkar,
    Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS 2016) for the best few.

    Ranks play their share of the candidates each; see `cem.run.ranks`. ``check`` is called a few times a
    second and may raise, ``stop`` is that of `cem.run.ranks.run_collective`.
    """
    stages = [
        LinesPerGame(
            recipe.features,
            stage.rules,
            streams=recipe.streams,
            decisions=stage.decisions,
            split=stage.split,
            burn_in=recipe.burn_in,
            lookahead=recipe.lookahead,
            seed=recipe.seed,
            device=recipe.device,
        )
        for stage in recipe.stages
    ]

    def evaluate(candidates: Tensor, generation: int) -> Evaluation:
        def play(decisions: int) -> Tensor:
            if len(playing):
                result = games.advance(decisions, check)
                found = [lines_per_game(result).view(torch.int64), result.lines, result.games]
                own_rows[playing] = torch.stack([*found, result.decisions], dim=1)
            return own_rows

        number, stage = recipe.schedule[generation]
        players = unit_length(torch.cat([candidates, optimizer.averaged_mean.unsqueeze(0)]))
        own = ranks.share(len(players))
        games = stages[number].games(players[own], generation)
        own_rows = torch.zeros(own.stop - own.start, 4, dtype=torch.int64, device=device)
        playing = torch.arange(len(own_rows), device=device)
        going_on = torch.ones(len(players), dtype=torch.bool, device=device)
        fitness = torch.zeros(len(players), dtype=torch.float64, device=device)
        for decisions, count in recipe.rounds(stage):
            if count < len(candidates):
                worse = fitness[:-1].argsort(descending=True, stable=True)[count:]
                left = going_on.index_fill_(0, worse, False)[own][playing].nonzero().squeeze(1)
                playing = playing[left]
                if len(playing):
                    games.keep(left)
            rows = ranks.gather(ranks.run_collective(partial(play, decisions), stop), len(players))
            fitness = rows[:, 0].contiguous().view(torch.float64).masked_fill(~going_on, -math.inf)
        lines, ended, made = rows[:, 1:].unbind(1)
        metrics: dict[str, float | Tensor] = {
            "stage": number + 1,
            "board_width": stage.rules.width,
            "board_height": stage.rules.height,
            "learned_mean_fitness": fitness[-1],
            "lines": lines.sum(),
            "games": ended.sum(),
            "decisions": made.sum(),
        }
        return Evaluation(fitness[:-1], metrics, players[:-1], rates=("lines", "decisions"))

    device = "cuda" if recipe.device == "cuda" else "cpu"
    return evaluate
