"""Examines whether native libraries can be built and run here, and names a remedy for what is in the way."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernels.loader import cache
from kernels.loader.cuda import CUDA_TORCH_REMEDY, architectures, find_nvcc, known_architectures
from kernels.loader.toolchain import BuildError, find_compiler, find_ninja, find_torch
from kernels.support.names import unknown_name

DEVICES = ("cpu", "cuda")
_HERE = Path(__file__).parent
_TORCH_REMEDY = "run pip install 'torch>=2.10'"
_PACKAGE_REMEDY = "run python -m pip uninstall kernels, and install cem-tetris again"
_ORIGINS = {
    "CUDA_HOME": "of $CUDA_HOME",
    "PATH": "of a toolkit on PATH",
    "packages": "of the nvidia packages",
}


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes:
        name: what was looked at.
        works: whether it can be used.
        needed: whether the device that was asked for depends on it.
        found: what is there, or what is wrong.
        remedy: what to do where it does not work.
    """

    name: str
    works: bool
    needed: bool
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """What the doctor found.

    Attributes:
        device: what was asked for, ``"cpu"`` or ``"cuda"``.
        findings: the answers.
        built: the manifests of the libraries in the cache.
    """

    device: str
    findings: list[Finding] = field(default_factory=list)
    built: list[dict[str, Any]] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """Whether everything that the device needs works."""
        return all(finding.works for finding in self.findings if finding.needed)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for JSON."""
        findings = [asdict(finding) for finding in self.findings]
        return {"device": self.device, "works": self.works, "findings": findings, "built": self.built}

    def __str__(self) -> str:
        """The report as a page of text."""
        lines = []
        for finding in self.findings:
            mark = "ok" if finding.works else ("PROBLEM" if finding.needed else "absent")
            lines.append(f"{mark:<8} {finding.name:<14} {finding.found}")
            if not finding.works:
                lines.append(f"{'':<8} {'':<14} -> {finding.remedy}")
        lines.append("")
        lines.append(f"built libraries: {len(self.built)}")
        builds: dict[str, list[dict[str, Any]]] = {}
        for manifest in sorted(self.built, key=lambda each: str(each["date"])):
            reason = f" ({manifest['reason']})" if manifest.get("reason") else ""
            builds.setdefault(f"{manifest['name']}{reason}", []).append(manifest)
        for name, found in builds.items():
            times = f"{len(found)} times, the last on " if len(found) > 1 else ""
            lines.append(f"  {name}, {times}{found[-1]['date']}, {found[-1]['seconds']} s")
        verdict = "works" if self.works else "does not work"
        return "\n".join([*lines, "", f"device {self.device}: {verdict} here"])


def examine(device: str = "cpu") -> Report:
    """Examines this machine: looks for every part, then builds, loads and calls a small operator.

    Args:
        device: ``"cpu"``, or ``"cuda"`` to need nvcc and a GPU too.

    Returns:
        The report. Nothing that is missing raises.

    Raises:
        ValueError: the device is neither.
    """
    if device not in DEVICES:
        raise unknown_name("device", device, DEVICES)
    cuda = device == "cuda"
    prebuilt = _ask("operators", False, lambda: _prebuilt(device))
    builds = not prebuilt.works  # where everything was built ahead, no tool is needed
    findings = [
        Finding("python", True, True, f"{platform.python_version()} on {platform.platform()}"),
        _ask("package", True, _package, _PACKAGE_REMEDY),
        _ask("torch", True, _torch, _TORCH_REMEDY),
        _ask("compiler", builds, _compiler),
        _ask("ninja", builds, _ninja),
        _ask("cache", builds, _cache),
        _ask("torch CUDA", cuda, _torch_cuda, CUDA_TORCH_REMEDY),
        _ask("nvcc", cuda and builds, _nvcc),
        _ask("GPU", cuda, _gpu, _gpu_remedy()),
        prebuilt,
    ]
    if all(finding.works for finding in findings if finding.needed):
        findings.append(_ask("probe", True, lambda: _operator(device), "try another compiler through $CXX"))
    return Report(device, findings, _built())


def _ask(name: str, needed: bool, question: Callable[[], str], remedy: str = "") -> Finding:
    """Turns an answer, or the error in its place, into a finding."""
    try:
        return Finding(name, True, needed, question())
    except BuildError as error:
        return Finding(name, False, needed, error.problem, error.remedy or remedy)
    except Exception as error:  # an installation of torch can break in any way; the doctor has to survive it
        return Finding(name, False, needed, f"{type(error).__name__}: {error}", remedy)


def _package() -> str:
    """Looks for the distribution kernels of Hugging Face, whose package has the name of this one."""
    try:
        other = importlib.metadata.version("kernels")
    except importlib.metadata.PackageNotFoundError:
        return str(_HERE)
    raise BuildError(
        f"{_HERE}, and the distribution kernels {other} is installed: its package has the same name, and is "
        "imported in place of this one or has replaced files of it",
        _PACKAGE_REMEDY,
    )


def _torch() -> str:
    torch = find_torch()
    return f"{torch.version} in {torch.root}"


def _compiler() -> str:
    compiler = find_compiler()
    return f"{' '.join(compiler.command)} ({compiler.version})"


def _ninja() -> str:
    path = find_ninja()
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True)
    return f"{path} ({answer.stdout.strip()})"


def _cache() -> str:
    folder = cache.cache_dir()
    with cache.lock(folder / "doctor.so"):
        return str(folder)


def _torch_cuda() -> str:
    torch = find_torch()
    if torch.cuda is None:
        raise BuildError(f"torch {torch.version} is a CPU build", CUDA_TORCH_REMEDY)
    return f"CUDA {torch.cuda}"


def _nvcc() -> str:
    nvcc = find_nvcc(find_torch().cuda)
    known = known_architectures(nvcc)
    return (
        f"{nvcc.path} (CUDA {nvcc.version}, {nvcc.release}, {_ORIGINS[nvcc.origin]}; "
        f"compiles for {known[0]} to {known[-1]})"
    )


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise BuildError("torch sees none", _gpu_remedy())
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{', '.join(names)}, compiled for {' '.join(architectures())}"


def _gpu_remedy() -> str:
    if shutil.which("nvidia-smi") is None:
        return "this machine has no NVIDIA driver: use device cpu, or install the driver where there is a GPU"
    return f"see whether nvidia-smi and CUDA_VISIBLE_DEVICES are right, and {CUDA_TORCH_REMEDY}"


def _prebuilt(device: str) -> str:
    """Says which operators the cache has for this machine. Where it has all, no compiler is needed."""
    from kernels.loader import probe
    from kernels.ops.library import extension, operators

    devices = ("cpu", "cuda") if device == "cuda" else ("cpu",)
    wanted = [extension(name, each) for name in operators() for each in devices] + [probe.extension(device)]
    missing = [each for each in wanted if not each.is_built()]
    if not missing:
        return f"all {len(wanted)} libraries are in the cache"
    found = f"{len(wanted) - len(missing)} of {len(wanted)} libraries are in the cache"
    absent = f"absent: {', '.join(each.name for each in missing)}"
    if _has_compilers(device):
        later = "nothing: they are built on first use, or by python -m kernels build"
        raise BuildError(f"{found}, {absent}", later)
    objections = [objection for each in missing if (objection := each.objection())]
    raise BuildError(
        "; ".join([f"{found}, {absent}", *objections]),
        f"run python -m kernels build --portable where there is a compiler, and set {cache.VARIABLE} "
        "to a copy of its folder",
    )


def _has_compilers(device: str) -> bool:
    try:
        find_compiler()
        if device == "cuda":
            find_nvcc(find_torch().cuda)
    except BuildError:
        return False
    return True


def _operator(device: str) -> str:
    # In a process of its own: a library that crashes is then a finding, and the caller has loaded nothing.
    answer = subprocess.run(
        [sys.executable, "-m", "kernels.loader.probe", device],
        cwd=_HERE.parent,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if answer.returncode != 0:
        raise BuildError(answer.stderr.strip() or f"the probe ended with status {answer.returncode}")
    return answer.stdout.strip()


def _built() -> list[dict[str, Any]]:
    return [manifest for folder in cache.folders() for manifest in cache.manifests(folder)]
