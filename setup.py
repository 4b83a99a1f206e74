"""Builds wheels in a temporary folder, with the project's address.

A folder beside this file would lend deleted files to the next wheel. All else is in
pyproject.toml.
"""

import runpy
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


def project_urls() -> dict[str, str]:
    """Return the addresses of the project for its metadata; none if it has no public one."""
    repository = runpy.run_path("kernels/version.py")["REPOSITORY"]
    return {"Repository": repository} if repository else {}


setup(cmdclass={"build": FreshBuild}, project_urls=project_urls())
