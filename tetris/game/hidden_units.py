"""Hidden units: a small network beside the weighted sum of features.

``dt+8`` is the feature set ``dt`` with eight hidden units. A unit has a weight for each of its
inputs, a bias and an output weight. Its activation is the weighted sum of the inputs, with the
bias, but at least 0 and at most `MAX_ACTIVATION`. It counts as a feature, whose weight is the
output weight; so a policy is linear if its output weights are 0.

The inputs are all features of the set but those of removed rows and of single columns.
"""

import re
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST_UNITS = 32
"""The greatest number of hidden units."""

BIAS_INPUT = 32
"""The bias is the weight of an input with this value."""

INPUT_LIMIT = 127
"""Inputs are at most so large; those of boards rarely are larger."""

ACTIVATION_STEPS = 16
"""Activations are rounded down to multiples of 1 / 16."""

MAX_ACTIVATION = 1023 / ACTIVATION_STEPS
"""The greatest activation."""

_NO_INPUT = re.compile(
    r"eroded_cells|lines|(column_height|height_difference|step|step_pair)_\d.*"
)
# No feature's own name has a number after "unit".
_UNIT = re.compile(r"unit_\d+(_.*)?")


class WeightLayout(NamedTuple):
    """What the weights of a policy belong to.

    They are in this order: a weight for each feature; for each unit a weight for each input,
    the bias and the output weight.
    """

    features: tuple[str, ...]
    inputs: tuple[str, ...]
    units: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the weights, such as ``holes``, ``unit_0_holes`` and ``unit_0``."""
        endings = (*(f"_{name}" for name in self.inputs), "_bias", "")
        units = (f"unit_{unit}{ending}" for unit in range(self.units) for ending in endings)
        return (*self.features, *units)


def add_units(features: tuple[str, ...], units: int) -> WeightLayout:
    """Return the layout of the weights of features with hidden units."""
    inputs = tuple(name for name in features if not _NO_INPUT.fullmatch(name))
    return WeightLayout(features, inputs, units)


def is_inside_unit(name: str) -> bool:
    """Return whether a weight belongs to an input or the bias of a hidden unit."""
    match = _UNIT.fullmatch(name)
    return match is not None and match[1] is not None


@cache
def layout_of(names: tuple[str, ...]) -> WeightLayout:
    """Return the layout that has these names."""
    features = tuple(name for name in names if not _UNIT.fullmatch(name))
    numbers = {name.split("_")[1] for name in names[len(features) :]}
    return add_units(features, len(numbers))


def activations(inputs: Floats, weights: Floats) -> Floats:
    """Return the activation of each unit, shape (units,).

    Args:
        inputs: The values of the inputs, shape (inputs,).
        weights: The weights of the inputs and the bias of each unit, shape (units, inputs + 1),
            from `tetris.play.quantized_weights.played_weights`. The sums are then exact.
    """
    limited = np.clip(inputs, -INPUT_LIMIT, INPUT_LIMIT)
    sums = weights @ np.append(limited, BIAS_INPUT)
    rounded = np.floor(sums * ACTIVATION_STEPS) / ACTIVATION_STEPS
    result: Floats = np.clip(rounded, 0.0, MAX_ACTIVATION)
    return result
