"""kernels/support: files are written whole or not at all; integers; the error for an unknown
name."""

from __future__ import annotations

import os
import shlex
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from kernels.support import files, names, ranks, system
from kernels.support.checks import check_integer

DEVICES = ("auto", "cpu", "cuda", "python")


def test_what_leads_elsewhere_is_told_from_a_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("file", "missing", "."):
        files.check_own(tmp_path / name)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    for name, kind in {"pipe": "a pipe, socket or device", "link": "a link"}.items():
        with pytest.raises(
            OSError, match=rf"expected a file of its own, got {kind}: '.*/{name}'"
        ):
            files.check_own(tmp_path / name)


@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    target = tmp_path / "a.txt"
    files.write_text(target, "old")

    def interrupted(descriptor: int) -> None:
        raise problem

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(
        type(problem), match=r"a\.txt'$" if isinstance(problem, OSError) else None
    ):
        files.write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_fifo_is_written_to_and_stays(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_text()))
    reader.start()
    files.check_writable(fifo)
    files.write_text(fifo, "text")
    reader.join(timeout=10)
    assert read == ["text"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert list(tmp_path.iterdir()) == [fifo]


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    for text in ("old", "new"):
        files.check_writable(link)
        files.write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(0o640)
    files.write_text(target, "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


@pytest.mark.parametrize("parts", [("missing", "a.json"), (".",)])
def test_unwritable_output_is_found_before_any_work(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    with pytest.raises(OSError, match="expected a f"):
        files.check_writable(tmp_path.joinpath(*parts))


def test_python_and_numpy_integers_are_returned_as_ints() -> None:
    assert [type(check_integer("n", value, 0, 9)) for value in (0, 9, np.int64(3))] == [int] * 3
    assert check_integer("n", 1 << 70, 0) == 1 << 70
    assert type(check_integer("n", 1e4, 0)) is int


@pytest.mark.parametrize("value", [True, 1.5, "1"])
def test_what_is_no_integer_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="expected n to be an int, got"):
        check_integer("n", value, 0, 9)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="expected n from 1 to 9, got 0"):
        check_integer("n", 0, 1, 9)
    with pytest.raises(ValueError, match="expected n >= 1, got 0"):
        check_integer("n", 0, 1)


def test_a_command_is_quoted_for_the_shells_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["watch", r"runs\a", "it's mine"]
    assert shlex.split(system.join_words(words)) == words
    monkeypatch.setattr(system, "IS_WINDOWS", True)
    assert system.join_words(words) == r'''watch runs\a "it's mine"'''


def test_the_error_lists_the_known_names_and_the_nearest() -> None:
    error = names.unknown_name("preset", "Quik", ("quick", "standard"))

    assert (
        str(error)
        == "expected a preset among quick, standard; got 'Quik'; did you mean 'quick'?"
    )
    assert (
        str(names.unknown_name("operator", "x", ("lltm",)))
        == "expected an operator among lltm; got 'x'"
    )


@pytest.mark.parametrize(
    ("typed", "meant"), [("gpu", "cuda"), ("C++", "cpu"), ("phyton", "python")]
)
def test_a_device_by_another_name_is_known(typed: str, meant: str) -> None:
    assert names.did_you_mean(typed, DEVICES) == f"; did you mean {meant!r}?"


def test_a_path_is_near_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    assert names.meant_path(tmp_path / "nosuch") == ""
    (tmp_path / "run1").mkdir()
    assert names.meant_path(tmp_path / "rum1") == f"; did you mean '{tmp_path / 'run1'}'?"


def test_ranks_share_rows_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "count", lambda: 3)
    assert [ranks.share(7, number) for number in range(3)] == [
        slice(0, 3),
        slice(3, 5),
        slice(5, 7),
    ]
