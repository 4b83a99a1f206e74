"""Checkpoints as numbered JSON files, which are written atomically and contain no code.

``checkpoint-000012.json`` contains the state after step 12 as one JSON object with the items

- ``fingerprint``: what identifies the run;
- ``state``: the state. A tensor is ``{"tensor": dtype, "shape": [...], "base64": bytes}``, and
  a dict whose keys are integers, which JSON lacks, ``{"integer keys": [[key, value], ...]}``;
- ``sha256``: the digest of the items before it.
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

# The number of checkpoints in a folder. If the newest is damaged, the one before it is used.
KEPT = 3
_NAME = re.compile(r"checkpoint-(\d{6,18})\.json")
_DIGEST = ', "sha256": "'


class CheckpointError(ValueError):
    """A checkpoint cannot be used, or a folder has no usable checkpoint."""


class LoadedCheckpoint(NamedTuple):
    """The result of ``Checkpointer.load_latest``.

    Attributes:
        path: The file.
        step: Its step.
        state: The state, with tensors on the CPU.
        passed_over: The errors of newer files, which are damaged, newest first.
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
    values = {"fingerprint": fingerprint, "state": _keep_integer_keys(state)}
    body = json.dumps(values, default=_encode, allow_nan=False)
    write_text(path, _sign(body))


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state in a file, with tensors on the CPU, and the fingerprint of its run."""
    try:
        text = path.read_text(encoding="utf-8")
        # The digest covers the text before it, closed by a bracket.
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
        """Set the folder. Nothing is read or written yet.

        Args:
            folder: The folder, which the first save creates.
            fingerprint: What identifies the run, such as its settings: a dict of str keys and
                JSON values. To load a file with another fingerprint is an error, which names
                the key. None: files of any run are loaded.
            interval_s: The minimum time between two saves by a trainer, in seconds; 0 saves
                every generation.
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
        """Write a checkpoint; remove old ones and the remains of interrupted writes.

        Args:
            step: The step, ``>= 0``. A file of the same step is replaced.
            state: A dict of values: tensors on any device, str, bool, int, finite float, None,
                and lists and dicts of them. Keys are all str, or all int. Floats in tensors may
                be NaN or infinite.

        Returns:
            The file.

        Raises:
            OSError: If it cannot be written; older checkpoints then remain.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"checkpoint-{check_integer('step', step, 0):06d}.json"
        # Newer files do not count. They are damaged: otherwise the run would have resumed from
        # them.
        older = [old for number, old in self.paths().items() if number < step]
        write_checkpoint(path, state, self.fingerprint or {})
        # The new file and KEPT - 1 older ones remain.
        for stale in (*older[KEPT - 1 :], *self.folder.glob(".checkpoint-*.json.*.tmp")):
            stale.unlink(missing_ok=True)
        return path

    def load_latest(self) -> LoadedCheckpoint:
        """Read the newest checkpoint in the folder that is not damaged.

        Raises:
            CheckpointError: If there is none, or if it belongs to another run. The message
                names the files and the reasons.
        """
        passed_over: list[str] = []
        # ``paths`` lists the newest checkpoint first.
        for step, path in self.paths().items():
            try:
                state, fingerprint = read_checkpoint(path)
            except CheckpointError as error:
                # The file is damaged, so the one before it is tried.
                passed_over.append(str(error))
                continue
            if self.fingerprint is not None:
                # JSON converts tuples to lists, as it did when the file was written.
                own_fingerprint = json.loads(json.dumps(self.fingerprint))
                check_same_run(path, own_fingerprint, fingerprint)
            return LoadedCheckpoint(path, step, state, tuple(passed_over))
        reasons = "; ".join(passed_over) or "no file named checkpoint-NNNNNN.json"
        raise CheckpointError(
            f"expected a usable checkpoint in {self.folder}, got none ({reasons})"
        )


def check_same_run(path: Path, own: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Raise CheckpointError if the file at ``path`` belongs to another run.

    Args:
        path: The file.
        own: The fingerprint of this run, a dict of everything that identifies it.
        saved: The fingerprint in the file. Both dicts may have an item "code", a string of two
            words: the version of Python's bytecode and the digest of the run's code, for
            example "cpython-312 0123456789abcdef".
    """
    names = own.keys() | saved.keys()
    for name in sorted(names - {"code"}):
        if own.get(name) != saved.get(name):
            got = repr(saved[name]) if name in saved else "none: it may be of an older version"
            difference = f"expected {name} = {own.get(name)!r}, got {got}"
            raise CheckpointError(f"{path.name}: belongs to another run: {difference}")
    if "code" not in own or "code" not in saved:
        return
    # Digests are comparable only if both were made with the same version of the bytecode.
    own_version, own_digest = own["code"].split()
    saved_version, saved_digest = saved["code"].split()
    if own_version == saved_version and own_digest != saved_digest:
        raise CheckpointError(
            f"{path}: expected the code of the objective and constraints that this folder was "
            "written with, got another: choose another folder, or remove this one"
        )


def _sign(body: str) -> str:
    """Return the text of a file: the JSON object ``body`` with its digest as the last item."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_DIGEST}{digest}"}}\n'


def _keep_integer_keys(value: Any) -> Any:
    """Return a value whose dicts have string keys: JSON would turn 0 into "0" in silence.

    The state of an optimizer of torch has such dicts.
    """
    if isinstance(value, (list, tuple)):
        return [_keep_integer_keys(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    values = {key: _keep_integer_keys(item) for key, item in value.items()}
    if values and all(type(key) is int for key in values):
        return {"integer keys": [*values.items()]}
    if not all(isinstance(key, str) for key in values):
        raise TypeError(
            f"expected keys that are all str, or all int, in a checkpoint, got {[*values]}"
        )
    return values


def _encode(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and a tensor as a dict.

    The dict has a flag if the tensor is stored transposed in memory, as LAPACK returns
    matrices. A matrix product is rounded differently if the matrix has another layout, so a
    resumed search needs the same layout.
    """
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, Tensor):
        raise TypeError(f"expected tensors and values of JSON in a checkpoint, got {value!r}")
    is_matrix = value.dim() > 1
    is_transposed = is_matrix and not value.is_contiguous() and value.mT.is_contiguous()
    array = (value.mT if is_transposed else value).detach().cpu().numpy()
    data = base64.b64encode(array.tobytes()).decode()
    entry = {"tensor": array.dtype.str, "shape": list(array.shape), "base64": data}
    return {**entry, "transposed": True} if is_transposed else entry


def _decode(value: dict[str, Any]) -> Any:
    """Return what `_encode` or `_keep_integer_keys` made a dict of, or another dict itself."""
    if value.keys() == {"integer keys"}:
        return dict(value["integer keys"])
    if value.keys() - {"transposed"} != {"tensor", "shape", "base64"}:
        return value
    array = np.frombuffer(base64.b64decode(value["base64"]), np.dtype(value["tensor"]))
    tensor = torch.from_numpy(array.reshape(value["shape"]).copy())
    return tensor.mT if "transposed" in value else tensor
