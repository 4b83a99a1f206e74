"""The folder of a training run: its files, its creation, and its lock."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from kernels.support.files import check_own, flock, write_text
from kernels.support.names import meant_path
from kernels.support.printable import printable
from tetris.play.controller import FILE_NAME
from tetris.training.recipe import Recipe, read_settings

RUNS = Path("runs")


class RunFolder:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        """Name the files in the folder; nothing is read or written."""
        self.path = path
        self.config = path / "config.json"  # the recipe; a folder without it holds no run
        self.controller = path / FILE_NAME  # learned, with its provenance and, after training, its scores
        self.metrics = path / "metrics.jsonl"  # one JSON object per generation
        self.checkpoints = path / "checkpoints"
        self.starts = path / "starts.jsonl"  # one JSON object per start: hardware, commit, command
        self.learning_curve = path / "learning_curve.png"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"  # with --tensorboard

    def check_free(self) -> None:
        """Check that a new run can use the folder."""
        if self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            more = f", or go on with --resume {self.path}" if self.config.exists() else ""
            raise ValueError(f"expected a new or an empty folder, got {self.path}: take another{more}")

    def recipe(self) -> Recipe:
        """Enter an existing run: check that all in its folder is its own, and read its recipe."""
        for folder in (self.path, self.checkpoints, self.tensorboard):
            for entry in folder.iterdir() if folder.is_dir() else ():
                check_own(entry)
        if not self.config.is_file():
            hint = "" if self.path.exists() else meant_path(self.path)
            raise ValueError(f"expected a run in {self.path}, found no {self.config.name} there{hint}")
        settings = read_settings(self.config)
        try:
            return Recipe(**settings)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.config}: {error}") from error

    @contextlib.contextmanager
    def claimed(self, new: Recipe | None) -> Iterator[None]:
        """Lock the folder against other processes; the system releases the lock when the process dies.

        Args:
            new: The recipe of a new run: the folder is made and the recipe written. None: an existing run.

        Raises:
            OSError: If the folder or the recipe cannot be written; no folder without recipe is left behind.
            ValueError: If another process holds the lock, or the folder of a new run is not empty.
        """
        if new is not None:
            self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._lock(descriptor)
            if new is not None:
                self.check_free()
                self._write_recipe(new)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            locked = flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            text = f"expected {self.path} to be at rest, but another process is training there"
            raise ValueError(text) from error
        if not locked:
            warning = "is on a file system without locks: keep a second process from training there"
            print(f"note: {printable(self.path)} {warning}", file=sys.stderr)

    def _write_recipe(self, recipe: Recipe) -> None:
        try:
            write_text(self.config, json.dumps(recipe.to_dict(), indent=2) + "\n")
        except OSError:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            raise

    def in_use(self) -> bool:
        """Return whether another process holds the lock: a run that goes on."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def new_folder(out: Path | None, seed: int) -> RunFolder:
    """Return the folder of a new run; without ``out`` a free one under ``runs``, named by time and seed."""
    if out is not None:
        return RunFolder(out)
    name = f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}-seed{seed}"
    numbered = (RUNS / (name if count == 1 else f"{name}-{count}") for count in itertools.count(1))
    return RunFolder(next(path for path in numbered if not path.exists()))
