"""Every reader of files of others takes what is right and raises what it documents about
anything else."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import changed, damaged, fuzz, st

from cem import CheckpointError
from cem.run.checkpoint import _sign, read_checkpoint, write_checkpoint
from tetris import LinearController, Rules, published
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.record.replay import DamagedReplayError, Replay
from tetris.record.replay import _digest as replay_digest
from tetris.solver import Solution
from tetris.training.recipe import read_settings
from tetris.training.run_folder import read_records

Reader = Callable[[Path], Any]
SMALL = Rules(5, 6)


def replay() -> Replay:
    controller = replace(published("dt20"), provenance={"a": [1, {"b": None}]})
    played = islice(play(PieceStream(SMALL, 1, 0), controller.player(SMALL), SMALL), 12)
    return Replay.of(played, SMALL, 1, 0, controller)


def watch(path: Path) -> None:
    """Read a replay and play it, as a viewer does."""
    loaded = Replay.load(path)
    try:
        for _ in loaded.after_states():
            pass
    except DamagedReplayError:
        pass


def check_file(path: Path, read: Reader) -> None:
    """Read a file; if it is refused, then in one line with the file's name."""
    try:
        read(path)
    except (ValueError, CheckpointError) as error:
        assert path.name in str(error)  # noqa: PT017 - other errors come through
        assert type(error) in (ValueError, CheckpointError)  # noqa: PT017 - no JSONDecodeError


def checkpoint(path: Path) -> dict[str, Any]:
    state = {
        "mean": torch.ones(2, 3),
        "ints": torch.arange(3),
        "text": "x",
        "list": [1, None, {"a": 0.5}],
    }
    write_checkpoint(path, state, {"seed": 1})
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def signed_text(content: Any) -> str:
    """Return values as JSON, with the digest of the others in the place of one that is
    there."""
    if isinstance(content, dict) and "digest" in content:
        with contextlib.suppress(ValueError):  # NaN
            content = {**content, "digest": replay_digest(content)}
    if isinstance(content, dict) and "sha256" in content and len(content) > 1:
        return _sign(
            json.dumps({key: value for key, value in content.items() if key != "sha256"})
        )
    return json.dumps(content)


def solution(path: Path) -> bytes:
    values = torch.zeros(1 << 16, dtype=torch.float64)
    values[:3] = torch.tensor([7.0, 6.5, 1.0])
    Solution(Rules(4, 4), 1, values, 7.0, 1e-7, 3, 10, 0.5).save(path)
    return path.read_bytes()


READERS: dict[str, tuple[Reader, Callable[[Path], Any]]] = {
    "controller.json": (LinearController.load, lambda path: published("dt20").to_dict()),
    "replay.json": (watch, lambda path: replay().to_dict()),
    "settings.json": (
        read_settings,
        lambda path: {"preset": "quick", "seed": 3, "averaging": 0.5},
    ),
    "checkpoint-000001.json": (read_checkpoint, checkpoint),
    "metrics.jsonl": (
        read_records,
        lambda path: b'{"generation": 1}\n{"generation": 2}\n',
    ),
    "solution.npz": (Solution.load, solution),
}
"""By the name of a file, who reads it, and what is right: values of JSON, or bytes."""


@pytest.mark.parametrize("name", READERS)
def test_a_changed_or_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    path, (read, make) = tmp_path / name, READERS[name]
    right = make(path)

    def check(content: Any, signed: bool) -> None:
        if not isinstance(content, bytes):
            content = (signed_text(content) if signed else json.dumps(content)).encode()
        path.write_bytes(content)
        check_file(path, read)

    whole = right if isinstance(right, bytes) else json.dumps(right).encode()
    either = damaged(whole) if isinstance(right, bytes) else changed(right) | damaged(whole)
    fuzz(check, 60 if isinstance(right, bytes) else 120, content=either, signed=st.booleans())


def test_no_file_is_executed() -> None:
    loaders = re.compile(  # but for ``eval()`` of a module, which docstrings name
        r"(?<!`)\b(pickle\.loads?|Unpickler|torch\.load|marshal|shelve|eval|exec)\("
        r"|\b(np|numpy)\.load\((?!\w+, allow_pickle=False\))"
    )
    project = Path(__file__).parents[2]
    files = [
        path
        for package in ("cem", "kernels", "tetris")
        for path in (project / package).rglob("*.py")
    ]
    assert len(files) > 100
    found = [path.name for path in files if loaders.search(path.read_text(encoding="utf-8"))]
    # What a process of workers is sent, and no file.
    assert sorted(found) == ["remote.py", "workers.py"]
