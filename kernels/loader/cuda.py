"""Finds nvcc, the CUDA runtime library and the GPU architectures to compile for."""

import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kernels.loader.toolchain import BuildError, CompilerMissingError, answer

CUDA_TORCH_REMEDY = "install a CUDA build of torch as https://pytorch.org/get-started says"

# The variable that names the architectures to compile for; torch's own builds use it, too.
ARCHITECTURES = "TORCH_CUDA_ARCH_LIST"


class Nvcc(NamedTuple):
    """An nvcc that works."""

    path: Path
    version: str  # "13.0.88"

    @property
    def major(self) -> str:
        """The CUDA version's first number."""
        return self.version.partition(".")[0]


def find_nvcc(cuda: str | None = None) -> Nvcc:
    """Return the nvcc of ``$CUDA_HOME`` or, if it does not work, one on PATH or from PyPI.

    Args:
        cuda: the CUDA version that torch was built for, such as ``"13.0"``. On PATH and from
            PyPI, an nvcc with the same major version is preferred.

    Raises:
        CompilerMissingError: no nvcc works.
    """
    home = os.environ.get("CUDA_HOME", "").strip()
    if home:
        # _ask_nvcc returns None if the program is missing or does not run.
        chosen = _ask_nvcc(Path(home, "bin", "nvcc"))
        if chosen is not None:
            return chosen

    on_path = shutil.which("nvcc")
    paths = [Path(on_path)] if on_path is not None else []
    # NVIDIA's packages from PyPI lie in `_wheel_dirs`. Those for CUDA 13 contain nvcc, but
    # those for CUDA 12 do not.
    paths += [folder / "cu13" / "bin" / "nvcc" for folder in _wheel_dirs()]
    candidates = [_ask_nvcc(path) for path in paths]
    working = [nvcc for nvcc in candidates if nvcc is not None]
    if not working:
        raise CompilerMissingError(
            "no nvcc found (looked in $CUDA_HOME, PATH and the nvidia packages)",
            _how_to_install_nvcc(cuda or ""),
        )
    torch_major = (cuda or "").partition(".")[0]
    matching = [nvcc for nvcc in working if nvcc.major == torch_major]
    return (matching or working)[0]


def _how_to_install_nvcc(cuda: str) -> str:
    """Return how to install an nvcc of a CUDA version, which may be empty."""
    remedy = "install the CUDA toolkit or set CUDA_HOME to its folder"
    # NVIDIA's packages on PyPI contain no nvcc for CUDA 12.
    if cuda.partition(".")[0] == "12":
        return remedy
    version = f"=={cuda}.*" if cuda else ""
    # This package pins matching versions of all parts that nvcc needs.
    return f"{remedy}, or run pip install 'cuda-toolkit[nvcc,cccl]{version}'"


def _ask_nvcc(path: Path) -> Nvcc | None:
    """Return the nvcc at a path, or None if there is none or it does not run."""
    path = path.absolute()  # A build runs in another folder.
    match = re.search(r"release \S+ V(\S+)", answer(str(path), "--version"))
    return Nvcc(path, match[1]) if match else None


def _wheel_dirs() -> list[Path]:
    """Return the folders of the namespace package ``nvidia``, where PyPI's packages lie."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None:
        return []
    return [Path(folder) for folder in spec.submodule_search_locations or []]


def known_architectures(nvcc: Nvcc) -> tuple[str, ...]:
    """Return the GPUs that nvcc can compile for, oldest first: ``("sm_75", ..., "sm_121")``."""
    numbers = re.findall(r"\bsm_(\d+)\b", answer(str(nvcc.path), "--list-gpu-code"))
    return tuple(f"sm_{number}" for number in sorted(set(map(int, numbers))))


def find_runtime(nvcc: Nvcc) -> Path:
    """Return the CUDA runtime library to link with.

    The library of torch's packages comes first, so that torch and the operators share it. The
    linker gets a path, because ``-lcudart`` would not find it: these packages contain
    ``libcudart.so.13``, but not ``libcudart.so``.
    """
    # In `_wheel_dirs`, where torch's packages lie, those for CUDA 13 have a common folder, and
    # those for CUDA 12 have one each.
    names = (f"cu{nvcc.major}", "cuda_runtime")
    folders = [wheels / name / "lib" for wheels in _wheel_dirs() for name in names]
    # The folders of the toolkit to which nvcc belongs depend on the system.
    toolkit = nvcc.path.resolve().parent.parent
    folders += [toolkit / "lib64", toolkit / "lib", *toolkit.glob("targets/*/lib")]
    for folder in folders:
        for library in sorted(folder.glob(f"libcudart.so.{nvcc.major}*")):
            return library
    raise BuildError(
        f"no libcudart.so.{nvcc.major} found beside {nvcc.path}",
        "run pip install nvidia-cuda-runtime",
    )


def architectures() -> tuple[str, ...]:
    """Return the GPU architectures to compile for, such as "9.0" or "9.0+PTX".

    They are those of ``$TORCH_CUDA_ARCH_LIST`` or, if it is not set, of this machine's GPUs.

    Raises:
        BuildError: the variable is not set, and there is no GPU.
    """
    listed = os.environ.get(ARCHITECTURES, "").strip()
    if listed:
        # dict.fromkeys removes duplicates, and keeps the order.
        return tuple(dict.fromkeys(re.split(r"[\s;,]+", listed)))
    gpus = capabilities()
    if not gpus:
        raise BuildError("no GPU to compile for", f"set {ARCHITECTURES}, for example to 9.0")
    return gpus


def capabilities() -> tuple[str, ...]:
    """Return the compute capabilities of the GPUs that torch sees, for example ``"9.0"``.

    They are sorted, and each appears once.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    versions = sorted({torch.cuda.get_device_capability(index) for index in range(count)})
    return tuple(f"{major}.{minor}" for major, minor in versions)


def gencode_flags(archs: Sequence[str]) -> list[str]:
    """Return nvcc's flags for architectures such as ``9.0``, ``9.0a`` or ``9.0+PTX``.

    With ``+PTX`` the library also contains PTX code, which drivers compile for newer GPUs.

    Raises:
        BuildError: an architecture has another form.
    """
    flags = []
    for arch in archs:
        match = re.fullmatch(r"(\d+)\.(\d[af]?)(\+PTX)?", arch)
        if match is None:
            raise BuildError(
                f"expected architectures such as 9.0, 9.0a or 9.0+PTX, got {arch!r}"
            )
        major, minor, ptx = match.groups()
        number = major + minor  # "9.0a" becomes "90a"
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if ptx:
            # code=sm_... is the machine code of one architecture, code=compute_... is PTX.
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags
