"""A file of the candidates evaluated one by one, which a resumed search does not repeat.

The first line says in JSON which search it belongs to. A record of fixed size follows for each
candidate, in the order in which they ended; all numbers are little-endian:

    generation: int64 | index: int64 | fitness: float64 | fate: uint8 | x: dim float64 | CRC-32

Every rank writes a file of its own, and reads those of all.
"""

import json
import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cem.run.candidate import Candidate, Fate
from cem.run.checkpoint import CheckpointError, check_same_run
from kernels.support import ranks
from kernels.support.files import check_own

_HEAD = struct.Struct("<qqdB")
_CHECKSUM = struct.Struct("<I")
_OLD = (
    "{0}: its format is that of an earlier version: end the search with that version, or "
    "choose another folder"
)
_DAMAGED = (
    "{0}: record {1} of {2} is damaged: 'truncate -s {3} {0}' keeps those before it, and the "
    "others are evaluated again"
)
_UNWRITABLE = "{}: when it can be written, the same call with the same checkpoint goes on"


class Journal:
    """Evaluated candidates in a file.

    Attributes:
        fitness: The fitness of all that were not abandoned, an array; NaN for one that failed.
        known: Candidates (dim,) and their fitness by generation, in the order in which they
            ended, of the generations that no checkpoint has.
    """

    def __init__(self, path: Path, search: Mapping[str, Any], generation: int) -> None:
        """Read the evaluations of a search, and open the file of this rank to append others.

        A last record without an end, which an interruption left, is removed.

        Args:
            path: The file of the first rank; that of another one has a number in its name.
            search: What identifies the search, as a dict for JSON; its "mean" has as many
                numbers as a candidate.
            generation: The first generation that no checkpoint has.

        Raises:
            CheckpointError: If a file belongs to another search, or is damaged.
            OSError: If the file cannot be written.
        """
        old_path = path.with_suffix(".jsonl")
        if old_path.exists():
            raise CheckpointError(_OLD.format(old_path))
        self._generation = generation
        self._header = json.dumps(search).encode() + b"\n"
        self._record = _record_type(search)
        names = f"{path.stem}*{path.suffix}"
        if ranks.rank() > 0:
            path = path.with_stem(f"{path.stem}-{ranks.rank()}")
        self._path = path
        header = self._remove_torn_end()
        self._records = [self._read(file) for file in sorted(path.parent.glob(names))]
        self.fitness = np.concatenate(
            [records["fitness"][_has_ended(records)] for records in self._records]
        )
        self.known: dict[int, list[tuple[Any, float]]] = defaultdict(list)
        # The fitness of the known candidates by their bytes, the oldest first.
        self._values: dict[bytes, deque[float]] = defaultdict(deque)
        for record in self._select(is_new=True):
            x = record["x"]
            fitness = float(record["fitness"])
            self.known[int(record["generation"])].append((x, fitness))
            self._values[x.tobytes()].append(fitness)
        self._file = path.open("ab")
        if not header:
            self._append(self._header)

    def read_earlier(self) -> list[tuple[Any, float]]:
        """Return the candidates of the generations that a checkpoint has, and their fitness."""
        return [(record["x"], float(record["fitness"])) for record in self._select(False)]

    def take(self, row: Any) -> float | None:
        """Return the fitness of a candidate, and forget it; None if the file has none."""
        values = self._values.get(row.astype("<f8").tobytes())
        return values.popleft() if values else None

    def write(self, generation: int, index: int, candidate: Candidate) -> None:
        """Append a candidate, so that it outlives this process."""
        assert candidate.fate is not None, "it is not evaluated"
        head = _HEAD.pack(generation, index, candidate.fitness, candidate.fate)
        record = head + candidate.row.astype("<f8").tobytes()
        self._append(record + _CHECKSUM.pack(zlib.crc32(record)))

    def close(self) -> None:
        """Close the file."""
        # It tries to write again what it could not write before.
        with suppress(OSError):
            self._file.close()

    def _remove_torn_end(self) -> bytes:
        """Remove what is after the last complete record of the file; return its first line."""
        check_own(self._path)
        with self._path.open("ab") as file:
            header, count = self._measure(self._path)
            file.truncate(len(header) + count * self._record.itemsize)
        return header

    def _measure(self, path: Path) -> tuple[bytes, int]:
        """Return the first line of a file, empty if it has no end, and the complete records.

        Raises:
            CheckpointError: If it is the line of another search.
        """
        with path.open("rb") as file:
            header = file.readline()
        if not header.endswith(b"\n"):
            return b"", 0
        try:
            search = dict(json.loads(header))
        except (ValueError, TypeError) as error:
            message = f"{path}: expected a search in its first line, got {header!r}"
            raise CheckpointError(message) from error
        check_same_run(path, json.loads(self._header), search)
        return header, (path.stat().st_size - len(header)) // self._record.itemsize

    def _read(self, path: Path) -> Any:
        """Return the records of a file, which stay there until they are used.

        Raises:
            CheckpointError: If one is damaged.
        """
        header, count = self._measure(path)
        if count == 0:
            return np.zeros(0, self._record)
        return _read_records(path, self._record, len(header))

    def _select(self, is_new: bool) -> Iterator[Any]:
        """Yield the records that have a value, of new generations or of earlier ones."""
        for records in self._records:
            is_selected = (records["generation"] >= self._generation) == is_new
            yield from records[is_selected & _has_ended(records)]

    def _append(self, content: bytes) -> None:
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            message = _UNWRITABLE.format(error.strerror)
            raise OSError(error.errno, message, str(self._path)) from error


def read_evaluations(path: Path) -> tuple[str, Any, Any]:
    """Return the objective's name in a journal, the candidates, and their fitness.

    Candidates have shape (n, dim); the fitness, shape (n,), of one that failed is NaN.

    Raises:
        CheckpointError: If a record is damaged.
        ValueError: If the file is no journal.
    """
    with path.open("rb") as file:
        header = file.readline()
    try:
        search = json.loads(header)
        record = _record_type(search)
        name = str(search["objective"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: expected a journal, got {header[:80]!r}") from error
    records = _read_records(path, record, len(header))
    records = records[_has_ended(records)]
    return name, records["x"], records["fitness"]


def _record_type(search: Mapping[str, Any]) -> Any:
    """Return the type of a record for candidates with as many numbers as the search's mean."""
    x = ("x", "<f8", (len(search["mean"]),))
    head = [("generation", "<i8"), ("index", "<i8"), ("fitness", "<f8"), ("fate", "u1")]
    return np.dtype([*head, x, ("checksum", "<u4")])


def _read_records(path: Path, record: Any, start: int) -> Any:
    """Return the complete records from a byte of a file on; they stay there until used.

    Raises:
        CheckpointError: If one is damaged.
    """
    count = (path.stat().st_size - start) // record.itemsize
    if count == 0:  # memmap takes no empty files
        return np.zeros(0, record)
    records = np.memmap(path, record, "r", start, (count,))
    checksums = records["checksum"].tolist()
    content = records.view(np.uint8).reshape(count, -1)[:, : -_CHECKSUM.size]
    for number, row in enumerate(content):
        if zlib.crc32(row.data) != checksums[number]:
            size = start + number * record.itemsize
            raise CheckpointError(_DAMAGED.format(path, number + 1, count, size))
    return records


def _has_ended(records: Any) -> Any:
    """Return for each record whether its candidate was not abandoned."""
    return records["fate"] != Fate.ABANDONED
