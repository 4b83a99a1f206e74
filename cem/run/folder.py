"""The folder of a search.

Only one process may search in it. It stores the seed and population size of the first call.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cem.core.checks import draw_seed, warn
from cem.run.checkpoint import CheckpointError
from kernels.support import system
from kernels.support.files import check_own, write_text

_NAME = "search.json"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create a folder if necessary, and lock it for a search inside the block.

    Raises:
        CheckpointError: If another process is searching there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = system.open_folder(folder)
    try:
        try:
            # False means that the file system has no locks.
            has_locks = system.lock(descriptor)
        except BlockingIOError as error:
            message = f"expected {folder} to be at rest, but another process is searching there"
            raise CheckpointError(message) from error
        if not has_locks:
            # The user has to make sure that no other process searches here.
            message = f"{folder} is on a file system without locks: search there only once"
            warn(message)
        yield
    finally:
        system.release(descriptor)


def load_first_arguments(
    folder: Path, seed: int | None, choices: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the first call of a search that is stored in a folder.

    Later calls continue the search with these arguments. If the folder is new, this call is the
    first one, and its arguments are written to the folder.

    Args:
        folder: The folder.
        seed: The seed of this call. None: the seed in the folder, or in a new folder a random
            one.
        choices: What this call would choose by itself, such as "population_size". It is only
            used in a new folder, except for "uses_model", whether this call can use a surrogate
            model.

    Returns:
        The seed, as the item "seed", and the choices of the first call.

    Raises:
        CheckpointError: If the first call had another seed, or used a surrogate model and this
            call cannot.
    """
    path = folder / _NAME
    # Raise an error if another user has put a link or a pipe here.
    check_own(path)
    if not path.exists():
        first = {"seed": draw_seed(None) if seed is None else seed, **choices}
        write_text(path, json.dumps(first) + "\n")
        return first

    try:
        saved: dict[str, Any] = {**choices, **json.loads(path.read_text(encoding="utf-8"))}
        has_other_seed = seed not in (None, saved["seed"])
    except (ValueError, TypeError, KeyError):
        raise CheckpointError(
            f"{path}: torn or damaged: choose another folder; evaluated={str(folder)!r} reads "
            "its evaluations"
        ) from None
    if has_other_seed:
        raise CheckpointError(
            f"{folder}: belongs to another run: expected seed = {seed}, got {saved['seed']}"
        )

    # A search that began without a model continues without one, even if this call can use one.
    # But a search that began with a model cannot continue without it.
    if saved["uses_model"] and not choices["uses_model"]:
        raise CheckpointError(
            f"{folder}: belongs to another run: expected a search without a model, "
            "got one that uses a model"
        )
    return saved
