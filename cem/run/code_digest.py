"""A digest of the code of functions, by which a checkpoint knows that an objective was changed.

It has the bytecode, names and constants of a function, its defaults, the numbers and texts that it closes
over, the arguments of a ``functools.partial``, and the functions and classes that it names, but for those of
Python and of installed packages. It has neither data that may change, such as lists, arrays and global
variables, nor comments and docstrings.
"""

from __future__ import annotations

import dis
import hashlib
import sys
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from inspect import getattr_static
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_SIMPLE = (bool, int, float, complex, str, bytes)
_INSTALLED = (*(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")), "<frozen")
_WRAPPED = ("fun", "pyfunc", "__wrapped__")  # by SciPy's constraints, numpy.vectorize, decorators


def digest_code(*values: Any) -> str:
    """Return the version of the bytecode, and a digest of the code of values of any type."""
    digest, seen, queue = hashlib.sha256(), dict[int, Any](), deque(values)
    while queue:
        value = queue.popleft()
        if isinstance(value, (FunctionType, type)):
            if id(value) in seen:
                continue
            seen[id(value)] = value
        text, parts = _opened(value)
        if text:
            digest.update(f"{text}\n".encode())
        queue.extend(part for part in parts if part is not None)
    return f"{sys.implementation.cache_tag} {digest.hexdigest()[:16]}"


def is_other_code(one: str | None, other: str | None) -> bool:
    """Return whether two digests, of which either may be missing, are known to be of different code."""
    if one is None or other is None or one.split()[0] != other.split()[0]:
        return False
    return one != other


def _opened(value: Any) -> tuple[str, list[Any]]:
    """Return what tells a value from others, and the values that it is made of."""
    if isinstance(value, _SIMPLE):
        return repr(value), []
    if isinstance(value, frozenset):  # its order depends on the process
        return repr(sorted(map(repr, value))), []
    if isinstance(value, Mapping):
        return "", [*value.items()]
    if isinstance(value, (tuple, list)):
        return str(len(value)), [*value]
    if isinstance(value, CodeType):
        return value.co_code.hex(), [value.co_names, value.co_consts]
    if isinstance(value, partial):
        return "", [value.func, *_lasting(value.args), *_lasting(value.keywords.values())]
    if isinstance(value, MethodType):
        return "", [value.__func__, type(value.__self__)]
    if isinstance(value, FunctionType):
        is_installed = value.__code__.co_filename.startswith(_INSTALLED)
        return "", [] if is_installed else [*_parts_of(value)]
    if isinstance(value, type):
        return "", [_function_of(member) for base in value.__mro__ for member in vars(base).values()]
    return "", [type(value), *(getattr_static(value, name, None) for name in _WRAPPED)]


def _parts_of(function: FunctionType) -> Iterator[Any]:
    """Yield the code of a function, its values, and the functions and classes that it names."""
    codes = [function.__code__]
    for code in codes:  # which grows
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield code.co_code.hex()
        yield code.co_names
        simple = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
        yield from (constant for constant in simple if constant != function.__doc__)
    yield from _lasting(function.__defaults__ or ())
    yield from _lasting((function.__kwdefaults__ or {}).values())
    instructions = [one for code in codes for one in dis.get_instructions(code)]
    counted = {one.argval for one in instructions if one.opname == "STORE_DEREF"}  # by the function itself
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in counted and cell != type(cell)():  # it is not empty
            yield from _lasting([cell.cell_contents])
    names = [name for code in codes for name in code.co_names]
    scopes = [function.__globals__]
    scopes += [vars(value) for name in names if isinstance(value := scopes[0].get(name), ModuleType)]
    for scope in scopes:
        yield from (_function_of(scope.get(name)) for name in names)


def _lasting(values: Any) -> list[Any]:
    """Return the values that do not change while a search runs, as lists and dicts may."""
    return [value for value in values if not isinstance(value, (list, set, Mapping))]


def _function_of(value: Any) -> Any:
    """Return a function or class, or the function that a descriptor wraps; None for data."""
    value = getattr(value, "__func__", getattr(value, "fget", value))
    return value if isinstance(value, (FunctionType, partial, type)) else None
