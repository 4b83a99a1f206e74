"""A digest of the code of functions, which reveals that the objective of a run has changed.

The digest covers

- the bytecode, names, constants and defaults of a function;
- the numbers and strings that the function closes over;
- the arguments of a ``functools.partial``;
- the functions and classes that the function names, except those of Python and of installed
  packages.

It does not cover comments, docstrings, and data that may change, such as lists, arrays,
attributes and global variables.
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
# Attributes that refer to a function, in objects of SciPy, this package and NumPy, in
# properties, and in decorated functions.
_WRAPPED = ("fun", "function", "pyfunc", "fget", "__wrapped__")


def digest_code(*values: Any) -> str:
    """Return the version of the bytecode and a digest of the code of values of any type.

    The result is one string, such as "cpython-312 0123456789abcdef". Functions with the same
    bytecode, names and constants have the same digest.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()
    queue = [*values]
    # The loop appends the parts of each value to the queue. It ends when only data is left.
    for value in queue:
        if isinstance(value, _DATA):
            digest.update(f"{value!r}\n".encode())
        elif isinstance(value, tuple) or id(value) not in seen:
            seen.add(id(value))
            queue += _expand(value)
    return f"{sys.implementation.cache_tag} {digest.hexdigest()[:16]}"


def _is_data(value: Any) -> bool:
    """Return whether a value has the same text in every process."""
    if isinstance(value, tuple):
        return all(map(_is_data, value))
    return value is None or isinstance(value, _DATA)


def _expand(value: Any) -> Iterable[Any]:
    """Return the parts of a value that the digest covers.

    They are functions, classes, strings and other values, which the caller also expands. For
    example, the parts of a partial are its function and arguments.
    """
    if isinstance(value, tuple):
        return value
    # Bytecode also has these constants: ``{1, 2}`` after ``in``, in an order that differs from
    # process to process, and from Python 3.14 on slices such as ``1:``.
    if isinstance(value, frozenset):
        return sorted(repr(item) for item in value if _is_data(item))
    if isinstance(value, slice):
        return [repr(value)]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__, type(value.__self__)]
    if isinstance(value, FunctionType):
        return _expand_function(value)
    if isinstance(value, type):
        # A class consists of its own and its inherited members. ``__mro__`` lists the class
        # and its base classes.
        members: list[Any] = []
        for base in value.__mro__:
            members += _look_up_code(vars(base), names=vars(base))
        return members
    # Any other object is data that may change, such as a list. The digest covers only its type
    # and the functions in its attributes ``_WRAPPED``, for example "__wrapped__".
    wrapped = [getattr(value, name, None) for name in _WRAPPED]
    return [type(value), *wrapped]


def _expand_function(function: FunctionType) -> Iterator[Any]:
    """Yield what the digest of a function covers: all that determines its behaviour.

    These are its bytecode, constants, defaults, the values that it closes over, and the code
    that it calls by a global name. The docstring is left out. For a function of Python's own
    library or of an installed package, only the values that it closes over are yielded.
    """
    codes = [function.__code__]
    # A function contains the code of its nested functions as constants. The loop extends the
    # list over which it runs, so that it also visits the functions inside nested functions.
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

    # The names in bytecode are those of global variables and of attributes: ``module.function``
    # has the names "module" and "function". Global data, such as numbers, are left out, because
    # a program may change them.
    global_values = _look_up_code(function.__globals__, names)
    yield from global_values
    for value in global_values:
        if isinstance(value, ModuleType):
            # Find the functions that are called as ``module.function``.
            yield from _look_up_code(vars(value), names)


def _closure_of(function: FunctionType, codes: list[CodeType]) -> Iterator[Any]:
    """Yield the values that a function closes over, except those that it assigns itself.

    ``codes`` are the code objects of the function and of the functions nested in it.
    """
    # The variables of enclosing functions are stored in cells. ``co_freevars`` has their names.
    cells = function.__closure__ or ()
    reassigned = set()
    if cells:
        for instruction in itertools.chain(*map(dis.get_instructions, codes)):
            # This instruction assigns to a variable in a cell.
            if instruction.opname == "STORE_DEREF":
                reassigned.add(instruction.argval)
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        # The cell of a variable without a value is empty, and its cell_contents raises.
        empty_cell = type(cell)()
        is_empty = cell == empty_cell
        if name not in reassigned and not is_empty:
            yield cell.cell_contents


def _look_up_code(scope: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """Return the values of names in a scope, without numbers, strings and tuples.

    Those are data: a program may assign another value to their name.
    """
    values = [scope.get(name) for name in names]
    return [value for value in values if not isinstance(value, (*_DATA, tuple))]
