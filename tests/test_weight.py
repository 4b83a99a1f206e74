"""What each room weighs, in lines: a change may make one lighter, and then lowers its ceiling."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).parents[1]
PYTHON, NATIVE = (".py", ".js"), (".cpp", ".cu", ".cuh", ".h")
CEILINGS = {
    ("cem", PYTHON): 5_490,
    ("tetris", PYTHON): 13_160,
    ("tetris", NATIVE): 6_700,
    ("kernels/ops", PYTHON + NATIVE): 8_830,
    ("kernels/loader", PYTHON): 890,
    ("kernels/support", PYTHON): 610,
    ("scripts", PYTHON): 4_020,
    ("tests", PYTHON + NATIVE): 20_300,
}


def test_no_room_is_heavier_than_its_ceiling() -> None:
    for (room, suffixes), ceiling in CEILINGS.items():
        files = [path for path in (PROJECT / room).rglob("*") if path.suffix in suffixes]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        print(f"{room:16} {'/'.join(suffixes):24} {lines:7,} of {ceiling:7,}")
        assert files
        assert lines <= ceiling, room
