"""A digest of the code of functions, by which a checkpoint knows that an objective was changed.

It has the bytecode, names and constants of a function, its defaults, the numbers and texts that it closes
over, the arguments of a ``functools.partial``, and the functions and classes that it names, but for those of
Python and of installed packages. It has neither data that may change, such as lists, arrays, attributes and
global variables, nor comments and docstrings.
"""

from __future__ import annotations

import dis
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_DATA = (bool, int, float, complex, str, bytes)
_INSTALLED = (*(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")), "<frozen")
# By SciPy, this package, NumPy, properties, decorators and methods of a class.
_WRAPPED = ("fun", "function", "pyfunc", "fget", "__wrapped__")


def digest_code(*values: Any) -> str:
    """Return the version of the bytecode, and a digest of the code of values of any type."""
    digest, seen, queue = hashlib.sha256(), set[int](), [*values]
    for value in queue:  # which grows
        if isinstance(value, _DATA):
            digest.update(f"{value!r}\n".encode())
        elif isinstance(value, tuple) or id(value) not in seen:
            seen.add(id(value))
            queue += _parts_of(value)
    return f"{sys.implementation.cache_tag} {digest.hexdigest()[:16]}"


def _parts_of(value: Any) -> Iterable[Any]:
    """Return the values whose code tells a value from others; of data that may change its type alone."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__, type(value.__self__)]
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    if isinstance(value, type):
        return [member for base in value.__mro__ for member in _without_data(vars(base), vars(base))]
    return [type(value), *(getattr(value, name, None) for name in _WRAPPED)]


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    """Yield what a function closes over, its code, defaults, and the functions and classes that it names."""
    codes = [function.__code__]
    for code in codes:  # which grows
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    instructions = (one for code in codes if function.__closure__ for one in dis.get_instructions(code))
    counters = {one.argval for one in instructions if one.opname == "STORE_DEREF"}  # it changes them itself
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in counters and cell != type(cell)():  # it is not empty
            yield cell.cell_contents
    if function.__code__.co_filename.startswith(_INSTALLED):
        return
    for code in codes:
        yield from (code.co_code.hex(), code.co_names)
        yield from (constant for constant in code.co_consts if constant != function.__doc__)
    yield from (function.__defaults__, *(function.__kwdefaults__ or {}).values())
    names = [name for code in codes for name in code.co_names]
    yield from (named := _without_data(function.__globals__, names))
    for module in named:
        if isinstance(module, ModuleType):
            yield from _without_data(vars(module), names)


def _without_data(scope: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Return the values of names, but for numbers, texts and tuples, which may change."""
    values = [scope.get(name) for name in names]
    return [value for value in values if not isinstance(value, (*_DATA, tuple))]
