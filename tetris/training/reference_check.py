"""Compares a user's features in C++ with their references in Python before training."""

import hashlib

import torch

from tetris import Policy, Rollout, Rules, Streams, weight_names
from tetris.game.decisions import after_states
from tetris.game.features import feature_values
from tetris.game.hidden_units import layout_of
from tetris.game.pieces import PIECES
from tetris.play.engines import feature_definitions
from tetris.play.own_features import header_features, header_of

# The size of the games that compare the features of a header with their references.
DECISIONS = 100
CANDIDATES = 4
STREAMS = 2
SEED = 1


def fingerprint(names: tuple[str, ...], rules: Rules) -> dict[str, str]:
    """Return a digest of the features that a user defined, in a dictionary with one entry.

    The entry is a part of the run's fingerprint: a run can only be resumed with the same
    features. The digest covers the text of the user's C++ header, and values that the user's
    Python functions return in a game. If the user defined none of the features, the dictionary
    is empty.

    Args:
        names: The features of a controller.
        rules: The rules of the game.
    """
    user_features = header_features(names)
    if not user_features:
        return {}
    rows: tuple[int, ...] = ()  # The stack; the game begins on an empty board.
    values = []
    for decision in range(DECISIONS):
        piece = decision % len(PIECES)
        placements = list(after_states(rows, piece, rules))
        for after in placements:
            if not after.game_over:
                values.append(feature_values(after, user_features))
        # Choose a placement by a rule without random numbers, so that the game is the same in
        # every process. Squares select more different orientations and columns than a count.
        chosen_index = decision * decision % len(placements)
        after = placements[chosen_index]
        rows = after.next_rows
    digest_of_header, _, _ = feature_definitions(user_features)
    text = f"{digest_of_header} {values}"
    return {"own_features": hashlib.sha256(text.encode()).hexdigest()[:16]}


def check_references(features: str, rules: Rules, device: str) -> None:
    """Check that an engine plays with a user's features as the reference implementation does.

    The engine computes the features with the user's C++ header, and the reference computes them
    with Python functions. For each feature both play the same games with random weights, and
    their boards are compared. A difference that changes no decision, such as an added constant,
    is not noticed.

    Args:
        features: The features of a controller, as `tetris.Policy` takes them. Those from a
            user's header are checked. The weights of hidden units are 0.
        rules: The rules of the games.
        device: The engine, ``"cpu"`` or ``"cuda"``.

    Raises:
        ValueError: If the boards differ; the message names the feature.
    """
    generator = torch.Generator().manual_seed(SEED)
    names = weight_names(features, rules.width)
    user_features = header_features(names)
    for index, name in enumerate(user_features):
        # Each candidate is a row of weights, one per feature.
        weights = torch.randn(CANDIDATES, len(names), generator=generator) / 4
        # The features before this one agree with their references, and those after it get the
        # weight 0. So only this feature can make the boards differ.
        for later_name in user_features[index + 1 :]:
            weights[:, names.index(later_name)] = 0.0
        # This feature decides most placements: its weight is 1 for one candidate, -1 for the
        # next, and so on.
        weights[:, names.index(name)] = 1 - 2 * (torch.arange(CANDIDATES) % 2)
        # Without hidden units the features after this one do not matter at all.
        weights[:, len(layout_of(names).features) :] = 0.0
        policy = Policy(weights, features)
        decisions = _find_difference(policy, rules, device)
        if decisions is not None:
            header = header_of([name])
            assert header is not None
            path, _ = header
            raise ValueError(
                f"{path}: {name} is not its reference in Python: on {rules.board} they "
                f"differ by decision {decisions} of games that weigh it most"
            )


def _find_difference(policy: Policy, rules: Rules, device: str) -> int | None:
    """Play the same games on an engine and on the reference, until their boards differ.

    Returns:
        The number of decisions after which they differ; None if they are always equal.
    """
    streams = Streams(rules, STREAMS, SEED)
    engine_games = Rollout(policy, streams, device)
    reference_games = Rollout(policy, streams, "python")
    for decision in range(1, DECISIONS + 1):
        engine_games.play_on(decisions=1)
        reference_games.play_on(decisions=1)
        if not torch.equal(engine_games.boards, reference_games.boards):
            return decision
    return None
