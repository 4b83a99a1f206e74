"""A file of the candidates evaluated one by one, which a resumed search does not repeat."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cem.run.checkpoint import CheckpointError, check_same_run
from kernels.support.files import check_own


class Journal:
    """Evaluations in the order in which they ended, a line of JSON each.

    The fitness of a candidate that failed is null.

    Attributes:
        known: Candidate and fitness by generation and index, of the generations that no
            checkpoint has.
        values: The fitness of all candidates; None for one that failed.
        earlier: Candidate and fitness of the other generations, in the order of the file.
    """

    def __init__(self, path: Path, search: Mapping[str, Any], generation: int) -> None:
        """Read the evaluations of a search from a file, and open the file to append others.

        A new file gets ``search`` as its first line. A last line without an end, which an
        interruption left, is removed.

        Args:
            path: The file.
            search: What identifies the search, as a dict for JSON.
            generation: The first generation that no checkpoint has.

        Raises:
            CheckpointError: If the file belongs to another search.
            ValueError: If a line is no evaluation.
        """
        self.known: dict[tuple[int, int], tuple[list[float], float | None]] = {}
        self.values: list[float | None] = []
        self.earlier: list[tuple[list[float], float | None]] = []
        check_own(path)
        content = path.read_bytes() if path.exists() else b""
        complete = content[: content.rfind(b"\n") + 1]
        lines = complete.splitlines()
        header = json.dumps(search).encode()
        if lines:
            _check_search(path, header, lines[0])
        for line in lines[1:]:
            try:
                row = json.loads(line)
                number = row["generation"]
                index = row["index"]
                x = row["x"]
                value = row["fitness"]
                # NaN and infinities are written as text.
                fitness = None if value is None else float(value)
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}: expected an evaluation, got {line!r}") from error
            self.values.append(fitness)
            if number >= generation:
                self.known[number, index] = x, fitness
            else:
                self.earlier.append((x, fitness))
        self._unused = {tuple(x) for x, _ in self.known.values()}
        self._file = path.open("ab")
        self._file.truncate(len(complete))
        if not lines:
            self._file.write(header + b"\n")

    def take(self, candidate: Any) -> bool:
        """Return whether the file has a candidate, and forget it."""
        x = tuple(candidate.tolist())
        if x not in self._unused:
            return False
        self._unused.remove(x)
        return True

    def write(self, generation: int, index: int, candidate: Any, fitness: float | None) -> None:
        """Append an evaluation, so that it outlives this process."""
        value = fitness
        if fitness is not None and not math.isfinite(fitness):
            value = str(fitness)  # type: ignore[assignment]  # JSON has neither NaN nor infinity
        x = candidate.tolist()
        line = json.dumps({"generation": generation, "index": index, "x": x, "fitness": value})
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _check_search(path: Path, expected: bytes, line: bytes) -> None:
    try:
        search = dict(json.loads(line))
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path}: expected a search in its first line, got {line!r}"
        ) from error
    check_same_run(path, json.loads(expected), search)
