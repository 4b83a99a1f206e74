"""Loads the engines: for each feature set a library in C++ and one in CUDA.

A library is compiled on first use.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import kernels.ops
from kernels.loader import Extension
from tetris.game.hidden_units import layout_of
from tetris.game.policy import Lookahead
from tetris.play.own_features import MOST_OWN, header_features, header_of
from tetris.play.quantized_weights import engine_features

_ENGINE = Path(__file__).parents[1] / "engine"
INCLUDES = (_ENGINE, _ENGINE / "resampling", Path(kernels.ops.__file__).parent)
"""The folders with the headers of the engine and of the operators."""

# The source of the engine is vectorized by hand. It gets slower if the compiler also vectorizes
# other loops, or schedules for one processor (benchmarks/notes/vector-lanes-tried.md).
ENGINE_FLAGS = ("-mtune=generic", "-fno-tree-vectorize")


def describe_library(
    name: str,
    source: Path,
    reason: str,
    includes: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> Extension:
    """Describe a library of C++ or CUDA operators. It is compiled when it is loaded.

    Its operators are then in ``torch.ops.<name>``.

    Args:
        name: The name of the library.
        source: Its first source file. Files in the same folder whose names begin with the stem
            of this name also belong to the library: for ``rollout.cpp`` all ``rollout*.cpp``.
        reason: The purpose of the library. It is printed while the library is compiled.
        includes: Folders with headers, in addition to `INCLUDES`.
        defines: The names and the values of macros.
        options: Other arguments of `Extension`.
    """
    pattern = f"{source.stem}*{source.suffix}"
    sources = tuple(sorted(source.parent.glob(pattern)))
    folders = (source.parent, *INCLUDES, *includes)
    folders_without_repeats = tuple(dict.fromkeys(folders))
    macros = (("TETRIS_LIBRARY", name), *defines)
    # "native" means that the library is compiled for the processor of this machine.
    options = {"native": True, "reason": reason, **options}
    return Extension(name, sources, folders_without_repeats, macros, **options)


def with_cuda(library: Extension) -> Extension:
    """Return the library that adds CUDA versions of the operators to a library in C++.

    If the first source of ``library`` is ``rollout.cpp``, the sources of the result are the
    files ``rollout*.cu`` in the same folder.
    """
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
    """Return a library and, if ``cuda``, the library that adds its CUDA operators."""
    return [library, with_cuda(library)] if cuda else [library]


@cache
def load(library: Extension, *, cuda: bool = False) -> Any:
    """Build a library if necessary, also for a GPU if ``cuda``, and return its operators."""
    for extension in libraries(library, cuda=cuda):
        extension.load()
    return getattr(torch.ops, library.name)


@cache
def feature_struct(name: str) -> str:
    """Return the C++ name of a feature: RowsWithHoles, or Step<3,4> for step_3_4."""
    match = re.fullmatch(r"([a-z_]+?)((?:_\d+)*)", name)
    assert match is not None, name
    words, numbers = match.groups()  # For step_3_4: "step" and "_3_4".
    struct = "".join(word.capitalize() for word in words.split("_"))
    if not numbers:
        return struct
    arguments = numbers[1:].replace("_", ",")
    return f"{struct}<{arguments}>"


def feature_definitions(
    names: tuple[str, ...],
) -> tuple[str, list[Path], list[tuple[str, str]]]:
    """Return how the library for a list of features is compiled.

    Returns:
        A digest of the features, for the name of the library.
        A list with the folder of the user's header, if such a header defines some features.
        The macros.
    """
    structs = ",".join(map(feature_struct, names))
    header, text = header_of(names) or (None, "")
    digest = hashlib.sha256((structs + text).encode()).hexdigest()[:8]
    folders = []
    macros = [("TETRIS_FEATURES", structs)]
    if header is not None:
        folders.append(header.parent)
        macros.append(("TETRIS_FEATURE_HEADER", f'"{header.name}"'))
    return digest, folders, macros


def extension(names: tuple[str, ...], lookahead: Lookahead = Lookahead.NONE) -> Extension:
    """Return the library of the engine for a list of features and a lookahead.

    The features are compiled into the engine, so each list of features has its own library. The
    library's name has a digest of the features.
    """
    user_features = header_features(names)  # The features that a user's C++ header defines.
    # Hidden units and features of a header together must not exceed the 32 bits of a score.
    most_own = MOST_OWN // 2 if layout_of(names).units else MOST_OWN
    if len(user_features) > most_own:
        raise ValueError(
            f"expected at most {most_own} features of a header, got {len(user_features)}"
        )
    # `engine_features` replaces the many step features by one with a table of weights.
    digest, includes, defines = feature_definitions(engine_features(names))
    name = f"tetris_engine_{digest}"
    if lookahead is not Lookahead.NONE:
        name += f"_{lookahead.value}"
    listed_names = ", ".join(names[:3])
    if len(names) > 3:
        listed_names += ", ..."
    reason = f"Tetris engine for {len(names)} weights: {listed_names}"
    macros = [("TETRIS_LOOKAHEAD", lookahead.value), *defines]
    source = _ENGINE / "rollout.cpp"
    return describe_library(name, source, reason, includes, macros, cflags=ENGINE_FLAGS)


def resampling_extension() -> Extension:
    """Return the library that resamples streams on a GPU, for importance splitting."""
    source = _ENGINE / "resampling" / "resample.cu"
    reason = "Tetris importance splitting, CUDA"
    return describe_library("tetris_resampling", source, reason, native=False, cuda=True)
