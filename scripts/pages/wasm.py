"""Compile the engine for web pages to WebAssembly: ``tetris/engine/browser.wasm``.

This needs ``pip install ziglang``.

PYTHONPATH=.:scripts python scripts/pages/wasm.py
"""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from tetris.play.engines import INCLUDES, feature_struct
from tetris.play.own_features import BUILT_IN
from tetris.play.quantized_weights import engine_features

ENGINE = INCLUDES[0]
LIBRARY = ENGINE / "browser.wasm"
STRUCTS = ",".join(map(feature_struct, engine_features(BUILT_IN)))
FLAGS = (
    "-target wasm32-wasi -mexec-model=reactor -std=c++17 -O3 -fno-exceptions -fno-rtti "
    "-Wl,--strip-all"
)


def sources(path: Path = ENGINE / "browser.cpp") -> set[Path]:
    """Return a source file and all headers of this project that it includes."""
    names = re.findall(r'^#include "([\w.]+)"', path.read_text(encoding="utf-8"), re.M)
    files = {path}
    for name in names:
        paths = (folder / name for folder in (path.parent, *INCLUDES))
        files |= sources(next(filter(Path.is_file, paths)))
    return files


def digest() -> bytes:
    """Return the SHA-256 digest of the library's sources and flags.

    The file of the library ends with the digest.
    """
    texts = [path.read_bytes() for path in sorted(sources())]
    return hashlib.sha256(b"\0".join([*texts, STRUCTS.encode(), FLAGS.encode()])).digest()


def main() -> None:
    """Compile the library, and append the digest as a custom section, which browsers ignore."""
    folders = [f"-I{folder}" for folder in INCLUDES]
    command = [sys.executable, "-m", "ziglang", "c++", *FLAGS.split(), *folders]
    command += [f"-DTETRIS_FEATURES={STRUCTS}", str(ENGINE / "browser.cpp"), "-o", str(LIBRARY)]
    subprocess.run(command, check=True)
    # A custom section is the byte 0 and its length, then the length of its name, the name
    # "sources", and its contents.
    section = bytes([7]) + b"sources" + digest()
    LIBRARY.write_bytes(LIBRARY.read_bytes() + bytes([0, len(section)]) + section)


if __name__ == "__main__":
    main()
