"""Good controllers by name: the published ones, and one for each feature set that has none.

What is not published is learned: its file in scripts/controllers/ says how, and with what score.
"""

from __future__ import annotations

from pathlib import Path

from tetris import LinearController, resolve
from tetris.features import feature_names

FOLDER = Path(__file__).resolve().parent / "controllers"

GOOD = {
    "dellacherie": "dellacherie",
    "bcts": "bcts",
    "dt": "dt20",
    "dt_surface": "dt20",
    "dt_full": "dt20",
    "bertsekas": "bertsekas",
    "bdu": "bdu",
}
"""A good controller for every feature set, by name; features that it does not know have the weight 0."""


def named(text: str) -> LinearController:
    """Return the controller that a person names: as `tetris.resolve`, or one of scripts/controllers/.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If it is neither a known name nor a file or folder with a valid controller.
    """
    learned = FOLDER / f"{text}.json"
    if text in GOOD and learned.is_file():
        return LinearController.load(learned)
    return resolve(text)


def good_controller(features: str) -> LinearController:
    """Return a good controller of a feature set, for boards ten columns wide.

    Raises:
        KeyError: If there is none of that name.
    """
    controller = named(GOOD[features])
    if controller.features == features:
        return controller
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    names = feature_names(features, controller.rules.width)
    return LinearController(
        features, tuple(weights.get(name, 0.0) for name in names), controller.rules, features
    )
