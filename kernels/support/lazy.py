"""Public names of a package that are imported when they are first used (PEP 562)."""

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: its names are those that it imports ``if TYPE_CHECKING``."""

    @cache
    def homes() -> dict[str, str]:
        blocks = ast.parse(
            Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
        ).body
        return {
            alias.name: f"{imported.module}"
            for block in blocks
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for imported in block.body
            if isinstance(imported, ast.ImportFrom)
            for alias in imported.names
        }

    def get(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
