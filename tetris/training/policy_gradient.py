"""A natural policy gradient over all placements, for games that end soon, such as SZ-Tetris.

A policy takes each placement with a probability, the softmax of the scores. Its expected return
is the sum over placements of probability times return, and its gradient in the weights needs
the return of every placement (Sutton, McAllester, Singh and Mansour, NIPS 1999). Here a return
is the lines of one game, which the greedy controller plays on from the after-state, on the same
pieces for all placements of a board. So each step is one of policy iteration with rollouts
(Lagoudakis and Parr, ICML 2003).

The direction is the natural gradient: the regression of returns on features, each centred among
the placements of its board (Kakade, "A Natural Policy Gradient", NIPS 2001, by the compatible
features of Sutton et al.). A step has a given Kullback-Leibler divergence.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tetris import LinearController, Policy, Rollout, Rules, Streams, feature_names
from tetris.envs import native
from tetris.play.placing import Placements, column_heights, place_everywhere
from tetris.play.quantized_weights import TABLES, Table, table_indices
from tetris.training.objective import piece_seed, unit_length

_BURN_IN = 600  # Decisions before the first boards, so that stacks of all heights occur.
_SAMPLE = 1024  # Boards whose scores say how sharp a policy is.
_CHUNK_NUMBERS = 1 << 28  # Numbers of a matrix of features at a time.
_NEVER = -1e9  # The score of a placement that ends the game.
_LEAST_CURVATURE = 1e-4  # Per board; it keeps weights of features that hardly occur.


@dataclass(frozen=True)
class GradientSettings:
    """How `PolicyGradient` trains.

    Attributes:
        steps: Steps of the weights, at most.
        time_limit_s: Seconds, after which a step is the last one.
        states: Boards of a step.
        horizon: Decisions of the game that follows a placement, unless it ends before.
        gap: Decisions between the boards of one step and those of the next.
        divergence: The Kullback-Leibler divergence of a step, in nats per board. In the second
            half of the steps, or of the time, it falls to zero.
        memory: The weight of the sums of earlier steps, relative to those of the next step.
        ridge: Added to the diagonal of the regression, relative to it.
        seed: Chooses the pieces.
        device: ``"cpu"`` or ``"cuda"``.
    """

    steps: int = 60
    time_limit_s: float = math.inf
    states: int = 1024
    horizon: int = 300
    gap: int = 50
    divergence: float = 0.01
    memory: float = 0.9
    ridge: float = 0.1
    seed: int = 1
    device: str = "cpu"


class _FeatureMatrix:
    """Computes the features of all placements of a piece."""

    def __init__(self, names: tuple[str, ...], rules: Rules, device: str) -> None:
        self._rules = rules
        self._count = len(names)
        index_of = {name: index for index, name in enumerate(names)}
        self._tables: list[tuple[Table, Tensor]] = []
        in_tables = {self._count}
        for table in TABLES:
            indices = table_indices(table, index_of, zero=self._count)
            if set(indices) != {self._count}:
                self._tables.append((table, torch.tensor(indices, device=device)))
                in_tables.update(indices)
        others = [index for index in range(self._count) if index not in in_tables]
        self._others = torch.tensor(others, device=device)
        other_names = tuple(names[index] for index in others)
        self._operators = native.operators(other_names, cuda=device == "cuda")

    def compute(self, columns: Tensor, piece: int, placements: Placements) -> Tensor:
        """Return the features after all placements: (boards, placements, features), float32."""
        boards, count, _ = placements.columns.shape
        # One feature more takes the entries of tables that stand for no feature.
        matrix = torch.zeros(boards, count, self._count + 1, device=columns.device)
        matrix[..., self._others] = self._outside_tables(columns, piece)[:, placements.actions]
        heights = column_heights(placements.columns)
        for table, indices in self._tables:
            matrix.scatter_(2, indices[table.positions(heights)], 1.0)
        return matrix[..., :-1]

    def _outside_tables(self, columns: Tensor, piece: int) -> Tensor:
        """Return the features that are in no table, of all actions."""
        rules = self._rules
        engine_columns = torch.zeros_like(columns)  # Row y of a column is bit 31 - y.
        for row in range(rules.height):
            engine_columns |= (columns >> row & 1) << 31 - row
        boards = len(columns)
        pieces = torch.full((boards,), piece, dtype=torch.uint8, device=columns.device)
        has_ended = torch.zeros_like(pieces)
        shape = (boards, 4 * rules.width)
        features = torch.empty(*shape, len(self._others), device=columns.device)
        ends_game = torch.empty(shape, dtype=torch.int8, device=columns.device)
        self._operators.placements(
            engine_columns.t().contiguous(),
            pieces,
            has_ended,
            features,
            ends_game,
            rules.height,
            rules.clear_on_overflow,
        )
        return features


class PolicyGradient:
    """Improves a controller, step by step.

    Attributes:
        lines_per_game: For each step so far, lines per game of the weights before it.
    """

    def __init__(
        self, start: LinearController, features: str, rules: Rules, settings: GradientSettings
    ) -> None:
        """Begin with the weights of a controller; features that it lacks have the weight 0.

        Raises:
            ValueError: If a feature of ``start`` is not among ``features``, or the rule is not
                the published one.
        """
        names = feature_names(features, rules.width)
        missing = set(start.names_on(rules)).difference(names)
        if missing:
            raise ValueError(
                f"expected features with all of the start's, got {features}, which lacks "
                f"{', '.join(sorted(missing))}"
            )
        if rules.rule != "published":
            raise ValueError(f"expected the published rule, got {rules.rule}")
        self.lines_per_game: list[float] = []
        self._features = features
        self._rules = rules
        self._settings = settings
        self._matrix = _FeatureMatrix(names, rules, settings.device)
        weight_of = dict(zip(start.names_on(rules), start.weights, strict=True))
        weights = [weight_of.get(name, 0.0) for name in names]
        self._weights = torch.tensor(weights, device=settings.device)
        # The sums of the regression, and the boards that they are over.
        self._curvature = torch.zeros(len(names), len(names), device=settings.device)
        self._gradient = torch.zeros(len(names), device=settings.device)
        self._boards = 0.0
        self._streams_played = 0
        self._games = self._rollout(settings.states)

    def controller(self, name: str) -> LinearController:
        """Return the controller with the present weights."""
        weights = tuple(self._unit_weights().double().tolist())
        provenance = {
            "made_by": "python -m tetris improve",
            "settings": {name: str(value) for name, value in asdict(self._settings).items()},
            "lines_per_game": self.lines_per_game,
        }
        return LinearController(self._features, weights, self._rules, name, provenance)

    def run(self, report: Callable[[], None]) -> None:
        """Make all steps, and call ``report`` after each of them."""
        settings = self._settings
        self._games.advance(_BURN_IN)
        self._sharpen()
        start_time = time.monotonic()
        done = 0.0  # The share of the steps or of the time that is behind.
        while done < 1:
            self._play_on()
            self._curvature *= settings.memory
            self._gradient *= settings.memory
            self._boards *= settings.memory
            for columns, piece in self._boards_by_piece():
                self._add_returns(columns, piece)
            self._make_step(settings.divergence * min(1.0, 2 * (1 - done)))
            report()
            seconds = time.monotonic() - start_time
            steps = len(self.lines_per_game)
            done = max(steps / settings.steps, seconds / settings.time_limit_s)

    def _sharpen(self) -> None:
        """Scale the weights so that the best placement leads by 1, in the median.

        The softmax then takes it e times as often as the second one.
        """
        columns, piece = next(self._boards_by_piece())
        placements = place_everywhere(columns[:_SAMPLE], piece, self._rules)
        _, scores = self._score(columns[:_SAMPLE], piece, placements)
        best, second = scores.topk(2, 1).values.unbind(1)
        self._weights /= (best - second)[second > _NEVER].median()

    def _score(
        self, columns: Tensor, piece: int, placements: Placements
    ) -> tuple[Tensor, Tensor]:
        """Return the features and the scores of all placements of a piece."""
        features = self._matrix.compute(columns, piece, placements)
        scores = features @ self._weights
        return features, scores.masked_fill(placements.ends_game, _NEVER)

    def _boards_by_piece(self) -> Iterator[tuple[Tensor, int]]:
        """Yield the boards of the games, divided evenly among the pieces, with a piece."""
        pieces = self._rules.piece_set
        shares = self._games.columns[0].tensor_split(len(pieces))
        return zip(shares, pieces, strict=True)

    def _play_on(self) -> None:
        """Play the games on with the present weights, and record their lines per game."""
        columns = self._games.columns
        self._games = self._rollout(self._settings.states)
        self._games.columns = columns
        result = self._games.advance(self._settings.gap)
        lines_per_game = result.lines.sum() / result.games.sum().clamp(min=1)
        self.lines_per_game.append(float(lines_per_game))

    def _add_returns(self, columns: Tensor, piece: int) -> None:
        """Play on after every placement of a piece, and add what follows to the regression."""
        placements = place_everywhere(columns, piece, self._rules)
        returns = self._returns(placements)
        numbers_per_board = len(placements.actions) * len(self._weights)
        boards_at_a_time = max(1, _CHUNK_NUMBERS // numbers_per_board)
        for first in range(0, len(columns), boards_at_a_time):
            part = slice(first, first + boards_at_a_time)
            self._add_to_regression(
                columns[part], piece, placements.of_boards(part), returns[part]
            )

    def _add_to_regression(
        self, columns: Tensor, piece: int, placements: Placements, returns: Tensor
    ) -> None:
        """Add boards to the sums of the regression of returns on features.

        Both are centred among the placements of a board, which count by their probability.
        """
        features, scores = self._score(columns, piece, placements)
        # A board on which every placement ends the game does not count.
        goes_on = ~placements.ends_game.all(1, keepdim=True)
        probability = scores.softmax(1) * goes_on
        mean_features = (probability.unsqueeze(2) * features).sum(1, keepdim=True)
        advantages = returns - (probability * returns).sum(1, keepdim=True)
        root = probability.sqrt()
        rows = ((features - mean_features) * root.unsqueeze(2)).flatten(0, 1)
        self._curvature += rows.t() @ rows
        self._gradient += rows.t() @ (root * advantages).flatten()
        self._boards += len(columns)

    def _make_step(self, divergence: float) -> None:
        """Move the weights along the natural gradient, by a step of a given divergence.

        To second order the divergence of a step d is d' C d / 2, where C is the curvature.
        """
        curvature = self._curvature / self._boards
        damping = self._settings.ridge * curvature.diagonal() + _LEAST_CURVATURE
        direction = torch.linalg.solve(
            curvature + torch.diag(damping), self._gradient / self._boards
        )
        squared_length = direction @ (curvature @ direction)
        self._weights += direction * (2 * divergence / squared_length.clamp(min=1e-12)).sqrt()

    def _returns(self, placements: Placements) -> Tensor:
        """Return the lines of each placement and of the game after it, float32.

        Every board has a stream, on which the games after all its placements are played.
        """
        boards, count, _ = placements.columns.shape
        games = self._rollout(boards, count, games=1)
        games.columns = placements.columns.transpose(0, 1).contiguous()
        games.stop(placements.ends_game.t())
        games.advance(self._settings.horizon)
        lines = placements.lines + games.stream_lines.t()
        return lines.masked_fill(placements.ends_game, 0).float()

    def _rollout(self, streams: int, copies: int = 1, games: int | None = None) -> Rollout:
        """Return games of copies of the controller on streams that were not played before."""
        first = self._streams_played
        self._streams_played += streams
        seed = piece_seed(self._settings.seed)
        policy = Policy(self._unit_weights().expand(copies, -1), self._features)
        source = Streams(self._rules, streams, seed, first, games=games)
        return Rollout(policy, source, self._settings.device)

    def _unit_weights(self) -> Tensor:
        """Return the weights, scaled to length 1."""
        return unit_length(self._weights.unsqueeze(0))[0]
