"""Says whether the operators work here, and names a remedy for what is in the way.

torch is imported inside the functions: the doctor has to survive one that does not import.
"""

import os
import platform
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from kernels.loader import cache, prebuilt
from kernels.loader.cuda import CUDA_TORCH_REMEDY, architectures, find_nvcc, known_architectures
from kernels.loader.toolchain import BuildError, find_compiler, find_torch
from kernels.ops.report import OK, Report, run_check

_ROOT = Path(__file__).parents[2]
_CALL = """
import sys
try:
    import torch
    from kernels.ops.elementwise.op import vector_add
    from kernels.ops.library import extension
    x = torch.arange(4.0, device=sys.argv[1])
    if vector_add(x, x).tolist() != [0, 2, 4, 6]:
        sys.exit("vector_add(x, x) is not 2 x")
    print(extension("elementwise", sys.argv[1]).load())
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

_IMPORTS = """
import cem, tetris, cem_tetris
print(cem_tetris.__file__)
"""


def run(device: str) -> Report:
    """Check whether the operators work on a device, and report on every part that they need.

    A part that is absent counts as a failure only if it is needed. nvcc and a GPU are not
    needed for the CPU. A compiler is not needed if the operator is already built.
    """
    needs_cuda = device == "cuda"
    # If a part is not needed, any error of its check means that the part is absent.
    look = partial(run_check, absence_errors=(Exception,))
    call_outcome = look("vector_add", partial(_call_operator, device))
    # If the call succeeded, its library is built.
    needs_build = call_outcome.result != OK
    return Report(
        [
            look("python", lambda: f"{platform.python_version()} on {platform.platform()}"),
            look("torch", _describe_torch),
            look("packages", _import_packages),
            look("ready", prebuilt.describe, needed=False),
            look("compiler", _describe_compiler, needed=needs_build),
            look("nvcc", _describe_nvcc, needed=needs_cuda and needs_build),
            look("GPU", _describe_gpus, needed=needs_cuda),
            look("cache", _describe_cache, needed=needs_build),
            call_outcome,
        ]
    )


def _describe_torch() -> str:
    try:
        torch = find_torch()
    except ImportError as error:
        raise BuildError(
            f"torch does not import ({error})", "run pip install 'torch>=2.10'"
        ) from error
    return f"{torch.version} in {torch.root}"


def _import_packages() -> str:
    """Import the packages from another folder, as other programs do.

    This fails if another distribution of the same name hides one of them.
    """
    done = _run(_IMPORTS, cwd=Path("/"))
    if done.returncode == 0:
        return f"cem, kernels and tetris in {Path(done.stdout.strip()).parent}"
    problem = done.stderr.strip().rpartition("\n")[2]
    if problem.startswith("ModuleNotFoundError"):
        return f"those of {_ROOT}, which is not installed: python -m pip install -e ."
    raise BuildError(problem, "see the clashes in docs/install.md")


def _run(program: str, *words: str, cwd: Path) -> Any:
    """Run a Python program with arguments in another process, in the folder ``cwd``."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},  # It may print any path.
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _describe_compiler() -> str:
    compiler = find_compiler()
    return f"{' '.join(compiler.command)} ({compiler.version})"


def _describe_cache() -> str:
    folder = cache.cache_dir()
    with cache.lock(folder / "doctor.so"):
        return f"{folder}, {sum(1 for _ in cache.manifests('*'))} libraries"


def _describe_nvcc() -> str:
    nvcc = find_nvcc(find_torch().cuda)
    known = known_architectures(nvcc) or ("no GPU",)
    return f"{nvcc.path} (CUDA {nvcc.version}, compiles for {known[0]} to {known[-1]})"


def _describe_gpus() -> str:
    """Return the names of the GPUs, and the architectures for which operators are compiled.

    Raises:
        BuildError: torch is a CPU build, or sees no GPU.
    """
    import torch

    if torch.version.cuda is None:
        raise BuildError(f"torch {torch.__version__} is a CPU build", CUDA_TORCH_REMEDY)
    if not torch.cuda.is_available():
        raise BuildError(
            "torch sees no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device cpu"
        )
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return (
        f"{', '.join(names)} (CUDA {torch.version.cuda}), "
        f"compiled for {' '.join(architectures())}"
    )


def _call_operator(device: str) -> str:
    """Call an operator, and return where its library comes from.

    Another process makes the call, so that a crash can be reported.
    """
    done = _run(_CALL, device, cwd=_ROOT)
    if done.returncode != 0:
        raise BuildError(done.stderr.strip() or f"it ended with status {done.returncode}")
    library = Path(done.stdout.strip())
    origin = "ready" if library.parent == prebuilt.FOLDER else "built where needed"
    return f"{origin}, loaded and called: {library.name}"
