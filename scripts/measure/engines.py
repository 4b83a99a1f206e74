"""Good controllers for every feature set, and engines compiled before a clock runs."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import BuildError
from kernels.ahead import build_together
from tetris import feature_names, native, resolve

GOOD = {
    **{name: name for name in ("dellacherie", "bcts", "bertsekas", "bdu")},
    **dict.fromkeys(("dt", "dt_surface", "dt_full", "dt_columns", "dt_step_pairs"), "dt20"),
}
"""A good controller for every feature set, by name; features that it does not know have the weight 0."""


def good_weights(features: str, width: int) -> list[float]:
    """Return the weights of a good controller of a feature set, one for each feature."""
    controller = resolve(GOOD[features])
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    return [weights.get(name, 0.0) for name in feature_names(features, width)]


def build_engines(
    features: Iterable[tuple[str, int]], pieces_known: int = 1, lookahead: bool = False
) -> None:
    """Compile the engines of feature sets on boards of a width, and what splitting takes, several at once."""
    names = dict.fromkeys(feature_names(name, width) for name, width in features)
    extensions = [
        library
        for each in names
        for library in native.libraries(each, cuda=True, pieces_known=pieces_known, lookahead=lookahead)
    ]
    for built in build_together([*extensions, native.resampling_extension()]):
        if built.outcome == "failed":
            raise BuildError(built.error)
