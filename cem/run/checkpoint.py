"""Checkpoints as numbered JSON files: written whole or not at all, and free of code.

``checkpoint-000012.json`` holds the state after step 12 as one JSON object: the ``fingerprint`` of its run,
the ``state``, and ``sha256``, the digest of all that is before it. A tensor is ``{"tensor": dtype, "shape":
[...], "base64": bytes}``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.support.checks import check_integer
from kernels.support.files import check_own, write_text

KEPT = 3  # files: where the newest is damaged, the one before it is used
_NAME = re.compile(r"checkpoint-(\d{6,18})\.json")
_DIGEST = ', "sha256": "'


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, or a folder without a usable one; it names file and reason."""


class LoadedCheckpoint(NamedTuple):
    """The result of ``Checkpointer.load_latest``."""

    path: Path
    step: int
    state: dict[str, Any]  # tensors on the CPU
    passed_over: tuple[str, ...]  # the newer files that are damaged, newest first, with the reasons


def write_checkpoint(path: Path, state: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> None:
    """Write a state and the identity of its run to a file, atomically; see ``Checkpointer.save``."""
    body = json.dumps({"fingerprint": fingerprint, "state": state}, default=_encode, allow_nan=False)
    write_text(path, _signed(body))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state of a file, tensors on the CPU, and the fingerprint of its run."""
    try:
        text = path.read_text(encoding="utf-8")
        body = text.rpartition(_DIGEST)[0] + "}"
        if _signed(body) != text:
            raise ValueError("its SHA-256 does not match its content")
        values = json.loads(body, object_hook=_decode)
        return dict(values["state"]), dict(values["fingerprint"])
    except (OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise CheckpointError(f"{path.name}: torn or damaged: {error}") from error


class Checkpointer:
    """Keeps the newest checkpoints of a run in a folder, and finds the newest usable one.

    Examples:
        >>> import tempfile, torch
        >>> from cem import Checkpointer
        >>> folder = tempfile.TemporaryDirectory()
        >>> checkpointer = Checkpointer(folder.name, fingerprint={"seed": 7})
        >>> checkpointer.save(12, {"weights": torch.ones(2)}).name
        'checkpoint-000012.json'
        >>> checkpointer.load_latest().state
        {'weights': tensor([1., 1.])}
        >>> folder.cleanup()
    """

    def __init__(
        self, folder: str | Path, *, fingerprint: Mapping[str, Any] | None = None, interval_s: float = 0.0
    ) -> None:
        """Set the folder; nothing is read or written yet.

        Args:
            folder: The folder, made on the first save.
            fingerprint: The identity of the run, such as its settings: str keys, values of JSON. Files with
                another value are not used; the error names the key. None: files of any run are used.
            interval_s: The least time in seconds between two saves by a trainer; 0 saves every generation.
        """
        self.folder = Path(folder)
        self.fingerprint = None if fingerprint is None else dict(fingerprint)
        self.interval_s = interval_s

    def paths(self) -> dict[int, Path]:
        """Return the checkpoint files in the folder by step, newest first; they may be damaged or foreign."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        found = {int(match[1]): path for path in files if (match := _NAME.fullmatch(path.name))}
        for path in found.values():
            check_own(path)
        return dict(sorted(found.items(), reverse=True))

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then remove old ones and the remains of interrupted writes; return the file.

        Args:
            step: Its step, ``>= 0``; a file of the same step is replaced.
            state: A dict of tensors on any device, str, bool, int, finite float, None, and of lists and dicts
                of them; within tensors floats may be NaN or infinite.

        Raises:
            OSError: If it cannot be written; the checkpoints before it are kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"checkpoint-{check_integer('step', step, 0):06d}.json"
        # Newer ones are damaged, or this run would not be here: they are not counted.
        older = [old for number, old in self.paths().items() if number < step]
        write_checkpoint(path, state, self.fingerprint or {})
        for stale in (*older[KEPT - 1 :], *self.folder.glob(".checkpoint-*.json.*.tmp")):
            stale.unlink(missing_ok=True)
        return path

    def load_latest(self) -> LoadedCheckpoint:
        """Read the newest checkpoint that is not damaged.

        Raises:
            CheckpointError: If there is none, or it is of another run; it names files and reasons.
        """
        passed_over: list[str] = []
        for step, path in self.paths().items():
            try:
                state, found = read_checkpoint(path)
            except CheckpointError as error:
                passed_over.append(str(error))
                continue
            wanted = found if self.fingerprint is None else json.loads(json.dumps(self.fingerprint))
            check_same_run(path, wanted, found)
            return LoadedCheckpoint(path, step, state, tuple(passed_over))
        reasons = "; ".join(passed_over) or "no file named checkpoint-NNNNNN.json"
        raise CheckpointError(f"expected a usable checkpoint in {self.folder}, got none ({reasons})")


def check_same_run(path: Path, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a file has the fingerprint of another run, or of code changed since then.

    ``code`` is compared where both have one, of the same version of Python; see ``digest_code``.
    """
    for name in sorted((wanted.keys() | found.keys()) - {"code"}):
        if wanted.get(name) != found.get(name):
            difference = f"expected {name} = {wanted.get(name)!r}, got {found.get(name)!r}"
            raise CheckpointError(f"{path.name}: belongs to another run: {difference}")
    codes = [each["code"].split() for each in (wanted, found) if "code" in each]
    if len(codes) == 2 and codes[0][0] == codes[1][0] and codes[0] != codes[1]:
        raise CheckpointError(
            f"{path}: expected the code of the objective and constraints that this folder was written with, "
            "got another: choose another folder, or remove this one"
        )


def _signed(body: str) -> str:
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_DIGEST}{digest}"}}\n'


def _encode(value: Tensor) -> dict[str, Any]:
    array = value.detach().cpu().numpy()
    data = base64.b64encode(array.tobytes()).decode()
    return {"tensor": array.dtype.str, "shape": list(array.shape), "base64": data}


def _decode(value: dict[str, Any]) -> Any:
    if value.keys() != {"tensor", "shape", "base64"}:
        return value
    array = np.frombuffer(base64.b64decode(value["base64"]), np.dtype(value["tensor"]))
    return torch.from_numpy(array.reshape(value["shape"]).copy())
