"""Features that users define: references in Python, and headers for the other engines."""

import functools
import re
import runpy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernels.support.files import StrPath, read_bytes
from tetris.game import features
from tetris.game.feature_sets import feature_sets
from tetris.game.features import AfterState, Feature

MOST_OWN = 8
"""The greatest number of features from a header that a controller may have.

With hidden units it is half of this number.
"""

BUILT_IN = tuple(features.FEATURES)
"""The features of the package."""

_LARGEST = float(np.finfo(np.float32).max)
# The engines add in 32 bits. `MOST_OWN` such values, each times a weight of 15 bits, take up
# half of that range.
_LARGEST_INTEGER = (1 << 12) - 1
_STRUCT = re.compile(r"^\s*(?:TETRIS_FEATURE\(\s*(\w+)\s*\)|struct\s+(\w+)\s*:)", re.MULTILINE)
_COMMENT = re.compile(r"//.*?$|/\*.*?\*/", re.MULTILINE | re.DOTALL)
_headers: dict[str, tuple[Path, str]] = {}
"""For each feature of a header, by its name: the path and the text of the header."""


def feature(definition: Feature) -> Feature:
    """Decorate a function to register it as a feature with the function's name.

    The reference engine, ``device="python"``, can play with the feature at once. The engines in
    C++ and CUDA also need a header that defines the same feature: see `feature_header`.

    Examples:
        >>> from tetris import feature, feature_names
        >>> @feature
        ... def empty_columns(after):
        ...     return after.heights.count(0)
        >>> feature_names("holes, empty_columns")
        ('holes', 'empty_columns')

    Args:
        definition: Maps a `tetris.game.features.AfterState` to a number that is finite in
            float32. If a header also defines the feature, it must be an integer from -4095 to
            4095. Any other value raises a ValueError during the game.

    Raises:
        ValueError: If the package has a feature or a set with this name, or if the name has
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
    def checked_definition(after: AfterState) -> float:
        return _checked_value(name, definition(after))

    features.FEATURES[name] = checked_definition
    return definition


def _checked_value(name: str, value: float | None) -> float:
    """Check the value of a user's feature, and return it as a float.

    Args:
        name: The name of the feature.
        value: The result of the user's function; None if the function returned nothing.

    Raises:
        ValueError: If the value is not finite in float32. If a C++ header also defines the
            feature, the value must be an integer, and small enough for the engines.
    """
    # Treat None as NaN, for which the comparison below is also false.
    number = float("nan") if value is None else float(value)
    is_finite = abs(number) <= _LARGEST
    if not is_finite:
        raise ValueError(f"feature {name}: expected a finite number (float32), got {value}")
    if name in _headers:  # A C++ header also defines the feature.
        is_small_integer = abs(number) <= _LARGEST_INTEGER and number.is_integer()
        if not is_small_integer:
            raise ValueError(
                f"feature {name}: expected a whole number of at most {_LARGEST_INTEGER} in "
                f"size, which its header can give, got {number:g}"
            )
    return number


def feature_header(path: StrPath) -> tuple[str, ...]:
    """Register the features that a user's C++ header defines, for the C++ and CUDA engines.

    The reference engine needs a Python function for each of these features, registered before
    by ``@tetris.feature``. Its name is the name of the feature in snake case. For example, the
    feature ``EmptyColumns`` needs the function ``empty_columns``.

    Args:
        path: A header with a ``TETRIS_FEATURE(Name)`` for each feature, as
            tetris/engine/own_features.h explains. ``Name`` is in PascalCase.

    Returns:
        The names of the features, in snake case.

    Raises:
        OSError: If the header cannot be read.
        ValueError: If the header defines no feature, or if the name of a feature is not in
            PascalCase, has no Python function, or was registered with another header or with
            another text of this one.
    """
    header = Path(path).absolute()
    text = read_bytes(header).decode(errors="replace")
    # A feature is defined as "TETRIS_FEATURE(EmptyColumns)" or as "struct EmptyColumns : ...".
    # The pattern has a group for the name in each form, and one of the two groups is None.
    code = _COMMENT.sub(" ", text)
    structs = [match[1] or match[2] for match in _STRUCT.finditer(code)]
    if not structs:
        raise ValueError(
            f"{path}: expected a feature, TETRIS_FEATURE(Name) {{ ... }}, found none"
        )
    headers = {}  # The path and the text of this header, by the name of the feature.
    for struct in structs:
        name = _name_of(struct, path)  # Raises if the struct cannot be a feature.
        headers[name] = (header, text)
        # A library with the registered text may already be loaded, and a process cannot replace
        # it. So a feature can be registered again only with the same header and text.
        if name in _headers and _headers[name] != (header, text):
            raise ValueError(
                f"{path}: {struct} was registered with another text: start a new process"
            )
    _headers.update(headers)
    return tuple(headers)


def _name_of(struct: str, path: StrPath) -> str:
    """Return the name in Python of a feature that the header at ``path`` defines.

    A struct ``EmptyColumns`` in C++ is the feature ``empty_columns`` in Python.

    Raises:
        ValueError: If the name of the struct is not in PascalCase, or no user's function is
            registered under the name in Python.
    """
    # Insert "_" before every capital letter except at the beginning, so that EmptyColumns
    # becomes empty_columns.
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
    return name


def run_header(path: Path) -> tuple[str, ...]:
    """Register the features of a header, after their Python references.

    The references are in the file with the suffix ``.py`` beside the header, if it exists.
    """
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
    """Return the path and the text of the user's C++ header that defines some of the features.

    The result is None if the package itself defines all of them.

    Raises:
        ValueError: If a user's feature exists in Python only, or if several headers define the
            features.
    """
    for name in names:
        is_own_feature = name in features.FEATURES and name not in BUILT_IN
        if is_own_feature and name not in _headers:
            raise ValueError(
                f"expected features that the C++ engine has, got {name!r}, which no header "
                "defines that tetris.feature_header read (device python plays without one)"
            )
    headers = {_headers[name] for name in header_features(names)}
    if len(headers) > 1:
        paths = ", ".join(sorted(str(path) for path, _ in headers))
        raise ValueError(f"expected features of one header, got {paths}")
    return next(iter(headers), None)
