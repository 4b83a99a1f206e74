"""What each room may weigh, in tokens of code.

Comments, docstrings, blank lines and brackets weigh nothing, and a token weighs the same on a
short line and on a long one: naming a value or breaking a line costs next to nothing, a new
concept costs what it weighs.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PYTHON = (".py",)
NATIVE = (".cpp", ".cu", ".cuh", ".h", ".js")
CEILINGS = {
    ("cem", PYTHON): 61_845,
    ("tetris", PYTHON): 49_575,
    ("tetris", NATIVE): 57_845,
    ("kernels", PYTHON): 19_880,
    ("kernels", NATIVE): 46_620,
    ("scripts", PYTHON): 31_900,
    ("tests", PYTHON + NATIVE): 151_720,
}
WORDS = 22_000  # of README and docs

COUNTED = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(source: str) -> set[int]:
    """Return the numbers of the lines that belong to a docstring."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(
                range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
            )
    return lines


def count_python(source: str) -> int:
    docstrings = docstring_lines(source)
    count = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_code = token.type in COUNTED and token.start[0] not in docstrings
        count += is_code and token.string not in "()[]{},:"
    return count


def count_native(source: str) -> int:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)
    return len(re.findall(r"\w+|[^\s\w()\[\]{},;:]", code, flags=re.ASCII))


def count(path: Path) -> int:
    source = path.read_text(encoding="utf-8")
    return count_python(source) if path.suffix == ".py" else count_native(source)


@pytest.mark.parametrize(("room", "suffixes"), CEILINGS)
def test_no_room_is_heavier_than_its_ceiling(room: str, suffixes: tuple[str, ...]) -> None:
    files = [path for path in (PROJECT / room).rglob("*") if path.suffix in suffixes]
    weight = sum(count(path) for path in files if "vendor" not in path.parts)
    print(f"{room:8} {' '.join(suffixes):26} {weight:7,} of {CEILINGS[room, suffixes]:7,}")
    todo = "raise the ceiling here, and say in the commit what the tokens buy"
    assert 0 < weight <= CEILINGS[room, suffixes], todo


def test_pages_have_no_more_words_than_their_ceiling() -> None:
    pages = [PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= WORDS


def test_comments_docstrings_and_brackets_weigh_nothing() -> None:
    source = '"""Module."""\n\n# why\ndef add(a, b):\n    """Add."""\n    return a + b  # sum\n'
    assert count_python(source) == len(["def", "add", "a", "b", "return", "a", "+", "b"])
    assert count_native("int add(int a, /* why */ int b) { return a + b; } // sum") == 10
