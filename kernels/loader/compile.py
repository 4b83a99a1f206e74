"""Runs the commands of a build, and reports their errors and the files that they read."""

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

from kernels.loader.cache import unwritable_error
from kernels.loader.cuda import find_nvcc, find_runtime, gencode_flags
from kernels.loader.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    Compiler,
    Torch,
    find_compiler,
    find_torch,
)
from kernels.support.system import IS_LINUX

# -std=c++17: torch guarantees that its stable headers compile as C++17. Since 2.13 its other
# headers require C++20.
# -ffp-contract=off: a * b + c is rounded twice, so that the CPU, CUDA and Python engines return
# the same floats.
# -fno-math-errno: a square root is one instruction, which has a vector form; its value is the
# same.
CXX_FLAGS = tuple(
    shlex.split(
        "-std=c++17 -O3 -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -pthread"
    )
)
# -ftemplate-depth: the templates recurse over lists of several hundred features; the default
# depth is 200.
# -DUSE_CUDA: torch/csrc/stable/c/shim.h then declares the functions for streams.
NVCC_FLAGS = tuple(
    shlex.split(
        "-std=c++17 -O3 --fmad=false --expt-relaxed-constexpr -ftemplate-depth=1000 -DUSE_CUDA "
        "-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-pthread"
    )
)

GUARD = Path(__file__).with_name("guard.cpp")  # is part of every library
# torch's functions, and the functions of guard.cpp that replace them.
RENAMED = {
    "aoti_torch_library_init_def": "guarded_init_def",
    "aoti_torch_library_init_fragment": "guarded_init_fragment",
    "aoti_torch_library_init_impl": "guarded_init_impl",
    "aoti_torch_library_def": "guarded_def",
    "torch_library_impl": "guarded_impl",
}

_MACRO_OPTIONS = (
    f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    *("-include", "defines.h"),  # a file that is written for every build
)
_SHOWN_LINES = 40  # of a failed build


class Sources(NamedTuple):
    """The sources and options of a library, which is linked with CUDA if it has ``archs``."""

    files: Sequence[Path]
    include_dirs: Sequence[Path]
    defines: Sequence[tuple[str, str]]
    flags: Sequence[str]
    archs: Sequence[str]
    nvcc_flags: Sequence[str] = ()


def compile_library(
    work: Path, name: str, sources: Sources, libraries: Sequence[str] = ()
) -> set[Path]:
    """Compile sources and link them into a shared library.

    Args:
        work: the folder for the library and all intermediate files.
        name: the file name of the library.
        sources: the source files and their options.
        libraries: arguments with which the linker finds torch and the C++ runtime. By default
            it finds the installed ones. But a library for a wheel must not contain paths of the
            machine that builds it.

    Returns:
        The project's source files and headers that the compilers read.
    """
    torch = find_torch()
    compiler = find_compiler()
    # Each key is the name of an object file, and its value the command that compiles it.
    commands = _make_compile_commands(work, sources)
    # Every library contains guard.cpp. If torch does not register one of the operators, the
    # functions of this file store its name, so that the failure can be reported.
    commands["guard.o"] = [*compiler.command, *CXX_FLAGS, "-c", str(GUARD), "-o", "guard.o"]
    # Link all object files, which are the keys of the commands.
    link = [*compiler.command, "-shared", "-pthread", *commands, "-o", name]
    link += libraries or _link_with_torch(torch)
    if sources.archs:
        cuda_runtime = find_runtime(find_nvcc(torch.cuda))
        link += ["-ltorch_cuda", "-lc10_cuda", str(cuda_runtime)]
    # The linker is the last command, because it reads the files that the others make.
    commands[name] = link
    _run_with_ninja(commands, work)
    return _list_read_files(work, torch)


def _link_with_torch(torch: Torch) -> list[str]:
    """Return the linker arguments for the installed torch and for libstdc++."""
    library_dir = str(torch.root / "lib")
    # On macOS the functions of torch are looked up when the library is loaded.
    arguments = ["-undefined", "dynamic_lookup"]
    if IS_LINUX:
        # With `-z defs` the linker reports undefined functions, which otherwise fail when they
        # are called. The other two are the shared libraries that torch uses. A second copy of
        # them, linked statically, would crash the process at its first exception.
        arguments = ["-Wl,-z,defs", "-l:libstdc++.so.6", "-l:libgcc_s.so.1"]
    arguments += ["-L", library_dir, "-Xlinker", "-rpath", "-Xlinker", library_dir]
    return [*arguments, "-ltorch", "-ltorch_cpu", "-lc10"]


def _make_compile_commands(work: Path, sources: Sources) -> dict[str, list[str]]:
    """Return the commands that compile the sources, keyed by the object files that they make.

    The commands run in the folder ``work``, where this function writes the macros as a header.
    """
    torch = find_torch()
    compiler = find_compiler()
    cpp_command = [*compiler.command, *CXX_FLAGS, *sources.flags]
    # Zig would read -mtune=generic as the name of a processor.
    if "ziglang" in compiler.command and "-mtune=generic" in cpp_command:
        cpp_command.remove("-mtune=generic")
    cuda_command: list[str] = []
    if sources.archs:  # The GPU architectures, which only sources in CUDA have.
        cuda_command = _make_nvcc_command(torch, compiler, sources)
    _write_macros(work / "defines.h", sources)
    options = [*_MACRO_OPTIONS, *_make_include_options(torch, sources.include_dirs)]
    commands = {}
    for index, source in enumerate(sources.files):
        command = cuda_command if source.suffix == ".cu" else cpp_command
        # -MMD -MF: the compiler lists the headers that it reads in the file INDEX.d.
        files = ["-MMD", "-MF", f"{index}.d", "-c", os.path.abspath(source), "-o", f"{index}.o"]
        commands[f"{index}.o"] = [*command, *options, *files]
    return commands


def _make_nvcc_command(torch: Torch, compiler: Compiler, sources: Sources) -> list[str]:
    """Return nvcc and its options for all architectures of the sources."""
    command = [str(find_nvcc(torch.cuda).path), "-ccbin", compiler.program, *NVCC_FLAGS]
    # --threads makes nvcc compile for all architectures at the same time.
    command += [*gencode_flags(sources.archs), f"--threads={len(sources.archs)}"]
    # The user's flags come last: if two flags contradict each other, nvcc uses the last one.
    return [*command, *sources.nvcc_flags]


def _make_include_options(torch: Torch, include_dirs: Sequence[Path]) -> list[str]:
    """Return the options that name the folders of headers: the project's before torch's."""
    options = []
    for folder in include_dirs:
        options += ["-I", os.path.abspath(folder)]
    # torch's headers are included as system headers, for which compilers print no warnings.
    include = torch.root / "include"
    for folder in (include, include / "torch/csrc/api/include"):
        options += ["-isystem", str(folder)]
    return options


def _write_macros(header: Path, sources: Sources) -> None:
    """Write a header that defines the macros, because nvcc would split -D at commas.

    The macros of ``RENAMED`` replace some functions of torch by functions of guard.cpp.
    """
    macros = ""
    for name, value in (*RENAMED.items(), *sources.defines):
        macros += f"#define {name} {value}\n"
    header.write_text(macros, encoding="utf-8", errors="surrogateescape")


def _run_with_ninja(commands: Mapping[str, Sequence[str]], work: Path) -> None:
    """Run commands with ninja in the folder ``work``, in parallel where possible.

    Args:
        commands: for every file to make, the command that makes it. The last command reads the
            files that the others make, so ninja runs it when they have finished.
        work: the working folder of the commands.

    Raises:
        BuildError: a command failed or did not make its file, or the disk is full.
    """
    import ninja  # The import is slow, and only a build needs it.

    _write_build_file(work / "build.ninja", commands)
    process = subprocess.run(
        [Path(ninja.BIN_DIR) / "ninja", "-C", work],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # The compilers write temporary files into this folder, and messages in English.
        env={**os.environ, "TMPDIR": str(work), "LC_ALL": "C"},
        check=False,
    )
    if process.returncode != 0:
        # If the output says that the disk or the quota is full, do not blame the compiler.
        for number in (errno.ENOSPC, errno.EDQUOT):
            if os.strerror(number) in process.stdout:
                raise unwritable_error(work.parent, OSError(number, os.strerror(number)))
        raise BuildError(f"the compiler failed:\n{_extract_error(process.stdout)}")
    for output, words in commands.items():
        if not (work / output).exists():
            raise BuildError(f"expected the compiler to make {output}, {words[0]} made no file")


def _write_build_file(path: Path, commands: Mapping[str, Sequence[str]]) -> None:
    """Write ninja's build file for the commands of `_run_with_ninja`."""
    *object_files, last_file = commands  # the keys, which are the files to make
    # The build file has a single rule, which runs the command in the variable `words`.
    lines = ["rule run", "  command = $words"]
    for output, words in commands.items():
        inputs = " ".join(object_files) if output == last_file else ""
        # ninja reads $ as the start of a variable, and $$ as a dollar sign.
        quoted_words = shlex.join(words).replace("$", "$$")
        lines += [f"build {output}: run {inputs}", f"  words = {quoted_words}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")


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
    """Compile a .cu file, discard the result, and return how many seconds the compiler took.

    This needs nvcc, but neither a GPU nor a CUDA build of torch.

    Args:
        source: the .cu file.
        arch: a GPU architecture such as ``"sm_90"``, or several of them.
        include_dirs: folders that are searched for headers before torch's.
        defines: macros and their values.

    Raises:
        CompilerMissingError: there is no nvcc or no C++ compiler.
        BuildError: the file does not compile.
        ValueError: there is no architecture, or one is not written like ``"sm_90"``.
    """
    names = [arch] if isinstance(arch, str) else list(arch)
    # "sm_90a" has the parts "9" and "0a"; torch writes it as "9.0a".
    matches = [re.fullmatch(r"sm_(\d+)(\d[af]?)", name) for name in names]
    archs = [f"{match[1]}.{match[2]}" for match in matches if match is not None]
    if not names or None in matches:
        got = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"expected architectures such as 'sm_90', got {got}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sources = Sources([source], include_dirs, defines, flags=(), archs=archs)
        _run_with_ninja(_make_compile_commands(work, sources), work)
    return time.monotonic() - start


def _list_read_files(work: Path, torch: Torch) -> set[Path]:
    """Return the files of the project that a build has read.

    Generated files and the files of torch, CUDA and the system are excluded.
    """
    read = {
        (work / name).resolve()
        for listing in work.glob("*.d")
        for name in _read_dependencies(listing)
    }
    # nvcc, unlike g++, also lists its own headers. They lie below the folder of cuda_runtime.h.
    foreign = [work.resolve(), torch.root.resolve()]
    foreign += [path.parent for path in read if path.name == "cuda_runtime.h"]
    return {path for path in read if not any(folder in path.parents for folder in foreign)}


def _read_dependencies(listing: Path) -> list[str]:
    """Return the files after the colon of a make rule, with make's escapes undone."""
    text = listing.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    # A name may contain spaces, tabs and #, each after a backslash. A dollar sign is doubled.
    names = re.findall(r"(?:\\[ \t#]|\S)+", text.partition(": ")[2])
    return [re.sub(r"\\([ \t#])", r"\1", name).replace("$$", "$") for name in names]
