"""Compiles native libraries on first use and loads them into torch.

Every library is written against the LibTorch Stable ABI: a cold build takes about 2 s where
``torch/extension.h`` takes 26 s. torch.utils.cpp_extension is not used: it needs setuptools,
leaves its lock file behind when a build is killed, and cannot compile a .cu file with a CPU
build of torch.
"""

import ctypes
import hashlib
import json
import os
import platform
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
"""The endings of headers' names."""

_loaded: dict[str, tuple[object, Path]] = {}  # by name: what it was built from, and its path


@dataclass(frozen=True)
class Extension:
    """A native library: its sources and what they are compiled with.

    Examples:
        >>> extension = Extension("engine", sources=Path("engine.cpp"), reason="features dt")
        >>> extension.load()  # builds it where needed; its operators are then under torch.ops
        >>> Extension("twice", cpp_sources="#include <torch/csrc/stable/library.h> ...").load()

    Attributes:
        name: letters, digits, ``_`` and ``-``; the library's file name begins with it. A
            process loads one library of a name: a second one would register the same operators.
        sources: the path of a .cpp or .cu file, or several.
        include_dirs: searched for headers. The headers directly in them and beside the sources
            are part of the cache key. A build that reads any other header of the project fails,
            because after a change of that header the cache would return the old library.
        defines: macros and their values, defined before the first line. Values may hold all but
            line breaks.
        native: compile for this machine's processor, which then is part of the cache key.
        reason: why it is built, for the line on stderr.
        cuda: link with CUDA, as is done where there are CUDA sources; needs nvcc and a CUDA
            build of torch.
        archs: what to compile the .cu files for, for example ``("8.0", "9.0+PTX")``; by default
            what ``$TORCH_CUDA_ARCH_LIST`` says, else this machine's GPUs.
        cflags: further flags of the C++ compiler. By default ``a * b + c`` is rounded twice, so
            that CPU and CUDA give the same bits; ``-ffp-contract=fast`` changes that.
        cuda_cflags: further flags of nvcc. ``--fmad=false`` is the default for the same reason,
            and makes kernels slower that are bound by arithmetic; ``--fmad=true`` changes that.
        cpp_sources: C++ code, a text or several, compiled beside the files.
        cuda_sources: the same of CUDA code.

    Raises:
        TypeError: ``sources`` or ``include_dirs`` are no paths.
        ValueError: there is no source, or a file's name ends in neither .cpp nor .cu.
    """

    name: str
    sources: Any = ()  # a tuple of Path in the end, as include_dirs
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
        """Check the sources, and make tuples of arguments that may be one value or several."""
        # object.__setattr__ can change the fields of a frozen dataclass.
        for name in ("sources", "include_dirs"):
            object.__setattr__(self, name, _as_paths(name, getattr(self, name)))
        for name in ("cflags", "cuda_cflags", "cpp_sources", "cuda_sources"):
            value = getattr(self, name)
            values = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(self, name, values)
        for path in self.sources:
            if path.suffix not in (".cpp", ".cu"):
                hint = "code is given as cpp_sources or cuda_sources"
                raise ValueError(
                    f"expected sources that end in .cpp or .cu, got {str(path)!r} ({hint})"
                )
        if not (self.sources or self.cpp_sources or self.cuda_sources):
            raise ValueError(f"expected a source of {self.name}, got none")
        has_cuda_file = any(path.suffix == ".cu" for path in self.sources)
        if self.cuda_sources or has_cuda_file:
            object.__setattr__(self, "cuda", True)

    def library_path(self) -> Path:
        """Return where ``build`` puts the library: a function of everything that shapes it."""
        return cache.cache_dir() / self._make_file_name(self._describe_tools())

    def find(self) -> Path | None:
        """Return the library that ``load`` takes without a build; None if no library fits.

        The first choice is the library that ``build`` would make here, the second the ready one
        of a wheel. Otherwise it is a library that was built ahead from the same sources,
        options and torch: by the same tools but for more GPUs or, on a machine without
        compilers, by any tools. On such a machine the last choice is one without code for its
        GPU, which the driver may be able to compile.
        """
        try:
            tools = self._describe_tools()
            library = cache.locate(self._make_file_name(tools))
            if library is not None:
                return library
            # A library for more GPUs than these fits, too, so they are compared separately.
            gpus: Sequence[str] = tools.pop("architectures", ())
        except CompilerMissingError:
            tools = None
            gpus = capabilities() if self.cuda else ()
        can_be_ready = self.native and not self.cuda and bool(prebuilt.read_index())
        ready = prebuilt.find(self.ready_stem()) if can_be_ready else None
        return ready or self._find_built_ahead(tools, gpus)

    def _find_built_ahead(
        self, tools: dict[str, Any] | None, gpus: Sequence[str]
    ) -> Path | None:
        """Return a library that other compilers, or the same for more GPUs, have built.

        Args:
            tools: The compilers of this machine; None: it has none.
            gpus: The architectures that the library has to support.
        """
        # Look at all libraries from the same sources. A manifest describes the tools that built
        # its library, and the architectures that they compiled for.
        fallback = None
        for library, manifest in cache.manifests(f"{self._make_stem()}-*"):
            archs = manifest.get("architectures", [])
            # A library for 9.0+PTX has the code for 9.0 as well.
            supported = {*archs, *(arch.removesuffix("+PTX") for arch in archs)}
            supports_gpus = supported.issuperset(gpus)
            if tools is not None:
                has_same_tools = tools.items() <= manifest.items()
                is_usable = supports_gpus and has_same_tools
            else:
                this_processor = processor() if self.native else None
                is_usable = manifest["processor"] in (None, this_processor)
            if not is_usable or cache.objection(library):
                continue
            if supports_gpus:
                return library
            if fallback is None:
                fallback = library
        return fallback

    def build(self) -> Path:
        """Build the library unless the cache has exactly this one, and return its path.

        If several processes start at once, one of them builds and the others wait for it.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: the compiler failed, or the cache cannot be written.
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
        """Build the library where needed, load it into torch, and return its path.

        A process loads it once; later calls return the path.

        Raises:
            CompilerMissingError: there is no compiler.
            BuildError: it could not be built or loaded; or what it is built of has changed
                since a library of its name was loaded; or another one has registered an
                operator of it.
        """
        # A second version would register the same operators again, which torch does not allow.
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

        try:
            library = self.find() or self.build()
        except CompilerMissingError as error:
            raise CompilerMissingError(
                error.problem + self._explain_unfit(), error.remedy
            ) from error
        except OSError as error:
            raise cache.unusable(cache.cache_dir(), error) from error
        try:
            torch.ops.load_library(str(library))
        except OSError as error:
            if prebuilt.reject(library, error.__cause__ or error):
                return self.load()
            remedy = (
                "remove it, or if its disk is mounted noexec "
                f"set {cache.VARIABLE} to another folder"
            )
            raise BuildError(f"cannot load {library} ({error})", remedy) from error

        # The library reports the first operator that torch would not register, if any.
        refused_registration = ctypes.CDLL(str(library)).refused_registration
        refused_registration.restype = ctypes.c_char_p
        refused = refused_registration().decode()
        if refused:
            raise BuildError(
                "expected new operators and schemas that torch understands "
                f"in {self.name}, got {refused!r}",
                "correct it, or restart Python where it is registered already",
            )
        _loaded[self.name] = content, library
        return library

    def _explain_unfit(self) -> str:
        """Return why the cached library of this name is not used, as the end of a sentence."""
        for library, _ in cache.manifests(f"{self.name}-*"):
            reason = (
                cache.objection(library) or "is for other sources, another torch or processor"
            )
            return f", and {library} {reason}"
        return ""

    def _make_file_name(self, tools: dict[str, Any]) -> str:
        """Return the name of the library that these tools build."""
        return f"{self._make_stem()}-{_digest_values(tools)}.so"

    def _make_stem(self) -> str:
        """Return the start of the library's file name: its name and a digest of what it is.

        The digest covers sources, headers, options and torch. It covers neither compilers nor
        processor nor GPUs, so that a library that was built on another machine can be found,
        and no folders, so that two checkouts share a cache.
        """
        torch = self._find_torch()
        return self._digest_sources(
            machine=platform.machine(),
            torch=[torch.version, torch.cuda, TORCH_TARGET_VERSION],
        )

    def ready_stem(self) -> str:
        """Return the library's name and a digest of its sources and options alone.

        A library of a wheel has this name: it does for every torch and on every machine.
        """
        return self._digest_sources(torch=TORCH_TARGET_VERSION)

    def _digest_sources(self, **identity: Any) -> str:
        """Return the library's name and a digest of its sources, its options and more."""
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

        With the sources they determine the library. All values can be written as JSON.

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
        """Return the installed torch, which has to be a CUDA build for a library with CUDA."""
        torch = find_torch()
        if self.cuda and torch.cuda is None:
            raise BuildError(
                f"expected a CUDA build of torch for {self.name}, got {torch.version}",
                f"{CUDA_TORCH_REMEDY}, or use the CPU",
            )
        return torch

    def _list_headers(self) -> list[Path]:
        """Return the headers of the cache key, in the order in which the compiler searches."""
        folders = dict.fromkeys(
            [*(source.parent for source in self.sources), *self.include_dirs]
        )
        files = (path for folder in folders for path in sorted(folder.glob("*")))
        return [path for path in files if path.suffix in HEADER_SUFFIXES and path.is_file()]

    def _compile(self, work: Path, library: Path) -> None:
        """Compile the library in a temporary folder, and move the result into the cache.

        Raises:
            BuildError: a compiler failed, a header is missing in the cache key, or a source was
                changed meanwhile.
        """
        start = time.monotonic()
        reason = f" ({self.reason})" if self.reason else ""
        cache.say(f"building {self.name}{reason} into {library.parent} ...")
        tools = self._describe_tools()
        flags = ["-march=native"] if self.native else []
        flags += self.cflags

        # Code that was passed as a text becomes a file.
        files = list(self.sources)
        for suffix, texts in ((".cpp", self.cpp_sources), (".cu", self.cuda_sources)):
            for number, text in enumerate(texts):
                path = work / f"{self.name}_{number}{suffix}"
                path.write_text(text, encoding="utf-8")
                files.append(path)
        archs = tools.get("architectures", ())
        sources = Sources(
            files, self.include_dirs, self.defines, flags, archs, self.cuda_cflags
        )
        read_files = compile_library(work, library.name, sources)

        # The cache key must cover every file of the project that the compiler has read.
        digested_files = {path.resolve() for path in (*self.sources, *self._list_headers())}
        unlisted = read_files - digested_files
        if unlisted:
            raise BuildError(
                f"expected every header of {self.name} to lie directly in its include_dirs, "
                f"got {min(unlisted)}"
            )
        # The file name has a digest of the sources, so it shows whether they have changed.
        if self.library_path() != library:
            raise BuildError(
                f"the sources of {self.name} changed while it was built", "try again"
            )
        cache.install(work / library.name, tools, library)
        cache.say(f"{self.name} built in {time.monotonic() - start:.1f} s")


def side_by_side(
    build: Callable[[Extension], Any], extensions: Sequence[Extension]
) -> list[Any]:
    """Call ``build`` for each library, one per core at a time, and return the results."""
    with ThreadPoolExecutor(min(len(extensions), usable_cores())) as pool:
        return list(pool.map(build, extensions))


def build_missing(extensions: Iterable[Extension]) -> None:
    """Build the libraries that loading would have to build.

    Where a build fails nothing is raised, because loading raises the error.
    """

    def build(extension: Extension) -> None:
        with suppress(BuildError):
            extension.build()

    if missing := [extension for extension in extensions if extension.find() is None]:
        side_by_side(build, missing)


def _as_paths(name: str, value: Any) -> tuple[Path, ...]:
    """Return the paths of an argument, which may be a single one."""
    try:
        return tuple(map(Path, [value] if isinstance(value, (str, os.PathLike)) else value))
    except TypeError as error:
        raise TypeError(
            f"expected {name} to be a path or a sequence of paths, got {value!r}"
        ) from error


def _digest_values(values: dict[str, Any]) -> str:
    """Return 16 hexadecimal digits of the hash of values that JSON can express."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _digest_file(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BuildError(f"expected a source file, got {path} ({error.strerror})") from error
