"""A file of evaluated candidates, which a resumed search need not evaluate again.

Only candidates that are evaluated one by one are written. The first line identifies the search
in JSON. After it each candidate has a record of fixed size, in the order in which their
evaluations ended. All numbers are little-endian:

    generation: int64 | index: int64 | fitness: float64 | fate: uint8 | x: dim float64 | CRC-32

The constraints of a candidate come before it. For each constraint they are the number of its
values and the values. All these numbers, and zeros after them, are the x of records whose fate
is 255, and whose index counts them from 0.

Every rank writes a file of its own, and reads the files of all ranks.
"""

import json
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from cem.run.candidate import Candidate, Fate
from cem.run.checkpoint import CheckpointError, check_same_run
from kernels.support import ranks
from kernels.support.files import check_own

_CHECKSUM_SIZE = 4  # bytes at the end of a record
_CONSTRAINTS = 255  # in place of a fate: this record has constraints of the next candidate
_DAMAGED = (
    "{0}: record {1} of {2} is damaged: 'truncate -s {3} {0}' keeps those before it, and the "
    "others are evaluated again"
)
_UNWRITABLE = "{}: when it can be written, the same call with the same checkpoint goes on"


class Journal:
    """Evaluated candidates in a file.

    Attributes:
        fitness: The fitness of all candidates that were not abandoned, an array; NaN if a
            candidate failed.
        known: The candidates, arrays of shape (dim,), and their fitness, by generation. It only
            has the generations that are not in a checkpoint. The candidates of a generation are
            in the order in which their evaluations ended.
    """

    def __init__(self, path: Path, search: Mapping[str, Any], generation: int) -> None:
        """Read the evaluations of a search, and open the file of this rank for appending.

        If an interruption left an incomplete record at the end of that file, it is removed.

        Args:
            path: The file of rank 0. The names of the other ranks' files end with the rank.
            search: What identifies the search, a dict for JSON. Its item "mean" has as many
                numbers as a candidate.
            generation: The first generation that is not in a checkpoint.

        Raises:
            CheckpointError: If a file belongs to another search, or is damaged.
            OSError: If the file cannot be written.
        """
        self._generation = generation
        self._header = json.dumps(search).encode() + b"\n"
        self._record_type = _record_type(search)

        # This matches the files of all ranks, for example "a.journal" and "a-1.journal".
        pattern = f"{path.stem}*{path.suffix}"
        if ranks.rank() > 0:
            path = path.with_stem(f"{path.stem}-{ranks.rank()}")
        self._path = path

        # The first line of this rank's file. It is empty if the file is new.
        existing_header = self._remove_incomplete_end()
        # One array of records for each file.
        self._records = [self._read(file) for file in sorted(path.parent.glob(pattern))]
        self.fitness = np.concatenate(
            [records["fitness"][_has_ended(records)] for records in self._records]
        )

        # The evaluations that are not in a checkpoint: (candidate, fitness) by generation.
        self.known: dict[int, list[tuple[Any, float]]] = defaultdict(list)
        # The same for ``take``: fitness and constraints by the bytes of a candidate. A
        # candidate that was evaluated several times has several values, the oldest first.
        self._values: dict[bytes, deque[tuple[float, Any]]] = defaultdict(deque)
        constraints: list[Any] = []
        for record in self._select(is_new=True):
            x = record["x"]
            if record["fate"] == _CONSTRAINTS:
                # Another rank's file may still end with constraints without a candidate.
                constraints = [*constraints[: record["index"]], x]
                continue
            fitness = float(record["fitness"])
            self.known[int(record["generation"])].append((x, fitness))
            self._values[x.tobytes()].append((fitness, _split(constraints)))
            constraints = []
        self._file = path.open("ab")

        # A new file begins with the first line, which identifies the search.
        if not existing_header:
            self._append(self._header)

    def read_earlier(self) -> list[tuple[Any, float]]:
        """Return the candidates and fitness of the generations that are in a checkpoint.

        Those of a generation have the order in which they were drawn, in which a model gets
        them, and not that in which workers finished.
        """
        ended = filter(_has_ended, self._select(is_new=False))
        records = sorted(ended, key=itemgetter("generation", "index"))
        return [(record["x"], float(record["fitness"])) for record in records]

    def take(self, row: Any) -> tuple[float, Any] | None:
        """Remove and return known fitness and constraints of a candidate; None: there are none.

        The constraints are those of ``Candidate``.
        """
        values = self._values.get(row.astype("<f8").tobytes())
        return values.popleft() if values else None

    def write(self, generation: int, index: int, candidate: Candidate) -> None:
        """Append a candidate, and flush it to the file."""
        assert candidate.fate is not None, "it is not evaluated"
        values = candidate.constraints
        numbers = [number for array in values for number in (len(array), *array)]
        dim = len(candidate.row)
        numbers += [0.0] * (-len(numbers) % dim)
        parts = [numbers[start : start + dim] for start in range(0, len(numbers), dim)]
        rows = [(generation, part, 0.0, _CONSTRAINTS, x, 0) for part, x in enumerate(parts)]
        rows += [(generation, index, candidate.fitness, candidate.fate, candidate.row, 0)]
        self._append(b"".join(map(self._pack, rows)))

    def _pack(self, values: tuple[Any, ...]) -> bytes:
        """Return a record with these values and its checksum."""
        record = np.array(values, self._record_type)
        record["checksum"] = _checksum(record)
        return record.tobytes()

    def close(self) -> None:
        """Close the file."""
        # If an earlier write failed, closing the file tries to write the rest again.
        with suppress(OSError):
            self._file.close()

    def _remove_incomplete_end(self) -> bytes:
        """Remove what an interrupted write left in this rank's file; return its first line.

        This is an incomplete record, and the constraints of a candidate that is missing.
        """
        check_own(self._path)
        with self._path.open("ab") as file:
            header, count = self._measure(self._path)
            size = self._record_type.itemsize
            end = len(header) + count * size
            while end > len(header):
                last = np.fromfile(self._path, self._record_type, 1, offset=end - size)
                if last["fate"] != _CONSTRAINTS:
                    break
                end -= size
            file.truncate(end)
        return header

    def _measure(self, path: Path) -> tuple[bytes, int]:
        """Return the first line of a file and the number of complete records.

        An incomplete first line is returned as b"".

        Raises:
            CheckpointError: If the file belongs to another search.
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
        return header, (path.stat().st_size - len(header)) // self._record_type.itemsize

    def _read(self, path: Path) -> Any:
        """Return the records of a file as a memory-mapped array.

        Raises:
            CheckpointError: If a record is damaged.
        """
        header, count = self._measure(path)
        if count == 0:
            return np.zeros(0, self._record_type)
        return _read_records(path, self._record_type, len(header))

    def _select(self, is_new: bool) -> Iterator[Any]:
        """Yield the records of all but abandoned candidates, with those of constraints.

        ``is_new`` selects the generations that are not in a checkpoint, or the earlier ones.
        """
        for records in self._records:
            is_selected = (records["generation"] >= self._generation) == is_new
            yield from records[is_selected & (records["fate"] != Fate.ABANDONED)]

    def _append(self, content: bytes) -> None:
        """Write bytes to the file; an OSError then says how to continue the search."""
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            message = _UNWRITABLE.format(error.strerror)
            raise OSError(error.errno, message, str(self._path)) from error


def read_evaluations(path: Path) -> tuple[str, bool, Any, Any]:
    """Read a journal.

    Returns:
        name: The name of the objective.
        is_maximum: Whether the search maximised.
        candidates: The candidates, shape (n, dim).
        fitness: Their fitness, shape (n,); NaN if a candidate failed.

    Raises:
        CheckpointError: If a record is damaged.
        ValueError: If the file is not a journal.
    """
    with path.open("rb") as file:
        header = file.readline()
    try:
        search = json.loads(header)
        record = _record_type(search)
        name = str(search["objective"])
        is_maximum = search["maximize"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: expected a journal, got {header[:80]!r}") from error
    records = _read_records(path, record, len(header))
    records = records[_has_ended(records)]
    return name, is_maximum, records["x"], records["fitness"]


def _record_type(search: Mapping[str, Any]) -> Any:
    """Return the NumPy type of a record of the search, whose mean has dim numbers."""
    x = ("x", "<f8", (len(search["mean"]),))
    head = [("generation", "<i8"), ("index", "<i8"), ("fitness", "<f8"), ("fate", "u1")]
    return np.dtype([*head, x, ("checksum", "<u4")])


def _read_records(path: Path, record: Any, start: int) -> Any:
    """Return the complete records of a file as a memory-mapped array.

    Args:
        path: The file.
        record: The NumPy type of a record.
        start: The position of the first record, in bytes.

    Raises:
        CheckpointError: If a record is damaged.
    """
    count = (path.stat().st_size - start) // record.itemsize
    if count == 0:  # an empty file cannot be mapped
        return np.zeros(0, record)
    records = np.memmap(path, record, "r", start, (count,))
    for number, checksum in enumerate(records["checksum"].tolist()):
        if _checksum(records[number]) != checksum:
            undamaged_size = start + number * record.itemsize
            raise CheckpointError(_DAMAGED.format(path, number + 1, count, undamaged_size))
    return records


def _split(records: Sequence[Any]) -> list[Any]:
    """Return the values of each constraint from the x of their records.

    Zeros fill the last record, as if constraints without values followed.
    """
    numbers = iter(np.ravel(records).tolist())
    return [[next(numbers) for _ in range(int(count))] for count in numbers]


def _checksum(record: Any) -> int:
    """Return the checksum of a record, which covers all bytes before it."""
    return zlib.crc32(record.tobytes()[:-_CHECKSUM_SIZE])


def _has_ended(records: Any) -> Any:
    """Return whether a record, or each of several, has a candidate that was not abandoned."""
    return records["fate"] < Fate.ABANDONED
