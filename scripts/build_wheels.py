"""Builds the sdist, the wheel of sources alone, and the wheels with ready libraries.

    pip install -e ".[release]" && python scripts/build_wheels.py

Clang of the package ziglang compiles every library for every instruction set, for glibc 2.28 on
x86-64 and on 64-bit ARM. What is compiled already stays in the work folder and is used again.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels.loader import Extension, prebuilt
from kernels.loader.compile import Sources, compile_library
from kernels.loader.extension import side_by_side
from kernels.loader.toolchain import find_torch
from kernels.ops import library
from kernels.ops.schemas import FAMILIES
from tetris.envs import native
from tetris.game.feature_sets import feature_names, feature_sets
from tetris.game.policy import Lookahead
from tetris.play import engines
from tetris.play.controller import known_names, resolve
from tetris.solver import value_iteration

ROOT = Path(__file__).parents[1]
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


def write_stub(folder: Path, file: str, names: Sequence[str]) -> str:
    """Write a library of a name that only says which functions it has, and return its path."""
    lines = [f".globl {name}\n{name}:" for name in names]
    source = folder / f"{file}.s"
    source.write_text("\n".join([".data", *lines, ".quad 0", ""]), encoding="utf-8")
    stub = str(folder / file)
    words = ["-shared", "-nostdlib", f"-Wl,-soname,{file}", str(source), "-o", stub]
    subprocess.run([*os.environ["CXX"].split(), *words], check=True)
    return stub


def write_stubs(folder: Path) -> list[str]:
    """Write stand-ins for torch and the C++ runtime, and return their paths."""
    headers = find_torch().root / "include/torch/csrc"
    folders = (headers / "stable", headers / "inductor/aoti_torch/c")
    texts = [path.read_text(encoding="utf-8") for at in folders for path in at.rglob("*.h")]
    names = sorted(set(re.findall(r"\b(?:aoti_)?torch_\w+(?=\()", "".join(texts))))
    stubs = {file: text.split() for file, text in RUNTIME.items()} | {"libtorch_cpu.so": names}
    return [write_stub(folder, file, stubs[file]) for file in stubs]


def compile_all(machine: str, work: Path, libraries: Sequence[Extension]) -> Path:
    """Compile libraries for a machine, and return the folder that has them and their index."""
    target = f"{machine}-linux-gnu.{GLIBC}"
    os.environ["CXX"] = f"{sys.executable} -m ziglang c++ -target {target}"
    folder = work / machine
    folder.mkdir(parents=True, exist_ok=True)
    stubs = work / f"stubs-{machine}"
    stubs.mkdir(exist_ok=True)
    linked = ["-s", "-Wl,-z,defs,--gc-sections", *write_stubs(stubs)]

    def compile_one(extension: Extension) -> None:
        for name, processor in PROCESSORS[machine].items():
            target = folder / f"{extension.ready_stem()}-{name}.so"
            if target.exists():
                continue
            # Errors name a source by its path in the wheel, wherever the wheel was built.
            flags = [f"-mcpu={processor}", f"-ffile-prefix-map={ROOT}/=", *extension.cflags]
            sources = Sources(
                extension.sources, extension.include_dirs, extension.defines, flags, ()
            )
            with tempfile.TemporaryDirectory() as temporary:
                built = Path(temporary, "library.so")
                compile_library(built.parent, built.name, sources, linked)
                shutil.copyfile(built, target)
            print(target.name, flush=True)

    side_by_side(compile_one, libraries)
    stems = {extension.ready_stem() for extension in libraries}
    digests = {}
    for path in sorted(folder.glob("*.so")):
        if any(path.name.startswith(stem) for stem in stems):
            digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    index = {"machine": machine, "libraries": digests}
    (folder / prebuilt.INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return folder


def add_libraries(wheel: Path, machine: str, folder: Path, out: Path) -> None:
    """Write a copy of a wheel with the libraries of a machine, named for that machine."""

    def run_wheel(*words: object) -> None:
        subprocess.run([sys.executable, "-m", "wheel", *map(str, words)], check=True)

    with tempfile.TemporaryDirectory() as temporary:
        run_wheel("unpack", "--dest", temporary, wheel)
        (content,) = Path(temporary).iterdir()
        ready = content / "kernels" / prebuilt.FOLDER.name
        ready.mkdir()
        shutil.copyfile(folder / prebuilt.INDEX, ready / prebuilt.INDEX)
        for name in json.loads((ready / prebuilt.INDEX).read_text())["libraries"]:
            shutil.copyfile(folder / name, ready / name)
        (tags,) = content.glob("*.dist-info/WHEEL")
        tag = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"
        text = tags.read_text(encoding="utf-8").replace("py3-none-any", tag)
        tags.write_text(text.replace("Purelib: true", "Purelib: false"), encoding="utf-8")
        run_wheel("pack", "--dest-dir", out, content)


def main() -> None:
    """Build everything into the folders that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "prebuilt")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True)
    (wheel,) = out.glob("*-py3-none-any.whl")
    for machine in PROCESSORS:
        folder = compile_all(machine, arguments.work.resolve(), list_libraries())
        add_libraries(wheel, machine, folder, out)


if __name__ == "__main__":
    main()
