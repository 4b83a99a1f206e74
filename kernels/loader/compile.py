"""The commands of a build: their flags and macros, their errors, the files that they read."""

import errno
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernels.loader.cache import unusable
from kernels.loader.cuda import find_nvcc, find_runtime, gencode_flags
from kernels.loader.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    Torch,
    find_compiler,
    find_torch,
)
from kernels.support.system import IS_LINUX

# torch promises that the stable headers compile as C++17; its other headers ask for C++20 since
# 2.13. No contraction of a * b + c into one rounding: the CPU, CUDA and Python engines then
# give the same floats. Without errno a square root is one instruction, which has a vector form;
# its value is the same.
CXX_FLAGS = tuple(
    shlex.split(
        "-std=c++17 -O3 -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -pthread"
    )
)
# The templates go over lists of several hundred features; the usual depth is 200. Under
# USE_CUDA torch/csrc/stable/c/shim.h declares the functions for streams.
NVCC_FLAGS = tuple(
    shlex.split(
        "-std=c++17 -O3 --fmad=false --expt-relaxed-constexpr -ftemplate-depth=1000 -DUSE_CUDA "
        "-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-pthread"
    )
)

GUARD = Path(__file__).with_name("guard.cpp")  # is part of every library
# torch's functions, and those of guard.cpp that are called in their place.
RENAMED = {
    "aoti_torch_library_init_def": "guarded_init_def",
    "aoti_torch_library_init_fragment": "guarded_init_fragment",
    "aoti_torch_library_init_impl": "guarded_init_impl",
    "aoti_torch_library_def": "guarded_def",
    "torch_library_impl": "guarded_impl",
}

_SHOWN_LINES = 40  # of a failed build


class Sources(NamedTuple):
    """The sources and options of a library; with ``archs`` it is linked with CUDA."""

    files: Sequence[Path]
    include_dirs: Sequence[Path]
    defines: Sequence[tuple[str, str]]
    flags: Sequence[str]
    archs: Sequence[str]
    nvcc_flags: Sequence[str] = ()


def compile_library(
    work: Path, name: str, sources: Sources, libraries: Sequence[str] = ()
) -> set[Path]:
    """Compile and link a shared library in a folder, and return the files that were read.

    Args:
        work: the folder for the library and all intermediate files.
        name: the file name of the library.
        sources: what to compile.
        libraries: words of the link command in place of the installed torch and libstdc++. The
            libraries of a wheel name none of this machine's folders.
    """
    torch = find_torch()
    compiler = find_compiler()
    commands = _make_commands(work, sources)
    # guard.cpp, a part of every library, reports operators that torch does not register.
    commands["guard.o"] = [*compiler.command, *CXX_FLAGS, "-c", str(GUARD), "-o", "guard.o"]
    # The keys of the commands are the names of the object files.
    link = [*compiler.command, "-shared", "-pthread", *commands, "-o", name]
    link += libraries or _link_with_torch(torch)
    if sources.archs:
        cuda_runtime = find_runtime(find_nvcc(torch.cuda))
        link += ["-ltorch_cuda", "-lc10_cuda", str(cuda_runtime)]
    _run({**commands, name: link}, work)
    return _list_read_files(work, torch)


def _link_with_torch(torch: Torch) -> list[str]:
    """Return the words that link a library with the installed torch and with libstdc++."""
    library_dir = str(torch.root / "lib")
    words = ["-undefined", "dynamic_lookup"]  # macOS
    if IS_LINUX:
        # -z defs: a function that nobody defines fails here, not in the middle of a run. Some
        # compilers would link libstdc++ statically. With torch's there would be two in the
        # process, and the first error message with a number in it would crash. So would the
        # first exception with a second unwinder, which Zig adds.
        words = ["-Wl,-z,defs", "-l:libstdc++.so.6", "-l:libgcc_s.so.1"]
    words += ["-L", library_dir, "-Xlinker", "-rpath", "-Xlinker", library_dir]
    return [*words, "-ltorch", "-ltorch_cpu", "-lc10"]


def _make_commands(work: Path, sources: Sources) -> dict[str, list[str]]:
    """Return the commands that compile the sources, by the names of their object files.

    The commands run in the folder ``work``, where this writes a header with the macros.
    """
    torch = find_torch()
    compiler = find_compiler()
    flags = sources.flags
    if "ziglang" in compiler.command:
        # Zig reads -mtune as the name of the processor.
        flags = [flag for flag in flags if flag != "-mtune=generic"]
    compile_cpp = [*compiler.command, *CXX_FLAGS, *flags]
    compile_cuda: list[str] = []
    if sources.archs:
        nvcc = str(find_nvcc(torch.cuda).path)
        compile_cuda = [nvcc, "-ccbin", compiler.program, *NVCC_FLAGS]
        # Without --threads nvcc compiles for one architecture after another.
        compile_cuda += [*gencode_flags(sources.archs), f"--threads={len(sources.archs)}"]
        # They come last, because the last one of contradictory flags counts.
        compile_cuda += sources.nvcc_flags

    # Every source includes a header with the macros first, because nvcc splits -D at commas.
    # RENAMED replaces some functions of torch by those of guard.cpp.
    macros = ""
    for name, value in (*RENAMED.items(), *sources.defines):
        macros += f"#define {name} {value}\n"
    (work / "defines.h").write_text(macros, encoding="utf-8")
    common = [f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}", "-D_GLIBCXX_USE_CXX11_ABI=1"]
    common += ["-include", "defines.h"]
    for folder in sources.include_dirs:
        common += ["-I", os.path.abspath(folder)]
    # Compilers do not warn about system headers, as torch's are declared here.
    include = torch.root / "include"
    for folder in (include, include / "torch/csrc/api/include"):
        common += ["-isystem", str(folder)]

    commands = {}
    for index, source in enumerate(sources.files):
        compile_source = compile_cuda if source.suffix == ".cu" else compile_cpp
        # -MMD writes the names of the headers that were read into the file after -MF.
        files = ["-MMD", "-MF", f"{index}.d", "-c", os.path.abspath(source), "-o", f"{index}.o"]
        commands[f"{index}.o"] = [*compile_source, *common, *files]
    return commands


def _run(commands: Mapping[str, Sequence[str]], work: Path) -> None:
    """Run commands with ninja in the folder ``work``, at the same time where possible.

    ``commands`` has the command that makes each file. The last one links the files that the
    others make, so it runs when they have ended.

    Raises:
        BuildError: a command failed, or the disk is full.
    """
    import ninja  # It is slow to import, and only a build needs it.

    outputs = list(commands)
    lines = ["rule run", "  command = $words"]
    for output, words in commands.items():
        inputs = " ".join(outputs[:-1]) if output == outputs[-1] else ""
        # ninja reads $ as the start of a variable, and $$ as a dollar sign.
        quoted_words = shlex.join(words).replace("$", "$$")
        lines += [f"build {output}: run {inputs}", f"  words = {quoted_words}"]
    (work / "build.ninja").write_text("\n".join(lines) + "\n", encoding="utf-8")
    process = subprocess.run(
        [Path(ninja.BIN_DIR) / "ninja", "-C", work],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(work), "LC_ALL": "C"},
        check=False,
    )
    if process.returncode != 0:
        # If the disk is full, the compiler is not the problem.
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in process.stdout:
                raise unusable(work.parent, OSError(number, os.strerror(number)))
        raise BuildError(f"the compiler failed:\n{_extract_error(process.stdout)}")


def _extract_error(output: str) -> str:
    """Return the first error of a compiler's output and what follows, or the end."""
    lines = [line for line in output.splitlines() if line.strip()]
    begin = max(0, len(lines) - _SHOWN_LINES)
    for index, line in enumerate(lines[:begin]):
        if re.search(r"\b[Ee]rror\b", line):
            begin = index
            break
    return "\n".join(lines[begin : begin + _SHOWN_LINES])


def compile_check(
    source: Path,
    arch: str | Sequence[str] = "sm_90",
    include_dirs: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
) -> float:
    """Compile one .cu file, throw the result away and return the seconds that it took.

    It needs nvcc, but neither a GPU nor a CUDA build of torch.

    Args:
        source: the .cu file.
        arch: a real architecture, for example ``"sm_90"``, or several of them.
        include_dirs: searched for headers before torch's.
        defines: macros and their values.

    Raises:
        CompilerMissingError: there is no nvcc or no C++ compiler.
        BuildError: the file does not compile.
        ValueError: an architecture or a define cannot be used.
    """
    names = [arch] if isinstance(arch, str) else list(arch)
    archs = []
    for name in names:
        # "sm_90a" becomes "9.0a".
        match = re.fullmatch(r"sm_(\d+)(\d[af]?)", name)
        if match is not None:
            archs.append(f"{match[1]}.{match[2]}")
    if not names or len(archs) < len(names):
        got = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"expected architectures such as 'sm_90', got {got}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sources = Sources([source], include_dirs, defines, flags=(), archs=archs)
        _run(_make_commands(work, sources), work)
    return time.monotonic() - start


def _list_read_files(work: Path, torch: Torch) -> set[Path]:
    """Return the files of the project that a build read.

    They are all but its own files and those of torch, CUDA and the system.
    """
    read = {
        (work / name).resolve()
        for listing in work.glob("*.d")
        for name in _read_dependencies(listing)
    }
    # nvcc, unlike g++, lists its own headers, all below the folder of cuda_runtime.h.
    foreign = [work.resolve(), torch.root.resolve()]
    foreign += [path.parent for path in read if path.name == "cuda_runtime.h"]
    return {path for path in read if not any(folder in path.parents for folder in foreign)}


def _read_dependencies(listing: Path) -> list[str]:
    """Return the files after the colon of a make rule, with make's escapes undone."""
    text = listing.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    names = re.findall(r"(?:\\[ \t#]|\S)+", text.partition(": ")[2])
    return [re.sub(r"\\([ \t#])", r"\1", name).replace("$$", "$") for name in names]
