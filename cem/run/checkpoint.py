"""Checkpoints as numbered JSON files: written atomically, checked on reading, free of code.

A file ``checkpoint-000012.json`` holds one JSON object: ``format`` and ``version``, the ``step`` of its name,
the ``fingerprint`` of its run, the ``state``, and ``sha256``, the digest of all others. A
tensor in the state is ``{"tensor": dtype, "shape": [...], "base64": bytes}``, little-endian. Nothing is ever
unpickled.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cem.core.checks import check_real
from kernels.support.checks import check_integer
from kernels.support.files import check_own, write_bytes

FORMAT = "cem-checkpoint"
VERSION = 1

_NAME = re.compile(r"checkpoint-(\d{6,18})\.json")
_DTYPES = ("float32", "float64", "int64")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used, or a folder without a usable one; it names file and reason."""


@dataclass(frozen=True)
class RejectedCheckpoint:
    """A checkpoint that was not usable.

    Attributes:
        path: The file.
        reason: The reason, a sentence.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}: {self.reason}"


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The result of ``Checkpointer.load_latest``.

    Attributes:
        path: The file used.
        step: Its step.
        state: What was saved, tensors on the CPU.
        rejected: The newer files that were not usable, newest first.
    """

    path: Path
    step: int
    state: dict[str, Any]
    rejected: tuple[RejectedCheckpoint, ...]


def write_checkpoint(
    path: Path, step: int, state: Mapping[str, Any], fingerprint: Mapping[str, Any] | None = None
) -> None:
    """Write a state to a file, atomically.

    Args:
        path: The file.
        step: Its step, ``>= 0``.
        state: Nested mappings with str keys, lists, tensors (float32, float64 or int64, any device), str,
            bool, int, finite float and None. Not changed.
        fingerprint: The identity of its run, of the same kinds of values; compared on reading.

    Raises:
        TypeError: If state or fingerprint holds anything else.
        ValueError: If a number in them is NaN or infinite (within tensors they may be).
        OSError: As `kernels.support.files.write_bytes`.
    """
    body = {
        "format": FORMAT,
        "version": VERSION,
        "step": step,
        "fingerprint": _encode(fingerprint or {}),
        "state": _encode(state),
    }
    write_bytes(path, _canonical({**body, "sha256": _digest(body)}) + b"\n")


def read_checkpoint(path: Path, fingerprint: Mapping[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """Read a file that ``write_checkpoint`` wrote and check all of it.

    Args:
        path: The file.
        fingerprint: That of its run; None for any run.

    Returns:
        Its step and its state, tensors on the CPU.

    Raises:
        CheckpointError: If it cannot be read, is torn or damaged, is no checkpoint, has another version, or
            belongs to another run; the message names the file and says why.
    """
    try:
        return _read(path, fingerprint)
    except RecursionError as error:
        raise CheckpointError(f"{path.name}: damaged: nested too deeply") from error


def _read(path: Path, fingerprint: Mapping[str, Any] | None) -> tuple[int, dict[str, Any]]:
    try:
        body = json.loads(path.read_bytes().decode())
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8 or no JSON
        raise CheckpointError(f"{path.name}: torn or no JSON: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise CheckpointError(f"{path.name}: not a {FORMAT} file")
    if body.get("version") != VERSION:
        raise CheckpointError(f"{path.name}: expected version {VERSION}, got {body.get('version')!r}")
    if not _intact(body):
        raise CheckpointError(f"{path.name}: damaged: its SHA-256 does not match its content")
    if fingerprint is not None:
        wanted, found = _encode(fingerprint), body.get("fingerprint")
        found = found if isinstance(found, dict) else {}
        for name in sorted(wanted.keys() | found.keys()):
            if wanted.get(name) != found.get(name):
                difference = f"expected {name} = {wanted.get(name)!r}, got {found.get(name)!r}"
                raise CheckpointError(f"{path.name}: belongs to another run: {difference}")
    step, state = body.get("step"), body.get("state")
    if isinstance(step, bool) or not isinstance(step, int) or not isinstance(state, dict):
        raise CheckpointError(
            f"{path.name}: expected a step and a state, got {step!r} and {type(state).__name__}"
        )
    try:
        return step, _decode(state)
    except CheckpointError as error:
        raise CheckpointError(f"{path.name}: {error}") from error


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

    Attributes:
        folder: The folder of the files.
        fingerprint: The identity of their run, or None.
        interval_s: The least time between two saves of a trainer, in seconds.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        fingerprint: Mapping[str, Any] | None = None,
        keep: int = 3,
        interval_s: float = 0.0,
    ) -> None:
        """Set the folder; nothing is read or written yet.

        Args:
            folder: The folder, made on the first save.
            fingerprint: The identity of the run, such as its settings: str keys, values as in a state. A file
                with another value is refused; the reason names the key. None: files of any run are used.
            keep: Number of files to keep, ``>= 2``: if the newest is damaged, the one before it is used.
            interval_s: The least time in seconds between two saves by a trainer, ``>= 0``; 0 saves every
                generation.

        Raises:
            TypeError: If ``fingerprint``, ``keep`` or ``interval_s`` has the wrong type.
            ValueError: If one is out of range.
        """
        self.folder = Path(folder)
        if not (fingerprint is None or isinstance(fingerprint, Mapping)):
            raise TypeError(f"expected fingerprint to be a mapping, got {fingerprint!r}")
        self.fingerprint = None if fingerprint is None else dict(fingerprint)
        self.interval_s = check_real("interval_s", interval_s, 0.0)
        self._keep = check_integer("keep", keep, 2)

    def paths(self) -> dict[int, Path]:
        """Return the checkpoint files in the folder by step, newest first; they may be damaged or foreign.

        Raises:
            OSError: If one is a link, a pipe or a device.
        """
        if not self.folder.is_dir():
            return {}
        names = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        found = {int(match[1]): path for match, path in names if match}
        for path in found.values():
            check_own(path)
        return dict(sorted(found.items(), reverse=True))

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then remove old ones and the remains of interrupted writes.

        Args:
            step: Its step, ``>= 0``; a file of the same step is replaced.
            state: As for ``write_checkpoint``.

        Returns:
            The file.

        Raises:
            TypeError: As ``write_checkpoint``.
            ValueError: As ``write_checkpoint``.
            OSError: If it cannot be written, or as `paths`; the checkpoints before it are kept.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"checkpoint-{check_integer('step', step, 0):06d}.json"
        # Newer ones are foreign or damaged, or this run would not be here: they are not counted and not
        # touched.
        older = [old for number, old in self.paths().items() if number < step]
        write_checkpoint(path, step, state, self.fingerprint)
        for stale in (*older[self._keep - 1 :], *self.folder.glob(".checkpoint-*.json.*.tmp")):
            stale.unlink(missing_ok=True)
        return path

    def load_latest(self, accept: Callable[[dict[str, Any]], None] | None = None) -> LoadedCheckpoint:
        """Read the newest usable checkpoint, with the reasons against newer ones.

        Args:
            accept: Called with the state of each file, newest first; TypeError or ValueError refuses the file
                with that reason. None accepts all.

        Raises:
            CheckpointError: If there is none, with the name and the reason of every refused file.
            OSError: As `paths`.
        """
        rejected: list[RejectedCheckpoint] = []
        for number, path in self.paths().items():
            try:
                step, state = read_checkpoint(path, self.fingerprint)
                if step != number:
                    raise CheckpointError(f"{path.name}: holds step {step}: renamed?")
                if accept is not None:
                    accept(state)
            except (TypeError, ValueError, RecursionError) as error:
                rejected.append(RejectedCheckpoint(path, str(error).removeprefix(f"{path.name}: ")))
            else:
                return LoadedCheckpoint(path, step, state, tuple(rejected))
        reasons = "; ".join(map(str, rejected)) or "no file named checkpoint-NNNNNN.json"
        raise CheckpointError(f"expected a usable checkpoint in {self.folder}, got none ({reasons})")


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("utf-8")


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def _intact(body: Mapping[str, Any]) -> bool:
    try:
        return body.get("sha256") == _digest({key: value for key, value in body.items() if key != "sha256"})
    except ValueError:  # NaN, which Python reads though it is no JSON
        return False


def _encode(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _encode_tensor(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value) or "tensor" in value:
            raise TypeError(f"expected str keys other than 'tensor' in the state, got {list(value)}")
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"expected finite numbers in the state, got {value!r}")
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(
        f"expected tensors, numbers, text, lists and mappings in the state, got {type(value).__name__}"
    )


def _encode_tensor(tensor: Tensor) -> dict[str, Any]:
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.is_meta:
        raise TypeError(
            f"expected dense tensors with values in the state, got {tensor.layout} on {tensor.device}"
        )
    if name not in _DTYPES:
        raise TypeError(f"expected tensors of {', '.join(_DTYPES)} in the state, got {name}")
    array = tensor.detach().cpu().contiguous().numpy()
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return {"tensor": name, "shape": list(tensor.shape), "base64": base64.b64encode(data).decode("ascii")}


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return (
            _decode_tensor(value)
            if "tensor" in value
            else {key: _decode(item) for key, item in value.items()}
        )
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value


def _decode_tensor(value: dict[str, Any]) -> Tensor:
    name, shape = value["tensor"], value.get("shape")
    if not isinstance(name, str) or name not in _DTYPES:
        raise CheckpointError(f"expected a tensor of {', '.join(_DTYPES)}, got {name!r}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"expected a list of sizes as the shape of a tensor, got {shape!r}")
    try:
        data = base64.b64decode(value.get("base64", ""), validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise CheckpointError(f"expected the numbers of a tensor in base64, got {error}") from error
    kind = np.dtype(name).newbyteorder("<")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise CheckpointError(
            f"expected {math.prod(shape)} numbers in a tensor of shape {shape}, got {len(data)} bytes"
        )
    native = np.frombuffer(data, dtype=kind).astype(kind.newbyteorder("="))
    try:
        return torch.from_numpy(native).reshape(shape)
    except (RuntimeError, TypeError) as error:  # of no numbers, in sizes beyond 64 bits
        raise CheckpointError(f"expected sizes that torch has, got the shape {shape}") from error
