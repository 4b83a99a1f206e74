"""Finds what a build needs: a C++ compiler, the installed torch and the processor's name.

torch is imported inside the functions, so that ``python -m kernels doctor`` can report that
torch does not import instead of failing with it.
"""

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from kernels.support.system import IS_LINUX, processor_lines

MINIMUM_TORCH = (2, 10)

# The bytes are those of torch/csrc/stable/version.h: [major][minor][patch][tag x 5]. With this
# version the stable headers only declare functions that torch 2.10 exports. So a library that
# is compiled against 2.13 can also be loaded into 2.10.
TORCH_TARGET_VERSION = f"0x{MINIMUM_TORCH[0]:02x}{MINIMUM_TORCH[1]:02x}000000000000"

_COMPILERS = (["c++"], ["g++"], ["clang++"], [sys.executable, "-m", "ziglang", "c++"])
_COMPILER_WRAPPERS = ("ccache", "sccache", "distcc")

# The lines of /proc/cpuinfo that identify a processor. x86 has family, model and flags; ARM has
# features and parts, which may differ among its cores.
_PROCESSOR_FACTS = re.compile(
    r"(vendor_id|cpu family|model|flags|Features|CPU (implementer|architecture|part))\s*:"
)


class BuildError(RuntimeError):
    """A native library could not be built or loaded: the problem, and how to fix it."""

    def __init__(self, problem: str, remedy: str = "") -> None:  # noqa: D107
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class CompilerMissingError(BuildError):
    """There is no working C++ (or CUDA) compiler."""


class Compiler(NamedTuple):
    """A C++ compiler that works."""

    command: tuple[str, ...]  # ("/usr/bin/ccache", "g++", "-O0")
    version: str  # the first line of its --version

    @property
    def program(self) -> str:
        """The compiler without a caching wrapper before it, as ``nvcc -ccbin`` expects it."""
        return next(
            (word for word in self.command if Path(word).name not in _COMPILER_WRAPPERS), "c++"
        )


class Torch(NamedTuple):
    """The facts about the installed torch that a build depends on."""

    version: str  # "2.13.0+cpu"
    root: Path  # the package, with include and lib in it
    cuda: str | None  # the CUDA version that it was built for


def find_torch() -> Torch:
    """Describe the installed torch.

    Raises:
        BuildError: it is older than the stable ABI of the operators.
    """
    import torch

    version = str(torch.__version__)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < MINIMUM_TORCH:
        minimum = ".".join(map(str, MINIMUM_TORCH))
        raise BuildError(
            f"expected torch >= {minimum}, got {version}", "run pip install -U torch"
        )
    return Torch(version, Path(torch.__file__).parent, torch.version.cuda)


def find_compiler() -> Compiler:
    """Return the C++ compiler of ``$CXX`` or, if that is not set, the first one that works.

    c++, g++, clang++ and the Clang of the Python package ziglang are tried in this order.
    Builds are only tested on Linux; on other systems only ``$CXX`` is used.

    Raises:
        CompilerMissingError: ``$CXX`` does not work, or no compiler does.
    """
    chosen = os.environ.get("CXX", "").strip()
    if not chosen and not IS_LINUX:
        raise CompilerMissingError(
            f"C++ is only compiled on Linux, and this is {sys.platform}",
            "use PyTorch and Python instead, or on macOS try CXX=clang++",
        )

    commands = [chosen.split()] if chosen else _COMPILERS
    # A command is a program and its options, such as ["python", "-m", "ziglang", "c++"].
    for program, *options in commands:
        path = shutil.which(program)
        if path is None:
            continue
        # The output is empty if the program does not run.
        version = answer(path, *options, "--version")
        if version:
            first_line = version.partition("\n")[0]
            return Compiler((os.path.abspath(path), *options), first_line)

    if chosen:
        raise CompilerMissingError(
            f"expected $CXX to name a working C++ compiler, got {chosen!r}",
            "unset it or correct it",
        )
    raise CompilerMissingError(
        "no C++ compiler found (looked for $CXX, c++, g++, clang++ and the package ziglang)",
        "install one, for example with apt-get install g++, "
        "or without root with pip install ziglang (which needs a home folder to write to, or "
        "ZIG_GLOBAL_CACHE_DIR)",
    )


@functools.lru_cache(maxsize=32)
def answer(*command: str) -> str:
    """Return what a command prints, or an empty text if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Return a text that identifies the processor.

    Processors for which ``-march=native`` may produce different code have different texts.
    """
    facts = {
        " ".join(line.split()) for line in processor_lines() if _PROCESSOR_FACTS.match(line)
    }
    return "\n".join(sorted(facts)) or platform.processor()
