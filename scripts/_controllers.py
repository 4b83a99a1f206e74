"""A good controller for every feature set, by name: a published one, or where there is none a learned one."""

from __future__ import annotations

from tetris import LinearController, resolve
from tetris.feature_sets import feature_names

GOOD = {
    "dellacherie": "dellacherie",
    "bcts": "bcts",
    "dt": "dt20",
    "dt_surface": "dt20",
    "dt_full": "dt20",
    "dt_columns": "dt20",
    "bertsekas": "bertsekas",
    "bdu": "bdu",
}
"""A good controller for every feature set, by name; features that it does not know have the weight 0."""


def good_controller(features: str) -> LinearController:
    """Return a good controller of a feature set, for boards ten columns wide.

    Raises:
        KeyError: If there is none of that name.
    """
    controller = resolve(GOOD[features])
    if controller.features == features:
        return controller
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    names = feature_names(features, controller.rules.width)
    return LinearController(
        features, tuple(weights.get(name, 0.0) for name in names), controller.rules, features
    )
