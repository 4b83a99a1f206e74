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
    """Return a digest of the features that a user defined, as an entry of a run's fingerprint.

    A run is only resumed with the same features. The digest covers what defines them: the text
    of the user's C++ header, and values that the Python functions return in a game. The result
    is empty if the user defined none of the features.

    Args:
        names: The features of a controller.
        rules: The rules of the game.
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
        # Choose placements that differ, in a way that is the same in every process.
        number = decision * decision % len(placements)
        after = placements[number]
        rows = () if after.game_over else after.rows
    digest_of_header, _, _ = feature_definitions(own_features)
    text = f"{digest_of_header} {values}"
    return {"own_features": hashlib.sha256(text.encode()).hexdigest()[:16]}


def check_references(names: tuple[str, ...], rules: Rules, device: str) -> None:
    """Check that an engine plays with a user's features as the reference implementation does.

    The engine has the features from a C++ header of the user, the reference has them from
    Python functions. For each feature both play the same games with random weights, and their
    boards are compared. A difference that changes no decision, such as a constant, is not
    noticed.

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
        weights = torch.randn(CANDIDATES, len(names), generator=generator) / 4
        # Own features that were not compared yet have the weight 0, so that a difference is
        # due to this feature.
        later_columns = [names.index(later) for later in own_features[number:]]
        weights[:, later_columns] = 0.0
        # This feature has the weights 1, -1, 1, -1 and so on.
        weights[:, names.index(name)] = 1 - 2 * (torch.arange(CANDIDATES) % 2)
        policy = Policy(weights, ",".join(names))
        streams = Streams(rules, STREAMS, SEED)
        engine_games = Rollout(policy, streams, device)
        reference_games = Rollout(policy, streams, "python")
        for decision in range(DECISIONS):
            engine_games.play_on(decisions=1)
            reference_games.play_on(decisions=1)
            if not torch.equal(engine_games.boards, reference_games.boards):
                header = header_of([name])
                assert header is not None
                path, _ = header
                raise ValueError(
                    f"{path}: {name} is not its reference in Python: on {rules.board} they "
                    f"differ by decision {decision + 1} of games that weigh it most"
                )
