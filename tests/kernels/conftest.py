"""What the tests of the loader share: a cache of their own, and small libraries to build in
it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels import Extension

sys.path.insert(0, str(Path(__file__).parent))  # for `import contract`


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, which the loader uses during the test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CEM_TETRIS_CACHE", str(folder))
    return folder


@pytest.fixture
def hide_compilers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Hides all compilers, also that of the package ziglang, which no PATH hides."""

    def hide() -> None:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setattr("kernels.loader.toolchain.answer", lambda *words: "")

    return hide


@pytest.fixture
def write_library(tmp_path: Path) -> Callable[..., Extension]:
    """Writes a library with one C function ``answer``; without torch's headers it compiles in a
    moment."""

    def write(
        body: str = "return 42;", folder: str = "sources", top: str = "", **options: Any
    ) -> Extension:
        source = tmp_path / folder / "answer.cpp"
        source.parent.mkdir(parents=True, exist_ok=True)
        visible = '__attribute__((visibility("default")))'
        source.write_text(f'{top}\nextern "C" {visible} int answer() {{ {body} }}\n')
        return Extension("answer", sources=(source,), **options)

    return write


@pytest.fixture
def call() -> Callable[[Path], int]:
    """Calls the function ``answer`` of a built library."""

    def call_answer(library: Path) -> int:
        return int(ctypes.CDLL(str(library)).answer())

    return call_answer
