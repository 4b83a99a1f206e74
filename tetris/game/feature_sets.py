"""The feature sets by name, and lists of features as text.

The weights of a controller have the order of its feature set. docs/features.md has the sources
of the sets.
"""

import re
from functools import cache

from kernels.support.checks import check_integer
from kernels.support.names import unknown_name
from tetris.game.features import FEATURES
from tetris.game.hidden_units import MOST_UNITS, add_units
from tetris.game.rules import MAX_WIDTH, MIN_WIDTH

_LABEL_WIDTH = 40
_COLUMNS_BEYOND = {"column_height": 0, "height_difference": 1, "step": 1, "step_pair": 2}
"""The families of features of one column, and how many columns to its right they also use."""

_COLUMN_FEATURE = re.compile(rf"({'|'.join(_COLUMNS_BEYOND)})_(\d+)")
_COLUMN_FORMS = ("step_pair_N_K_M", "step_N_K", "column_height_N", "height_difference_N")

_SURFACE_FEATURES = """
    max_height deep_wells_2 deep_wells_3 bumpiness flat_steps single_steps double_steps
    highest_hole fitting_pieces nearly_full_rows
"""
_FULL_FEATURES = """
    thin_covers adjacent_rows_with_holes fits_s fits_z flat_pairs rising_pairs falling_pairs
    peaks spare_pieces squared_deep_wells_3 upper_hole_rows columns_with_holes gaps_over_holes
    gaps_over_highest_hole
"""
"""What `dt_surface` adds to `dt`, and `dt_full` to `dt_surface`."""


def feature_sets(width: int = MAX_WIDTH) -> dict[str, tuple[str, ...]]:
    """Return all feature sets: a dictionary from the name of a set to its feature names.

    The sets from the literature have the names that are usual there; other sets extend them. A
    set that describes single columns, such as ``bertsekas``, depends on the width of the board:
    for ten columns it has the features ``column_height_0`` to ``column_height_9``.
    """
    placement = ("landing_height", "eroded_cells")
    common = (*placement, "row_transitions", "column_transitions", "holes")
    # Thiery and Scherrer added these two features to those of Dellacherie.
    thiery = ("hole_depth", "rows_with_holes")
    dellacherie = (*common, "wells")
    bcts = (*dellacherie, *thiery)
    dt = (*common, "wells_fast", *thiery, "diversity")
    # Each of the two constants is a text: feature names separated by blanks.
    dt_surface = (*dt, *_SURFACE_FEATURES.split())
    dt_full = (*dt_surface, *_FULL_FEATURES.split())
    heights = _column_features("column_height", width)
    differences = _column_features("height_difference", width)
    dt_columns = (*dt_full, *heights, *differences)
    dt_steps = (*dt_columns, *_column_features("step", width))
    bertsekas = (*heights, *differences, "max_height", "holes")
    # Both sets have the feature "holes", so leave it out once.
    bertsekas_and_bcts = (*bertsekas, *(name for name in bcts if name != "holes"))
    return {
        "dellacherie": dellacherie,
        "bcts": bcts,
        "du": bcts,  # Another name of BCTS.
        "dt": dt,
        "dt_surface": dt_surface,
        "dt_full": dt_full,
        "dt_columns": dt_columns,
        "dt_steps": dt_steps,
        "dt_step_pairs": (*dt_steps, *_column_features("step_pair", width)),
        "bertsekas": bertsekas,
        "bdu": bertsekas_and_bcts,
    }


def feature_names(features: str, width: int = MAX_WIDTH) -> tuple[str, ...]:
    """Return the feature names of a feature set, or of a text that lists features.

    Examples:
        >>> feature_names("holes, wells")
        ('holes', 'wells')

    Args:
        features: The name of a feature set, or feature names separated by commas. Case and
            blanks do not matter.
        width: The number of columns of the board.

    Raises:
        ValueError: If a name is unknown, occurs twice, or belongs to a column that the board
            does not have.
    """
    width = check_integer("the board's width", width, MIN_WIDTH, MAX_WIDTH)
    if "+" in features:
        raise ValueError(f"expected features without hidden units, got {features!r}")
    text = features.strip().lower()
    sets = feature_sets(width)
    if text in sets:
        return sets[text]
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name in sets:
            raise ValueError(
                f"expected a list of features, or a set that stands alone, got {name!r} in "
                f"{text!r}"
            )
        if name not in FEATURES:
            is_alone = len(names) == 1  # A single name may also be a misspelt set.
            raise _unknown_feature(name, list(sets) if is_alone else [])
        last_column = _last_column(name)
        if last_column is not None and last_column >= width:
            raise ValueError(f"expected features of a board of width {width}, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"expected every feature once, got {name!r} twice")
    return names


def weight_names(features: str, width: int = MAX_WIDTH) -> tuple[str, ...]:
    """Return the names of a policy's weights.

    They are the names of its features and, if the text ends with a number of hidden units,
    those of the units' weights.

    Examples:
        >>> weight_names("max_height, holes + 1")
        ('max_height', 'holes', 'unit_0_max_height', 'unit_0_holes', 'unit_0_bias', 'unit_0')

    Args:
        features: What `feature_names` takes, or this with hidden units, such as ``dt+8``.
        width: The number of columns of the board.

    Raises:
        ValueError: As `feature_names`, or if the number of units is not from 1 to 32.
    """
    text, units = split_units(features)
    layout = add_units(feature_names(text, width), units)
    if units and not layout.inputs:
        raise ValueError(
            "expected a feature of the whole board, or landing_height, as an input of hidden "
            f"units, got {features!r}"
        )
    return layout.names


def split_units(features: str) -> tuple[str, int]:
    """Split a text such as ``dt+8`` into its features and its number of hidden units.

    The number is 0 if the text has none. Raise ValueError if it is not from 1 to 32.
    """
    text, plus, number = features.partition("+")
    if not plus:
        return text, 0
    units = int(number) if number.strip().isdecimal() else 0
    if not 1 <= units <= MOST_UNITS:
        raise ValueError(
            f"expected 1 to {MOST_UNITS} hidden units, such as dt+8, got {features!r}"
        )
    return text, units


def _unknown_feature(name: str, suggestions: list[str]) -> ValueError:
    """Return the error for an unknown name, which suggests similar ones.

    There are hundreds of features of columns. Only the forms of their names are suggested, such
    as step_N_K, and the names of all other features, in addition to ``suggestions``.
    """
    others = [known for known in FEATURES if _last_column(known) is None]
    known_names = [*suggestions, *others, *_COLUMN_FORMS]
    error = unknown_name("feature set or feature", name, known_names)
    return ValueError(f"{error}; one of your own needs @tetris.feature or --feature-header")


@cache
def _column_features(family: str, width: int) -> tuple[str, ...]:
    """Return the features of a family, such as ``step``, for the columns of a board."""
    names = []
    for name in FEATURES:
        match = _COLUMN_FEATURE.match(name)
        if match and match[1] == family and int(match[2]) + _COLUMNS_BEYOND[family] < width:
            names.append(name)
    return tuple(names)


def _last_column(name: str) -> int | None:
    """Return the last column that a column feature uses; None for any other feature."""
    match = _COLUMN_FEATURE.match(name)
    return int(match[2]) + _COLUMNS_BEYOND[match[1]] if match else None


def feature_label(features: str) -> str:
    """Return a short label of a feature set, for tables and titles."""
    if len(features) <= _LABEL_WIDTH:
        return features
    _, plus, units = features.partition("+")
    return f"{features.count(',') + 1} features{plus}{units}"
