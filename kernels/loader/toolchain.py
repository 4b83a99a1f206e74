"""What a build needs of the machine: a C++ compiler, ninja, the installed torch, the processor's name.

torch is imported inside the functions, so that ``python -m kernels doctor`` can report an installation of
torch that does not import instead of dying with it.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MINIMUM_TORCH = (2, 10)

# torch/csrc/stable/version.h: [major][minor][patch][tag x 5]. With it the stable headers expose what 2.10
# exports and nothing newer, so that a library compiled against 2.13 loads into 2.10 as well.
TORCH_TARGET_VERSION = f"0x{MINIMUM_TORCH[0]:02x}{MINIMUM_TORCH[1]:02x}000000000000"

_COMPILER_NAMES = ("c++", "g++", "clang++")
_COMPILER_WRAPPERS = ("ccache", "sccache", "distcc")


class BuildError(RuntimeError):
    """A native library could not be built or loaded.

    Attributes:
        problem: what is wrong.
        remedy: what to do about it, empty where the problem says all.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        """Joins both to the message."""
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy


class CompilerMissingError(BuildError):
    """There is no working C++ (or CUDA) compiler."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler that answered.

    Attributes:
        command: the words that start it, for example ``("ccache", "g++")``.
        version: the first line of its ``--version``.
    """

    command: tuple[str, ...]
    version: str

    @property
    def program(self) -> str:
        """The compiler itself, without a caching wrapper before it: what ``nvcc -ccbin`` wants."""
        return self._words[0] if self._words else self.command[0]

    @property
    def options(self) -> tuple[str, ...]:
        """What ``$CXX`` tells the compiler besides, for example ``("-O0",)``."""
        return self._words[1:]

    @property
    def _words(self) -> tuple[str, ...]:
        return tuple(word for word in self.command if Path(word).name not in _COMPILER_WRAPPERS)


@dataclass(frozen=True)
class Torch:
    """The installed torch, as far as a build depends on it.

    Attributes:
        version: ``torch.__version__``, for example ``"2.13.0+cpu"``.
        root: the folder of the package, with ``include`` and ``lib`` in it.
        cuda: the CUDA version it was built for, None for a CPU build.
        cxx11_abi: the value that ``_GLIBCXX_USE_CXX11_ABI`` had.
    """

    version: str
    root: Path
    cuda: str | None
    cxx11_abi: bool

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The folders that the compiler searches for torch's headers."""
        include = self.root / "include"
        return (include, include / "torch" / "csrc" / "api" / "include")

    @property
    def library_dir(self) -> Path:
        """The folder of ``libtorch.so``."""
        return self.root / "lib"


def find_torch() -> Torch:
    """Describes the installed torch.

    Raises:
        BuildError: torch is older than the stable ABI that the operators are written for.
    """
    import torch

    version = str(torch.__version__)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < MINIMUM_TORCH:
        minimum = ".".join(map(str, MINIMUM_TORCH))
        raise BuildError(f"expected torch >= {minimum}, got {version}", "run pip install -U torch")
    return Torch(
        version, Path(torch.__file__).parent, torch.version.cuda, bool(torch.compiled_with_cxx11_abi())
    )


def find_compiler() -> Compiler:
    """Returns the C++ compiler: ``$CXX`` where it is set, else the first of c++, g++, clang++ that answers.

    Raises:
        CompilerMissingError: ``$CXX`` does not work, or none of the names does.
    """
    chosen = os.environ.get("CXX", "").strip()
    try:
        candidates = [tuple(shlex.split(chosen))] if chosen else [(name,) for name in _COMPILER_NAMES]
    except ValueError:  # a quotation mark without its partner
        candidates = []
    for command in candidates:
        words = list(command)
        for place, word in enumerate(command):
            found = shutil.which(word) if place == 0 or "/" in word else None
            if found is not None:
                words[place] = os.path.abspath(found)  # the build has a folder of its own
            if Path(word).name not in _COMPILER_WRAPPERS:
                break
        version = _first_version_line(tuple(words))
        if version:
            return Compiler(tuple(words), version)
    if chosen:
        raise CompilerMissingError(
            f"expected $CXX to name a working C++ compiler, got {chosen!r}", "unset it or correct it"
        )
    raise CompilerMissingError(
        "no C++ compiler found (looked for $CXX, c++, g++ and clang++)",
        "install one, for example with apt-get install g++ or dnf install gcc-c++",
    )


@functools.lru_cache(maxsize=8)
def _first_version_line(command: tuple[str, ...]) -> str:
    """Returns the first line of ``command --version``, empty where the program does not run."""
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip().partition("\n")[0]


def find_ninja() -> Path:
    """Returns the ninja program: that of the ``ninja`` package, else the one on PATH.

    Raises:
        BuildError: there is neither.
    """
    try:
        import ninja
    except ImportError:
        pass
    else:
        packaged = Path(getattr(ninja, "BIN_DIR", "")) / "ninja"
        if os.access(packaged, os.X_OK):
            return packaged
    on_path = shutil.which("ninja")
    if on_path is None:
        raise BuildError("ninja not found", "run pip install ninja")
    return Path(on_path)


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Returns a text that differs between processors for which ``-march=native`` may mean different code."""
    # x86 names family and model and lists flags; ARM lists features and parts, which differ among cores.
    wanted = (
        "vendor_id",
        "cpu family",
        "model",
        "flags",
        "Features",
        "CPU implementer",
        "CPU architecture",
        "CPU part",
    )
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {" ".join(line.split()) for line in lines if line.partition(":")[0].strip() in wanted}
    return "\n".join([platform.machine(), *sorted(facts)])
