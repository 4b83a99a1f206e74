"""The public names of the packages with a line each: the block of docs/api.md."""

from __future__ import annotations

import ast
import importlib
import inspect
from itertools import pairwise
from types import ModuleType

from pages.wording import markdown

PACKAGES = "cem cem.families cem.rare tetris tetris.training tetris.report tetris.envs tetris.solver kernels"


def api() -> str:
    """Return a section for each package: what it is, and its public names with the first line on each."""
    return "\n\n".join(map(_section, PACKAGES.split()))


def _section(package: str) -> str:
    module = importlib.import_module(package)
    rows = [[f"`{name}`", summary(module, name)] for name in sorted(module.__all__)]
    return f"## {package}\n{_first_line(module.__doc__)}\n\n{markdown(['name', 'what it is'], rows)}"


def summary(module: ModuleType, name: str) -> str:
    """Return the first line of the docstring of a public name; ValueError where it has none."""
    thing = getattr(module, name)
    value = not inspect.isclass(thing) and not inspect.isroutine(thing)
    line = _first_line(_documentation(module, name) if value else thing.__doc__)
    if not line:
        raise ValueError(f"expected a docstring on {module.__name__}.{name}, found none")
    return line.replace("|", "\\|").replace("``", "`")


def _documentation(module: ModuleType, name: str) -> str | None:
    """Return the string below the assignment of a value, in the module that the package imports it from."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in pairwise(body):
        if isinstance(statement, ast.ImportFrom) and name in (alias.name for alias in statement.names):
            return _documentation(importlib.import_module(str(statement.module)), name)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(following, ast.Expr):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and target.id == name:
                return str(ast.literal_eval(following.value))
    return None


def _first_line(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "").partition("\n")[0]
