"""Stands for tests/damaged_runs.py until the test that needs it names it there."""

from damaged_runs import *  # type: ignore[import-not-found]  # noqa: F403
