"""A policy gradient over all placements, for games that end soon: SZ-Tetris, or low boards.

A policy takes each placement with a probability, the softmax of the scores. Its expected return
is the sum over placements of probability times return, and its gradient in the weights needs
the return of every placement of a state. Here each return is that of a game which the greedy
controller plays on from the after-state, on the same pieces for all placements. This is the
all-action policy gradient of Sutton, McAllester, Singh and Mansour, "Policy Gradient Methods
for Reinforcement Learning with Function Approximation" (NIPS 1999), with rollouts in place of a
critic, as in the policy iteration of Lagoudakis and Parr (ICML 2003). One game is a noisy
return, but a GPU plays hundreds of thousands of games for every step of the weights.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tetris import LinearController, Policy, Rollout, Rules, Streams, feature_names
from tetris.envs import native
from tetris.game.pieces import PIECES, Shape
from tetris.play.quantized_weights import TABLES, Table, table_indices
from tetris.training.objective import piece_seed, unit_length

_BURN_IN = 600  # Decisions before the first state, so that stacks of all heights occur.
_INDICATOR_SPREAD = 0.3
"""About the standard deviation of a feature of a table among the placements of a state."""

_BETAS = (0.9, 0.99)  # Of Adam.
_NEVER = -1e9  # The score of a placement that ends the game.


@dataclass(frozen=True)
class GradientSettings:
    """How `improve` trains.

    Attributes:
        steps: Steps of the weights; in the second half the rate falls to zero.
        states: Boards per step.
        horizon: Decisions of each game that follows a placement.
        gap: Decisions between the boards of one step and those of the next.
        rate: Learning rate of Adam, in units of `sharpness`.
        sharpness: The score of the best placement minus that of the second one, at first, in
            the median. The softmax takes e^sharpness for the ratio of their probabilities.
        seed: Chooses the pieces.
        device: ``"cpu"`` or ``"cuda"``.
    """

    steps: int = 100
    states: int = 1024
    horizon: int = 600
    gap: int = 50
    rate: float = 0.02
    sharpness: float = 1.0
    seed: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Placements:
    """All placements of a piece on some boards.

    Attributes:
        actions: The number of each placement, orientation x width + column.
        columns: The boards after them: (boards, placements, width), int32, bit y is row y.
        lines: Rows removed, (boards, placements).
        ends_game: Whether the game ends, (boards, placements).
    """

    actions: list[int]
    columns: Tensor
    lines: Tensor
    ends_game: Tensor


def place_everywhere(columns: Tensor, piece: int, rules: Rules) -> Placements:
    """Return all placements of a piece on boards: shape (boards, width), int32."""
    actions = []
    parts = []
    for shape in PIECES[piece]:
        count = rules.width - shape.width + 1
        actions += [shape.orientation * rules.width + column for column in range(count)]
        parts.append(_place_shape(columns, shape, rules))
    after, lines, ends_game = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return Placements(actions, after, lines, ends_game)


def _place_shape(columns: Tensor, shape: Shape, rules: Rules) -> tuple[Tensor, Tensor, Tensor]:
    """Return columns, lines and ends of the placements of a shape, from left to right."""
    heights_below = _heights(columns).unfold(1, shape.width, 1)
    rows = (heights_below - heights_below.new_tensor(shape.bottoms)).amax(-1)
    edges = torch.arange(rows.shape[1], device=columns.device)
    after = columns.unsqueeze(1).repeat(1, len(edges), 1)
    for x in range(shape.width):
        cells = sum((row >> x & 1) << y for y, row in enumerate(shape.rows))
        after[:, edges, edges + x] |= (cells << rows).int()
    lines = torch.zeros_like(rows)
    for _ in range(shape.height):
        full = after[..., 0]
        for column in range(1, rules.width):
            full = full & after[..., column]
        lowest = full & -full  # The lowest full row; 0 if there is none.
        rows_below = (lowest - 1).unsqueeze(-1)  # All ones if there is no full row.
        after = after & rows_below | after >> 1 & ~rows_below
        lines += lowest != 0
    return after, lines, rows + shape.height > rules.height


def _heights(columns: Tensor) -> Tensor:
    """Return the height of each column, which is the exponent of the column as a float."""
    return torch.frexp(columns.float()).exponent.long()


class _Scores:
    """Computes differentiable scores of placements by the features of a list.

    Attributes:
        scale: The spread of each feature among the placements of a state; the parameters that
            are trained are weights times it.
    """

    def __init__(self, names: tuple[str, ...], rules: Rules, device: str) -> None:
        self._rules = rules
        index_of = {name: index for index, name in enumerate(names)}
        zero = len(names)
        self._tables: list[tuple[Table, Tensor]] = []
        in_tables = set()
        for table in TABLES:
            indices = torch.tensor(table_indices(table, index_of, zero), device=device)
            if (indices < zero).any():
                self._tables.append((table, indices))
                in_tables.update(indices.tolist())
        others = [index for index in range(zero) if index not in in_tables]
        self._others = torch.tensor(others, device=device)
        self._operators = native.operators(
            tuple(names[index] for index in others), cuda=device == "cuda"
        )
        self.scale = torch.full((zero,), _INDICATOR_SPREAD, device=device)

    def measure_scale(self, columns: Tensor, piece: int, placements: Placements) -> None:
        """Set the scale of the features that are in no table."""
        features = self._features(columns, piece, placements.actions)
        goes_on = ~placements.ends_game.unsqueeze(-1)
        count = goes_on.sum(1, keepdim=True).clamp(min=1)
        mean = (features * goes_on).sum(1, keepdim=True) / count
        variance = ((features - mean).square() * goes_on).sum((0, 1)) / goes_on.sum()
        self.scale[self._others] = variance.sqrt().clamp(min=0.05)

    def score(
        self, parameters: Tensor, columns: Tensor, piece: int, placements: Placements
    ) -> Tensor:
        """Return the scores of all placements: shape (boards, placements)."""
        weights = parameters / self.scale
        with_zero = torch.cat([weights, weights.new_zeros(1)])  # Entries without a feature.
        features = self._features(columns, piece, placements.actions)
        scores = features @ weights[self._others]
        heights = _heights(placements.columns)
        for table, indices in self._tables:
            entries = indices[table.positions(heights)]
            scores = scores + with_zero[entries].sum(-1)
        return scores.masked_fill(placements.ends_game, _NEVER)

    def _features(self, columns: Tensor, piece: int, actions: list[int]) -> Tensor:
        """Return the features that are in no table: (boards, placements, features)."""
        rules = self._rules
        boards = len(columns)
        engine_columns = torch.zeros_like(columns)  # Row y of a column is bit 31 - y.
        for row in range(rules.height):
            engine_columns |= (columns >> row & 1) << 31 - row
        pieces = torch.full((boards,), piece, dtype=torch.uint8, device=columns.device)
        ended = torch.zeros_like(pieces)
        shape = (boards, 4 * rules.width)
        features = torch.empty(*shape, len(self._others), device=columns.device)
        ends_game = torch.empty(shape, dtype=torch.int8, device=columns.device)
        self._operators.placements(
            engine_columns.t().contiguous(),
            pieces,
            ended,
            features,
            ends_game,
            rules.height,
            rules.clear_on_overflow,
        )
        return features[:, actions]


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
        if missing or rules.rule != "published":
            raise ValueError(
                "expected the published rule, and features with those of the start, got the "
                f"rule {rules.rule}, and features without {', '.join(sorted(missing)) or 'none'}"
            )
        self._features = features
        self._rules = rules
        self._settings = settings
        weight_of = dict(zip(start.names_on(rules), start.weights, strict=True))
        weights = torch.tensor([weight_of.get(name, 0.0) for name in names])
        self._scores = _Scores(names, rules, settings.device)
        self._parameters = weights.to(settings.device)
        self.lines_per_game: list[float] = []
        self._streams_played = 0
        self._games = self._rollout(settings.states)

    @property
    def weights(self) -> Tensor:
        """The weights, scaled to length 1."""
        return unit_length((self._parameters.detach() / self._scores.scale).unsqueeze(0))[0]

    def controller(self, name: str) -> LinearController:
        """Return the controller with these weights."""
        weights = tuple(self.weights.double().tolist())
        provenance = {
            "made_by": "python -m tetris improve",
            "settings": asdict(self._settings),
            "lines_per_game": self.lines_per_game,
        }
        return LinearController(self._features, weights, self._rules, name, provenance)

    def run(self, report: Callable[[], None]) -> None:
        """Make all steps, and call ``report`` after each of them."""
        settings = self._settings
        self._games.advance(_BURN_IN)
        self._set_units()
        self._parameters.requires_grad_()
        optimizer = torch.optim.Adam([self._parameters], settings.rate, betas=_BETAS)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, 2 * (1 - step / settings.steps))
        )
        for _ in range(settings.steps):
            self.lines_per_game.append(self._play_on())
            optimizer.zero_grad()
            for columns, piece in self._states():
                placements = place_everywhere(columns, piece, self._rules)
                returns = self._returns(placements)
                scores = self._scores.score(self._parameters, columns, piece, placements)
                expected_return = (scores.softmax(1) * returns).sum() / settings.states
                (-expected_return).backward()
            optimizer.step()
            schedule.step()
            report()

    def _set_units(self) -> None:
        """Turn weights into parameters: scaled by the features' spread and the sharpness."""
        columns, piece = next(self._states())
        placements = place_everywhere(columns, piece, self._rules)
        self._scores.measure_scale(columns, piece, placements)
        self._parameters *= self._scores.scale
        scores = self._scores.score(self._parameters, columns, piece, placements)
        best, second = scores.topk(2, 1).values.unbind(1)
        lead = (best - second)[second > _NEVER].median()
        self._parameters *= self._settings.sharpness / lead

    def _states(self) -> Iterator[tuple[Tensor, int]]:
        """Yield the boards of the games, divided evenly among the pieces, with a piece."""
        pieces = self._rules.piece_set
        shares = self._games.columns[0].tensor_split(len(pieces))
        return zip(shares, pieces, strict=True)

    def _play_on(self) -> float:
        """Play the games on with the present weights, and return their lines per game."""
        games = self._rollout(self._settings.states)
        games.columns = self._games.columns
        self._games = games
        result = games.advance(self._settings.gap)
        return float(result.lines.sum() / result.games.sum().clamp(min=1))

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
        policy = Policy(self.weights.expand(copies, -1), self._features)
        source = Streams(self._rules, streams, seed, first, games=games)
        return Rollout(policy, source, self._settings.device)
