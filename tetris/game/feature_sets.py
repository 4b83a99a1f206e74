"""The feature sets by name, and the text form of a list of features.

The order of a set is that of its weights. docs/features.md has the sources of the sets.
"""

import re
from functools import cache

from kernels.support.checks import check_integer
from kernels.support.names import unknown_name
from tetris.game.features import FEATURES, PLACEMENT_FEATURES
from tetris.game.rules import MAX_WIDTH, MIN_WIDTH

_LABEL_WIDTH = 40
_COLUMNS_BEYOND = {"column_height": 0, "height_difference": 1, "step": 1, "step_pair": 2}
"""The families of features of a column, and how many columns beyond it they look at."""

_OF_COLUMN = re.compile(rf"({'|'.join(_COLUMNS_BEYOND)})_(\d+)")
_FORMS = ("step_pair_N_K_M", "step_N_K", "column_height_N", "height_difference_N")

_SURFACE = """
    max_height deep_wells_2 deep_wells_3 bumpiness flat_steps single_steps double_steps
    highest_hole fitting_pieces nearly_full_rows
"""
_FULL = """
    thin_covers adjacent_rows_with_holes fits_s fits_z flat_pairs rising_pairs falling_pairs
    peaks spare_pieces squared_deep_wells_3 upper_hole_rows columns_with_holes gaps_over_holes
    gaps_over_highest_hole
"""
"""What `dt_surface` adds to `dt`, and `dt_full` to `dt_surface`."""


def feature_sets(width: int = MAX_WIDTH) -> dict[str, tuple[str, ...]]:
    """Return all feature sets: the name of each set, and the names of its features in order.

    Sets that describe single columns, such as ``bertsekas``, have a feature for each column of
    a board with this width. The sets build upon one another.
    """
    common = (*PLACEMENT_FEATURES, "row_transitions", "column_transitions", "holes")
    thiery = ("hole_depth", "rows_with_holes")
    dellacherie = (*common, "wells")
    bcts = (*dellacherie, *thiery)
    dt = (*common, "wells_fast", *thiery, "diversity")
    dt_surface = (*dt, *_SURFACE.split())
    dt_full = (*dt_surface, *_FULL.split())
    surface = (*_family("column_height", width), *_family("height_difference", width))
    dt_columns = (*dt_full, *surface)
    dt_steps = (*dt_columns, *_family("step", width))
    bertsekas = (*surface, "max_height", "holes")
    return {
        "dellacherie": dellacherie,
        "bcts": bcts,
        "du": bcts,  # Another name of BCTS.
        "dt": dt,
        "dt_surface": dt_surface,
        "dt_full": dt_full,
        "dt_columns": dt_columns,
        "dt_steps": dt_steps,
        "dt_step_pairs": (*dt_steps, *_family("step_pair", width)),
        "bertsekas": bertsekas,
        "bdu": (*bertsekas, *(name for name in bcts if name != "holes")),
    }


def feature_names(features: str, width: int = MAX_WIDTH) -> tuple[str, ...]:
    """Return the names of the features of a set, in order.

    Examples:
        >>> feature_names("holes, wells")
        ('holes', 'wells')

    Args:
        features: Name of a feature set, or feature names separated by commas; case and blanks
            do not matter.
        width: Columns of the board.

    Raises:
        ValueError: If a name is unknown, comes twice, or names a column that the board does not
            have.
    """
    width = check_integer("the board's width", width, MIN_WIDTH, MAX_WIDTH)
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
            # There are hundreds of features of columns: suggest their forms, such as step_N_K.
            suggestions = [known for known in FEATURES if _last_column(known) is None]
            suggestions += _FORMS
            if len(names) == 1:
                suggestions = [*sets, *suggestions]
            error = unknown_name("feature set or feature", name, suggestions)
            raise ValueError(
                f"{error}; one of your own needs @tetris.feature or --feature-header"
            )
        last = _last_column(name)
        if last is not None and last >= width:
            raise ValueError(f"expected features of a board of width {width}, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"expected every feature once, got {name!r} twice")
    return names


@cache
def _family(family: str, width: int) -> tuple[str, ...]:
    """Return the features of columns of a family, such as ``step``, that a board has."""
    names = []
    for name in FEATURES:
        match = _OF_COLUMN.match(name)
        if match and match[1] == family and int(match[2]) + _COLUMNS_BEYOND[family] < width:
            names.append(name)
    return tuple(names)


def _last_column(name: str) -> int | None:
    """Return the last column that a feature of columns looks at; None for other features."""
    match = _OF_COLUMN.match(name)
    return int(match[2]) + _COLUMNS_BEYOND[match[1]] if match else None


def feature_label(features: str) -> str:
    """Return a short label of a feature set, for tables and titles."""
    if len(features) <= _LABEL_WIDTH:
        return features
    return f"{features.count(',') + 1} features"
