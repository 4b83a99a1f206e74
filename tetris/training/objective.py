"""The objective of a training run: candidates play games, and fitness is lines per game.

The choices of a linear controller do not depend on the length of its weight vector. So the
vector is scaled to length 1 before the controller plays, and the optimizer gets the scaled
vector. Training never plays the pieces that scores are measured with.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from cem import Evaluation, StopRequest
from cem.run import ranks
from kernels.support.checks import check_integer, check_uint64
from tetris import (
    Lookahead,
    Policy,
    Rollout,
    RolloutResult,
    Rules,
    SplitResult,
    Streams,
    weight_names,
)
from tetris.play.devices import choose_device, fall_back
from tetris.play.splitting import BURN_IN, SplitRollout
from tetris.training.recipe import Recipe

MOST_LINES = 1e12
"""The maximum fitness with splitting. A candidate has it if splitting saw no game end."""

_SHORTEST = 1e-12  # Shorter vectors are divided by this, so that a zero vector stays zero.


def piece_seed(seed: int) -> int:
    """Return the seed of the pieces of a run: 64 bits of a SHA-256 digest of the run's seed.

    Scores use the run's seed itself, so that training plays none of their streams.
    """
    digest = hashlib.sha256(f"cem-tetris training pieces {seed}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def unit_length(weights: Tensor) -> Tensor:
    """Return weight vectors, shape (population, features), scaled to length 1.

    A zero vector stays zero. The result has the same bits on every processor. This is why it
    does not use ``torch.sum``, whose order of additions depends on the processor.
    """
    sums = weights.double().square()
    # Add the second half of the columns to the first half until one column is left, which has
    # the sum of all squares.
    columns = sums.shape[1]
    while columns > 1:
        half = (columns + 1) // 2
        # If the number of columns is odd, the second half gets a column of zeros.
        missing_columns = 2 * half - columns
        second_half = torch.nn.functional.pad(sums[:, half:], (0, missing_columns))
        sums = sums[:, :half] + second_half
        columns = half
    if sums.device.type == "cpu":
        # The result of torch.sqrt may differ by a bit between CPUs.
        length = torch.from_numpy(np.sqrt(sums.numpy()))
    else:
        length = sums.sqrt()
    # The lower limit of the length prevents 0 / 0.
    return (weights / length.clamp(min=_SHORTEST)).to(weights.dtype)


def lines_per_game(result: RolloutResult | SplitResult) -> Tensor:
    """Return the fitness of candidates: lines per game, shape (population,), float64.

    If no game of a candidate ended, its lines are divided by 1/2. So its fitness is greater
    than that of a candidate with as many lines and one ended game. With importance splitting
    the fitness is the estimated lines per game, at most `MOST_LINES`.
    """
    if isinstance(result, SplitResult):
        return result.lines_per_game.clamp(max=MOST_LINES)
    lines = result.lines.double()
    games = result.games.double()
    return torch.where(games > 0, lines / games.clamp(min=1), 2 * lines)


class LinesPerGame:
    """Lines per game of controllers, as an objective for `cem.maximize`.

    Weights are scaled to length 1 before they play. All candidates of a generation play the
    same streams of pieces (common random numbers). Every generation has new streams, which
    depend only on the seed and the number of the generation.

    Examples:
        >>> import torch
        >>> from cem import maximize
        >>> from tetris import Rules
        >>> from tetris.training import LinesPerGame
        >>> f = LinesPerGame("holes, max_height", Rules(8, 8), streams=4, decisions=500)
        >>> result = maximize(f, torch.zeros(2), 1.0, budget=100, seed=1)
        >>> result.mean.shape
        torch.Size([2])

    Fitness is noisy: take the mean of the distribution as the result. The best candidate is the
    best partly by chance.

    Attributes:
        names: The names of the weights of a candidate.
        with_generation: True, so that `cem.maximize` passes the number of the generation, which
            determines the pieces.
    """

    with_generation = True

    def __init__(  # noqa: PLR0913 - an option for each property of the games
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
        """Check the arguments, and set up the objective; nothing is played yet.

        Args:
            features: The name of a feature set, or feature names separated by commas; with
                hidden units, such as ``dt+8``.
            rules: The rules of the games; None: the default rules.
            streams: The number of streams that a candidate plays. A stream is a random sequence
                of pieces, on which a new game begins when the last one has ended.
            decisions: The number of decisions on each stream. A decision places one piece.
            split: Whether to estimate lines per game by importance splitting, for controllers
                whose games rarely end.
            burn_in: With ``split``, the number of decisions at the beginning of each stream
                that do not count.
            lookahead: Which later pieces a decision considers; see `tetris.Policy`.
            seed: The seed of the pieces, 0 to 2^64 - 1.
            device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"python"``.

        Raises:
            ValueError: If an argument is out of range, or there is no GPU.
        """
        # Scores are measured with the pieces of the seed itself. Training must not play them,
        # so its pieces have a seed that is derived from it.
        seed = check_uint64("seed", seed)
        training_seed = piece_seed(seed)
        self.streams = Streams(rules or Rules(), streams, training_seed)
        self.names = weight_names(features, self.streams.rules.width)
        self._features = features
        self._lookahead = Lookahead(lookahead)
        self._split = split
        self._burn_in = burn_in
        self._decisions = check_integer("decisions", decisions, 1)
        engine = choose_device(device)
        # Without a C++ engine for these features, "auto" plays in Python.
        self._device = fall_back(device, engine, self.names, self._lookahead)

    def __call__(self, candidates: Tensor, generation: int = 0) -> Tensor:
        """Return the fitness of weight vectors: float64, shape (N,), without a gradient.

        Args:
            candidates: The weight vectors, shape (N, features).
            generation: The number of the generation, which determines the pieces.

        Raises:
            ValueError: If the shape is wrong, or a number is not finite.
        """
        weights = torch.as_tensor(candidates).detach()
        if weights.dim() != 2 or weights.shape[1] != len(self.names):
            shape = tuple(weights.shape)
            raise ValueError(
                f"expected candidates of shape (N, {len(self.names)}), got {shape}"
            )
        # Integers become float32, because the vectors are scaled to length 1.
        real_type = torch.promote_types(weights.dtype, torch.float32)
        players = unit_length(weights.to(real_type))
        return lines_per_game(self.games(players, generation).advance(self._decisions))

    def games(self, players: Tensor, generation: int) -> Rollout | SplitRollout:
        """Return the games of a generation, before their first decision.

        Args:
            players: Weight vectors of length 1, shape (players, features).
            generation: The number of the generation, which determines the pieces.
        """
        policy = Policy(players, self._features, self._lookahead)
        streams = replace(self.streams, first=generation * self.streams.count)
        if self._split:
            return SplitRollout(policy, streams, self._device, self._burn_in)
        return Rollout(policy, streams, self._device)


def run_objective(
    recipe: Recipe,
    current_mean: Callable[[], Tensor],
    check: Callable[[], None],
    stop: StopRequest | None = None,
) -> Callable[[Tensor, int], Evaluation]:
    """Return the objective function of a training run, which evaluates a generation.

    The function takes candidates, shape (population, features), and the number of the
    generation. It returns their fitness, which is lines per game, and metrics.

    The games of a generation are played in rounds. After each round except the last one the
    worse half of the candidates drops out, with fitness minus infinity. The others play on, and
    finally have the same fitness as without dropouts. This is successive halving (K. Jamieson
    and A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    AISTATS 2016), used to find the elites.

    Several processes, the ranks, may work together. Each rank plays its share of the
    candidates, and gets the scores of all candidates.

    Args:
        recipe: The settings of the games, the stages of training, and the rounds.
        current_mean: A function that returns the mean which the optimizer would return as its
            result, shape (features,). The mean plays with the candidates in every generation,
            and never drops out.
        check: A function that is called a few times a second, and may raise.
        stop: A request to stop, which all ranks obey together.
    """
    # Each stage of the training has a board of its own, and so an objective of its own.
    objectives = [
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
    device = "cuda" if recipe.device == "cuda" else "cpu"

    def evaluate(candidates: Tensor, generation: int) -> Evaluation:
        """Play the games of a generation in rounds; return the candidates' fitness and metrics.

        Before a round the worst candidates may drop out of the race. The others and the
        optimizer's mean then make some more decisions.

        Args:
            candidates: The weight vectors, shape (population, features).
            generation: The number of the generation, which determines the stage of the training
                and the pieces.
        """
        # The stage has a board and a number of decisions, and `objectives` has its games.
        stage_number, stage = recipe.schedule[generation]
        # The players are the candidates and, as the last one, the optimizer's mean.
        mean = current_mean().unsqueeze(0)
        players = unit_length(torch.cat([candidates, mean]))
        # The race has the fitness of all players, and knows which of them have not dropped out.
        race = _Race(len(players), device)
        # If there are several processes, each of them plays with its share of the players.
        games = objectives[stage_number].games(players[race.share], generation)
        for decisions, survivors in recipe.rounds(stage):
            if survivors < len(candidates):
                # The mean and the fittest candidates, `survivors` in number, stay in the race.
                race.drop_all_but(survivors, games)
            # Every process plays its own games, and then gets the scores of all players. While
            # it plays, `check` is called again and again, and may raise. If one process is
            # asked to stop, `stop` makes all of them stop.
            play_own_games = partial(race.play, games, decisions, check)
            own_scores = ranks.run_collective(play_own_games, stop)
            all_scores = ranks.gather(own_scores, len(players))
            race.record(all_scores)
        metrics: dict[str, float | Tensor] = {
            "stage": stage_number + 1,
            "board_width": stage.rules.width,
            "board_height": stage.rules.height,
            **race.metrics(),
        }
        # The optimizer gets the candidates as they have played, scaled to length 1. The mean,
        # the last player, is not one of them.
        fitness = race.fitness[:-1]
        played_candidates = players[:-1]
        # Lines and decisions are also recorded per second.
        rates = ("lines", "decisions")
        return Evaluation(fitness, metrics, played_candidates, rates=rates)

    return evaluate


class _Race:
    """The players of a generation and their scores.

    The players are the candidates and, as the last one, the optimizer's mean, which never drops
    out. A rank, one of several processes, plays the games of its share of the players. All
    ranks know the scores of all players.

    Attributes:
        share: The slice of the players that this rank plays.
        fitness: The lines per game of each player, shape (players,), float64; minus infinity
            for players that have dropped out.
        lines, games, decisions: The counts of each player, shape (players,), int64.
    """

    lines: Tensor
    games: Tensor
    decisions: Tensor

    def __init__(self, players: int, device: str) -> None:
        self.share = ranks.share(players)
        own_players = self.share.stop - self.share.start
        self.fitness = torch.zeros(players, dtype=torch.float64, device=device)
        self._is_playing = torch.ones(players, dtype=torch.bool, device=device)
        # The indices, within this rank's share, of its players that have not dropped out. Each
        # player of the share has a row of scores, also after it has dropped out.
        self._playing_rows = torch.arange(own_players, device=device)
        self._own_scores = torch.zeros(own_players, 4, dtype=torch.int64, device=device)

    def drop_all_but(self, survivors: int, games: Rollout | SplitRollout) -> None:
        """Keep only the fittest candidates in the race, and in the games of this rank.

        The mean, which is the last player, always stays in the race.

        Args:
            survivors: The number of candidates that stay in the race.
            games: The games of this rank's players that have not dropped out.
        """
        best_first = self.fitness[:-1].argsort(descending=True, stable=True)
        self._is_playing.index_fill_(0, best_first[survivors:], False)
        # The games have a row for each player of this rank's share that has not dropped out
        # before. `_playing_rows` has the indices of these players within the share.
        plays_on = self._is_playing[self.share][self._playing_rows]
        remaining = plays_on.nonzero().squeeze(1)
        self._playing_rows = self._playing_rows[remaining]
        if len(remaining):  # Otherwise this rank does not play again in this generation.
            games.keep(remaining)

    def play(
        self, games: Rollout | SplitRollout, decisions: int, check: Callable[[], None]
    ) -> Tensor:
        """Play a round; return the scores of this rank's players, shape (players, 4), int64.

        The columns are lines per game, lines, games and decisions. Lines per game, a float64,
        are viewed as an int64 with the same bits. So one tensor, which is gathered from all
        ranks, holds all four numbers exactly.
        """
        if len(self._playing_rows):
            result = games.advance(decisions, check)
            fitness_bits = lines_per_game(result).view(torch.int64)
            columns = [fitness_bits, result.lines, result.games, result.decisions]
            self._own_scores[self._playing_rows] = torch.stack(columns, dim=1)
        return self._own_scores

    def record(self, scores: Tensor) -> None:
        """Record the scores of all players, shape (players, 4), gathered from `play`."""
        fitness = scores[:, 0].contiguous().view(torch.float64)
        self.fitness = fitness.masked_fill(~self._is_playing, -math.inf)
        self.lines, self.games, self.decisions = scores[:, 1:].unbind(1)

    def metrics(self) -> dict[str, float | Tensor]:
        """Return the fitness of the mean, and the sums of the counts."""
        return {
            "learned_mean_fitness": self.fitness[-1],
            "lines": self.lines.sum(),
            "games": self.games.sum(),
            "decisions": self.decisions.sum(),
        }
