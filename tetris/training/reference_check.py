"""Compares a user's features in C++ with their references in Python before training."""

import hashlib

import torch

from tetris import Policy, Rollout, Rules, Streams
from tetris.game.decisions import after_states
from tetris.game.features import feature_values
from tetris.game.pieces import PIECES
from tetris.play.engines import feature_definitions
from tetris.play.own_features import header_features, header_of

# The games that compare a header with its references.
DECISIONS = 100
CANDIDATES = 4
STREAMS = 2
SEED = 1


def fingerprint(names: tuple[str, ...], rules: Rules) -> dict[str, str]:
    """Return a digest of a user's features, which changes with their definitions.

    It is a digest of the header's text, and of values of the references in Python.
    """
    own_features = header_features(names)
    if not own_features:
        return {}
    rows: tuple[int, ...] = ()
    values = []
    for decision in range(DECISIONS):
        placements = list(after_states(rows, decision % len(PIECES), rules))
        values += [
            feature_values(after, own_features) for after in placements if not after.game_over
        ]
        # Any sequence of placements will do that is the same in every process.
        after = placements[decision * decision % len(placements)]
        rows = () if after.game_over else after.rows
    digest_of_header, _, _ = feature_definitions(own_features)
    text = f"{digest_of_header} {values}"
    return {"own_features": hashlib.sha256(text.encode()).hexdigest()[:16]}


def check_references(names: tuple[str, ...], rules: Rules, device: str) -> None:
    """Check that an engine plays with a user's features as the reference implementation does.

    Both play the same games, feature by feature. Only their boards are compared: a header that
    always returns one more than its reference in Python plays the same.

    Args:
        names: The features of a controller; those of a user's header are checked.
        rules: The rules of the games.
        device: The engine.

    Raises:
        ValueError: If the boards differ; the message names the feature.
    """
    generator = torch.Generator().manual_seed(SEED)
    own_features = header_features(names)
    for number, name in enumerate(own_features, start=1):
        # The feature has the weight 1 or -1 in turn. Features of the header that were not
        # compared yet have the weight 0, so that an error is this feature's.
        weights = torch.randn(CANDIDATES, len(names), generator=generator) / 4
        weights[:, [names.index(later) for later in own_features[number:]]] = 0.0
        weights[:, names.index(name)] = 1 - 2 * (torch.arange(CANDIDATES) % 2)
        policy = Policy(weights, ",".join(names))
        streams = Streams(rules, STREAMS, SEED)
        engine_games = Rollout(policy, streams, device)
        reference_games = Rollout(policy, streams, "python")
        for decision in range(DECISIONS):
            engine_games.play_on(decisions=1)
            reference_games.play_on(decisions=1)
            if not torch.equal(engine_games.boards, reference_games.boards):
                path, _ = header_of([name]) or ("", "")
                raise ValueError(
                    f"{path}: {name} is not its reference in Python: on {rules.board} they "
                    f"differ by decision {decision + 1} of games that weigh it most"
                )
