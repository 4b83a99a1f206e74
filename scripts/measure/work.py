"""Functions for several measurements: good controllers, compiled engines, lower bounds."""

from collections.abc import Iterable, Mapping
from typing import Any

from kernels import Extension
from kernels.loader.extension import side_by_side
from tetris import Lookahead, resolve, weight_names
from tetris.play import engines

GOOD_CONTROLLERS = {
    **{name: name for name in ("dellacherie", "bcts", "bertsekas", "bdu")},
    **dict.fromkeys(("dt", "dt_surface", "dt_full", "dt_columns", "dt_step_pairs"), "dt20"),
    "dt+8": "dt20",
}
"""A good controller for every feature set. Features that the controller lacks get weight 0."""


def good_weights(features: str, width: int) -> list[float]:
    """Return the weights of a good controller of a feature set, one for each feature."""
    controller = resolve(GOOD_CONTROLLERS[features])
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    return [weights.get(name, 0.0) for name in weight_names(features, width)]


def build_engines(
    features: Iterable[tuple[str, int]], lookaheads: Iterable[Lookahead] = (Lookahead.NONE,)
) -> None:
    """Compile the engines of feature sets and board widths in parallel, on CPU and GPU.

    Args:
        features: The names of feature sets, each with the width of its board.
        lookaheads: The kinds of lookahead.
    """
    lists = dict.fromkeys(weight_names(name, width) for name, width in features)
    extensions = [engines.resampling_extension()]
    for lookahead in lookaheads:
        for names in lists:
            extensions += engines.libraries(engines.extension(names, lookahead), cuda=True)
    side_by_side(Extension.build, extensions)


def least_lines(measured: Mapping[str, Any]) -> float:
    """Return the lines per game of a score, or if no game ended, their lower bound."""
    lines: float | None = measured["lines_per_game"]
    if lines is None:
        lines = float(measured["ci95"][0])
    return lines
