"""The folder of a search: one process uses it, and it says what the search began with."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cem.core.checks import draw_seed, outside
from cem.run.checkpoint import CheckpointError
from kernels.support import system
from kernels.support.files import check_own, write_text

_NAME = "search.json"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from searching in a folder inside the block; make the folder.

    Raises:
        CheckpointError: If another process searches there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = system.open_folder(folder)
    try:
        try:
            has_locks = system.lock(descriptor)
        except BlockingIOError as error:
            message = f"expected {folder} to be at rest, but another process is searching there"
            raise CheckpointError(message) from error
        if not has_locks:
            message = f"{folder} is on a file system without locks: search there only once"
            warnings.warn(message, RuntimeWarning, stacklevel=outside())
        yield
    finally:
        system.release(descriptor)


def agree(folder: Path, seed: int | None, population_size: int) -> dict[str, Any]:
    """Return the seed and the population that the search of a folder began with.

    In a new folder they are those of the call, which are written there; a seed is drawn for a
    call without one.

    Args:
        folder: The folder.
        seed: The seed of the call; None: it takes that of the folder.
        population_size: The candidates per generation that the call has chosen.

    Raises:
        CheckpointError: If the seed is another one.
    """
    path = folder / _NAME
    check_own(path)
    if not path.exists():
        if seed is None:
            seed = draw_seed(None)
        chosen = {"seed": seed, "population_size": population_size}
        write_text(path, json.dumps(chosen) + "\n")
        return chosen
    saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if saved["seed"] is None:
        saved["seed"] = seed
    if seed not in (None, saved["seed"]):
        message = f"belongs to another run: expected seed = {seed}, got {saved['seed']}"
        raise CheckpointError(f"{folder}: {message}")
    return saved
