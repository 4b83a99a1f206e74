"""Good controllers for every feature set, and engines compiled before a clock runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from measure.processes import python
from tetris import LinearController, feature_names, native, resolve
from tetris.training.recipe import Recipe

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
    """Return a good controller of a feature set, for boards ten columns wide."""
    controller = resolve(GOOD[features])
    if controller.features == features:
        return controller
    weights = dict(zip(controller.names_on(controller.rules), controller.weights, strict=True))
    names = feature_names(features, controller.rules.width)
    return LinearController(
        features, tuple(weights.get(name, 0.0) for name in names), controller.rules, features
    )


def build_engines(features: Iterable[tuple[str, int]]) -> None:
    """Compile the engines of feature sets on boards of a width, and what splitting takes, several at once."""
    names = dict.fromkeys(feature_names(name, width) for name, width in features)
    extensions = [make(each) for each in names for make in (native.extension, native.cuda_extension)]
    extensions.append(native.resampling_extension())
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for build in [pool.submit(extension.build, quiet=True) for extension in extensions]:
            build.result()


def build_for_training(recipe: Recipe, *others: tuple[str, int]) -> None:
    """Compile what training on a GPU takes, and other engines; nothing where a CPU trains."""
    if recipe.device == "cuda":
        build_engines([(recipe.features, recipe.rules.width), *others])
        python("-m", "kernels", "build", "normal")
