"""The block of docs/api.md: the public names of the packages, with a line about each."""

import ast
import importlib
import inspect
from itertools import pairwise
from types import ModuleType

PACKAGES = """
cem cem.families cem.rare tetris tetris.training tetris.report tetris.envs tetris.solver kernels
"""


def api() -> str:
    """Return a section for each package: its docstring's first line, and its public names."""
    return "\n\n".join(map(_section, PACKAGES.split()))


def _section(package: str) -> str:
    """Return a heading, the first line of the package's docstring, and a list of its names."""
    module = importlib.import_module(package)
    lines = [f"- `{name}`: {summary(module, name)}" for name in sorted(module.__all__)]
    return "\n".join([f"## {package}", _first_line(module.__doc__), "", *lines])


def summary(module: ModuleType, name: str) -> str:
    """Return the first line of the docstring of a public name; ValueError if it has none."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        line = _first_line(value.__doc__)
    else:
        line = _first_line(_documentation(module, name))
    if not line:
        raise ValueError(f"expected a docstring on {module.__name__}.{name}, found none")
    return line.replace("|", "\\|").replace("``", "`")


def _documentation(module: ModuleType, name: str) -> str | None:
    """Return the string literal below the assignment of a name in a module, or None.

    The text documents the name. Python does not store it, so it is read from the source of the
    module. If the module imports the name from another module, that module is searched.
    """
    # Compare every statement with the next one, which may be such a text.
    statements = ast.parse(inspect.getsource(module)).body
    for statement, next_statement in pairwise(statements):
        if isinstance(statement, ast.ImportFrom):
            imported_names = [alias.name for alias in statement.names]
            if name in imported_names:
                source = importlib.import_module(str(statement.module))
                return _documentation(source, name)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            if isinstance(statement, ast.Assign):
                target = statement.targets[0]  # "a = b = 1" has two targets.
            else:
                target = statement.target
            is_assigned = ast.unparse(target) == name
            if is_assigned and isinstance(next_statement, ast.Expr):
                return str(ast.literal_eval(next_statement.value))
    return None


def _first_line(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "").partition("\n")[0]
