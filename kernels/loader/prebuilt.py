"""The prebuilt libraries of a wheel, compiled for several instruction sets.

They lie in the folder ``kernels/prebuilt``, which a checkout does not have. The file name of a
library is ``STEM-SET.so``. STEM is its name and a digest of its sources and options
(`Extension.ready_stem`); SET is the instruction set. ``index.json`` contains the machine type
and the SHA-256 of every file. Through the LibTorch stable ABI one library works with every
torch that the project supports.
"""

import functools
import hashlib
import json
import platform
import re
import stat
from pathlib import Path

from kernels.loader import cache
from kernels.loader.toolchain import BuildError
from kernels.support.system import processor_lines

FOLDER = Path(__file__).parents[1] / "prebuilt"
INDEX = "index.json"

# The flags of /proc/cpuinfo that an instruction set requires. V2 to V4 are the levels of the
# x86-64 psABI. With AVX-512 the engine counts bits with VPOPCNTDQ, so processors with AVX-512
# but without that instruction use the code for AVX2 (tetris/engine/fastest_lanes.h).
_V2 = "cx16 lahf_lm pni popcnt sse4_1 sse4_2 ssse3"
_V3 = f"{_V2} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
_V4 = f"{_V3} avx512bw avx512cd avx512dq avx512f avx512vl avx512_vpopcntdq"
X86_SETS = {"x86-64-v4-vpopcntdq": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}
"""The flags that each instruction set of x86-64 requires, the best set first."""

_rejected: set[Path] = set()


@functools.cache
def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that this processor has, the best first."""
    machine = platform.machine()
    if machine != "x86_64":
        return (machine,)
    return choose_x86_sets("\n".join(processor_lines()))


def choose_x86_sets(cpuinfo: str) -> tuple[str, ...]:
    """Return the instruction sets of the processor that /proc/cpuinfo describes."""
    match = re.search(r"^flags\s*:(.*)", cpuinfo, re.MULTILINE)
    flags = set() if match is None else set(match[1].split())
    return tuple(name for name, needed in X86_SETS.items() if flags >= set(needed.split()))


def find(stem: str) -> Path | None:
    """Return the prebuilt library of a stem for the best instruction set here, or None.

    A damaged file is ignored, and a line on stderr says so.
    """
    digests = read_index()
    for name in instruction_sets():
        library = FOLDER / f"{stem}-{name}.so"
        if library.name in digests and library not in _rejected:
            problem = _check(library, digests[library.name])
            if not problem:
                return library
            reject(library, problem)
    return None


def reject(library: Path, problem: object) -> bool:
    """If a library is prebuilt, never return it again; return whether it is prebuilt.

    Args:
        library: any library.
        problem: why it is rejected, for a line on stderr.
    """
    is_ready = library.parent == FOLDER
    if is_ready:
        _rejected.add(library)
        cache.say(f"ignoring the prebuilt library {library.name}: {problem}")
    return is_ready


@functools.cache
def read_index() -> dict[str, str]:
    """Return the SHA-256 of every prebuilt library, keyed by its file name.

    The dict is empty in a checkout, which has no prebuilt libraries. It is also empty if the
    index is damaged, or if this processor cannot run the libraries; a line on stderr says so.
    """
    index = FOLDER / INDEX
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        machine = content["machine"]
        digests = dict(content["libraries"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        cache.say(f"ignoring the prebuilt libraries: expected an index, got {index} ({error})")
        return {}
    # `instruction_sets` is empty for an x86-64 processor that is older than x86-64-v2.
    is_supported = machine == platform.machine() and instruction_sets()
    if not is_supported:
        required = f"{machine} (x86-64-v2 or newer)" if machine == "x86_64" else machine
        cache.say(
            "ignoring the prebuilt libraries: expected a processor for which they are built, "
            f"{required}, got {platform.machine()}"
        )
        return {}
    return digests


def describe() -> str:
    """Return how many prebuilt libraries this processor can use, and where they are.

    Raises:
        BuildError: there are none.
    """
    digests = read_index()
    if not digests:
        raise BuildError("none for this processor in this installation, which compiles instead")
    best = instruction_sets()[0]
    count = sum(name.endswith(f"-{best}.so") for name in digests)
    return f"{count} libraries for {best} in {FOLDER}"


@functools.cache
def _check(library: Path, digest: str) -> str:
    """Return why a prebuilt library must not be loaded, or an empty text if it may be.

    The owner of this module can run any code anyway. So a library is trusted if it belongs to
    that user or to root, and if not everybody can write to it.
    """
    try:
        status = library.stat()
        owners = {status.st_uid, library.lstat().st_uid}
        if not owners <= {0, Path(__file__).stat().st_uid} or status.st_mode & stat.S_IWOTH:
            return "others can write it"
        if hashlib.sha256(library.read_bytes()).hexdigest() != digest:
            return "it is damaged, install the wheel again"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return ""
