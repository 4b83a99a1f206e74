"""Features that users define: references in Python, and headers for the other engines."""

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
"""How many features of a header a controller may have."""

BUILT_IN = tuple(features.FEATURES)
"""The features of the package."""

_LARGEST = float(np.finfo(np.float32).max)
# Multiplied by a weight of 15 bits, `MOST_OWN` such values fill half of the range of a 32-bit
# score.
_LARGEST_INTEGER = (1 << 12) - 1
_STRUCT = re.compile(r"^\s*(?:TETRIS_FEATURE\(\s*(\w+)\s*\)|struct\s+(\w+)\s*:)", re.MULTILINE)
_COMMENT = re.compile(r"//.*?$|/\*.*?\*/", re.MULTILINE | re.DOTALL)
_headers: dict[str, tuple[Path, str]] = {}
"""The header of a feature, by its name, and the text of the header."""


def feature(definition: Feature) -> Feature:
    """Make a function a feature, by its name; a decorator.

    The reference engine, ``device="python"``, can use it at once; the others after
    `feature_header`.

    Examples:
        >>> from tetris import feature, feature_names
        >>> @feature
        ... def empty_columns(after):
        ...     return after.heights.count(0)
        >>> feature_names("holes, empty_columns")
        ('holes', 'empty_columns')

    Args:
        definition: Maps a `tetris.game.features.AfterState` to a number that is finite in
            float32; a feature with a header to an integer from -4095 to 4095. A game in which
            it returns another value ends with a ValueError that names the feature.

    Raises:
        ValueError: If the package has a feature or a set of this name, or the name has
            characters other than small letters and underscores.
    """
    name = definition.__name__
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name):
        raise ValueError(
            f"expected a feature's name of small letters and underscores, got {name!r}"
        )
    if name in BUILT_IN or name in feature_sets():
        raise ValueError(
            f"expected a new name of a feature, got {name!r}, which the package has"
        )

    @functools.wraps(definition)
    def checked(after: AfterState) -> float:
        value = definition(after)
        number = float("nan") if value is None else float(value)
        # This is also true of NaN, while abs(nan) > _LARGEST is not.
        if not abs(number) <= _LARGEST:
            raise ValueError(f"feature {name}: expected a finite number (float32), got {value}")
        if name in _headers and (abs(number) > _LARGEST_INTEGER or number % 1):
            raise ValueError(
                f"feature {name}: expected a whole number of at most {_LARGEST_INTEGER} in "
                f"size, which its header can give, got {number:g}"
            )
        return number

    features.FEATURES[name] = checked
    return definition


def feature_header(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Give features of one's own to the C++ and CUDA engines.

    Args:
        path: A header with a ``TETRIS_FEATURE(Name)`` for each feature, as
            tetris/engine/own_features.h explains. The name is that of the Python function in
            PascalCase.

    Returns:
        The names of the features.

    Raises:
        OSError: If the header cannot be read.
        ValueError: If it defines no feature, or a feature's name is not in PascalCase, has no
            reference in Python, or is defined in another header.
    """
    header = Path(path).absolute()
    text = read_bytes(header).decode(errors="replace")
    structs = [macro or struct for macro, struct in _STRUCT.findall(_COMMENT.sub(" ", text))]
    if not structs:
        raise ValueError(
            f"{path}: expected a feature, TETRIS_FEATURE(Name) {{ ... }}, found none"
        )
    names = []
    for struct in structs:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", struct).lower()
        if not re.fullmatch(r"([A-Z][a-z]*)+", struct):
            raise ValueError(
                f"{path}: expected a name such as EmptyColumns, in PascalCase, got {struct}"
            )
        if name not in features.FEATURES or name in BUILT_IN:
            raise ValueError(
                f"{path}: expected a reference of {struct} in Python, a function {name} with "
                "@tetris.feature"
            )
        if _headers.get(name, (header, text)) != (header, text):
            raise ValueError(
                f"{path}: {struct} was read before, and is another one now: start a new process"
            )
        names.append(name)
    _headers.update(dict.fromkeys(names, (header, text)))
    return tuple(dict.fromkeys(names))


def run_header(path: Path) -> tuple[str, ...]:
    """Run the Python file of the same name beside a header, if any; then read the header."""
    references = path.with_suffix(".py")
    if references.is_file() and path.is_file():
        try:
            runpy.run_path(str(references))
        except Exception as error:
            raise ValueError(f"{references}: {type(error).__name__}: {error}") from error
    return feature_header(path)


def header_features(names: Sequence[str]) -> tuple[str, ...]:
    """Return the features that a user's header defines."""
    return tuple(name for name in names if name in _headers)


def header_of(names: Sequence[str]) -> tuple[Path, str] | None:
    """Return the header that defines some of the features, and its text; None without one."""
    for name in names:
        if name in features.FEATURES and name not in BUILT_IN and name not in _headers:
            raise ValueError(
                f"expected features that the C++ engine has, got {name!r}, which no header "
                "defines that tetris.feature_header read (device python plays without one)"
            )
    headers = {_headers[name] for name in header_features(names)}
    if len(headers) > 1:
        paths = ", ".join(sorted(str(path) for path, _ in headers))
        raise ValueError(f"expected features of one header, got {paths}")
    return next(iter(headers), None)
