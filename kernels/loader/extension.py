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
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.loader import cache, prebuilt
from kernels.loader.compile import (
    CXX_FLAGS,
    NVCC_FLAGS,
    check_defines,
    compile_check,
    cxx_step,
    link_step,
    nvcc_step,
    run_steps,
    unlisted_headers,
    write_defines,
)
from kernels.loader.cuda import (
    ARCHITECTURES,
    CUDA_TORCH_REMEDY,
    Nvcc,
    architectures,
    capabilities,
    find_nvcc,
    gencode_flags,
)
from kernels.loader.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    CompilerMissingError,
    Torch,
    find_compiler,
    find_torch,
    processor,
)

__all__ = ["BuildError", "CompilerMissingError", "Extension", "compile_check"]

_KEY_FORMAT = 4
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")  # of which nvcc takes options, too
HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".inc")
"""How the names of headers end."""

_loaded: dict[Extension, Path] = {}


@dataclass(frozen=True)
class Extension:
    """A native library: its sources and what they are compiled with.

    Examples:
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
        archs: what to compile the .cu files for, for example ``("8.0", "9.0+PTX")``; by default what
            ``$TORCH_CUDA_ARCH_LIST`` says, else this machine's GPUs.
    """

    name: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    native: bool = False
    flags: tuple[str, ...] = ()
    reason: str = ""
    cuda: bool = False
    archs: tuple[str, ...] = ()

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
        """Returns where ``build`` puts the library: a function of everything that shapes it.

        Raises:
            BuildError: a tool or a file that the key depends on is missing.
        """
        return cache.cache_dir() / self._file_name(self._key())

    def find(self) -> Path | None:
        """Returns the library that ``load`` would take from the cache; None where it would build one.

        It is the one that would be built. Where that is absent, one built ahead will do: by any tools if
        there are none here, by the same tools for these and other GPUs if nobody said for which.

        Raises:
            BuildError: a file that the key depends on is missing.
        """
        try:
            exact = cache.locate(self._file_name(self._key()))
            chosen = self.archs or os.environ.get(ARCHITECTURES, "").strip()
            if exact is not None or chosen or not self.cuda:
                return exact
        except CompilerMissingError:
            return prebuilt.find(self._need(any_tools=True))
        return prebuilt.find(self._need(any_tools=False))

    def is_built(self) -> bool:
        """Tells whether ``load`` would find the library ready."""
        return self.find() is not None

    def build(self, *, quiet: bool = False) -> Path:
        """Builds the library unless the cache has exactly this one.

        Of several processes that start at once one builds and the others wait for it.

        Args:
            quiet: say nothing on stderr.

        Returns:
            The library's path.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: the compiler failed, or the cache cannot be written.
        """
        built = cache.locate(self._file_name(self._key()))
        if built is not None:
            return built
        library = self.library_path()
        with cache.lock(library):
            if cache.objection(library):
                told = contextlib.nullcontext() if quiet else _announced(self, library)
                with told, cache.work_dir(library) as work:
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

            library = self.find() or self._build_for_loading()
            if any(other.name == self.name and path != library for other, path in _loaded.items()):
                raise BuildError(f"another library {self.name} is loaded already", "start a new process")
            try:
                torch.ops.load_library(str(library))
            except OSError as error:
                reason, remedy = str(error), f"remove it, or set {cache.VARIABLE} to another folder"
                if os.statvfs(library).f_flag & os.ST_NOEXEC:
                    reason = "its disk is mounted noexec"
                    remedy = f"set {cache.VARIABLE} to a folder on another disk"
                raise BuildError(f"cannot load {library} ({reason})", remedy) from error
            _loaded[self] = library
        return _loaded[self]

    def objection(self) -> str:
        """Returns why the newest library of this name in the cache is none for this machine, or nothing."""
        return prebuilt.objection(self._need(any_tools=True))

    def _build_for_loading(self) -> Path:
        try:
            return self.build()
        except CompilerMissingError as error:
            objection = self.objection()
            if not objection:
                raise
            raise CompilerMissingError(f"{error.problem}, and {objection}", error.remedy) from error

    def _file_name(self, key: dict[str, Any]) -> str:
        text = json.dumps(key, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"

    def _key(self) -> dict[str, Any]:
        """Returns all that the library is a function of. No path is in it: two checkouts share a cache."""
        key = {**self._identity(), **self._tools(), "processor": processor() if self.native else None}
        if self.cuda:
            key["architectures"] = list(self.archs or architectures())
        return key

    def _identity(self) -> dict[str, Any]:
        """Returns the part of the key that is the same whichever compiler builds it, for whatever machine."""
        torch = self._torch()
        return {
            "format": _KEY_FORMAT,
            "name": self.name,
            "machine": platform.machine(),
            "torch": [torch.version, torch.cuda, torch.cxx11_abi, TORCH_TARGET_VERSION],
            "flags": [*CXX_FLAGS, *self.flags],
            "nvcc_flags": list(NVCC_FLAGS) if self.cuda else None,
            "defines": [list(define) for define in self.defines],
            "files": [[path.name, _digest(path)] for path in (*self.sources, *self._headers())],
        }

    def _tools(self) -> dict[str, Any]:
        nvcc, compiler = self._nvcc(), find_compiler()
        variables = _NVCC_VARIABLES if nvcc is not None else ()
        return {
            "compiler": compiler.version,
            "nvcc": nvcc.release if nvcc is not None else None,
            "options": [list(compiler.options), *(os.environ.get(each, "") for each in variables)],
        }

    def _need(self, *, any_tools: bool) -> prebuilt.Need:
        """Returns what a library has to agree with. nvcc, where it is, compiles rather than the driver."""
        return prebuilt.Need(
            self._identity(),
            None if any_tools else self._tools(),
            processor() if self.native else None,
            capabilities() if self.cuda else (),
            ptx=any_tools,
        )

    def _torch(self) -> Torch:
        torch = find_torch()
        if self.cuda and torch.cuda is None:
            raise BuildError(
                f"expected a CUDA build of torch for {self.name}, got {torch.version}",
                f"{CUDA_TORCH_REMEDY}, or use the CPU",
            )
        return torch

    def _nvcc(self) -> Nvcc | None:
        return find_nvcc(self._torch().cuda) if self.cuda else None

    def _headers(self) -> list[Path]:
        """Returns the headers of the key, folder by folder in the order in which the compiler searches."""
        folders = dict.fromkeys([*(source.parent for source in self.sources), *self.include_dirs])
        files = (path for folder in folders for path in sorted(folder.glob("*")))
        return [path for path in files if path.suffix in HEADER_SUFFIXES and path.is_file()]

    def _compile(self, work: Path, library: Path) -> None:
        """Compiles in the work folder and moves the result into place."""
        began = time.monotonic()
        log = library.with_suffix(".log")
        log.unlink(missing_ok=True)
        torch, compiler, nvcc, key = self._torch(), find_compiler(), self._nvcc(), self._key()
        write_defines(work, self.defines)
        steps = []
        for index, source in enumerate(self.sources):
            if source.suffix == ".cu":
                assert nvcc is not None
                gencode = gencode_flags(key["architectures"])
                steps.append(
                    nvcc_step(source, f"{index}.o", nvcc, compiler, torch, self.include_dirs, gencode)
                )
            else:
                flags = [*(("-march=native",) if self.native else ()), *self.flags]
                steps.append(cxx_step(source, f"{index}.o", compiler, torch, self.include_dirs, flags))
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
