"""The packages as a whole: who imports whom, what is installed with them, what a wheel
holds."""

from __future__ import annotations

import ast
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
from kernels.loader.toolchain import MINIMUM_TORCH

PROJECT = Path(__file__).parents[1]
PACKAGES = ("cem", "tetris", "kernels")
GAMES = {"tetris.game", "tetris.play", "tetris.record", "tetris"}
MAY_IMPORT = {
    "kernels.support": set(),
    "kernels.loader": {"kernels.support"},
    "kernels.ops": {"kernels.loader", "kernels.support"},
    "kernels": {"kernels.loader", "kernels.ops", "kernels.support"},
    "cem": {"kernels"},
    "tetris": {*GAMES, "tetris.view", "kernels"},
    "tetris.game": {"tetris", "kernels"},
    "tetris.play": {"tetris.game", "tetris", "kernels"},
    "tetris.record": {"tetris.game", "tetris.play", "tetris", "kernels"},
    "tetris.envs": {*GAMES, "tetris.view", "kernels"},
    "tetris.view": {*GAMES, "kernels"},
    "tetris.solver": {*GAMES, "kernels"},
    "tetris.evaluation": {*GAMES, "kernels"},
    "tetris.training": {*GAMES, "tetris.envs", "cem", "kernels"},
    "tetris.report": {*GAMES, "tetris.evaluation", "tetris.training", "tetris.view", "kernels"},
    "tetris.commands": {
        *GAMES,
        *(f"tetris.{room}" for room in ("evaluation", "training", "report", "view", "solver")),
        "kernels",
    },
    "scripts": {"cem", "tetris", "kernels"},
}
"""What a room may import: other packages, and of its own the rooms; its name is what lies
beside them."""

OPTIONAL = {
    **{"envs": {"pygame"}, "view": {"imageio_ffmpeg"}, "report": {"matplotlib"}},
    "cem": {"optuna"},
    "plan": {"tensordict", "torchrl"},
    "search": {"matplotlib"},
}
"""What the rooms use of the extras, where it is installed."""

DEPENDENCIES = {"PIL", "gymnasium", "jinja2", "markupsafe", "ninja", "numpy", "torch", "tqdm"}
tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    """The contents of pyproject.toml."""
    return dict(tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8")))


def imports(source: Path) -> set[str]:
    """Return the dotted names that a file imports anywhere in it, inside functions, too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports relatively"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def own_modules() -> dict[str, Path]:
    """Return the files of this project by the dotted names under which they are imported."""
    roots = {**dict.fromkeys(PACKAGES, PROJECT), "scripts": PROJECT / "scripts"}
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for package, root in roots.items()
        for path in (PROJECT / package).rglob("*.py")
    }


def package(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.partition(".")[0]


def room(module: str) -> str:
    """Return the room of a dotted name, the longest that is known."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in MAY_IMPORT), "scripts")


def test_imports_go_down_only() -> None:
    own, wrong = own_modules(), {}
    for module, source in own.items():
        here = room(module)
        allowed = {here, *MAY_IMPORT[here]}
        found = {each for each in imports(source) if package(each) in PACKAGES}
        above = {
            each
            for each in found
            if (room(each) if package(each) == package(here) else package(each)) not in allowed
        }
        if above and module != "tetris.__main__":
            wrong[module] = sorted(above)
    assert wrong == {}


def test_modules_import_one_another_in_no_circle() -> None:
    own = own_modules()
    graph = {
        module: {each if each in own else each.rpartition(".")[0] for each in imports(source)}
        & own.keys()
        for module, source in own.items()
    }
    # Who imports nothing of the rest, or is imported by nothing of it, is in no circle.
    while ends := {module for module, used in graph.items() if not used} | (
        graph.keys() - set().union(*graph.values())
    ):
        graph = {module: used - ends for module, used in graph.items() if module not in ends}
    assert not graph


def test_the_table_of_rooms_is_the_tree_and_every_package_says_where_to_begin() -> None:
    text = (
        (PROJECT / "CONTRIBUTING.md")
        .read_text(encoding="utf-8")
        .partition("## Where things are")[2]
    )
    rows = re.findall(r"^\| (`.+?`) \|", text, re.M)
    named = {folder for row in rows for folder in re.findall(r"`([\w/]+)/`", row)}
    assert [name for name in named if not (PROJECT / name).is_dir()] == []
    for path in own_modules().values():
        if path.name == "__init__.py":
            folder = path.parent.relative_to(PROJECT)
            known = any(
                each == str(folder.parent) or f"{each}/".startswith(f"{folder}/")
                for each in named
            )
            assert known, f"CONTRIBUTING.md names no {folder}"
            says = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            (first,) = re.findall(r"(?:[Bb]egin|[Ss]tart)\s+with\s+`([\w./]+)`", says)
            assert (path.parent / first).is_file(), f"{folder}: no {first}"


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_nothing_but_their_dependencies(package: str) -> None:
    allowed = {*sys.stdlib_module_names, *DEPENDENCIES, *PACKAGES, "cem_tetris"}
    allowed.add("typing_extensions")  # types alone
    # Of operators: they use Numba where the extra "prototype" brought it.
    prototypes = {"prototype.py", "check.py"}
    wrong = {
        str(source.relative_to(PROJECT)): sorted(foreign)
        for source in (PROJECT / package).rglob("*.py")
        if (
            foreign := {name.partition(".")[0] for name in imports(source)}
            - allowed
            - OPTIONAL.get(source.parent.name, set())
            - ({"numba"} if source.name in prototypes else set())
        )
    }
    assert wrong == {}


NOT_RUN = {"cuda", "docs", "prototype", "release", "worldmodel"}
"""The extras of which the suite needs nothing, for what uses them skips itself."""


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds(
    pyproject: dict[str, Any],
) -> None:
    lines = (PROJECT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    extras = pyproject["project"]["optional-dependencies"]
    used = [
        *pyproject["project"]["dependencies"],
        *(x for name in extras.keys() - NOT_RUN for x in extras[name]),
    ]
    # "cem-tetris[test]" and "gymnasium[mujoco]" add extras to what has its bound elsewhere.
    pairs = (line.partition(",")[0].partition(">=") for line in used if "[" not in line)
    bounds = {
        name: bound for name, _, bound in pairs if name not in ("clang-format", "mypy", "ruff")
    }
    assert tested.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", tested[name]), name  # 2.10 is 2.10.0
    assert bounds["torch"] == ".".join(map(str, MINIMUM_TORCH))


LATER = (
    *("PIL", "gymnasium", "jinja2", "matplotlib", "ninja", "optuna", "tensorboard"),
    *("tetris", "torch._dynamo"),
)
IMPORT = f"""
import sys, cem, kernels
cem.CrossEntropyMethod([0.0], 1.0, 10, maximize=True, backend="torch").ask()
print([name for name in {LATER} if name in sys.modules])
import tetris
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

    assert (result.returncode, result.stdout, result.stderr) == (0, "[]\n['tetris']\n", "")
    assert not cache.exists()


def shipped_files() -> set[str]:
    """Returns the files under the packages that an installation needs."""
    kept = (".py", ".typed", ".h", ".hpp", ".inc", ".cuh", ".cpp", ".cu")
    kept += (".html", ".css", ".js", ".json", ".wasm")
    files = (path for package in PACKAGES for path in (PROJECT / package).rglob("*"))
    found = {Path("cem_tetris.py"), *(path.relative_to(PROJECT) for path in files)}
    return {str(path) for path in found if path.suffix in kept or path.parent.name == "vendor"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    # A copy, with a build folder that an earlier wheel left: its deleted files must not get
    # into this one.
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "runs")
    shutil.copytree(PROJECT, folder / "copy", ignore=ignored)
    deleted = folder / "copy" / "build" / "lib" / "cem" / "deleted.py"
    deleted.parent.mkdir(parents=True)
    deleted.touch()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--quiet",
        "--wheel-dir",
        folder,
    ]
    result = subprocess.run(
        [*command, folder / "copy"], capture_output=True, text=True, check=False
    )
    if "No matching distribution found for setuptools" in result.stdout + result.stderr:
        pytest.skip("pip cannot fetch setuptools here")
    assert result.returncode == 0, result.stderr
    assert [path for path in (folder / "copy" / "build").rglob("*") if path.is_file()] == [
        deleted
    ]
    (built,) = folder.glob("cem_tetris-*-py3-none-any.whl")
    return built


@pytest.mark.slow(first=True)
def test_a_wheel_holds_the_packages_and_does_all_that_the_checkout_does(
    wheel: Path, tmp_path: Path
) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == shipped_files()
    # An environment of its own that holds the wheel alone; torch and the rest come from this
    # one's.
    installed = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", installed], check=True)
    site = next(installed.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", installed / "bin" / "python", "install"]
    subprocess.run([*pip, "--no-deps", "--quiet", wheel], check=True)
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if "site-packages" in path)
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: object, folder: Path = tmp_path) -> str:
        command = [str(installed / "bin" / str(words[0])), *map(str, words[1:])]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("cem-tetris", "--version") == f"cem-tetris {cem.__version__}\n"
    assert run("python", "-m", "kernels", "doctor").endswith("\nworks\n")
    where = run(
        "python", "-c", "import cem, kernels, tetris; print(cem.__file__, tetris.__file__)"
    )
    assert all(path.startswith(str(site)) for path in where.split())
    tiny = (
        "--features=bcts",
        "--board=10x6",
        "--generations=2",
        "--population=6",
        "--decisions=40",
    )
    trained = run(
        "cem-tetris",
        "train",
        *tiny,
        "--device",
        "cpu",
        "--score-decisions",
        640,
        "--out",
        "run",
    )
    assert (
        trained.splitlines()[-1] == "to watch it play: python -m tetris watch --board 10x6 run"
    )
    assert (tmp_path / "run" / "report.html").is_file()
    # The command takes no module from the current folder.
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in ("torch", "numpy", "ninja", "kernels", "json"):
        (planted / f"{name}.py").write_text("raise SystemExit('ran')")
    played = ("--board", "10x6", "--decisions", 64)
    assert "bcts" in run("cem-tetris", "evaluate", "../run", "bcts", *played, folder=planted)
