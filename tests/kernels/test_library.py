"""An operator's two libraries: loaded on first use, once, for the device of the tensor, by any
thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernels.loader.cuda
import kernels.loader.extension
from kernels import CompilerMissingError, sigmoid, vector_add
from kernels.loader.toolchain import find_torch
from kernels.ops import library
from kernels.ops.library import Library

ROOT = Path(kernels.__file__).parents[1]
TWICE = Path(__file__).with_name("twice.cpp")
NEW_PROCESS = """
import sys, kernels
assert "torch" not in sys.modules
import torch
assert torch.ops.cem_tetris.lltm_forward.default
x = torch.zeros(3, requires_grad=True)
assert torch.ops.cem_tetris.sigmoid(x).grad_fn is not None
exported = torch.export.load(sys.argv[1] + "/exported.pt2").module()
traced = torch.jit.load(sys.argv[1] + "/traced.pt")
assert exported(x).tolist() == traced(x).tolist() == [0.5, 0.5, 0.5]
"""
EMPTY = "// loads in a moment: no header, no operator\n"
A_CUDA_TENSOR: Any = SimpleNamespace(is_cuda=True)


@pytest.fixture
def write_operator(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Library]:
    """Declares an operator of the test's own, ``twice``; a process can have one of each
    name."""
    monkeypatch.setattr(library, "_HERE", tmp_path)

    (tmp_path / "op.cu").write_text("")
    (tmp_path / "op.cpp").write_text('#include "op.h"\n')

    def write(
        name: str, register: Callable[[], None] | None = None, source: str = ""
    ) -> Library:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "op.h").write_text(
            source or TWICE.read_text().replace("cem_test_twice", name)
        )
        extension = library.extension(name, "cpu")

        def load() -> None:
            extension.load()
            register()  # type: ignore[misc]

        if register is not None:
            monkeypatch.setattr(library, "extension", lambda *of: SimpleNamespace(load=load))
        return Library(name)

    return write


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forgets the operators of the tests afterwards."""
    before = dict(library.LIBRARIES)
    yield
    library.LIBRARIES.clear()
    library.LIBRARIES.update(before)


def test_threads_that_come_at_once_load_once(write_operator: Callable[..., Library]) -> None:
    registered: list[str] = []
    tiny = write_operator("cem_test_threads", lambda: registered.append("now"), EMPTY)
    barrier, seen = threading.Barrier(4), list[int]()

    def use() -> None:
        barrier.wait()
        tiny.ensure(torch.ones(1))
        seen.append(len(registered))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 4


def test_the_first_use_may_be_inside_a_compiled_function(
    write_operator: Callable[..., Library],
) -> None:
    def register() -> None:
        torch.library.register_fake("cem_test_compiled::twice", torch.empty_like)

    tiny = write_operator("cem_test_compiled", register)

    def function(x: torch.Tensor) -> torch.Tensor:
        tiny.ensure(x)
        return torch.ops.cem_test_compiled.twice(x + 1)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]


def test_a_cuda_tensor_without_nvcc_names_the_remedy_and_leaves_the_cpu_working(
    write_operator: Callable[..., Library], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = write_operator("cem_test_no_nvcc", source=EMPTY)
    tiny.ensure(torch.ones(1))
    here = find_torch()._replace(cuda="13.0")
    monkeypatch.setattr(kernels.loader.extension, "find_torch", lambda: here)
    monkeypatch.setattr(kernels.loader.cuda, "_ask_nvcc", lambda path: None)

    with pytest.raises(
        CompilerMissingError, match=r"no nvcc found .*cuda-toolkit\[nvcc,cccl\]==13\.0\.\*"
    ):
        tiny.ensure(A_CUDA_TENSOR)
    tiny.ensure(torch.ones(1))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_saved_programs_load_where_no_operator_was_called(tmp_path: Path) -> None:
    class Sigmoid(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sigmoid(x)

    example = (torch.ones(3),)
    torch.export.save(torch.export.export(Sigmoid(), example), tmp_path / "exported.pt2")
    torch.jit.trace(sigmoid, example).save(str(tmp_path / "traced.pt"))
    subprocess.run([sys.executable, "-c", NEW_PROCESS, tmp_path], cwd=ROOT, check=True)


def test_a_tensor_that_is_not_dense_is_refused() -> None:
    dense, sparse = torch.eye(2), torch.eye(2).to_sparse()
    for pair in ((sparse, sparse), (dense, sparse), (sparse, dense)):
        with pytest.raises(
            NotImplementedError,
            match=r"expected dense tensors .*, got torch\.sparse_coo on cpu",
        ):
            vector_add(*pair)
