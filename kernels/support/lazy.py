"""Imports the public names of a package when they are first used (PEP 562)."""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports its public names on first use.

    The names, and the modules that define them, are read from the package's ``__init__.py``:
    from the statements ``from MODULE import NAME`` under ``if TYPE_CHECKING``.
    """

    def get_attribute(name: str) -> Any:
        """Import the module that defines a name, and return the value of the name."""
        modules = _read_modules(package)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        # Store the value in the package. Python then finds it there, and does not call this
        # function for the name again.
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute


@cache
def _read_modules(package: str) -> dict[str, str]:
    """Return a dict that maps each public name of a package to the module that defines it."""
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    modules = {}
    for block in ast.parse(source).body:
        if not isinstance(block, ast.If) or ast.unparse(block.test) != "TYPE_CHECKING":
            continue
        for statement in block.body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    modules[alias.name] = str(statement.module)
    return modules
