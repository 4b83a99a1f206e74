"""Builds wheels in a temporary folder.

A folder beside this file would lend deleted files to the next wheel. All else is in
pyproject.toml.
"""

import tempfile

from setuptools import setup
from setuptools.command.build import build

FOLDER = tempfile.TemporaryDirectory()


class FreshBuild(build):
    """The command that collects the files of a wheel."""

    def initialize_options(self) -> None:
        """Choose the folder that it collects them in."""
        super().initialize_options()
        self.build_base = FOLDER.name


setup(cmdclass={"build": FreshBuild})
