"""Compiles native libraries on first use and loads them into torch.

Every library is written against the LibTorch Stable ABI. A first build takes about 2 s; with
``torch/extension.h`` it would take 26 s. torch.utils.cpp_extension is not used, because it
needs setuptools, leaves its lock file behind if a build is killed, and cannot compile a .cu
file with a CPU build of torch.
"""

import ctypes
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.loader import cache, prebuilt
from kernels.loader.compile import CXX_FLAGS, GUARD, NVCC_FLAGS, Sources, compile_library
from kernels.loader.cuda import CUDA_TORCH_REMEDY, architectures, capabilities, find_nvcc
from kernels.loader.toolchain import (
    TORCH_TARGET_VERSION,
    BuildError,
    CompilerMissingError,
    Torch,
    find_compiler,
    find_torch,
    processor,
)
from kernels.support.system import usable_cores

_KEY_FORMAT = 7
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")  # nvcc reads options from them
HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".inc")
"""The suffixes of header files."""

_loaded: dict[str, tuple[object, Path]] = {}  # by name: its version and path


@dataclass(frozen=True)
class Extension:
    """A native library: its sources and the options to compile them with.

    Examples:
        >>> extension = Extension("engine", sources=Path("engine.cpp"), reason="features dt")
        >>> extension.load()  # builds it if necessary; its operators are then in torch.ops
        >>> Extension("twice", cpp_sources="#include <torch/csrc/stable/library.h> ...").load()

    Attributes:
        name: letters, digits, ``_`` and ``-``; the library's file name begins with it. A
            process can load only one library of a name, because a second one would register the
            same operators again.
        sources: the path of a .cpp or .cu file, or several.
        include_dirs: searched for headers. The cache key covers the headers directly in these
            folders and beside the sources. A build that reads any other header of the project
            fails, because the cache would return the old library after a change of that header.
        defines: macros and their values, defined before the first line. A value may contain
            anything but line breaks.
        native: compile for this machine's processor, which then is part of the cache key.
        reason: why the library is built, for the line that is printed on stderr.
        cuda: link with CUDA, which needs nvcc and a CUDA build of torch. It is True if there
            are CUDA sources.
        archs: the GPU architectures to compile the .cu files for, such as ``("8.0",
            "9.0+PTX")``. The default is ``$TORCH_CUDA_ARCH_LIST``, or else this machine's GPUs.
        cflags: further flags of the C++ compiler. By default ``a * b + c`` is rounded twice, so
            that CPU and CUDA return the same bits; ``-ffp-contract=fast`` changes that.
        cuda_cflags: further flags of nvcc. For the same reason the default is ``--fmad=false``,
            which makes kernels slower that are bound by arithmetic; ``--fmad=true`` changes
            that.
        cpp_sources: C++ code, as one text or several. It is compiled in addition to the files.
        cuda_sources: CUDA code, in the same form.

    Raises:
        TypeError: ``sources`` or ``include_dirs`` are not paths.
        ValueError: the name has other characters, there is no source, or a file's name ends in
            neither .cpp nor .cu.
    """

    name: str
    sources: Any = ()  # becomes a tuple of paths, as include_dirs does
    include_dirs: Any = ()
    defines: tuple[tuple[str, str], ...] = ()
    native: bool = False
    reason: str = ""
    cuda: bool = False
    archs: tuple[str, ...] = ()
    cflags: Sequence[str] = ()
    cuda_cflags: Sequence[str] = ()
    cpp_sources: Sequence[str] = ()
    cuda_sources: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check name and sources, convert single values to tuples, and detect CUDA.

        The field ``cuda`` becomes True if any source is CUDA.
        """
        # Files are named after the library. A name with a path would put them elsewhere.
        if not re.fullmatch(r"[\w-]+", self.name, re.ASCII):
            raise ValueError(f"expected a name of letters, digits, _ and -, got {self.name!r}")
        # The dataclass is frozen, so its fields can only be set with object.__setattr__.
        for name in ("sources", "include_dirs"):
            object.__setattr__(self, name, _as_paths(name, getattr(self, name)))
        for name in ("cflags", "cuda_cflags", "cpp_sources", "cuda_sources"):
            value = getattr(self, name)
            values = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, values)
        for path in self.sources:
            if path.suffix not in (".cpp", ".cu"):
                hint = "pass code as cpp_sources or cuda_sources"
                raise ValueError(
                    f"expected sources that end in .cpp or .cu, got {str(path)!r} ({hint})"
                )
        if not (self.sources or self.cpp_sources or self.cuda_sources):
            raise ValueError(f"expected a source of {self.name}, got none")
        has_cuda_file = any(path.suffix == ".cu" for path in self.sources)
        if self.cuda_sources or has_cuda_file:
            object.__setattr__(self, "cuda", True)

    def library_path(self) -> Path:
        """Return where ``build`` puts the library; it depends on everything that affects it."""
        return cache.cache_dir() / self._make_file_name(self._describe_tools())

    def find(self) -> Path | None:
        """Return the library that ``load`` can use without a build, or None if there is none.

        In order of preference, it is

        1. the library that ``build`` would make here;
        2. a prebuilt library of the installed wheel;
        3. a library that was built earlier from the same sources, options and torch, with the
           same compilers, but for more GPU architectures;
        4. if this machine has no compilers, a library that other compilers built from the same
           sources, options and torch. A library with code for this machine's GPU is preferred.
           Failing that, it has code for other GPUs, which the driver may be able to compile
           for this one.
        """
        library = None
        try:
            tools = self._describe_tools()
            library = cache.locate(self._make_file_name(tools))
        except CompilerMissingError:
            tools = None
        # The libraries of a wheel run on CPUs alone, and require certain instruction sets. A
        # portable library, which is not `native`, has to run on every processor.
        if library is None and self.native and not self.cuda and prebuilt.read_index():
            library = prebuilt.find(self.ready_stem())
        return library or self._find_older_build(tools)

    def _find_older_build(self, tools: dict[str, Any] | None) -> Path | None:
        """Return a library that was built earlier from the same sources, or None.

        The same compilers and options must have built it, and it must support all GPU
        architectures that they compile for.

        Args:
            tools: the compilers of this machine, their options and the architectures. None if
                the machine has no compilers. Then any compilers may have built the library.
        """
        if tools is None:
            return self._find_build_by_any_tools()
        # The architectures are compared separately from the other values, because a library for
        # more of them is usable, too.
        archs = tools.pop("architectures", ())
        for library, manifest in cache.manifests(f"{self._make_stem()}-*"):
            has_same_tools = tools.items() <= manifest.items()
            is_usable = has_same_tools and _has_code_for(archs, manifest)
            # `objection` returns why a library must not be loaded, or an empty string.
            if is_usable and not cache.objection(library):
                return library
        return None

    def _find_build_by_any_tools(self) -> Path | None:
        """Return a library that any compilers have built from the same sources, or None.

        It must run on this processor. The first such library with code for all GPUs of this
        machine is returned. If there is none, it is the first that runs on this processor.
        """
        # A library for CPUs needs no code for GPUs.
        gpus = capabilities() if self.cuda else ()
        # A library that is not `native` is portable: it runs on any processor of this kind.
        this_processor = processor() if self.native else None
        fallback = None
        for library, manifest in cache.manifests(f"{self._make_stem()}-*"):
            # The manifest describes the library. Its processor is None for a portable library.
            runs_here = manifest["processor"] in (None, this_processor)
            # `objection` returns why a library must not be loaded, or an empty string.
            if not runs_here or cache.objection(library):
                continue
            if _has_code_for(gpus, manifest):
                return library
            if fallback is None:
                fallback = library
        return fallback

    def build(self) -> Path:
        """Build the library if the cache does not contain it, and return its path.

        If several processes call this at the same time, one of them builds and the others wait.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: the compiler failed, or the cache is not writable.
        """
        library = self.library_path()
        if built := cache.locate(library.name):
            return built
        with cache.lock(library):
            if cache.objection(library):
                with cache.work_dir(library) as work:
                    self._compile(work, library)
        return library

    def load(self) -> Path:
        """Build the library if necessary, load it into torch, and return its path.

        Later calls in the same process only return the path.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: the library cannot be built or loaded, another version of it is loaded
                already, or torch does not accept one of its operators.
        """
        # torch cannot load a second version, which would register the same operators again.
        content = self._make_stem(), self.native, self.archs
        if self.name in _loaded:
            loaded_content, library = _loaded[self.name]
            if content != loaded_content:
                raise BuildError(
                    f"another version of {self.name} is loaded already",
                    "restart Python, or in a notebook the kernel, to load this one",
                )
            return library
        import torch

        library = self._find_or_build()
        try:
            torch.ops.load_library(str(library))
        except OSError as error:
            # torch's own error repeats the path; its cause says what is wrong with the file.
            reason = error.__cause__ or error
            # If the library is prebuilt, `reject` returns True, and `find` never returns the
            # library again. So the second attempt finds or builds another one.
            if prebuilt.reject(library, reason):
                return self.load()
            remedy = (
                "remove it, or if its disk is mounted noexec "
                f"set {cache.VARIABLE} to another folder"
            )
            raise BuildError(f"cannot load {library} ({reason})", remedy) from error
        self._check_registration(library)
        _loaded[self.name] = content, library
        return library

    def _find_or_build(self) -> Path:
        """Return the library for this machine, which is built if there is none."""
        try:
            return self.find() or self.build()
        except CompilerMissingError as error:
            # Also say why the cached libraries of this name cannot be used.
            problem = error.problem + self._explain_unfit()
            raise CompilerMissingError(problem, error.remedy) from error
        except OSError as error:
            raise cache.unwritable_error(cache.cache_dir(), error) from error

    def _check_registration(self, library: Path) -> None:
        """Raise BuildError if torch did not register an operator of the loaded library."""
        # guard.cpp, which is part of every library, defines this function. It returns the first
        # operator that torch did not register, or an empty string. torch rejects an operator if
        # its schema is invalid, or if its name is registered already.
        get_rejected = ctypes.CDLL(str(library)).refused_registration
        get_rejected.restype = ctypes.c_char_p
        rejected = get_rejected().decode()
        if rejected:
            raise BuildError(
                "expected new operators and schemas that torch understands "
                f"in {self.name}, got {rejected!r}",
                "correct it, or restart Python where it is registered already",
            )

    def _explain_unfit(self) -> str:
        """Return why a cached library of this name is not used, as the end of a sentence."""
        for library, _ in cache.manifests(f"{self.name}-*"):
            reason = (
                cache.objection(library) or "is for other sources, another torch or processor"
            )
            return f", and {library} {reason}"
        return ""

    def _make_file_name(self, tools: dict[str, Any]) -> str:
        """Return the file name of the library that these tools build."""
        return f"{self._make_stem()}-{_digest_values(tools)}.so"

    def _make_stem(self) -> str:
        """Return the start of the library's file name: its name and a digest.

        The digest covers the sources, headers, options and torch. It does not cover compilers,
        processor and GPUs, so that a library from another machine can be found. It does not
        cover folders either, so that two checkouts can share a cache.
        """
        torch = self._find_torch()
        return self._digest_sources(
            machine=platform.machine(),
            torch=[torch.version, torch.cuda, TORCH_TARGET_VERSION],
        )

    def ready_stem(self) -> str:
        """Return the start of a prebuilt library's file name: its name and a digest.

        The digest covers sources and options alone, because a prebuilt library works with every
        supported torch and on every machine of its kind.
        """
        return self._digest_sources(torch=TORCH_TARGET_VERSION)

    def _digest_sources(self, **identity: Any) -> str:
        """Return the library's name and a digest.

        The digest covers the sources, the options and the values of ``identity``.
        """
        files = [GUARD, *self.sources, *self._list_headers()]
        identity |= {
            "format": _KEY_FORMAT,
            "flags": [*CXX_FLAGS, *self.cflags],
            "nvcc_flags": [*NVCC_FLAGS, *self.cuda_cflags] if self.cuda else None,
            "defines": self.defines,
            "code": [self.cpp_sources, self.cuda_sources],
            "files": [[path.name, _digest_file(path)] for path in files],
        }
        return f"{self.name}-{_digest_values(identity)}"

    def _describe_tools(self) -> dict[str, Any]:
        """Return the compilers, their options and what they compile for.

        Sources and tools together determine the library. All values can be written as JSON.

        Raises:
            CompilerMissingError: there is no C++ compiler, or no nvcc for a library with CUDA.
        """
        compiler = find_compiler()
        tools: dict[str, Any] = {
            "compiler": compiler.version,
            "options": list(compiler.command[1:]),
            "processor": processor() if self.native else None,
        }
        if self.cuda:
            tools["nvcc"] = find_nvcc(self._find_torch().cuda).version
            tools["options"] += [os.environ.get(variable, "") for variable in _NVCC_VARIABLES]
            tools["architectures"] = list(self.archs or architectures())
        return tools

    def _find_torch(self) -> Torch:
        """Return the installed torch, which must be a CUDA build if the library uses CUDA."""
        torch = find_torch()
        if self.cuda and torch.cuda is None:
            raise BuildError(
                f"expected a CUDA build of torch for {self.name}, got {torch.version}",
                f"{CUDA_TORCH_REMEDY}, or use the CPU",
            )
        return torch

    def _list_headers(self) -> list[Path]:
        """Return the headers that the cache key covers, in the compiler's search order."""
        folders = dict.fromkeys(
            [*(source.parent for source in self.sources), *self.include_dirs]
        )
        files = (path for folder in folders for path in sorted(folder.glob("*")))
        return [path for path in files if path.suffix in HEADER_SUFFIXES and path.is_file()]

    def _compile(self, work: Path, library: Path) -> None:
        """Compile the library in the temporary folder ``work``, and move it into the cache.

        Raises:
            BuildError: a compiler failed, it read a header that the cache key does not cover,
                or a source changed during the build.
        """
        start = time.monotonic()
        reason = f" ({self.reason})" if self.reason else ""
        cache.say(f"building {self.name}{reason} into {library.parent} ...")
        tools = self._describe_tools()
        flags = ["-march=native"] if self.native else []
        flags += self.cflags
        files = [*self.sources, *self._write_texts(work)]
        archs = tools.get("architectures", ())
        sources = Sources(
            files=files,
            include_dirs=self.include_dirs,
            defines=self.defines,
            flags=flags,
            archs=archs,
            nvcc_flags=self.cuda_cflags,
        )
        read_files = compile_library(work, library.name, sources)
        self._check_covered(read_files)
        # The path contains a digest of the sources, so it differs if they have changed.
        if self.library_path() != library:
            raise BuildError(
                f"the sources of {self.name} changed while it was built", "try again"
            )
        cache.install(work / library.name, tools, library)
        cache.say(f"{self.name} built in {time.monotonic() - start:.1f} s")

    def _write_texts(self, folder: Path) -> list[Path]:
        """Write the code that was passed as text to files, and return their paths."""
        files = []
        for suffix, texts in ((".cpp", self.cpp_sources), (".cu", self.cuda_sources)):
            for number, text in enumerate(texts):
                path = folder / f"{self.name}_{number}{suffix}"
                path.write_text(text, encoding="utf-8")
                files.append(path)
        return files

    def _check_covered(self, read_files: set[Path]) -> None:
        """Raise BuildError if a compiler has read a file that the cache key does not cover."""
        covered_files = {path.resolve() for path in (*self.sources, *self._list_headers())}
        uncovered = read_files - covered_files
        if uncovered:
            raise BuildError(
                f"expected every header of {self.name} to lie directly in its include_dirs, "
                f"got {min(uncovered)}"
            )


def _has_code_for(gpus: Sequence[str], manifest: dict[str, Any]) -> bool:
    """Return whether the library that a manifest describes has code for all of these GPUs."""
    archs = manifest.get("architectures", [])
    # A library for 9.0+PTX also contains the code for 9.0.
    supported = {*archs, *(arch.removesuffix("+PTX") for arch in archs)}
    return supported.issuperset(gpus)


def side_by_side(
    build: Callable[[Extension], Any], extensions: Sequence[Extension]
) -> list[Any]:
    """Call ``build`` for every library in parallel, one per core, and return the results."""
    with ThreadPoolExecutor(min(len(extensions), usable_cores())) as pool:
        return list(pool.map(build, extensions))


def build_missing(extensions: Iterable[Extension]) -> None:
    """Build the libraries that loading would have to build.

    A build that fails raises nothing here, because loading the library raises the error.
    """

    def build(extension: Extension) -> None:
        with suppress(BuildError):
            extension.build()

    if missing := [extension for extension in extensions if extension.find() is None]:
        side_by_side(build, missing)


def _as_paths(name: str, value: Any) -> tuple[Path, ...]:
    """Return an argument, one path or several, as a tuple of paths."""
    try:
        return tuple(map(Path, [value] if isinstance(value, (str, os.PathLike)) else value))
    except TypeError as error:
        raise TypeError(
            f"expected {name} to be a path or a sequence of paths, got {value!r}"
        ) from error


def _digest_values(values: dict[str, Any]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of values, written as JSON."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _digest_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BuildError(f"expected a source file, got {path} ({error.strerror})") from error
