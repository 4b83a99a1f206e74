"""Good controllers for every feature set, and engines compiled before a clock runs."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import BuildError
from kernels.loader.ahead import build_together
from tetris import feature_names, native, resolve

GOOD = {
    **{name: name for name in ("dellacherie", "bcts", "bertsekas", "bdu")},
    **dict.fromkeys(("dt", "dt_surface", "dt_full", "dt_columns", "dt_step_pairs"), "dt20"),
}
"""A good controller for every feature set, by name; features that it does not know have the weight 0."""

Way = tuple[int, bool]
"""Pieces known and lookahead: how a player decides."""


def good_weights(features: str, width: int) -> list[float]:
    """Return the weights of a good controller of a feature set, one for each feature."""
    controller = resolve(GOOD[features])
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    return [weights.get(name, 0.0) for name in feature_names(features, width)]


def build_engines(features: Iterable[tuple[str, int]], ways: Iterable[Way] = ((1, False),)) -> None:
    """Compile what feature sets on boards of a width need to play and to split, several at once.

    Args:
        features: Names of feature sets and widths of boards.
        ways: Pieces known and lookahead of each way to decide; see `tetris.Rollout`.
    """
    names = dict.fromkeys(feature_names(name, width) for name, width in features)
    extensions = [
        library
        for known, ahead in ways
        for each in names
        for library in native.libraries(each, cuda=True, pieces_known=known, lookahead=ahead)
    ]
    for built in build_together([*extensions, native.resampling_extension()]):
        if built.outcome == "failed":
            raise BuildError(built.error)
