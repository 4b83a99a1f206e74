"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tetris import files


def test_text_replaces_the_file(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a.txt", "old")
    files.write_text(tmp_path / "a.txt", "new ü")
    assert (tmp_path / "a.txt").read_bytes() == "new ü".encode()
    assert len(list(tmp_path.iterdir())) == 1


def test_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/a\.txt'"):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_ctrl_c_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("parts", [("missing", "a.txt"), ("file", "a.txt")])
def test_error_names_the_file_that_was_asked_for(tmp_path: Path, parts: tuple[str, str]) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    target = tmp_path.joinpath(*parts)
    with pytest.raises(OSError, match=r"a\.txt'$"):
        files.write_text(target, "text")
