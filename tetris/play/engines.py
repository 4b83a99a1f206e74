"""Loads the engines: for each feature set a library in C++ and one in CUDA.

They are compiled on this machine on first use.
"""

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

# The engine has vectors in its source. It gets slower if the compiler vectorizes the rest, or
# schedules for one processor (benchmarks/notes/vector-lanes-tried.md).
ENGINE_FLAGS = ("-mtune=generic", "-fno-tree-vectorize")


def operators_of(
    name: str,
    source: Path,
    reason: str,
    includes: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> Extension:
    """Return a C++ or CUDA library to be compiled, with operators in ``torch.ops.<name>``.

    Args:
        name: The name of the library.
        source: Its first source file. For ``rollout.cpp`` all files ``rollout*.cpp`` of the
            same folder belong to the library.
        reason: What the library is for, which is printed while it is compiled.
        includes: Folders of headers, in addition to those of every engine.
        defines: Macros and their values.
        options: Other arguments of `Extension`.
    """
    pattern = f"{source.stem}*{source.suffix}"
    sources = tuple(sorted(source.parent.glob(pattern)))
    folders = (source.parent, *INCLUDES, *includes)
    folders_without_repeats = tuple(dict.fromkeys(folders))
    macros = (("TETRIS_LIBRARY", name), *defines)
    # "native": the library is compiled for the processor of this machine.
    options = {"native": True, "reason": reason, **options}
    return Extension(name, sources, folders_without_repeats, macros, **options)


def with_cuda(library: Extension) -> Extension:
    """Return the library that adds the operators' CUDA versions to a library in C++.

    Its sources are the ``.cu`` files beside the first source of ``library`` whose names begin
    with the name of that source.
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
    """Return a library and, if ``cuda``, the one that adds CUDA to it."""
    return [library, with_cuda(library)] if cuda else [library]


@functools.cache
def load(library: Extension, *, cuda: bool = False) -> Any:
    """Return the operators of a library, built if necessary; with ``cuda`` also for a GPU."""
    for extension in libraries(library, cuda=cuda):
        extension.load()
    return getattr(torch.ops, library.name)


@functools.cache
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
    """Return how a library of a feature list is compiled.

    Returns:
        A digest for the name of the library, which differs between features; the include folder
        of the user's header, if one defines some of the features; and the macros.
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
    """Return the library of the engine that plays with these features and this lookahead.

    An engine is compiled for its features, so each list of features has a library of its own.
    """
    user_features = header_features(names)  # Those that a user's C++ header defines.
    if len(user_features) > MOST_OWN:
        raise ValueError(
            f"expected at most {MOST_OWN} features of a header, got {len(user_features)}"
        )
    # In the engine one feature with a table of weights may stand for many of these features.
    digest, includes, defines = feature_definitions(engine_features(names))
    name = f"tetris_engine_{digest}"
    if lookahead is not Lookahead.NONE:
        name += f"_{lookahead.value}"
    listed_names = ", ".join(names[:3])
    if len(names) > 3:
        listed_names += ", ..."
    reason = f"Tetris engine for {len(names)} features: {listed_names}"
    macros = [("TETRIS_LOOKAHEAD", lookahead.value), *defines]
    source = _ENGINE / "rollout.cpp"
    return operators_of(name, source, reason, includes, macros, cflags=ENGINE_FLAGS)


def resampling_extension() -> Extension:
    """Return the library of resampling in importance splitting on a GPU, for all features."""
    source = _ENGINE / "resampling" / "resample.cu"
    reason = "Tetris importance splitting, CUDA"
    return operators_of("tetris_resampling", source, reason, native=False, cuda=True)
