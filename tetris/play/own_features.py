"""Features of one's own: a Python function, and for the C++ and CUDA engines a header with its twin."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import kernels.ops
from kernels.loader.extension import HEADER_SUFFIXES
from kernels.support.printable import printable
from tetris.game import features
from tetris.game.feature_sets import feature_sets
from tetris.game.features import AfterState, Feature

INCLUDES = (Path(__file__).parents[1] / "engine", Path(kernels.ops.__file__).parent)
"""The folders of the headers of engine and operators."""

_ENVS = Path(__file__).parents[1] / "envs"
_SYSTEM_HEADERS = Path("/usr/include")
_SOURCE_SUFFIXES = (*HEADER_SUFFIXES, ".cpp", ".cu")
_BUILT_IN = frozenset(features.FEATURES)
_FAMILIES = frozenset(re.sub(r"(_\d+)+$", "", name) for name in (*_BUILT_IN, "step_features"))
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_WHOLE = (1 << 12) - 1  # times a weight of 15 bits: `MOST_OWN` of them are half of a score of 32 bits
MOST_OWN = 8
"""Features of headers that a controller may have."""
_STRUCT = re.compile(r"^\s*(?:TETRIS_FEATURE\(\s*(\w+)\s*\)|struct\s+(\w+)\s*:)", re.MULTILINE)
_COMMENT = re.compile(r"//.*?$|/\*.*?\*/", re.MULTILINE | re.DOTALL)
_headers: dict[str, tuple[Path, str]] = {}  # by C++ name: the header, and its text


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
            header to a whole number from -4095 to 4095; a game in which it gives anything else ends with a
            ValueError that names the feature.

    Raises:
        TypeError: If it is no function with a name.
        ValueError: If the package has a feature or a set of the name, or it is not of small letters and
            underscores.
    """
    name = getattr(definition, "__name__", None)
    if not callable(definition) or name is None:
        raise TypeError(f"expected a function, got {definition!r}")
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name):
        raise ValueError(f"expected a feature's name of small letters and underscores, got {name!r}")
    if name in _BUILT_IN or name in _FAMILIES or name in feature_sets():
        raise ValueError(f"expected a new name of a feature, got {name!r}, which the package has")
    features.define(name, _checked(name, definition))
    return definition


def _checked(name: str, definition: Feature) -> Feature:
    """Return the function with a check of what it gives: one NaN makes every comparison of a run false."""

    @functools.wraps(definition)
    def checked(after: AfterState) -> float:
        value = definition(after)
        try:
            number = float(value) if hasattr(value, "__float__") else np.nan
        except (OverflowError, TypeError, ValueError):  # a huge int, an array of several numbers
            number = np.nan
        if not abs(number) <= _LARGEST:  # so written, NaN fails too
            got = printable(reprlib.repr(value))
            raise ValueError(f"feature {name}: expected a finite number (float32), got {got}")
        if (abs(number) > _LARGEST_WHOLE or number % 1) and name in map(_name_of, _headers):
            wanted = f"a whole number of at most {_LARGEST_WHOLE} in size, which its header can give"
            raise ValueError(f"feature {name}: expected {wanted}, got {number:g}")
        return number

    return checked


def _name_of(struct: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", struct).lower()


def feature_header(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Give features of one's own to the C++ and CUDA engines.

    Args:
        path: A header with a ``TETRIS_FEATURE(Name)`` for each; tetris/engine/own_features.h says how. The
            name is that of the Python function in PascalCase.

    Returns:
        The names of the features.

    Raises:
        OSError: If the header cannot be read.
        ValueError: If it or a feature has a name that cannot be, it defines no feature, one has no twin in
            Python, or another header has it.
    """
    header = Path(path).absolute()
    text = header.read_text(encoding="utf-8", errors="replace")
    structs = [macro or struct for macro, struct in _STRUCT.findall(_COMMENT.sub(" ", text))]
    if not structs:
        raise ValueError(f"{path}: expected a feature, TETRIS_FEATURE(Name) {{ ... }}, found none")
    _check_names(path, structs)
    names = tuple(map(_name_of, structs))
    for struct, name in zip(structs, names, strict=True):
        if name not in features.FEATURES or name in _BUILT_IN:
            raise ValueError(
                f"{path}: expected a Python twin of {struct}, a function {name} with @tetris.feature"
            )
        if _headers.get(struct, (header, text)) != (header, text):
            raise ValueError(f"{path}: {struct} was read before, and is another one now: start a new process")
    _headers.update(dict.fromkeys(structs, (header, text)))
    return names


def _check_names(path: str | os.PathLike[str], structs: Sequence[str]) -> None:
    """Raise ValueError where the header or a struct has a name that the engine has, or that cannot be."""
    name = Path(path).name
    if not name.endswith(HEADER_SUFFIXES):
        raise ValueError(f"{path}: expected a file name that ends in {', '.join(HEADER_SUFFIXES)}")
    folders = (*INCLUDES, _ENVS / "step", _ENVS / "features")
    sources = [each for folder in folders for each in folder.iterdir() if each.suffix in _SOURCE_SUFFIXES]
    if name in {each.name for each in sources} or (_SYSTEM_HEADERS / name).exists():
        raise ValueError(f"{path}: expected another file name, the engine or the system has one of this name")
    engine = "\n".join(each.read_text(encoding="utf-8") for each in sources)
    for struct in structs:
        if not re.fullmatch(r"([A-Z][a-z]*)+", struct):
            raise ValueError(f"{path}: expected a name such as EmptyColumns, in PascalCase, got {struct}")
        if re.search(rf"\b(struct|class|using|enum)\b[\w: ]*\b{struct}\b", engine):
            raise ValueError(f"{path}: expected another name than {struct}, which the engine has")


def run_header(path: Path) -> tuple[str, ...]:
    """Run the Python file of the same name beside a header, if there is one; then `feature_header`.

    Raises:
        OSError: As `feature_header`.
        ValueError: As `feature_header`, or if the Python file fails.
    """
    twin = path.with_suffix(".py")
    if twin.is_file() and path.is_file():
        spec = importlib.util.spec_from_file_location(path.stem, twin)
        assert spec is not None
        assert spec.loader is not None
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except Exception as error:
            raise ValueError(f"{twin}: {type(error).__name__}: {error}") from error
    return feature_header(path)


def header_of(structs: Sequence[str]) -> tuple[Path, str] | None:
    """Return the header that defines some of the C++ names, and its text; None if none does.

    Raises:
        ValueError: If several do.
    """
    found = {_headers[struct] for struct in structs if struct in _headers}
    if len(found) > 1:
        paths = ", ".join(sorted(str(path) for path, _ in found))
        raise ValueError(f"expected features of one header, got {paths}")
    return next(iter(found), None)
