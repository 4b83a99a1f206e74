"""docs/writing_a_kernel.md: its blocks run, and what it says of the project is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import kernels
from kernels.ops import check

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "writing_a_kernel.md"
# One of the two, for the page's operator can be registered once in a process.
DEVICE = [pytest.param("cuda", marks=pytest.mark.cuda) if torch.cuda.is_available() else "cpu"]


def blocks(*languages: str) -> list[tuple[int, str]]:
    """Returns the line and the text of every code block in these languages."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


def files() -> dict[str, str]:
    """Returns the native sources by the name that their first line gives."""
    return {text.split("\n")[0].removeprefix("// "): text for _, text in blocks("cpp", "cuda")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's native sources in it."""
    for name, text in files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("device", DEVICE)
def test_the_python_blocks_run_in_order(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what is compiled for a GPU that is not here, which ``test_the_cuda_file_compiles`` does."""
    monkeypatch.setattr(kernels, "compile_check", lambda source, gpu, include_dirs: 0.0)
    names: dict[str, object] = {"__name__": "tutorial"}
    for line, text in blocks("python"):
        exec(compile("\n" * line + text, PAGE, "exec"), names)

    assert callable(names["my_sigmoid"])


@pytest.mark.slow
def test_the_cuda_file_compiles(folder: Path) -> None:
    try:
        kernels.compile_check(folder / "my_sigmoid.cu", "sm_90", include_dirs=(PROJECT / "kernels" / "ops",))
    except kernels.CompilerMissingError as missing:
        pytest.skip(str(missing))


def test_the_table_of_steps_is_what_the_check_does() -> None:
    steps = check.run(["sigmoid"]).outcomes
    table = PAGE.read_text(encoding="utf-8").partition("| step |")[2].partition("\n\n")[0]

    named = re.findall(r"^\| ([A-Za-z][^|]*?) \|", table, re.MULTILINE)
    assert named == [each.name.removeprefix("sigmoid: ") for each in steps]
