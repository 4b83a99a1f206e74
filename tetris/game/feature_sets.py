"""The feature sets by name, and the text form of a list of features.

The order of a set is that of its weights. docs/features.md has the sources of the sets.
"""

from __future__ import annotations

from kernels.support.checks import check_integer
from kernels.support.names import unknown_name
from tetris.game.features import FEATURES, PLACEMENT_FEATURES
from tetris.game.rules import MAX_WIDTH, MIN_WIDTH

_LABEL_WIDTH = 40
_FAMILIES = {"step_pair_": 2, "step_": 1, "column_height_": 0, "height_difference_": 1}
"""Features of a column, by how their names begin, and how many columns further they look."""

_FORMS = ("step_pair_N_K_M", "step_N_K", "column_height_N", "height_difference_N")

_SURFACE = """
    max_height deep_wells_2 deep_wells_3 bumpiness flat_steps single_steps double_steps highest_hole
    fitting_pieces nearly_full_rows
"""
_FULL = """
    thin_covers adjacent_rows_with_holes fits_s fits_z flat_pairs rising_pairs falling_pairs peaks
    spare_pieces squared_deep_wells_3 upper_hole_rows columns_with_holes gaps_over_holes
    gaps_over_highest_hole
"""
"""What `dt_surface` has besides `dt`, and `dt_full` besides that."""


def surface_features(width: int = MAX_WIDTH) -> tuple[str, ...]:
    """Return the names of the heights and the differences of a board, left to right."""
    heights = tuple(f"column_height_{index}" for index in range(width))
    return heights + tuple(f"height_difference_{index}" for index in range(width - 1))


def step_features(width: int = MAX_WIDTH, family: str = "step_") -> tuple[str, ...]:
    """Return the names of the steps of a board, left to right, of one ``step_`` or of two, ``step_pair_``."""
    return tuple(
        name
        for name in FEATURES
        if name.startswith(family) and name[len(family)].isdigit() and (_last_column(name) or 0) < width
    )


def feature_sets(width: int = MAX_WIDTH) -> dict[str, tuple[str, ...]]:
    """Return the feature sets by name, each in its order, those of columns for a board of this width."""
    dellacherie = (*PLACEMENT_FEATURES, "row_transitions", "column_transitions", "holes", "wells")
    bcts = (*dellacherie, "hole_depth", "rows_with_holes")
    dt = (*("wells_fast" if name == "wells" else name for name in bcts), "diversity")
    dt_surface = (*dt, *_SURFACE.split())
    dt_full = (*dt_surface, *_FULL.split())
    dt_columns = (*dt_full, *surface_features(width))
    dt_steps = (*dt_columns, *step_features(width))
    bertsekas = (*surface_features(width), "max_height", "holes")
    return {
        "dellacherie": dellacherie,
        "bcts": bcts,
        "du": bcts,  # another name
        "dt": dt,
        "dt_surface": dt_surface,
        "dt_full": dt_full,
        "dt_columns": dt_columns,
        "dt_steps": dt_steps,
        "dt_step_pairs": (*dt_steps, *step_features(width, "step_pair_")),
        "bertsekas": bertsekas,
        "bdu": (*bertsekas, *(name for name in bcts if name != "holes")),
    }


def feature_names(features: str, width: int = MAX_WIDTH) -> tuple[str, ...]:
    """Return the names of the features of a set, in their order.

    Examples:
        >>> feature_names("holes, wells")
        ('holes', 'wells')

    Args:
        features: Name of a feature set, or feature names separated by commas; case and blanks do not matter.
        width: Columns of the board.

    Raises:
        TypeError: If the features are no text, or the width is no int.
        ValueError: If a name is unknown, comes twice, or names a column that the board does not have.
    """
    if not isinstance(features, str):
        raise TypeError(f"expected features as text such as 'dt' or 'holes, wells', got {features!r}")
    width = check_integer("the board's width", width, MIN_WIDTH, MAX_WIDTH)
    text = features.strip().lower()
    sets = feature_sets(width)
    if text in sets:
        return sets[text]
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name in sets:
            raise ValueError(
                f"expected a list of features, or a set that stands alone, got {name!r} in {text!r}"
            )
        if name not in FEATURES:
            on_any_board = [known for known in FEATURES if _last_column(known) is None]
            known = [*(sets if len(names) == 1 else ()), *on_any_board, *_FORMS]
            error = unknown_name("feature set or feature", name, known)
            raise ValueError(f"{error}; one of your own needs @tetris.feature or --feature-header")
        last = _last_column(name)
        if last is not None and last >= width:
            raise ValueError(f"expected features of a board of width {width}, got {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"expected every feature once, got {name!r} twice")
    return names


def _last_column(name: str) -> int | None:
    """Return the last column that a feature looks at; None if it looks at all."""
    for family, further in _FAMILIES.items():
        column = name.removeprefix(family).split("_")[0]
        if name.startswith(family) and column.isdigit():
            return int(column) + further
    return None


def feature_label(features: str) -> str:
    """Return a short label of a feature set, for tables and titles; of a long list its length."""
    return features if len(features) <= _LABEL_WIDTH else f"{features.count(',') + 1} features"
