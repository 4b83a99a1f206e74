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

    @cache
    def read_modules() -> dict[str, str]:
        """Return the module that defines each name."""
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

    def get_attribute(name: str) -> Any:
        """Import a name from its module."""
        modules = read_modules()
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        # Python calls this function only for names that the package does not have yet.
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute
