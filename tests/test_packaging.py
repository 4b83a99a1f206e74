"""The packages as a whole: who imports whom, what is installed with them, what a wheel holds."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import cem
import kernels
import tetris
from kernels.loader.toolchain import MINIMUM_TORCH

PROJECT = Path(__file__).parents[1]
PACKAGES = ("cem", "tetris", "kernels")
MAY_IMPORT = {
    "scripts": {"scripts", "cem", "tetris", "kernels"},
    "cem": {"cem", "kernels"},
    "tetris": {"tetris", "cem", "kernels"},
    "kernels": {"kernels"},
}
GAMES = {"game", "play", "record", "tetris"}
ROOMS = {
    "tetris": GAMES,
    "game": {"tetris"},
    "play": {"game", "tetris"},
    "record": {"game", "play", "tetris"},
    "envs": {*GAMES, "view"},
    "view": GAMES,
    "solver": GAMES,
    "evaluation": GAMES,
    "training": {*GAMES, "envs"},
    "report": {*GAMES, "evaluation", "training", "view"},
    "commands": {*GAMES, "evaluation", "training", "report", "view", "solver"},
}
"""What the rooms of tetris may import of it, besides themselves; `tetris` itself names what is public."""

OPTIONAL = {"envs": {"pygame"}, "view": {"PIL", "imageio_ffmpeg"}, "report": {"matplotlib"}}
"""What the rooms of tetris use of the extras, where it is installed."""

DEPENDENCIES = {"gymnasium", "ninja", "numpy", "torch", "tqdm"}
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    """The contents of pyproject.toml."""
    return dict(tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8")))


def modules(source: Path) -> set[str]:
    """Returns the dotted names that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports relatively"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def room(module: str) -> str:
    """Returns the room of a module of tetris by its dotted name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "tetris"


def test_the_rooms_of_tetris_import_downwards() -> None:
    wrong = {}
    for source in (PROJECT / "tetris").rglob("*.py"):
        dotted = ".".join(source.relative_to(PROJECT).with_suffix("").parts)
        if dotted == "tetris.__main__":
            continue
        name, found = room(dotted), modules(source)
        rooms = {room(each) for each in found if each.startswith("tetris.")} - ROOMS[name] - {name}
        cem = {each for each in found if each.partition(".")[0] == "cem"} if name != "training" else set()
        if rooms or cem:
            wrong[dotted] = sorted(rooms | cem)
    assert wrong == {}


def imported(source: Path) -> set[str]:
    """Returns the top-level names that a file imports anywhere in it."""
    return {name.partition(".")[0] for name in modules(source)}


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_go_down_only(folder: str) -> None:
    own = set(MAY_IMPORT)
    wrong = {
        str(source.relative_to(PROJECT)): sorted(forbidden)
        for source in (PROJECT / folder).rglob("*.py")
        if (forbidden := (imported(source) & own) - MAY_IMPORT[folder])
    }
    assert wrong == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_nothing_but_their_dependencies(package: str) -> None:
    allowed = set(sys.stdlib_module_names) | DEPENDENCIES | set(PACKAGES)
    # Of operators: they use Numba where the extra "prototype" brought it.
    prototypes = {"prototype.py", "numba_launch.py", "check.py"}
    wrong = {
        str(source.relative_to(PROJECT)): sorted(foreign)
        for source in (PROJECT / package).rglob("*.py")
        if (
            foreign := imported(source)
            - allowed
            - OPTIONAL.get(source.parent.name, set())
            - ({"numba"} if source.name in prototypes else set())
        )
    }
    assert wrong == {}


NOT_RUN = {"cuda", "docs", "prototype"}
"""The extras of which the suite needs nothing, for what uses them skips itself."""

LINTERS = {"clang-format", "mypy", "ruff"}


def lower_bounds(pyproject: dict[str, Any]) -> dict[str, str]:
    """Returns the lower bounds of all that the tests run with, by name; empty where one has none."""
    project = pyproject["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras.keys() - NOT_RUN for line in extras[name])]
    # "cem-tetris[test]" and "gymnasium[mujoco]" add extras to what has its bound elsewhere.
    pairs = (line.partition(",")[0].partition(">=") for line in lines if "[" not in line)
    return {name: bound for name, _, bound in pairs if name not in LINTERS}


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds(pyproject: dict[str, Any]) -> None:
    lines = (PROJECT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    bounds = lower_bounds(pyproject)

    assert tested.keys() == bounds.keys()
    # 2.10 is 2.10.0.
    wrong = {
        name: tested[name]
        for name in bounds
        if not re.fullmatch(rf"{re.escape(bounds[name])}(\.0)*", tested[name])
    }
    assert wrong == {}
    assert bounds["torch"] == ".".join(map(str, MINIMUM_TORCH))


def test_the_versions_of_python_that_are_told_are_tested(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    told = [
        line.rpartition(" ")[2]
        for line in project["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    workflow = (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"python: \[(.*)\]", workflow)

    assert project["requires-python"] == f">={told[0]}"
    assert re.findall(r"[\d.]+", tested) == told


def test_the_version_is_told_once(pyproject: dict[str, Any]) -> None:
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "kernels.version.__version__"}
    assert cem.__version__ == tetris.__version__ == kernels.__version__
    cited = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {cem.__version__}\n" in cited


LATER = ("gymnasium", "tensorboard", "torch._dynamo")
IMPORT = f"""
import sys, cem, tetris, kernels
cem.CrossEntropyMethod([0.0], 1.0, 10, maximize=True, backend="torch").ask()
print([name for name in {LATER} if name in sys.modules])
"""


def test_importing_does_no_work_and_imports_nothing_that_few_need(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    result = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=PROJECT,
        env={**os.environ, "CEM_TETRIS_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n", "")
    assert not cache.exists()


def shipped_files() -> set[str]:
    """Returns the files under the packages that an installation needs."""
    kept = (".py", ".typed", ".h", ".hpp", ".inc", ".cuh", ".cpp", ".cu", ".html", ".css", ".js", ".json")
    files = (path for package in PACKAGES for path in (PROJECT / package).rglob("*"))
    return {str(path.relative_to(PROJECT)) for path in files if path.suffix in kept}


def test_every_native_source_is_package_data(pyproject: dict[str, Any]) -> None:
    patterns = pyproject["tool"]["setuptools"]["package-data"]["*"]
    missed = {
        file
        for file in shipped_files()
        if not file.endswith(".py")
        and not any(fnmatch.fnmatch(Path(file).name, pattern) for pattern in patterns)
    }
    assert missed == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    # A copy: building in the checkout would leave a build folder, whose old files later wheels pick up.
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "runs")
    shutil.copytree(PROJECT, folder / "copy", ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", folder]
    result = subprocess.run([*command, folder / "copy"], capture_output=True, text=True, check=False)
    if "No matching distribution found for setuptools" in result.stdout + result.stderr:
        pytest.skip("pip cannot fetch setuptools here")
    assert result.returncode == 0, result.stderr
    (built,) = folder.glob("cem_tetris-*-py3-none-any.whl")
    return built


@pytest.mark.slow
def test_a_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == shipped_files()


@pytest.mark.slow
def test_a_wheel_does_all_that_the_checkout_does(wheel: Path, tmp_path: Path) -> None:
    # An environment of its own that holds the wheel alone; torch and the rest come from this one's.
    installed = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", installed], check=True)
    site = next(installed.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", installed / "bin" / "python", "install"]
    subprocess.run([*pip, "--no-deps", "--quiet", wheel], check=True)
    (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    environment = {**os.environ, "CEM_TETRIS_CACHE": str(tmp_path / "cache")}
    environment.pop("PYTHONPATH", None)

    def run(*words: object, folder: Path = tmp_path) -> str:
        command = [str(installed / "bin" / str(words[0])), *map(str, words[1:])]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    program = (
        "import sys, cem, tetris; print('gymnasium' in sys.modules, cem.__version__, tetris.__version__)"
    )
    assert run("python", "-c", program) == f"False {cem.__version__} {cem.__version__}\n"
    assert run("cem-tetris", "--version") == f"cem-tetris {cem.__version__}\n"
    assert run("python", "-m", "kernels", "doctor").endswith("\nworks\n")
    where = run("python", "-c", "import cem, kernels, tetris; print(cem.__file__, tetris.__file__)")
    assert all(path.startswith(str(site)) for path in where.split())
    tiny = ("--features=bcts", "--board=10x6", "--generations=2", "--population=6", "--decisions=40")
    trained = run("cem-tetris", "train", *tiny, "--device", "cpu", "--score-decisions", 640, "--out", "run")
    assert trained.splitlines()[-1] == "to watch it play: cem-tetris watch run"
    assert (tmp_path / "run" / "report.html").is_file()
    assert "bcts" in run("cem-tetris", "evaluate", "run", "bcts", "--board", "10x6", "--decisions", 640)
    assert "piece 1" in run("python", "-m", "tetris", "watch", "run", "--board", "10x6", "--decisions", 3)
    assert "report.html" in run("cem-tetris", "report", "run")
    # The command takes no module from the current folder.
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in ("torch", "numpy", "ninja", "kernels", "json"):
        (planted / f"{name}.py").write_text("raise SystemExit('ran')")
    assert "bcts" in run(
        "cem-tetris", "evaluate", "bcts", "--board", "10x6", "--decisions", 64, folder=planted
    )
