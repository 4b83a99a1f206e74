"""The commands of a build: flags, macros, ninja, and what a failed or an incomplete build says."""

from __future__ import annotations

import errno
import functools
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.loader.cuda import Nvcc, find_nvcc, find_runtime, gencode_flags
from kernels.loader.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    Compiler,
    Torch,
    find_compiler,
    find_ninja,
    find_torch,
)

# torch promises that the stable headers compile as C++17; its other headers ask for C++20 since 2.13.
# No contraction of a * b + c into one rounding: the CPU, CUDA and Python engines then give the same floats.
# Without errno a square root is one instruction, which has a vector form; its value is the same.
CXX_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-pthread",
)
NVCC_FLAGS = (
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--expt-relaxed-constexpr",
    "-ftemplate-depth=1000",  # of lists of several hundred features; it would be 200
    "-DUSE_CUDA",  # torch/csrc/stable/c/shim.h declares the functions for streams under it
    "-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-pthread",
)

_DEFINES = "defines.h"
_FIRST_ERROR_LINES = 6
_TAIL_LINES = 14


@dataclass(frozen=True)
class Step:
    """One command of a build.

    Attributes:
        output: the file that it writes in the work folder; a plain name.
        command: its words.
        needs: the outputs that it waits for.
    """

    output: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()


def check_defines(defines: Iterable[tuple[str, str]]) -> None:
    """Checks macros.

    Raises:
        ValueError: a name is no identifier, or a value has a line break.
    """
    for name, value in defines:
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None or "\n" in value or "\r" in value:
            raise ValueError(f"expected a macro's name and a value of one line, got {name!r} and {value!r}")


def write_defines(work: Path, defines: Iterable[tuple[str, str]]) -> None:
    """Writes the macros into a header that every source includes first.

    A header in place of -D: nvcc takes -D for a list that commas divide, and no shell reads the values.
    """
    text = "".join(f"#define {name} {value}\n" for name, value in defines)
    (work / _DEFINES).write_text(text, encoding="utf-8")


def cxx_step(
    source: Path,
    output: str,
    compiler: Compiler,
    torch: Torch,
    include_dirs: Sequence[Path],
    flags: Sequence[str],
) -> Step:
    """Returns the compilation of a .cpp file."""
    command = [*compiler.command, *CXX_FLAGS, *flags, *_source_flags(source, output, torch, include_dirs)]
    return Step(output, tuple(command))


def nvcc_step(
    source: Path,
    output: str,
    nvcc: Nvcc,
    compiler: Compiler,
    torch: Torch,
    include_dirs: Sequence[Path],
    gencode: Sequence[str],
) -> Step:
    """Returns the compilation of a .cu file, with the C++ compiler as nvcc's host compiler."""
    # nvcc compiles for one architecture after another unless it is told to use as many threads.
    command = [str(nvcc.path), "-ccbin", compiler.program, *NVCC_FLAGS, *gencode, f"--threads={len(gencode)}"]
    return Step(output, (*command, *_source_flags(source, output, torch, include_dirs)))


def link_step(
    objects: Sequence[str], output: str, compiler: Compiler, torch: Torch, nvcc: Nvcc | None
) -> Step:
    """Returns the link of a library with torch, and with CUDA where nvcc is given."""
    # -z defs: a function that nobody defines fails here, not in the middle of a run.
    command = [*compiler.command, "-shared", "-pthread", "-Wl,-z,defs", *objects, "-o", output]
    command += _standard_library(compiler.command)
    folder = str(torch.library_dir)
    command += ["-L", folder, "-Xlinker", "-rpath", "-Xlinker", folder, "-ltorch", "-ltorch_cpu", "-lc10"]
    if nvcc is not None:
        command += ["-ltorch_cuda", "-lc10_cuda", str(find_runtime(nvcc))]
    return Step(output, tuple(command), tuple(objects))


@functools.lru_cache(maxsize=8)
def _standard_library(command: tuple[str, ...]) -> list[str]:
    """Returns the file of the shared libstdc++, to be named before what the compiler adds by itself.

    Some compilers are set up to link it statically. With torch's there would then be two in the process, and
    the first error message with a number in it would crash.
    """
    try:
        answer = subprocess.run(
            [*command, "-print-file-name=libstdc++.so.6"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    path = Path(answer.stdout.strip())
    return [str(path)] if path.is_absolute() and path.is_file() else []


def _source_flags(source: Path, output: str, torch: Torch, include_dirs: Sequence[Path]) -> list[str]:
    """Returns what both compilers take. torch's headers are system headers: no warnings from them."""
    flags = [
        f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
    ]
    flags += ["-include", _DEFINES]
    for folder in include_dirs:
        flags += ["-I", os.path.abspath(folder)]
    for folder in torch.include_dirs:
        flags += ["-isystem", str(folder)]
    return [*flags, "-MMD", "-MF", f"{output}.d", "-c", os.path.abspath(source), "-o", output]


def run_steps(work: Path, steps: Sequence[Step], log: Path | None = None) -> None:
    """Runs the steps with ninja in the work folder, as many at once as there are processors.

    Args:
        work: a fresh folder; the compilers' temporary files go there too.
        steps: the commands.
        log: where the output is kept when one fails.

    Raises:
        BuildError: one failed; the message holds its first error and the end of the output.
        OSError: the disk was full.
    """
    # Sources are no inputs to ninja: the folder is fresh, so there are no times to compare.
    rules = ["rule run", "  command = $words"]
    for step in steps:
        rules += [f"build {step.output}: run {' '.join(step.needs)}", f"  words = {_quoted(step.command)}"]
    (work / "build.ninja").write_text("\n".join(rules) + "\n", encoding="utf-8")
    result = subprocess.run(
        [find_ninja(), "-C", work],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(work)},
        check=False,
    )
    if result.returncode != 0:
        output = result.stdout.decode(errors="replace")
        for code in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(code) in output:
                raise OSError(code, os.strerror(code), str(work))
        raise BuildError(f"the compiler failed{_keep(output, log)}:\n{_excerpt(output)}")


def compile_check(
    source: Path,
    arch: str | Sequence[str] = "sm_90",
    include_dirs: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
) -> float:
    """Compiles one .cu file and throws the result away.

    It needs nvcc, but neither a GPU nor a CUDA build of torch.

    Args:
        source: the .cu file.
        arch: a real architecture, for example ``"sm_90"``, or several of them.
        include_dirs: searched for headers before torch's.
        defines: macros and their values.

    Returns:
        The seconds that it took.

    Raises:
        CompilerMissingError: there is no nvcc or no C++ compiler.
        BuildError: the file does not compile.
        ValueError: an architecture or a define cannot be used.
    """
    archs = [arch] if isinstance(arch, str) else list(arch)
    matches = [re.fullmatch(r"sm_(\d+)(\d[af]?)", each) for each in archs]
    if not archs or None in matches:
        got = ", ".join(map(repr, archs)) or "none"
        raise ValueError(f"expected architectures such as 'sm_90', got {got}")
    check_defines(defines)
    torch = find_torch()
    gencode = gencode_flags([f"{match[1]}.{match[2]}" for match in matches if match is not None])
    nvcc, compiler = find_nvcc(torch.cuda), find_compiler()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_defines(work, defines)
        run_steps(work, [nvcc_step(source, "check.o", nvcc, compiler, torch, include_dirs, gencode)])
    return time.monotonic() - began


def _quoted(words: Sequence[str]) -> str:
    return shlex.join(words).replace("$", "$$")


def _keep(output: str, log: Path | None) -> str:
    """Writes a failed build's output and returns where it is, in brackets; a full disk keeps nothing."""
    if log is None:
        return ""
    try:
        log.write_text(output, encoding="utf-8")
    except OSError:
        log.unlink(missing_ok=True)
        return ""
    return f" (all it said: {log})"


def _excerpt(output: str) -> str:
    """Returns the first error, which is the one that matters, and the end of a compiler's output."""
    # ninja's own words go: the progress, and after FAILED the whole command.
    output = re.sub(r"^(FAILED: .*\n.*|\[\d+/\d+\] .*|ninja: .*)\n", "", output, flags=re.MULTILINE)
    lines = [line for line in output.splitlines() if line.strip()]
    start = max(0, len(lines) - _TAIL_LINES)
    first = next((index for index, line in enumerate(lines) if re.search(r"\b[Ee]rror\b", line)), start)
    if first >= start:
        return "\n".join(lines[start:])
    return "\n".join([*lines[first : min(first + _FIRST_ERROR_LINES, start)], "...", *lines[start:]])


def unlisted_headers(work: Path, listed: Iterable[Path], torch: Torch) -> list[Path]:
    """Returns the headers that a build read and that are neither listed, nor torch's, nor the system's."""
    known = {(work / _DEFINES).resolve(), *(path.resolve() for path in listed)}
    read = {(work / name).resolve() for listing in work.glob("*.d") for name in _dependencies(listing)}
    # nvcc, unlike g++, lists its own headers; all of them lie under the folder of cuda_runtime.h.
    foreign = [torch.root.resolve(), *(path.parent for path in read if path.name == "cuda_runtime.h")]
    return sorted(path for path in read - known if not any(folder in path.parents for folder in foreign))


def _dependencies(listing: Path) -> list[str]:
    """Returns the files after the colon of a make rule, with make's escapes undone."""
    text = listing.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    names = re.findall(r"(?:\\[ \t#]|\S)+", text.partition(": ")[2])
    return [re.sub(r"\\([ \t#])", r"\1", name).replace("$$", "$") for name in names]
