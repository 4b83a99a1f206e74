"""Finds nvcc, the CUDA runtime library and the architectures to compile for."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.loader.toolchain import BuildError, CompilerMissingError

CUDA_TORCH_REMEDY = "install a CUDA build of torch as https://pytorch.org/get-started says"

# The variable that torch's own builds follow too: the architectures to compile for.
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"

# Where the packages on PyPI put nvcc, under the namespace package ``nvidia``: CUDA 13, then CUDA 12.
_WHEEL_NVCC = ("cu13/bin/nvcc", "cuda_nvcc/bin/nvcc")

# NVIDIA's package without content that pins all parts of one CUDA version: nvcc brings crt, nvvm and runtime.
_WHEELS = "cuda-toolkit[nvcc,cccl]"


@dataclass(frozen=True)
class Nvcc:
    """An nvcc that answered.

    Attributes:
        path: the program.
        version: the CUDA version it belongs to, for example ``"13.0"``.
        release: the full version, for example ``"V13.0.88"``.
        origin: where it was found: ``"CUDA_HOME"``, ``"PATH"`` or ``"packages"``.
    """

    path: Path
    version: str
    release: str
    origin: str

    @property
    def major(self) -> int:
        """The CUDA version's first number."""
        return int(self.version.partition(".")[0])


def nvcc_remedy(cuda: str | None) -> str:
    """Returns how to get an nvcc for a CUDA version, or for any where it is None."""
    toolkit = "install the CUDA toolkit or set CUDA_HOME to its folder"
    if cuda is not None and int(cuda.partition(".")[0]) < 13:  # the packages for CUDA 12 hold no nvcc
        return toolkit
    pin = f"=={cuda}.*" if cuda is not None else ""
    return f"{toolkit}, or run pip install '{_WHEELS}{pin}'"


def find_nvcc(cuda: str | None = None) -> Nvcc:
    """Returns nvcc: that of ``$CUDA_HOME``, else of PATH, else of the packages on PyPI.

    Args:
        cuda: the CUDA version that torch was built for. ``$CUDA_HOME`` is a person's choice; after it an nvcc
            of the same major version is preferred.

    Raises:
        CompilerMissingError: there is none that works, or it does not fit the headers beside it.
    """
    home = os.environ.get("CUDA_HOME", "").strip()
    chosen = _ask(Path(os.path.abspath(home), "bin", "nvcc"), "CUDA_HOME") if home else None
    if chosen is None:
        found = [nvcc for nvcc in (_ask(*candidate) for candidate in _candidates()) if nvcc is not None]
        if not found:
            raise CompilerMissingError(
                "no nvcc found (looked in $CUDA_HOME, PATH and the nvidia packages)", nvcc_remedy(cuda)
            )
        major = cuda.partition(".")[0] if cuda is not None else None
        chosen = next((nvcc for nvcc in found if str(nvcc.major) == major), found[0])
    _check_headers(chosen, cuda)
    return chosen


def _check_headers(nvcc: Nvcc, cuda: str | None) -> None:
    """Refuses an nvcc with headers of another version beside it, as pip may install them."""
    header = nvcc.path.resolve().parent.parent / "include" / "cuda_runtime_api.h"
    if not header.is_file():
        return
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"))
    number = int(match[1]) if match is not None else 0
    version = f"{number // 1000}.{number % 1000 // 10}"
    if match is not None and version != nvcc.version:
        raise CompilerMissingError(
            f"{nvcc.path} is of CUDA {nvcc.version} and its headers of {version}", nvcc_remedy(cuda)
        )


def _candidates() -> Iterator[tuple[Path, str]]:
    on_path = shutil.which("nvcc")
    if on_path is not None:
        yield Path(os.path.abspath(on_path)), "PATH"
    for folder in _wheel_dirs():
        yield from ((folder / name, "packages") for name in _WHEEL_NVCC)


def _wheel_dirs() -> list[Path]:
    """Returns the folders of the namespace package ``nvidia``."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec is not None else []


@functools.lru_cache(maxsize=8)
def _ask(path: Path, origin: str) -> Nvcc | None:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release (\d+\.\d+), (\S+)", answer.stdout)
    return Nvcc(path, match[1], match[2], origin) if match else None


def known_architectures(nvcc: Nvcc) -> tuple[str, ...]:
    """Returns the GPUs that nvcc can compile for, the oldest first: ``("sm_75", ..., "sm_121")``.

    Raises:
        CompilerMissingError: it does not say.
    """
    try:
        answer = subprocess.run(
            [nvcc.path, "--list-gpu-code"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerMissingError(
            f"{nvcc.path} does not list its architectures", nvcc_remedy(None)
        ) from error
    numbers = {int(number) for number in re.findall(r"\bsm_(\d+)\b", answer.stdout)}
    return tuple(f"sm_{number}" for number in sorted(numbers))


def find_runtime(nvcc: Nvcc) -> Path:
    """Returns the CUDA runtime library to link with: that of torch's packages first, so that both share one.

    The packages hold ``libcudart.so.13`` without the plain name that ``-lcudart`` looks for, so the file
    itself is named.

    Raises:
        BuildError: there is none of nvcc's major version.
    """
    root = nvcc.path.resolve().parent.parent
    folders = [
        wheel / part / "lib" for wheel in _wheel_dirs() for part in (f"cu{nvcc.major}", "cuda_runtime")
    ]
    folders += [root / "lib64", root / "lib", *root.glob("targets/*/lib")]
    for folder in folders:
        for library in sorted(folder.glob(f"libcudart.so.{nvcc.major}*")):
            return library
    raise BuildError(
        f"no libcudart.so.{nvcc.major} found beside {nvcc.path}", "run pip install nvidia-cuda-runtime"
    )


def architectures() -> tuple[str, ...]:
    """Returns the architectures to compile for, for example ``("9.0",)`` or ``("8.0", "9.0+PTX")``.

    They are those of ``$TORCH_CUDA_ARCH_LIST`` where it is set, else those of the GPUs that torch sees.

    Raises:
        BuildError: the variable is unset and there is no GPU.
    """
    listed = os.environ.get(ARCHITECTURES, "").strip()
    if listed:
        return tuple(dict.fromkeys(re.split(r"[\s;,]+", listed)))
    gpus = capabilities()
    if not gpus:
        raise BuildError("no GPU to compile for", f"set {ARCHITECTURES}, for example to 9.0")
    return tuple(f"{major}.{minor}" for major, minor in gpus)


def capabilities() -> tuple[tuple[int, int], ...]:
    """Returns the compute capabilities of the GPUs that torch sees, each once and in order."""
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(
        sorted({torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())})
    )


def gencode_flags(archs: Sequence[str]) -> list[str]:
    """Returns nvcc's flags for architectures written as ``9.0``, ``9.0a`` or ``9.0+PTX``.

    Raises:
        BuildError: one is written otherwise.
    """
    flags = []
    for arch in archs:
        match = re.fullmatch(r"(\d+)\.(\d[af]?)(\+PTX)?", arch)
        if match is None:
            raise BuildError(
                f"expected architectures such as 9.0, 9.0a or 9.0+PTX, got {arch!r}",
                f"set {ARCHITECTURES} so",
            )
        number = match[1] + match[2]
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if match[3]:
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags
