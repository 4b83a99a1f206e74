"""Stands for tests/jobs.py until the tests that need it name it there."""

from jobs import *  # type: ignore[import-not-found]  # noqa: F403
