"""Fixtures for the tests of the game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.build import CompilerMissingError, Extension
from tetris import features, own_features

HERE = Path(__file__).parent
GOLDEN = Path(__file__).parents[3] / "shared" / "golden"


@pytest.fixture
def golden() -> Path:
    """The folder with traces of the reference simulator; where it is not there, the test is skipped."""
    if not GOLDEN.is_dir():
        pytest.skip("no golden data beside this checkout; test_fixtures.py covers the same ground")
    return GOLDEN


@pytest.fixture
def stack() -> Callable[..., tuple[int, ...]]:
    """Read a drawing, top row first and ``X`` for a full cell, as the rows of a stack."""

    def read(*drawing: str) -> tuple[int, ...]:
        return tuple(sum(1 << x for x, cell in enumerate(line) if cell == "X") for line in reversed(drawing))

    return read


@pytest.fixture
def own_features_forgotten() -> Iterator[None]:
    """Forget the features that a test defines."""
    before, headers = dict(features.FEATURES), dict(own_features._headers)
    yield
    features._FEATURES.clear()
    features._FEATURES.update(before)
    features._definitions.cache_clear()
    own_features._headers.clear()
    own_features._headers.update(headers)


@pytest.fixture(scope="session")
def load_emulated() -> Callable[..., Any]:
    """Load kernels on emulated threads as operators; where there is no compiler, the test is skipped."""

    def load(kernels: str, include_dirs: tuple[Path, ...], reason: str) -> Any:
        name = f"tetris_emulated_{kernels}"
        library = Extension(
            name=name,
            sources=(HERE / f"emulated_{kernels}.cpp",),
            include_dirs=(*include_dirs, HERE),
            defines=(("TETRIS_LIBRARY", name),),
            flags=("-O1",),
            reason=f"{reason} on emulated threads",
        )
        try:
            library.load()
        except CompilerMissingError as error:
            pytest.skip(str(error))
        return getattr(torch.ops, name)

    return load
