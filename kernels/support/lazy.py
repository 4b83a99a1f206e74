"""Public names of a package that are imported when they are first used (PEP 562)."""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package that imports its public names on first use.

    Which names these are, and the modules that define them, is read from the ``from MODULE
    import NAME`` statements under ``if TYPE_CHECKING`` in the package's ``__init__.py``.
    """

    @cache
    def read_modules() -> dict[str, str]:
        """Return the module of every name."""
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
        """Import a name, and store it in the package, so that this is not called again."""
        modules = read_modules()
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute
