"""Build the sdist, the wheel with sources only, and the wheels with prebuilt libraries.

python scripts/build_wheels.py

It needs pip install -e ".[release]", and writes into the folder dist. Clang, from the package
ziglang, compiles every library for every instruction set, for glibc 2.28 on x86-64 and on
64-bit ARM. Compiled libraries stay in build/prebuilt. The next build uses them again, so a
build that was killed can be resumed. After a change of the compiler or of this script's flags,
remove that folder.
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
from functools import partial
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
"""Clang's name of every instruction set of `kernels.loader.prebuilt`, by machine."""

# A library uses the process's C++ runtime to throw, catch and allocate, as torch does: with two
# runtimes in a process, an exception would end it. The rest of the C++ library is Clang's own
# libc++, which is linked into the library. GCC 8's runtime already has all of these names.
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
    """Return the libraries of a wheel, which are all for the CPU.

    They are the operators, the environments, the solver, and a game engine for each feature
    set. The feature sets of the controllers that ship with the package also get engines with
    lookahead.
    """
    # "du" is another name of the feature set "bcts", so it has no library of its own.
    names_by_set = {name: feature_names(name) for name in feature_sets() if name != "du"}
    # Each family of operators has a library.
    libraries = [library.extension(family, "cpu") for family in FAMILIES]
    libraries += [native.extension(), value_iteration.extension()]
    libraries += [engines.extension(names) for names in names_by_set.values()]
    # Environments whose observations are features.
    libraries += [
        native.feature_extension(names_by_set[name]) for name in ("dellacherie", "bcts", "dt")
    ]
    # The features of a shipped controller are the name of a feature set, or a list of features.
    # Only the names are keys of `names_by_set`.
    shipped_features = {resolve(name).features for name in known_names()}
    shipped_sets = sorted(shipped_features & names_by_set.keys())
    for lookahead in (Lookahead.PREVIEW, Lookahead.EXPECTIMAX):
        libraries += [engines.extension(names_by_set[name], lookahead) for name in shipped_sets]
    return libraries


def write_stubs(folder: Path) -> list[str]:
    """Write stub libraries for torch and the C++ runtime, and return their paths.

    A stub only defines the names of a library's functions. The linker needs no more.
    """
    # The libraries call torch only through the C functions that these headers declare: names
    # such as torch_list_size or aoti_torch_empty before a parenthesis.
    headers = find_torch().root.glob("include/torch/csrc/**/*shim*.h")
    text = "".join(path.read_text(encoding="utf-8") for path in headers)
    names_by_file = {"libtorch_cpu.so": re.findall(r"\b(?:aoti_)?torch_\w+(?=\()", text)}
    # `RUNTIME` has the functions of each library of the C++ runtime, as words of a text.
    names_by_file |= {file: words.split() for file, words in RUNTIME.items()}
    stubs = []
    for file, names in names_by_file.items():
        # In assembly, every name is a global label of the same eight bytes of data.
        labels = [f".globl {name}\n{name}:\n" for name in sorted(set(names))]
        source = folder / f"{file}.s"
        source.write_text("".join([".data\n", *labels, ".quad 0\n"]), encoding="utf-8")
        stub = folder / file
        flags = ["-shared", "-nostdlib", f"-Wl,-soname,{file}", source, "-o", stub]
        subprocess.run([*os.environ["CXX"].split(), *flags], check=True)
        stubs.append(str(stub))
    return stubs


def compile_one(
    job: tuple[str, Extension], machine: str, target_folder: Path, linker_flags: list[str]
) -> Path:
    """Compile a library for an instruction set, and return the path of the compiled file.

    If the file already exists, nothing is compiled.

    Args:
        job: The name of the instruction set, such as "x86-64-v3", and the library.
        machine: The machine that has the instruction set, a key of `PROCESSORS`.
        target_folder: The folder of the compiled libraries of the machine.
        linker_flags: Options of the linker, and the paths of the stub libraries, which stand
            in for torch and the C++ runtime.
    """
    instruction_set, extension = job
    # The stem contains a digest of the sources, so changed sources get another file.
    file = target_folder / f"{extension.ready_stem()}-{instruction_set}.so"
    if file.exists():
        return file
    # `PROCESSORS` has Clang's name of the instruction set.
    sources = _sources_of(extension, PROCESSORS[machine][instruction_set])
    with cache.work_dir(file) as work:
        compile_library(work, file.name, sources, linker_flags)
        # Move the file when it is complete, so that a killed build leaves no partial file.
        os.replace(work / file.name, file)
    print(file.name, flush=True)
    return file


def _sources_of(extension: Extension, processor: str) -> Sources:
    """Return what the compiler needs to compile a library for a processor."""
    compiler_flags = [f"-mcpu={processor}", *extension.cflags]
    # Error messages contain the paths of sources. Remove the folders of this machine from them.
    torch_folder = find_torch().root.parent
    for folder in (ROOT, torch_folder):
        compiler_flags.append(f"-ffile-prefix-map={folder}/=")
    return Sources(
        extension.sources,
        extension.include_dirs,
        extension.defines,
        compiler_flags,
        archs=(),  # The library is for the CPU.
    )


def compile_all(machine: str, libraries: Sequence[Extension], folder: Path = WORK) -> Path:
    """Compile libraries for every instruction set of a machine, and write their index.

    The index is a JSON file with the machine and the SHA-256 digest of every library.

    Returns:
        The folder of the compiled libraries and the index.
    """
    # `compile_library` reads the compiler command from this variable. Zig's Clang compiles for
    # other machines, and for old versions of glibc.
    os.environ["CXX"] = f"{sys.executable} -m ziglang c++ -target {machine}-linux-gnu.{GLIBC}"
    target_folder = folder / machine
    target_folder.mkdir(parents=True, exist_ok=True)
    # The stub libraries stand in for torch and the C++ runtime.
    compile_job = partial(
        compile_one,
        machine=machine,
        target_folder=target_folder,
        linker_flags=["-s", "-Wl,-z,defs,--gc-sections", *write_stubs(target_folder)],
    )
    # A job compiles one library for one instruction set. The jobs run in parallel.
    jobs = list(product(PROCESSORS[machine], libraries))
    files = side_by_side(compile_job, jobs)
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    index = {"machine": machine, "libraries": digests}
    (target_folder / prebuilt.INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
    return target_folder


def add_libraries(wheel: Path, machine: str, compiled: Path) -> None:
    """Write a copy of a pure Python wheel that also contains the libraries of a machine.

    Args:
        wheel: The wheel, whose tag is "py3-none-any". The copy goes into the same folder, and
            its name has the tag of the machine.
        machine: The machine, such as "x86_64".
        compiled: The folder of the compiled libraries and their index.
    """
    wheel_command = [sys.executable, "-m", "wheel"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*wheel_command, "unpack", "--dest", folder, wheel], check=True)
        # The wheel is unpacked into a single folder inside the temporary one.
        (content,) = Path(folder).iterdir()
        target = content / "kernels/prebuilt"
        target.mkdir()
        # Copy only the libraries in the index: the folder may also contain libraries of older
        # sources, and files of a build that was killed.
        index = json.loads((compiled / prebuilt.INDEX).read_text(encoding="utf-8"))
        for name in (prebuilt.INDEX, *index["libraries"]):
            shutil.copy(compiled / name, target)
        # "wheel pack" names the new wheel by the tag in its metadata.
        (metadata,) = content.glob("*.dist-info/WHEEL")
        tag = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{machine}"
        text = metadata.read_text(encoding="utf-8").replace("py3-none-any", tag)
        # A wheel with machine code is not pure Python.
        text = text.replace("Purelib: true", "Purelib: false")
        metadata.write_text(text, encoding="utf-8")
        pack = [*wheel_command, "pack", "--dest-dir", wheel.parent, content]
        subprocess.run(pack, check=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Build everything into the folder ``dist``, which must not contain an older wheel."""
    Parser(description=__doc__).parse_args(argv)
    subprocess.run([sys.executable, "-m", "build", ROOT], check=True)
    (wheel,) = (ROOT / "dist").glob("*-any.whl")
    for machine in PROCESSORS:
        add_libraries(wheel, machine, compile_all(machine, list_libraries()))


if __name__ == "__main__":
    main()
