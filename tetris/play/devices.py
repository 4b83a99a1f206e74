"""The engines, named by their device: which are available, and which one plays.

Functions import torch only when they need it, so that the help of a command appears fast.
"""

import sys

from kernels import CompilerMissingError
from kernels.loader import prebuilt
from kernels.loader.cuda import CUDA_TORCH_REMEDY, find_nvcc
from kernels.loader.toolchain import find_compiler
from kernels.support.names import unknown_name
from tetris.game.policy import Lookahead

NATIVE = ("cpu", "cuda")
"""The engines in C++ and CUDA."""

ENGINES = (*NATIVE, "python")
"""All engines. The one in Python is the reference implementation."""

AUTO = "auto"
"""Chooses the fastest engine that works on this machine; the default of every device option."""

DEVICES = (AUTO, *ENGINES)
"""The devices that a user can choose."""


def choose_device(requested: str, instead: str = "--device cpu") -> str:
    """Return the engine that plays for a requested device: ``cpu``, ``cuda`` or ``python``.

    ``cpu`` is the engine in C++, and ``cuda`` the engine in CUDA. If they are not prebuilt,
    they are compiled on this machine. ``python`` is the reference implementation.

    Args:
        requested: One of the engines, or ``auto``. With ``auto`` the result is ``cuda`` on a
            machine with a GPU and nvcc, otherwise ``cpu`` on a machine with a C++ compiler,
            otherwise ``python``. If only a missing compiler prevents a faster engine, a note on
            stderr says so.
        instead: What the error recommends if there is no GPU, such as ``--device cpu``.

    Raises:
        CompilerMissingError: If an engine is requested by name, and its compiler is missing.
        ValueError: If ``cuda`` is requested and there is no GPU.
    """
    if requested not in DEVICES:
        raise unknown_name("device", requested, DEVICES)
    if requested == "python":
        return "python"
    if requested == "cuda":
        check_gpu("device cuda", instead)
    # Both engines, in C++ and in CUDA, need the C++ compiler or prebuilt libraries. The index
    # of prebuilt libraries is empty if there are none.
    try:
        if not prebuilt.read_index():
            find_compiler()
    except CompilerMissingError as error:
        if requested != AUTO:
            raise
        return _play_in_python(error)
    # Importing torch takes seconds, and the engine in Python does not need it.
    import torch

    # If "cuda" was requested, there is a GPU: `check_gpu` has raised an error otherwise.
    if requested == "cpu" or not torch.cuda.is_available():
        return "cpu"
    try:
        find_nvcc(torch.version.cuda)
    except CompilerMissingError as error:
        if requested != AUTO:
            raise
        print(f"note: playing on the CPU, not on the GPU: {error}", file=sys.stderr)
        return "cpu"
    return "cuda"


def fall_back(requested: str, device: str, names: tuple[str, ...], lookahead: Lookahead) -> str:
    """Return ``python`` if ``auto`` chose the CPU, but its engine lacks the features.

    A wheel has prebuilt engines for the feature sets of the package. Other features need a
    compiler. If it is missing, a note on stderr says so.

    Args:
        requested: One of the engines, or ``auto``.
        device: The result of `choose_device` for ``requested``.
        names: The names of the features to play with.
        lookahead: What decisions look ahead to.
    """
    if requested != AUTO or device != "cpu":
        return device
    from tetris.play import engines

    if engines.extension(names, lookahead).find():
        return device
    try:
        find_compiler()
    except CompilerMissingError as error:
        return _play_in_python(error)
    return device


def _play_in_python(error: CompilerMissingError) -> str:
    """Return ``python``, after a note on stderr that says why."""
    print(
        f"note: playing in Python, some thousand times slower than in C++: {error}",
        file=sys.stderr,
    )
    return "python"


def check_gpu(purpose: str, instead: str) -> None:
    """Raise ValueError if torch finds no GPU. The message recommends ``instead``."""
    import torch

    if torch.cuda.is_available():
        return
    remedy = "look at nvidia-smi" if torch.version.cuda else CUDA_TORCH_REMEDY
    raise ValueError(
        f"expected a GPU for {purpose}, torch {torch.__version__} finds none: {remedy}, "
        f"or take {instead}"
    )
