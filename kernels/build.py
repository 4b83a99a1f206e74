"""Compiles native libraries on first use and loads them into torch.

Every library is written against the LibTorch Stable ABI: a cold build takes about 2 s where
``torch/extension.h`` takes 26 s. torch.utils.cpp_extension is not used: it needs setuptools, leaves its lock
file behind when a build is killed, and cannot compile a .cu file with a CPU build of torch.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels import cache
from kernels.compile import (
    CXX_FLAGS,
    NVCC_FLAGS,
    check_defines,
    cxx_step,
    link_step,
    nvcc_step,
    run_steps,
    unlisted_headers,
    write_defines,
)
from kernels.cuda import CUDA_TORCH_REMEDY, Nvcc, architectures, find_nvcc, gencode_flags
from kernels.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    CompilerMissingError,
    Torch,
    find_compiler,
    find_torch,
    processor,
)

__all__ = ["BuildError", "CompilerMissingError", "Extension", "compile_check"]

_KEY_FORMAT = 1
_HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".inc")

_loaded: dict[Extension, Path] = {}


@dataclass(frozen=True)
class Extension:
    """A native library: its sources and what they are compiled with.

    Example:
        >>> extension = Extension("engine", sources=(Path("engine.cpp"),), reason="feature set dt")
        >>> extension.load()  # builds it where needed; its operators are then under torch.ops

    Attributes:
        name: letters, digits, ``_`` and ``-``; the library's file name begins with it. A process loads one
            library of a name: a second one would register the same operators, at which torch aborts.
        sources: the .cpp files, and with ``cuda`` the .cu files.
        include_dirs: searched for headers. The headers directly in them and beside the sources are part of
            the cache key; a build that reads any other header of the project is refused, for after a change
            to that one the cache would hand out the old library.
        defines: macros and their values, defined before the first line. Values may hold all but line breaks.
        native: compile for this machine's processor, which then is part of the cache key.
        flags: further flags of the C++ compiler.
        reason: why it is built, for the line on stderr.
        cuda: compile the .cu files too and link with CUDA; needs nvcc and a CUDA build of torch.
    """

    name: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    native: bool = False
    flags: tuple[str, ...] = ()
    reason: str = ""
    cuda: bool = False

    def __post_init__(self) -> None:
        """Checks what was given.

        Raises:
            ValueError: the name, a source or a define cannot be used.
        """
        if re.fullmatch(r"[A-Za-z0-9_-]+", self.name) is None:
            raise ValueError(f"expected a name of letters, digits, '_' and '-', got {self.name!r}")
        suffixes = (".cpp", ".cu") if self.cuda else (".cpp",)
        wrong = [str(source) for source in self.sources if source.suffix not in suffixes]
        if wrong or not self.sources:
            raise ValueError(
                f"expected sources ending in {' or '.join(suffixes)}, got {', '.join(wrong) or 'none'}"
            )
        check_defines(self.defines)

    def library_path(self) -> Path:
        """Returns where the library is or will be: a function of everything that shapes it.

        Raises:
            BuildError: a tool or a file that the key depends on is missing.
        """
        text = json.dumps(self._key(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return cache.cache_dir() / f"{self.name}-{digest}.so"

    def is_built(self) -> bool:
        """Tells whether ``load`` would find the library ready; False where there is no compiler."""
        try:
            return self.library_path().is_file()
        except CompilerMissingError:
            return False

    def build(self) -> Path:
        """Builds the library unless the cache has it.

        Of several processes that start at once one builds and the others wait for it.

        Returns:
            The library's path.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: the compiler failed, or the cache cannot be written.
        """
        library = self.library_path()
        if library.is_file():
            return library
        with cache.lock(library):
            if not library.is_file():
                with _announced(self, library), cache.work_dir(library) as work:
                    self._compile(work, library)
        return library

    def load(self) -> Path:
        """Builds the library where needed and loads it into torch, once in a process.

        Returns:
            The library's path.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: it could not be built or loaded, or a different library of its name is loaded already.
        """
        if self not in _loaded:
            import torch

            library = self.library_path()
            if any(other.name == self.name and path != library for other, path in _loaded.items()):
                raise BuildError(f"another library {self.name} is loaded already", "start a new process")
            self.build()
            try:
                torch.ops.load_library(str(library))
            except OSError as error:
                raise BuildError(
                    f"cannot load {library} ({error})",
                    f"remove it, or set {cache.VARIABLE} to another folder",
                ) from error
            _loaded[self] = library
        return _loaded[self]

    def _key(self) -> dict[str, Any]:
        """Returns all that the library is a function of. No path is in it: two checkouts share a cache."""
        torch = find_torch()
        nvcc = self._nvcc(torch)
        return {
            "format": _KEY_FORMAT,
            "name": self.name,
            "machine": platform.machine(),
            "torch": [torch.version, torch.cuda, torch.cxx11_abi, TORCH_TARGET_VERSION],
            "compiler": find_compiler().version,
            "flags": [*CXX_FLAGS, *self._further_flags()],
            "defines": self.defines,
            "processor": processor() if self.native else None,
            "nvcc": [nvcc.release, *NVCC_FLAGS, *architectures()] if nvcc is not None else None,
            "files": [[path.name, _digest(path)] for path in (*self.sources, *self._headers())],
        }

    def _further_flags(self) -> list[str]:
        return [*(("-march=native",) if self.native else ()), *self.flags]

    def _nvcc(self, torch: Torch) -> Nvcc | None:
        if not self.cuda:
            return None
        if torch.cuda is None:
            raise BuildError(
                f"expected a CUDA build of torch for {self.name}, got {torch.version}",
                f"{CUDA_TORCH_REMEDY}, or use the CPU",
            )
        return find_nvcc(torch.cuda)

    def _headers(self) -> list[Path]:
        """Returns the headers of the key, folder by folder in the order in which the compiler searches."""
        folders = dict.fromkeys([*(source.parent for source in self.sources), *self.include_dirs])
        files = (path for folder in folders for path in sorted(folder.glob("*")))
        return [path for path in files if path.suffix in _HEADER_SUFFIXES and path.is_file()]

    def _compile(self, work: Path, library: Path) -> None:
        """Compiles in the work folder and moves the result into place."""
        began = time.monotonic()
        log = library.with_suffix(".log")
        log.unlink(missing_ok=True)
        torch, compiler, key = find_torch(), find_compiler(), self._key()
        nvcc = self._nvcc(torch)
        write_defines(work, self.defines)
        steps = []
        for index, source in enumerate(self.sources):
            if source.suffix == ".cu":
                assert nvcc is not None
                gencode = gencode_flags(architectures())
                steps.append(
                    nvcc_step(source, f"{index}.o", nvcc, compiler, torch, self.include_dirs, gencode)
                )
            else:
                steps.append(
                    cxx_step(source, f"{index}.o", compiler, torch, self.include_dirs, self._further_flags())
                )
        steps.append(link_step([step.output for step in steps], library.name, compiler, torch, nvcc))
        run_steps(work, steps, log)
        if not (work / library.name).is_file():
            command = " ".join(compiler.command)
            raise BuildError(f"expected {command} to write a library, got none", "unset or correct $CXX")

        unlisted = unlisted_headers(work, (*self.sources, *self._headers()), torch)
        if unlisted:
            raise BuildError(
                f"expected every header of {self.name} to lie directly in its include_dirs, got {unlisted[0]}"
            )
        if self.library_path() != library:
            raise BuildError(f"the sources of {self.name} changed while it was built", "try again")
        manifest = {
            **key,
            "reason": self.reason,
            "seconds": round(time.monotonic() - began, 2),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }
        cache.install(work / library.name, manifest, library)


def compile_check(
    source: Path,
    arch: str = "sm_90",
    include_dirs: Sequence[Path] = (),
    defines: Sequence[tuple[str, str]] = (),
) -> float:
    """Compiles one .cu file and throws the result away.

    It needs nvcc, but neither a GPU nor a CUDA build of torch.

    Args:
        source: the .cu file.
        arch: a real architecture, for example ``"sm_90"``.
        include_dirs: searched for headers before torch's.
        defines: macros and their values.

    Returns:
        The seconds that it took.

    Raises:
        CompilerMissingError: there is no nvcc or no C++ compiler.
        BuildError: the file does not compile.
        ValueError: the architecture or a define cannot be used.
    """
    match = re.fullmatch(r"sm_(\d+)(\d[af]?)", arch)
    if match is None:
        raise ValueError(f"expected an architecture such as 'sm_90', got {arch!r}")
    check_defines(defines)
    torch = find_torch()
    nvcc, compiler, gencode = (
        find_nvcc(torch.cuda),
        find_compiler(),
        gencode_flags([f"{match[1]}.{match[2]}"]),
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_defines(work, defines)
        run_steps(work, [nvcc_step(source, "check.o", nvcc, compiler, torch, include_dirs, gencode)])
    return time.monotonic() - began


@contextlib.contextmanager
def _announced(extension: Extension, library: Path) -> Iterator[None]:
    """Says in one line on stderr what is built, why, where to, and how long it took."""
    reason = f" ({extension.reason})" if extension.reason else ""
    print(
        f"kernels: building {extension.name}{reason} into {library.parent} ... ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    began, outcome = time.monotonic(), "failed after "
    try:
        yield
        outcome = ""
    finally:
        print(f"{outcome}{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BuildError(f"expected a source file, got {path} ({error.strerror})") from error
