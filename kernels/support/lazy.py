"""Public names of a package that are imported when they are first used (PEP 562)."""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names are imported on first use.

    The names are those that the package imports ``if TYPE_CHECKING``.
    """

    @cache
    def modules() -> dict[str, str]:
        source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
        blocks = ast.parse(source).body
        return {
            alias.name: f"{imported.module}"
            for block in blocks
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for imported in block.body
            if isinstance(imported, ast.ImportFrom)
            for alias in imported.names
        }

    def get(name: str) -> Any:
        if name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
