"""The hand-made player of SZ-Tetris, which no linear controller is.

Its strategy is that of Szita and Szepesvari, "SZ-Tetris as a Benchmark for Studying Key
Problems of Reinforcement Learning" (ICML Workshop on Machine Learning and Games, 2010). The
board is five lanes, each two columns wide, in which pieces stand upright. Pieces of one kind
stack in a lane without a hole: S on the left, Z on the right, and one of them, the kind of the
middle, in the middle lane, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tetris.game.pieces import PIECES
from tetris.game.rules import PIECE_LETTERS, Rules
from tetris.play.placing import column_heights, place_shape

RULES = Rules(10, 20, pieces="SZ")
_LANES = 5
_MIDDLE = 2
_HIGH = 16  # From a lane that is higher, a piece goes to the middle, whatever its kind.
_NO_KIND = -1  # The kind of the middle, until the first piece falls.
S, Z = 0, 1
"""The kinds of pieces."""


@dataclass
class HandMadePlayer:
    """Plays games side by side; a game that has ended is taken out.

    Attributes:
        columns: The boards of the games that go on, see `tetris.play.placing`.
        middle_kind: The kind that may always go to the middle lane, `S` or `Z`: (games,).
        lines: Rows removed, (games,).
    """

    columns: Tensor
    middle_kind: Tensor
    lines: Tensor

    @classmethod
    def begin(cls, games: int, device: str = "cpu") -> HandMadePlayer:
        """Return games that begin, on a device of PyTorch."""
        return cls(
            torch.zeros(games, RULES.width, dtype=torch.int32, device=device),
            torch.full((games,), _NO_KIND, device=device),
            torch.zeros(games, dtype=torch.int64, device=device),
        )

    def choose_lanes(self, kinds: Tensor) -> Tensor:
        """Return the lane for the piece of each game, and update the kind of the middle."""
        lane_heights = column_heights(self.columns).unflatten(1, (_LANES, 2)).amax(-1)
        self.middle_kind = torch.where(self.middle_kind == _NO_KIND, kinds, self.middle_kind)
        # S has lanes 0 and 1, Z has lanes 3 and 4; of equal heights the first lane is taken.
        outer_lanes = torch.where(kinds == S, 0, 3).unsqueeze(1)
        outer_lanes = torch.cat([outer_lanes, outer_lanes + 1], 1)
        first, second = lane_heights.gather(1, outer_lanes).unbind(1)
        lane = outer_lanes[:, 0] + (second < first).long()
        height = torch.minimum(first, second)
        may_take_middle = kinds == self.middle_kind
        takes_middle = may_take_middle & (lane_heights[:, _MIDDLE] < height)
        gives_up = ~may_take_middle & (height > _HIGH)
        self.middle_kind = torch.where(gives_up, kinds, self.middle_kind)
        return torch.where(takes_middle | gives_up, _MIDDLE, lane)

    def play(self, kinds: Tensor) -> Tensor:
        """Place a piece of a kind in each game; return the lines of games that have ended."""
        edges = (2 * self.choose_lanes(kinds)).unsqueeze(1)
        has_ended = torch.zeros_like(kinds, dtype=torch.bool)
        for kind, letter in ((S, "S"), (Z, "Z")):
            upright = PIECES[PIECE_LETTERS.index(letter)][0]
            games = (kinds == kind).nonzero().squeeze(1)
            after, lines, ends_game = place_shape(
                self.columns[games], upright, edges[games], RULES
            )
            self.columns[games] = after.squeeze(1)
            self.lines[games] += lines.squeeze(1) * ~ends_game.squeeze(1)
            has_ended[games] = ends_game.squeeze(1)
        lines_of_ended = self.lines[has_ended]
        self.columns = self.columns[~has_ended]
        self.middle_kind = self.middle_kind[~has_ended]
        self.lines = self.lines[~has_ended]
        return lines_of_ended


def play_hand_made(games: int, seed: int = 1, device: str = "cpu") -> Tensor:
    """Return the lines of games of the hand-made player on random pieces, shape (games,)."""
    generator = torch.Generator(device).manual_seed(seed)
    player = HandMadePlayer.begin(games, device)
    lines = []
    while len(player.lines):
        kinds = torch.randint(2, (len(player.lines),), generator=generator, device=device)
        lines.append(player.play(kinds))
    return torch.cat(lines)
