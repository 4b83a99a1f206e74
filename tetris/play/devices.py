"""The engines by the name of their device: which are available, and which one plays.

torch is imported on use only, so that the help of a command is fast.
"""

import sys
from collections.abc import Sequence

from kernels import CompilerMissingError
from kernels.loader import prebuilt
from kernels.loader.cuda import CUDA_TORCH_REMEDY, find_nvcc
from kernels.loader.toolchain import find_compiler
from kernels.support.names import unknown_name
from tetris.game.policy import Lookahead

NATIVE = ("cpu", "cuda")
"""The engines in C++ and CUDA."""

ENGINES = (*NATIVE, "python")
"""All engines: the reference implementation is the one in Python."""

AUTO = "auto"
"""Takes the fastest engine that works here: the default wherever a device is asked for."""

DEVICES = (AUTO, *ENGINES)
"""What a person can ask for."""


def choose_device(requested: str, instead: str = "--device cpu") -> str:
    """Return the engine that plays for a requested device: ``cpu``, ``cuda`` or ``python``.

    The engines ``cpu`` and ``cuda`` are in C++ and CUDA, and are compiled on this machine.
    ``python`` is the reference implementation.

    Args:
        requested: One of the engines, or ``auto``. This means ``cuda`` on a machine with a GPU
            and nvcc, otherwise ``cpu`` on a machine with a compiler, otherwise ``python``. A
            note on stderr says so if only a missing compiler prevents a faster engine.
        instead: Options to recommend in the error if there is no GPU.

    Raises:
        CompilerMissingError: If an engine is requested by name, and its compiler is missing.
        ValueError: If ``cuda`` is requested and there is no GPU; the message recommends the
            options ``instead``.
    """
    if requested not in DEVICES:
        raise unknown_name("device", requested, DEVICES)
    if requested == "python":
        return "python"
    if requested == "cuda":
        check_gpu("device cuda", instead)
    try:
        if not prebuilt.read_index():
            find_compiler()
    except CompilerMissingError as error:
        if requested != AUTO:
            raise
        return _play_in_python(error)
    # It is imported here because that takes seconds, and Python plays without it.
    import torch

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


def fall_back(requested: str, device: str, names: Sequence[str], lookahead: Lookahead) -> str:
    """Return ``python`` if ``auto`` chose the CPU, whose engine lacks the features.

    A wheel has the engines of the package's feature sets; others need a compiler. A note on
    stderr says so.

    Args:
        requested: One of the engines, or ``auto``.
        device: What `choose_device` returned for it.
        names: The names of the features to play with.
        lookahead: What the decisions know.
    """
    if requested != AUTO or device != "cpu":
        return device
    from tetris.play import engines

    if engines.extension(tuple(names), lookahead).find():
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
    """Raise ValueError if torch finds no GPU for a purpose; it recommends ``instead``."""
    import torch

    if torch.cuda.is_available():
        return
    remedy = "look at nvidia-smi" if torch.version.cuda else CUDA_TORCH_REMEDY
    raise ValueError(
        f"expected a GPU for {purpose}, torch {torch.__version__} finds none: {remedy}, "
        f"or take {instead}"
    )
