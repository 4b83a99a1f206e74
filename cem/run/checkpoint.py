"""Checkpoints as numbered JSON files, which are written atomically and contain no code.

``checkpoint-000012.json`` holds the state after step 12 as one JSON object: the ``fingerprint``
of its run, the ``state``, and ``sha256``, the digest of all text before it. A tensor is
``{"tensor": dtype, "shape": [...], "base64": bytes}``.
"""

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

KEPT = 3  # checkpoints in a folder: if the newest is damaged, the one before it is used
_NAME = re.compile(r"checkpoint-(\d{6,18})\.json")
_DIGEST = ', "sha256": "'


class CheckpointError(ValueError):
    """Says which checkpoint cannot be used, and why, or that a folder has no usable one."""


class LoadedCheckpoint(NamedTuple):
    """The result of ``Checkpointer.load_latest``.

    Attributes:
        path: The file.
        step: Its step.
        state: The state, with tensors on the CPU.
        passed_over: What is wrong with each newer file that is damaged, newest first.
    """

    path: Path
    step: int
    state: dict[str, Any]
    passed_over: tuple[str, ...]


def write_checkpoint(
    path: Path,
    state: Mapping[str, Any],
    fingerprint: Mapping[str, Any],
) -> None:
    """Write a state and the fingerprint of its run to a file, atomically."""
    values = {"fingerprint": fingerprint, "state": state}
    body = json.dumps(values, default=_encode, allow_nan=False)
    write_text(path, _sign(body))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state in a file, with tensors on the CPU, and the fingerprint of its run."""
    try:
        text = path.read_text(encoding="utf-8")
        # The digest is that of the text before it, closed by a bracket.
        body = text.rpartition(_DIGEST)[0] + "}"
        if _sign(body) != text:
            raise ValueError("its SHA-256 does not match its content")
        values = json.loads(body, object_hook=_decode)
        return dict(values["state"]), dict(values["fingerprint"])
    except (OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        raise CheckpointError(f"{path.name}: torn or damaged: {error}") from error


class Checkpointer:
    """Saves the newest checkpoints of a run in a folder, and loads the newest usable one.

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
        self,
        folder: str | Path,
        *,
        fingerprint: Mapping[str, Any] | None = None,
        interval_s: float = 0.0,
    ) -> None:
        """Set the folder; nothing is read or written yet.

        Args:
            folder: The folder, made on the first save.
            fingerprint: What identifies the run, such as its settings, with str keys and values
                of JSON. A file with another fingerprint is not used; the error names the key.
                None: files of any run are used.
            interval_s: The least time in seconds between two saves by a trainer; 0 saves every
                generation.
        """
        self.folder = Path(folder)
        self.fingerprint = None if fingerprint is None else dict(fingerprint)
        self.interval_s = interval_s

    def paths(self) -> dict[int, Path]:
        """Return the checkpoint files in the folder by step, newest first.

        They may be damaged, or belong to another run.
        """
        paths = {}
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        for path in files:
            if match := _NAME.fullmatch(path.name):
                check_own(path)
                paths[int(match[1])] = path
        return dict(sorted(paths.items(), reverse=True))

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, remove old ones and the remains of interrupted writes.

        Args:
            step: The step, ``>= 0``; a file of the same step is replaced.
            state: A dict of tensors on any device, str, bool, int, finite float, None, and of
                lists and dicts of them. Floats in tensors may be NaN or infinite.

        Returns:
            The file.

        Raises:
            OSError: If it cannot be written; older checkpoints then remain.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"checkpoint-{check_integer('step', step, 0):06d}.json"
        # Newer files are not counted: they must be damaged, or the run would have resumed from
        # one.
        older = [old for number, old in self.paths().items() if number < step]
        write_checkpoint(path, state, self.fingerprint or {})
        for stale in (*older[KEPT - 1 :], *self.folder.glob(".checkpoint-*.json.*.tmp")):
            stale.unlink(missing_ok=True)
        return path

    def load_latest(self) -> LoadedCheckpoint:
        """Read the newest checkpoint in the folder that is not damaged.

        Returns:
            Its path, step and state, and the errors of newer files, which are damaged.

        Raises:
            CheckpointError: If there is none, or it belongs to another run; it names files and
                reasons.
        """
        passed_over: list[str] = []
        # The newest come first.
        for step, path in self.paths().items():
            try:
                state, fingerprint = read_checkpoint(path)
            except CheckpointError as error:
                passed_over.append(str(error))
                continue
            if self.fingerprint is not None:
                # JSON turns tuples into lists, as in the file.
                own_fingerprint = json.loads(json.dumps(self.fingerprint))
                check_same_run(path, own_fingerprint, fingerprint)
            return LoadedCheckpoint(path, step, state, tuple(passed_over))
        reasons = "; ".join(passed_over) or "no file named checkpoint-NNNNNN.json"
        expected = f"a usable checkpoint in {self.folder}"
        raise CheckpointError(f"expected {expected}, got none ({reasons})")


def check_same_run(path: Path, own: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a run and the file at ``path`` have different fingerprints.

    A fingerprint is a dict of what identifies a run: ``own`` is that of this run, ``saved``
    that of the file. Its item "code" is the version of Python's bytecode and a digest; it is
    only compared if both have one, of the same version.
    """
    names = own.keys() | saved.keys()
    for name in sorted(names - {"code"}):
        if own.get(name) != saved.get(name):
            difference = f"expected {name} = {own.get(name)!r}, got {saved.get(name)!r}"
            raise CheckpointError(f"{path.name}: belongs to another run: {difference}")
    if "code" not in own or "code" not in saved:
        return
    own_version, own_digest = own["code"].split()
    saved_version, saved_digest = saved["code"].split()
    if own_version == saved_version and own_digest != saved_digest:
        raise CheckpointError(
            f"{path}: expected the code of the objective and constraints that this folder was "
            "written with, got another: choose another folder, or remove this one"
        )


def _sign(body: str) -> str:
    """Return the text of a file: a JSON object whose last value is the digest of the others."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_DIGEST}{digest}"}}\n'


def _encode(value: Tensor) -> dict[str, Any]:
    """Return a tensor as JSON, and whether it lies transposed in memory.

    LAPACK returns such matrices. A product with a matrix that lies otherwise is rounded
    otherwise, so a resumed search needs the same layout.
    """
    is_matrix = value.dim() > 1
    is_transposed = is_matrix and not value.is_contiguous() and value.mT.is_contiguous()
    array = (value.mT if is_transposed else value).detach().cpu().numpy()
    data = base64.b64encode(array.tobytes()).decode()
    entry = {"tensor": array.dtype.str, "shape": list(array.shape), "base64": data}
    return {**entry, "transposed": True} if is_transposed else entry


def _decode(value: dict[str, Any]) -> Any:
    if value.keys() - {"transposed"} != {"tensor", "shape", "base64"}:
        return value
    array = np.frombuffer(base64.b64decode(value["base64"]), np.dtype(value["tensor"]))
    tensor = torch.from_numpy(array.reshape(value["shape"]).copy())
    return tensor.mT if "transposed" in value else tensor
