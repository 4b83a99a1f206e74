"""Measurements that may take longer than one command has time: what they go on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from _markdown import Report


class Unfinished(Exception):  # noqa: N818 - not an error: there is more to do
    """A measurement is not done yet: the same command, run again, goes on with it."""


@dataclass(frozen=True)
class Continued:
    """What a measurement knows that goes on where the last command stopped.

    Attributes:
        kept: The folder that it keeps between commands.
        report: The result file so far.
        stop_after_s: Begin nothing that is unlikely to be done after so many seconds; None: no limit.
        commit: The commit that is measured; None where nobody knows.
    """

    kept: Path
    report: Report
    stop_after_s: float | None = None
    commit: str | None = None
