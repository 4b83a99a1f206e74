"""Features of one's own in C++ are compared with their references in Python before a run trains with them."""

from __future__ import annotations

import hashlib

import torch

from kernels.loader import Extension
from tetris.game.decisions import after_states
from tetris.game.features import feature_values
from tetris.game.piece_stream import Streams
from tetris.game.pieces import PIECES
from tetris.game.policy import Policy
from tetris.game.rules import Rules
from tetris.play.engines import feature_definitions
from tetris.play.own_features import header_features, header_of
from tetris.play.rollouts import Rollout

DECISIONS, CANDIDATES, STREAMS, SEED = 100, 2, 2, 1
"""The games by which a header is compared with its references."""


def libraries(names: tuple[str, ...]) -> list[Extension]:
    """Return what `check_references` needs besides the engine, if a header has some of the features."""
    own = header_features(names)
    if not own:
        return []
    from tetris.envs.native import feature_extension  # imports Gymnasium, for runs with a header alone

    return [feature_extension(own)]


def fingerprint(names: tuple[str, ...], rules: Rules) -> dict[str, str]:
    """Return a digest of the features of a header, if any: of its text and of the references' values."""
    own = header_features(names)
    if not own:
        return {}
    rows: tuple[int, ...] = ()
    values = []
    for t in range(DECISIONS):
        placements = list(after_states(rows, t % len(PIECES), rules))
        values += [feature_values(after, own) for after in placements if not after.game_over]
        after = placements[t * t % len(placements)]
        rows = () if after.game_over else after.rows
    text = f"{feature_definitions(own)[0]} {values}"
    return {"own_features": hashlib.sha256(text.encode()).hexdigest()[:16]}


def check_references(names: tuple[str, ...], rules: Rules, device: str) -> None:
    """Compare the features of a header with their references in games that weigh them most.

    Both have to give the same values for placements on the boards of these games, by the C++ operator of the
    environments, and to choose the same placements, by the engine that will play.
    """
    own = header_features(names)
    generator = torch.Generator().manual_seed(SEED)
    for name in own:
        weights = torch.randn(CANDIDATES, len(names), generator=generator) / 4
        weights[:, names.index(name)] = 1 - 2 * (torch.arange(CANDIDATES) % 2)
        fast, slow = (
            Rollout(Policy(weights, ",".join(names)), Streams(rules, STREAMS, SEED), each)
            for each in (device, "python")
        )
        for decision in range(DECISIONS):
            found = _difference_in_values(name, own, slow, decision)
            fast.play_on(1)
            slow.play_on(1)
            if not found and not torch.equal(fast.boards, slow.boards):
                found = f"they differ by decision {decision + 1} of games that weigh it most"
            if found:
                path, _ = header_of([name]) or ("", "")
                raise ValueError(f"{path}: {name} is not its reference in Python: on {rules.board} {found}")


def _difference_in_values(name: str, own: tuple[str, ...], games: Rollout, shift: int) -> str:
    """Return which value differs on the boards of games, with a piece for each, or nothing."""
    from tetris.envs.native import feature_operators

    rules, boards = games.streams.rules, games.boards.flatten(0, 1)
    count, actions = len(boards), 4 * rules.width
    pieces = (torch.arange(count) + shift) % len(PIECES)
    features = torch.empty(count, actions, len(own))
    ends_game = torch.empty(count, actions, dtype=torch.int8)
    ended = torch.zeros(count, dtype=torch.uint8)
    rows = torch.arange(rules.height, dtype=torch.int32)
    cells = games.columns.flatten(0, 1).T.unsqueeze(-1) >> rows & 1
    columns = (cells << 31 - rows).sum(-1, dtype=torch.int32).contiguous()  # as in placement_features.h
    feature_operators(own).placements(
        *(columns, pieces.to(torch.uint8), ended, features, ends_game),
        *(rules.height, rules.clear_on_overflow),
    )
    for piece, board, found in zip(pieces.tolist(), boards.tolist(), features, strict=True):
        while board and not board[-1]:
            board.pop()
        for after in after_states(tuple(board), piece, rules):
            if after.game_over:
                continue
            value = found[after.shape.orientation * rules.width + after.column, own.index(name)]
            (expected,) = feature_values(after, (name,))
            if value != torch.tensor(expected, dtype=torch.float32):
                return f"it gives {value:g} where the reference gives {expected:g}"
    return ""
