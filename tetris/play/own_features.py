"""Features of one's own: the reference in Python, and a header for the C++ and CUDA engines."""

from __future__ import annotations

import functools
import os
import re
import runpy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernels.support.files import read_bytes
from tetris.game import features
from tetris.game.feature_sets import feature_sets
from tetris.game.features import AfterState, Feature

MOST_OWN = 8
"""Features of headers that a controller may have."""

BUILT_IN = tuple(features.FEATURES)
"""The features of the package."""

_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_WHOLE = (1 << 12) - 1  # times a weight of 15 bits: `MOST_OWN` of them are half of a score of 32 bits
_STRUCT = re.compile(r"^\s*(?:TETRIS_FEATURE\(\s*(\w+)\s*\)|struct\s+(\w+)\s*:)", re.MULTILINE)
_COMMENT = re.compile(r"//.*?$|/\*.*?\*/", re.MULTILINE | re.DOTALL)
_headers: dict[str, tuple[Path, str]] = {}  # by feature: the header, and its text


def feature(definition: Feature) -> Feature:
    """Make a function a feature, by its name; a decorator.

    The reference engine, ``device="python"``, plays it at once; `feature_header` gives it to the others.

    Examples:
        >>> from tetris import feature, feature_names
        >>> @feature
        ... def empty_columns(after):
        ...     return after.heights.count(0)
        >>> feature_names("holes, empty_columns")
        ('holes', 'empty_columns')

    Args:
        definition: Maps a `tetris.game.features.AfterState` to a number that is finite in float32, and with a
            header to a whole number from -4095 to 4095; a game in which it gives another one ends with a
            ValueError that names the feature.

    Raises:
        ValueError: If the package has a feature or a set of the name, or it is not of small letters and
            underscores.
    """
    name = definition.__name__
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name):
        raise ValueError(f"expected a feature's name of small letters and underscores, got {name!r}")
    if name in BUILT_IN or name in feature_sets():
        raise ValueError(f"expected a new name of a feature, got {name!r}, which the package has")

    @functools.wraps(definition)
    def checked(after: AfterState) -> float:
        value = definition(after)
        number = float("nan") if value is None else float(value)
        if not abs(number) <= _LARGEST:  # so written, NaN fails too: it would make every comparison false
            raise ValueError(f"feature {name}: expected a finite number (float32), got {value}")
        if name in _headers and (abs(number) > _LARGEST_WHOLE or number % 1):
            wanted = f"a whole number of at most {_LARGEST_WHOLE} in size, which its header can give"
            raise ValueError(f"feature {name}: expected {wanted}, got {number:g}")
        return number

    features.FEATURES[name] = checked
    return definition


def feature_header(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Give features of one's own to the C++ and CUDA engines.

    Args:
        path: A header with a ``TETRIS_FEATURE(Name)`` for each; tetris/engine/own_features.h says how. The
            name is that of the Python function in PascalCase.

    Returns:
        The names of the features.

    Raises:
        OSError: If the header cannot be read.
        ValueError: If it defines no feature, one has a name that is not in PascalCase or has no reference in
            Python, or another header has it.
    """
    header = Path(path).absolute()
    text = read_bytes(header).decode(errors="replace")
    structs = [macro or struct for macro, struct in _STRUCT.findall(_COMMENT.sub(" ", text))]
    if not structs:
        raise ValueError(f"{path}: expected a feature, TETRIS_FEATURE(Name) {{ ... }}, found none")
    found = {}
    for struct in structs:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", struct).lower()
        if not re.fullmatch(r"([A-Z][a-z]*)+", struct):
            raise ValueError(f"{path}: expected a name such as EmptyColumns, in PascalCase, got {struct}")
        if name not in features.FEATURES or name in BUILT_IN:
            wanted = f"a reference of {struct} in Python, a function {name} with @tetris.feature"
            raise ValueError(f"{path}: expected {wanted}")
        if _headers.get(name, (header, text)) != (header, text):
            raise ValueError(f"{path}: {struct} was read before, and is another one now: start a new process")
        found[name] = header, text
    _headers.update(found)
    return tuple(found)


def run_header(path: Path) -> tuple[str, ...]:
    """Run the Python file of the same name beside a header, if there is one; then `feature_header`."""
    references = path.with_suffix(".py")
    if references.is_file() and path.is_file():
        try:
            runpy.run_path(str(references))
        except Exception as error:
            raise ValueError(f"{references}: {type(error).__name__}: {error}") from error
    return feature_header(path)


def header_features(names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the features that are defined in a header of one's own."""
    return tuple(name for name in names if name in _headers)


def header_of(names: Sequence[str]) -> tuple[Path, str] | None:
    """Return the header that defines some of the features, and its text; None if all are the package's."""
    for name in names:
        if name in features.FEATURES and name not in BUILT_IN and name not in _headers:
            raise ValueError(
                f"expected features that the C++ engine has, got {name!r}, which no header defines that "
                "tetris.feature_header read (device python plays without one)"
            )
    found = {_headers[name] for name in header_features(names)}
    if len(found) > 1:
        paths = ", ".join(sorted(str(path) for path, _ in found))
        raise ValueError(f"expected features of one header, got {paths}")
    return next(iter(found), None)
