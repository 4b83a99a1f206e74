"""A digest of the code of functions, by which a checkpoint notices a changed objective.

It covers the bytecode, names, constants and defaults of a function, the numbers and texts that
it closes over, the arguments of a ``functools.partial``, and the functions and classes that it
names, except those of Python and of installed packages. It covers neither data that may change,
such as lists, arrays, attributes and global variables, nor comments and docstrings.
"""

import dis
import hashlib
import itertools
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_DATA = (bool, int, float, complex, str, bytes)
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
# Attributes that hold a function: of SciPy, this package, NumPy, properties, decorators.
_WRAPPED = ("fun", "function", "pyfunc", "fget", "__wrapped__")


def digest_code(*values: Any) -> str:
    """Return the version of the bytecode and a digest of the code of values of any type.

    Both are in one text, such as "cpython-312 0123456789abcdef". Functions with the same
    bytecode, names and constants have the same digest.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()
    queue = [*values]
    # The loop extends the queue by what makes up a value, until only data is left.
    for value in queue:
        if isinstance(value, _DATA):
            digest.update(f"{value!r}\n".encode())
        elif isinstance(value, tuple) or id(value) not in seen:
            seen.add(id(value))
            queue += _expand(value)
    return f"{sys.implementation.cache_tag} {digest.hexdigest()[:16]}"


def _expand(value: Any) -> Iterable[Any]:
    """Return the values that make up the code of a value, for a digest of all of them.

    A function has bytecode and names, a class its members, a partial and a method their
    functions. Of data that may change, such as a list or an instance, only the type counts,
    and a function that it wraps.
    """
    if isinstance(value, tuple):
        return value
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__, type(value.__self__)]
    if isinstance(value, FunctionType):
        return _expand_function(value)
    if isinstance(value, type):
        members: list[Any] = []
        for base in value.__mro__:
            members += _code_among(vars(base), vars(base))
        return members
    wrapped = [getattr(value, name, None) for name in _WRAPPED]
    return [type(value), *wrapped]


def _expand_function(function: FunctionType) -> Iterator[Any]:
    """Yield what determines the behaviour of a function, for a digest.

    These are the values that it closes over and, unless it belongs to Python or an installed
    package, its bytecode, names, constants and defaults, and the functions that it names. The
    functions inside it count, its docstring does not.
    """
    # The loop extends the list, so that it also has the functions inside those inside.
    codes = [function.__code__]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    yield from _closure_of(function, codes)
    is_library = function.__code__.co_filename.startswith((*_LIBRARIES, "<frozen"))
    if is_library:
        return
    names: list[str] = []
    for code in codes:
        yield code.co_code.hex()
        yield code.co_names
        yield from (constant for constant in code.co_consts if constant != function.__doc__)
        names += code.co_names
    yield function.__defaults__
    keyword_defaults = function.__kwdefaults__ or {}
    yield from keyword_defaults.values()
    # Names are global variables, or attributes of modules among those.
    global_values = _code_among(function.__globals__, names)
    yield from global_values
    for value in global_values:
        if isinstance(value, ModuleType):
            yield from _code_among(vars(value), names)


def _closure_of(function: FunctionType, codes: list[CodeType]) -> Iterator[Any]:
    """Yield the values that a function closes over, except those that it changes itself.

    ``codes`` are the bytecode of the function and of the functions inside it.
    """
    cells = function.__closure__ or ()
    changed = set()
    if cells:
        for instruction in itertools.chain(*map(dis.get_instructions, codes)):
            # This instruction assigns a variable of an enclosing function.
            if instruction.opname == "STORE_DEREF":
                changed.add(instruction.argval)
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        # A cell is empty until its variable is assigned, and then has no contents.
        is_empty = cell == type(cell)()
        if name not in changed and not is_empty:
            yield cell.cell_contents


def _code_among(scope: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Return the values of names, except numbers, texts and tuples, which may change."""
    values = [scope.get(name) for name in names]
    return [value for value in values if not isinstance(value, (*_DATA, tuple))]
