"""Loads the engines, a C++ and a CUDA library a feature set, and what goes with them on a GPU.

All of them are compiled on this machine when first wanted.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import kernels.ops
from kernels.loader import Extension
from tetris.game.policy import Lookahead
from tetris.play.own_features import MOST_OWN, header_features, header_of
from tetris.play.quantized_weights import engine_features

_ENGINE = Path(__file__).parents[1] / "engine"
INCLUDES = (_ENGINE, _ENGINE / "resampling", Path(kernels.ops.__file__).parent)
"""The folders of the headers of engine and operators."""
# The engine is written in vectors: slower where the compiler makes further ones, or schedules for one
# processor (benchmarks/notes/vector-lanes-tried.md).
ENGINE_FLAGS = ("-mtune=generic", "-fno-tree-vectorize")


def operators_of(
    name: str,
    source: Path,
    reason: str,
    includes: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> Extension:
    """Return the library of a source and those whose names begin as its; operators: ``torch.ops.<name>``."""
    folders, macros = (source.parent, *INCLUDES, *includes), (("TETRIS_LIBRARY", name), *defines)
    options = {"native": True, "reason": reason, **options}
    sources = tuple(sorted(source.parent.glob(f"{source.stem}*{source.suffix}")))
    return Extension(name, sources, tuple(dict.fromkeys(folders)), macros, **options)


def with_cuda(library: Extension) -> Extension:
    """Return the library that adds CUDA to another: of the ``.cu`` files whose names begin as its source."""
    source = library.sources[0]
    return replace(
        library,
        name=f"{library.name}_cuda",
        sources=tuple(sorted(source.parent.glob(f"{source.stem}*.cu"))),
        native=False,
        cflags=(),
        reason=f"{library.reason}, CUDA",
        cuda=True,
    )


def libraries(library: Extension, *, cuda: bool) -> list[Extension]:
    """Return a library and, if ``cuda``, what adds CUDA to it."""
    return [library, with_cuda(library)] if cuda else [library]


@functools.cache
def load(library: Extension, *, cuda: bool = False) -> Any:
    """Return the operators of a library, built if need be; ``cuda``: those on a GPU, too."""
    for each in libraries(library, cuda=cuda):
        each.load()
    return getattr(torch.ops, library.name)


@functools.cache
def feature_struct(name: str) -> str:
    """Return the C++ name of a feature: RowsWithHoles of rows_with_holes, Step<3,4> of step_3_4."""
    match = re.fullmatch(r"([a-z_]+?)((?:_\d+)*)", name)
    assert match is not None, name
    pascal = "".join(word.capitalize() for word in match[1].split("_"))
    return f"{pascal}<{match[2][1:].replace('_', ',')}>" if match[2] else pascal


def feature_definitions(names: tuple[str, ...]) -> tuple[str, list[Path], list[tuple[str, str]]]:
    """Return what a library of a feature list is compiled with: a digest of it, include folders, macros."""
    structs = ",".join(map(feature_struct, names))
    header, text = header_of(names) or (None, "")
    digest = hashlib.sha256((structs + text).encode()).hexdigest()[:8]
    if header is None:
        return digest, [], [("TETRIS_FEATURES", structs)]
    macros = [("TETRIS_FEATURES", structs), ("TETRIS_FEATURE_HEADER", f'"{header.name}"')]
    return digest, [header.parent], macros


def extension(names: tuple[str, ...], lookahead: Lookahead = Lookahead.NONE) -> Extension:
    """Return the library of a list of features, in their order, and a lookahead."""
    count = len(header_features(names))
    if count > MOST_OWN:
        raise ValueError(f"expected at most {MOST_OWN} features of a header, got {count}")
    digest, includes, defines = feature_definitions(engine_features(names))
    listed = ", ".join(names if len(names) < 4 else (*names[:3], "..."))
    suffix = "" if lookahead is Lookahead.NONE else f"_{lookahead.value}"
    name = f"tetris_engine_{digest}{suffix}"
    reason = f"Tetris engine for {len(names)} features: {listed}"
    defines = [("TETRIS_LOOKAHEAD", lookahead.value), *defines]
    return operators_of(name, _ENGINE / "rollout.cpp", reason, includes, defines, cflags=ENGINE_FLAGS)


def resampling_extension() -> Extension:
    """Return the library of resampling in importance splitting on a GPU, for all features."""
    source, reason = _ENGINE / "resampling" / "resample.cu", "Tetris importance splitting, CUDA"
    return operators_of("tetris_resampling", source, reason, native=False, cuda=True)
