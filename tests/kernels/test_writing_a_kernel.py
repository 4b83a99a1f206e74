"""docs/writing_a_kernel.md: its blocks run, and what it says of the project is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import kernels
from kernels.ops import check

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs" / "writing_a_kernel.md"
PACKAGE = PROJECT / "docs" / "first_kernel"
# One of the two, for the page's operator can be registered once in a process.
DEVICE = [pytest.param("cuda", marks=pytest.mark.cuda) if torch.cuda.is_available() else "cpu"]


def blocks(*languages: str) -> list[tuple[int, str]]:
    """Returns the line and the text of every code block in these languages."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(
        rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names files as they lie in a checkout."""
    monkeypatch.chdir(PROJECT)


def test_a_native_block_is_part_of_the_file_that_its_first_line_names() -> None:
    for _, text in blocks("cpp", "cuda"):
        first, _, excerpt = text.partition("\n")
        source = (PROJECT / first.removeprefix("// ")).read_text(encoding="utf-8")
        assert "".join(excerpt.split()) in "".join(source.split()), first


@pytest.mark.parametrize("device", DEVICE)
def test_the_python_blocks_run_in_order(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what is compiled for a GPU that is not here, which
    ``test_the_cuda_file_compiles`` does."""
    monkeypatch.setattr(kernels, "compile_check", lambda source, gpu, include_dirs: 0.0)
    names: dict[str, object] = {"__name__": "tutorial"}
    for line, text in blocks("python"):
        exec(compile("\n" * line + text, PAGE, "exec"), names)

    assert callable(names["my_sigmoid"])


@pytest.mark.slow
def test_the_cuda_file_compiles() -> None:
    headers = (PROJECT / "kernels" / "ops",)
    try:
        kernels.compile_check(
            PACKAGE / "my_sigmoid" / "my_sigmoid.cu", "sm_90", include_dirs=headers
        )
    except kernels.CompilerMissingError as missing:
        pytest.skip(str(missing))


def test_the_package_has_the_operator_of_the_page() -> None:
    (shown,) = (
        text for _, text in blocks("python") if text.startswith("@torch.library.register_fake")
    )
    assert shown in (PACKAGE / "my_sigmoid" / "__init__.py").read_text(encoding="utf-8")


@pytest.mark.slow  # a process of its own: an operator can be registered once in each
def test_the_package_is_imported() -> None:
    program = "import torch, my_sigmoid; print(my_sigmoid.my_sigmoid(torch.zeros(1)).item())"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(PROJECT)])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.stdout == "0.5\n", done.stderr


def test_the_table_of_steps_is_what_the_check_does() -> None:
    steps = check.run(["sigmoid"]).outcomes
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| step | what has to hold |")[2].partition("\n\n")[0]

    named = re.findall(r"^\| ([A-Za-z][^|]*?) \|", table, re.MULTILINE)
    assert named == [each.name.removeprefix("sigmoid: ") for each in steps]
