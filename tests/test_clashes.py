"""Other distributions have packages named like these: every door says so, whoever is last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
DOORS = {
    "import cem": ("-c", "import cem"),
    "import tetris": ("-c", "import tetris"),
    "kernels": ("-m", "kernels", "doctor"),
    "tetris": ("-m", "tetris", "train"),
    "cem-tetris": ("-c", "import cem_tetris; cem_tetris.main()"),
    "script": (PROJECT / "scripts" / "train_tetris.py", "--help"),
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder into which this project is installed."""
    for name in ("cem", "tetris", "kernels"):
        (tmp_path / name).mkdir()
        for path in (PROJECT / name).iterdir():
            (tmp_path / name / path.name).symlink_to(path)
    (tmp_path / "cem_tetris.py").symlink_to(PROJECT / "cem_tetris.py")
    return tmp_path


def overwrite(site: Path, package: str) -> None:
    """Install another distribution's package over ours."""
    (site / package / "__init__.py").unlink()
    (site / package / "__init__.py").touch()


def call(site: Path, door: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *DOORS[door]],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("door", DOORS)
def test_a_door_names_the_package_that_was_installed_over_ours(site: Path, door: str) -> None:
    overwrite(site, "kernels")
    ended = call(site, door)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode != 0
    assert f"package kernels, got {site / 'kernels' / '__init__.py'} (kernels of Hugg" in last
    assert "use a virtual environment for each, or uninstall that one and run" in last


@pytest.mark.parametrize(("package", "door"), [("cem", "cem-tetris"), ("tetris", "import cem")])
def test_a_door_names_any_of_the_packages(site: Path, package: str, door: str) -> None:
    overwrite(site, package)
    assert f"expected this project's package {package}, got" in call(site, door).stderr


def test_uninstalling_the_other_one_leaves_no_package(site: Path) -> None:
    (site / "kernels" / "__init__.py").unlink()
    assert "package kernels, got None" in call(site, "import tetris").stderr


def test_installed_over_another_one_all_works(site: Path) -> None:
    (site / "kernels" / "layer.py").write_text("raise SystemExit('theirs')")
    assert call(site, "script").returncode == 0
