"""Build the sdist, the wheel of sources alone, and the wheels with ready libraries.

python scripts/build_wheels.py

It needs pip install -e ".[release]", and writes into the folder dist. Clang of the package
ziglang compiles every library for every instruction set, for glibc 2.28 on x86-64 and on 64-bit
ARM. What is compiled stays in build/prebuilt and is used again, so a killed build goes on:
remove that folder for another compiler or other flags of this script.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from kernels.loader import Extension, cache, prebuilt
from kernels.loader.compile import Sources, compile_library
from kernels.loader.extension import side_by_side
from kernels.loader.toolchain import find_torch
from kernels.ops import library
from kernels.ops.schemas import FAMILIES
from tetris.commands.command_line import Parser
from tetris.envs import native
from tetris.game.feature_sets import feature_names, feature_sets
from tetris.game.policy import Lookahead
from tetris.play import engines
from tetris.play.controller import known_names, resolve
from tetris.solver import value_iteration

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build/prebuilt"
GLIBC = "2.28"
PROCESSORS = {
    "x86_64": {
        "x86-64-v4-vpopcntdq": "x86_64_v4+avx512vpopcntdq",
        "x86-64-v3": "x86_64_v3",
        "x86-64-v2": "x86_64_v2",
    },
    "aarch64": {"aarch64": "generic"},
}
"""By machine and instruction set of `kernels.loader.prebuilt`, what Clang calls it."""

# A library takes the parts of the C++ runtime that throw, catch and allocate from the libraries
# of the process, as torch does: with a second runtime an exception would end the process. All
# else is Clang's own libc++, inside the library. These names are in the libraries of GCC 8.
RUNTIME = {
    "libstdc++.so.6": """
__cxa_allocate_exception __cxa_bad_cast __cxa_bad_typeid __cxa_begin_catch __cxa_call_unexpected
__cxa_current_exception_type __cxa_end_catch __cxa_free_exception __cxa_get_exception_ptr
__cxa_get_globals __cxa_guard_abort __cxa_guard_acquire __cxa_guard_release __cxa_pure_virtual
__cxa_rethrow __cxa_throw __cxa_throw_bad_array_new_length __dynamic_cast __gxx_personality_v0
_ZNKSt13runtime_error4whatEv _ZNSt12length_errorD1Ev _ZNSt12out_of_rangeD1Ev
_ZNSt13runtime_errorD1Ev _ZNSt13runtime_errorD2Ev _ZNSt16invalid_argumentD1Ev
_ZSt17__throw_bad_allocv _ZSt19uncaught_exceptionsv _ZSt9terminatev _ZTISt12length_error
_ZTISt12out_of_range _ZTISt13runtime_error _ZTISt16invalid_argument _ZTISt9bad_alloc
_ZTISt9exception _ZTVN10__cxxabiv117__class_type_infoE _ZTVN10__cxxabiv120__si_class_type_infoE
_ZTVN10__cxxabiv121__vmi_class_type_infoE _ZTVSt11logic_error _ZTVSt12length_error
_ZTVSt12out_of_range _ZTVSt13runtime_error _ZTVSt16invalid_argument _ZdaPv _ZdlPv _ZdlPvm _Znam
_Znwm
""",
    "libgcc_s.so.1": """
_Unwind_Backtrace _Unwind_DeleteException _Unwind_FindEnclosingFunction _Unwind_ForcedUnwind
_Unwind_GetCFA _Unwind_GetDataRelBase _Unwind_GetIP _Unwind_GetIPInfo
_Unwind_GetLanguageSpecificData _Unwind_GetRegionStart _Unwind_GetTextRelBase
_Unwind_RaiseException _Unwind_Resume _Unwind_Resume_or_Rethrow _Unwind_SetGR _Unwind_SetIP
""",
}


def list_libraries() -> list[Extension]:
    """Return the CPU's libraries of all operators, environments, feature sets and the solver.

    What ships with a controller can also look ahead.
    """
    sets = {name: feature_names(name) for name in feature_sets() if name != "du"}
    libraries = [library.extension(name, "cpu") for name in FAMILIES]
    libraries += [native.extension(), value_iteration.extension()]
    libraries += [engines.extension(names) for names in sets.values()]
    libraries += [
        native.feature_extension(sets[name]) for name in ("dellacherie", "bcts", "dt")
    ]
    shipped = sorted({resolve(name).features for name in known_names()} & sets.keys())
    for lookahead in (Lookahead.PREVIEW, Lookahead.EXPECTIMAX):
        libraries += [engines.extension(sets[name], lookahead) for name in shipped]
    return libraries


def write_stubs(folder: Path) -> list[str]:
    """Write stand-ins for torch and the C++ runtime, and return their paths.

    A stand-in only says which functions a library has: those are what the linker asks for.
    """
    headers = find_torch().root.glob("include/torch/csrc/**/*shim*.h")
    text = "".join(path.read_text(encoding="utf-8") for path in headers)
    names = {"libtorch_cpu.so": re.findall(r"\b(?:aoti_)?torch_\w+(?=\()", text)}
    names |= {file: words.split() for file, words in RUNTIME.items()}
    for file in names:
        source = folder / f"{file}.s"
        lines = [f".globl {name}\n{name}:\n" for name in sorted(set(names[file]))]
        source.write_text("".join([".data\n", *lines, ".quad 0\n"]), encoding="utf-8")
        words = ["-shared", "-nostdlib", f"-Wl,-soname,{file}", source, "-o", folder / file]
        subprocess.run([*os.environ["CXX"].split(), *words], check=True)
    return [str(folder / file) for file in names]


def compile_all(machine: str, libraries: Sequence[Extension], folder: Path = WORK) -> Path:
    """Compile libraries for a machine, and return the folder that has them and their index."""
    os.environ["CXX"] = f"{sys.executable} -m ziglang c++ -target {machine}-linux-gnu.{GLIBC}"
    ready = folder / machine
    ready.mkdir(parents=True, exist_ok=True)
    link = ["-s", "-Wl,-z,defs,--gc-sections", *write_stubs(ready)]

    def compile_one(job: tuple[str, Extension]) -> Path:
        name, extension = job
        library = ready / f"{extension.ready_stem()}-{name}.so"
        # Errors name a source by its path in the wheel, wherever the wheel was built.
        torch = find_torch().root.parent
        flags = [f"-mcpu={PROCESSORS[machine][name]}", *extension.cflags]
        flags += [f"-ffile-prefix-map={folder}/=" for folder in (ROOT, torch)]
        sources = Sources(
            extension.sources, extension.include_dirs, extension.defines, flags, ()
        )
        if not library.exists():
            with cache.work_dir(library) as work:
                compile_library(work, library.name, sources, link)
                os.replace(work / library.name, library)
            print(library.name, flush=True)
        return library

    files = side_by_side(compile_one, list(product(PROCESSORS[machine], libraries)))
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    index = {"machine": machine, "libraries": digests}
    (ready / prebuilt.INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return ready


def add_libraries(wheel: Path, machine: str, ready: Path) -> None:
    """Write a copy of a wheel with the libraries of a machine, named for that machine."""
    tool = [sys.executable, "-m", "wheel"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*tool, "unpack", "--dest", folder, wheel], check=True)
        (content,) = Path(folder).iterdir()
        target = content / "kernels/prebuilt"
        target.mkdir()
        # The folder may also have libraries of older sources, and what a killed build left.
        index = json.loads((ready / prebuilt.INDEX).read_text(encoding="utf-8"))
        for name in (prebuilt.INDEX, *index["libraries"]):
            shutil.copy(ready / name, target)
        (tags,) = content.glob("*.dist-info/WHEEL")
        tag = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"
        text = tags.read_text(encoding="utf-8").replace("py3-none-any", tag)
        tags.write_text(text.replace("Purelib: true", "Purelib: false"), encoding="utf-8")
        subprocess.run([*tool, "pack", "--dest-dir", wheel.parent, content], check=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Build everything into the folder ``dist``, which must not have an older wheel."""
    Parser(description=__doc__).parse_args(argv)
    subprocess.run([sys.executable, "-m", "build", ROOT], check=True)
    (wheel,) = (ROOT / "dist").glob("*-any.whl")
    for machine in PROCESSORS:
        add_libraries(wheel, machine, compile_all(machine, list_libraries()))


if __name__ == "__main__":
    main()
