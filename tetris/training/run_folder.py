"""The folder of a training run: its files, its lock, its origin, and what is read from it."""

import contextlib
import datetime
import itertools
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels.support import system
from kernels.support.files import StrPath, check_own, named_errors, read_bytes, write_text
from kernels.support.names import meant_path
from kernels.support.printable import counted, printable
from kernels.version import __version__
from tetris import LinearController
from tetris.play.controller import FILE_NAME
from tetris.training.recipe import Recipe, read_settings
from tetris.training.records import check_generations, check_provenance

RUNS = Path("runs")
_ROOT = Path(__file__).resolve().parents[2]


class RunFolder:
    """The files of a run."""

    def __init__(self, path: Path) -> None:
        """Set the paths of a run's files; nothing is read or written."""
        self.path = path
        # The recipe of the run. A folder without this file holds no run.
        self.config = path / "config.json"
        # The learned controller. After training its scores are added to the file.
        self.controller = path / FILE_NAME
        self.metrics = path / "metrics.jsonl"  # One JSON object per generation.
        self.checkpoints = path / "checkpoints"
        # One JSON object per start of the run: date, hardware, commit, command.
        self.starts = path / "starts.jsonl"
        # The user's note on the run. Words with "#" are its tags. Most runs have none.
        self.note = path / "note.txt"
        self.learning_curve = path / "learning_curve.png"
        # If imageio-ffmpeg is installed, the folder also has an .mp4 file of this name.
        self.evolution = path / "evolution.gif"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"  # Only runs with --tensorboard have it.

    def check_free(self) -> None:
        """Raise ValueError if the folder holds files, so that a new run cannot use it.

        Hidden files are ignored.
        """
        if not self.path.is_dir() or all(
            entry.name.startswith(".") for entry in self.path.iterdir()
        ):
            return
        resume = f", or go on with --resume {self.path}" if self.config.exists() else ""
        raise ValueError(
            f"expected a new or an empty folder, got {self.path}: take another{resume}"
        )

    def recipe(self) -> Recipe:
        """Return the recipe of an existing run, from its config file.

        Raises:
            OSError: If a file cannot be read, or a file of the folder is a link.
            ValueError: If the folder holds no run, or a setting is wrong.
        """
        # The folder may come from someone else. A link in it could lead to any other file.
        for folder in (self.path, self.checkpoints, self.tensorboard):
            if folder.is_dir():
                for entry in folder.iterdir():
                    check_own(entry)  # It raises if the entry is a link.
        if not self.config.is_file():
            # The path may be misspelled: the hint names a similar one.
            hint = "" if self.path.exists() else meant_path(self.path)
            raise ValueError(
                f"expected a run in {self.path}, found no {self.config.name} there{hint}"
            )
        # Config files of older versions lack these two settings, which had these values then.
        settings = {"halvings": 0, "burn_in": 203, **read_settings(self.config)}
        try:
            return Recipe(**settings)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.config}: {error}") from error

    def learned(self) -> LinearController:
        """Return the learned controller; a ValueError names its file and the wrong key."""
        controller = LinearController.load(self.controller)
        check_provenance(controller.provenance, self.controller)
        return controller

    @contextlib.contextmanager
    def claimed(self, new_recipe: Recipe | None) -> Iterator[None]:
        """Lock the folder against other processes, until the context or this process ends.

        The folder of a new run is created before it is locked. Then the recipe of the new run
        is written.

        Args:
            new_recipe: The recipe of a new run; None for an existing run.

        Raises:
            ValueError: If another process holds the lock, or the folder of a new run is not
                empty.
        """
        if new_recipe is not None:
            self.path.mkdir(parents=True, exist_ok=True)
        # The system releases the lock when this descriptor is closed, or the process ends.
        descriptor = system.open_folder(self.path)
        try:
            self._lock(descriptor)
            if new_recipe is not None:
                # `check_free` raises an error if another process has written to the folder
                # before it was locked.
                self.check_free()
                write_text(self.config, json.dumps(new_recipe.to_dict(), indent=2) + "\n")
            yield
        finally:
            system.release(descriptor)

    def _lock(self, descriptor: int) -> None:
        """Lock the folder by its descriptor; ValueError if another process holds the lock."""
        try:
            has_locks = system.lock(descriptor)
        except BlockingIOError as error:
            raise ValueError(
                f"expected {self.path} to be at rest, but another process is training there"
            ) from error
        if not has_locks:  # Some network file systems have no locks.
            print(
                f"note: {printable(self.path)} is on a file system without locks: "
                "keep a second process from training there",
                file=sys.stderr,
            )

    def in_use(self) -> bool:
        """Return whether another process is training in the folder, and so holds its lock."""
        descriptor = system.open_folder(self.path)
        try:
            system.lock(descriptor, is_shared=True)
        except BlockingIOError:
            return True
        finally:
            system.release(descriptor)
        return False

    def add_start(self, device: str) -> None:
        """Append a line to the file of starts: when, how and where this process runs.

        An incomplete last line, which a full disk or a power cut left, is removed.
        """
        with named_errors(self.starts), self.starts.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(start_record(device)).encode() + b"\n")


def new_folder(out: Path | None, seed: int) -> RunFolder:
    """Return the folder of a new run; ValueError if it holds files.

    If ``out`` is None, the folder is a new one in ``runs``, and its name contains the time and
    the seed.
    """
    if out is None:
        name = f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}-seed{seed}"
        out = RUNS / name
        for number in itertools.count(2):  # Another run may have begun in the same second.
            if not out.exists():
                break
            out = RUNS / f"{name}-{number}"
    folder = RunFolder(out)
    folder.check_free()
    return folder


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages by name."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "cem-tetris": __version__,
    }


def start_record(device: str) -> dict[str, str]:
    """Return the date, the command, the commit and the hardware of this process.

    The hardware includes the GPU if the device is ``"cuda"``.
    """
    # `python -m tetris train` sets sys.argv[0] to these words. A script has its path there.
    program = sys.argv[0].split() if " " in sys.argv[0] else ["python", sys.argv[0]]
    hardware = [processor()["model name"], counted(system.usable_cores(), "core")]
    if device == "cuda" and torch.cuda.is_available():
        hardware.insert(0, torch.cuda.get_device_name())
    return {
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": system.join_words([*program, *sys.argv[1:]]),
        "commit": commit(),
        "hardware": ", ".join(hardware),
    }


def commit() -> str:
    """Return the commit of the checkout, followed by a ``+`` if a file was changed.

    Changed files in ``benchmarks`` are ignored. Outside a checkout, or without git, the result
    is empty.
    """
    if not (_ROOT / ".git").exists():
        return ""
    try:
        head = _run_git("rev-parse", "HEAD")
        changes = _run_git(
            "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{head}+" if changes else head


def _run_git(*arguments: str) -> str:
    """Return the output of a git command in the checkout."""
    command = ["git", *arguments]
    process = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    return process.stdout.strip()


def processor() -> dict[str, str]:
    """Return the entries of /proc/cpuinfo; ``model name`` exists on every system."""
    entries = {"model name": platform.processor() or platform.machine()}
    for line in system.processor_lines():
        name, _, value = line.partition(":")
        entries[name.strip()] = value.strip()
    return entries


@dataclass(frozen=True)
class RunRecord:
    """The content of the folder of a run.

    Attributes:
        name: The name of the run's folder.
        recipe: The recipe of the run.
        metrics: One record per generation; at least one.
        controller: The learned controller, with its provenance.
        starts: The date, command, commit and hardware of each start of the run.
        note: The user's note on the run, on one line; empty if there is none.
    """

    name: str
    recipe: Recipe
    metrics: list[dict[str, Any]]
    controller: LinearController
    starts: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    @property
    def scores(self) -> list[dict[str, Any]]:
        """The played scores, then the estimates; empty before the end of training."""
        provenance = self.controller.provenance
        return (provenance.get("score") or []) + (provenance.get("estimates") or [])

    @property
    def generations(self) -> int:
        """The number of generations so far."""
        return len(self.metrics)

    @property
    def decisions(self) -> int:
        """The number of decisions of all generations so far."""
        return sum(record["decisions"] for record in self.metrics)

    @property
    def seconds(self) -> float:
        """The wall time of all generations so far, in seconds."""
        return float(self.metrics[-1]["elapsed_s"])

    @property
    def weight_names(self) -> tuple[str, ...]:
        """The names of the weights."""
        return self.controller.names_on(self.controller.rules)

    def __repr__(self) -> str:
        """Return a line that describes the run, without its records."""
        generations = counted(self.generations, "generation")
        summary = f"{self.recipe.title}, on {self.controller.rules.board}, {generations}"
        return f"<RunRecord {printable(self.name)}: {printable(summary)}>"


def board(record: Mapping[str, Any]) -> str:
    """Return the board of a generation's record, such as ``10x20``."""
    return f"{record['board_width']}x{record['board_height']}"


def load_run(path: StrPath) -> RunRecord:
    """Return the records of a run, finished or in progress, from its folder.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If the folder holds no run, no generation has ended, or a file is not JSON
            or lacks a value. The message names the file.
    """
    folder = RunFolder(Path(path))
    recipe = folder.recipe()
    metrics = read_records(folder.metrics)
    if not metrics:
        raise ValueError(
            f"expected a run of at least one generation in {path}, found none over yet"
        )
    controller = folder.learned()
    check_generations(metrics, len(controller.weights), folder.metrics)
    starts = read_records(folder.starts)
    note = ""
    if folder.note.exists():
        note = " ".join(read_bytes(folder.note).decode(errors="replace").split())
    return RunRecord(folder.path.resolve().name, recipe, metrics, controller, starts, note)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file with one object per line; none if there is no file.

    A last line without a line end is ignored, because a run in progress may be writing it.
    """
    records: list[dict[str, Any]] = []
    if not path.exists():
        return records
    try:
        content = read_bytes(path).decode(errors="replace")
        for line in content.split("\n")[:-1]:
            records.append(dict(json.loads(line)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: line {len(records) + 1}: {error}") from error
    return records
