"""Features of one's own in C++ are compared with their references in Python before a run trains with them."""

from __future__ import annotations

import hashlib

import torch

from tetris.game.decisions import after_states
from tetris.game.features import feature_values
from tetris.game.piece_stream import Streams
from tetris.game.pieces import PIECES
from tetris.game.policy import Policy
from tetris.game.rules import Rules
from tetris.play.engines import feature_definitions
from tetris.play.own_features import header_features, header_of
from tetris.play.rollouts import Rollout

DECISIONS, CANDIDATES, STREAMS, SEED = 100, 4, 2, 1
"""The games by which a header is compared with its references."""


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
    """Compare the choices of the engine that will play with the references', in games for each feature.

    ValueError names a feature by which they differ. What no choice depends on is not compared: a header that
    always gives one more than its reference plays the same.
    """
    generator, own = torch.Generator().manual_seed(SEED), header_features(names)
    for number, name in enumerate(own, start=1):
        weights = torch.randn(CANDIDATES, len(names), generator=generator) / 4
        weights[:, [names.index(later) for later in own[number:]]] = 0.0
        weights[:, names.index(name)] = 1 - 2 * (torch.arange(CANDIDATES) % 2)
        policy, streams = Policy(weights, ",".join(names)), Streams(rules, STREAMS, SEED)
        fast, slow = (Rollout(policy, streams, each) for each in (device, "python"))
        for decision in range(DECISIONS):
            fast.play_on(1)
            slow.play_on(1)
            if not torch.equal(fast.boards, slow.boards):
                path, _ = header_of([name]) or ("", "")
                found = f"they differ by decision {decision + 1} of games that weigh it most"
                raise ValueError(f"{path}: {name} is not its reference in Python: on {rules.board} {found}")
