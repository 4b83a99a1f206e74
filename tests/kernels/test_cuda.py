"""nvcc, the CUDA runtime and the architectures, and that every .cu file compiles: without a
GPU.

The tests that compile skip where no nvcc is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kernels.loader.cuda
from kernels import BuildError, CompilerMissingError, compile_check
from kernels.loader.cuda import (
    Nvcc,
    architectures,
    capabilities,
    find_nvcc,
    find_runtime,
    known_architectures,
)
from kernels.ops.library import extension
from kernels.ops.schemas import FAMILIES

FakeNvcc = Callable[[Path, str], Path]


def has_nvcc() -> bool:
    """Tells whether a .cu file can be compiled here."""
    try:
        find_nvcc()
    except CompilerMissingError:
        return False
    return True


needs_nvcc = pytest.mark.skipif(not has_nvcc(), reason="no nvcc found")


@pytest.fixture
def fake_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNvcc:
    """Writes programs that answer like nvcc, on a machine that has none."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(kernels.loader.cuda, "_wheel_dirs", lambda: [tmp_path / "nvidia"])

    def write(path: Path, version: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n"
        )
        path.chmod(0o755)
        return path

    return write


def test_known_gpus_are_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.loader.cuda, "answer", lambda *_: "sm_100\nsm_75")
    assert known_architectures(Nvcc(Path("nvcc"), "13.0.88")) == ("sm_75", "sm_100")


def test_nvcc_of_cuda_home_comes_before_path_and_packages(
    fake_nvcc: FakeNvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.2")
    assert find_nvcc() == Nvcc(packaged, "13.2.88")

    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "12.8")
    assert find_nvcc() == find_nvcc("11.8") == Nvcc(on_path, "12.8.88")
    assert find_nvcc("13.0").path == packaged  # of torch's major version

    at_home = fake_nvcc(tmp_path / "home" / "bin" / "nvcc", "12.6")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc("13.0") == Nvcc(at_home, "12.6.88")
    monkeypatch.setenv("CUDA_HOME", "runtime_only")
    assert find_nvcc().path == on_path


def test_a_missing_nvcc_names_packages_of_the_version_of_torch(fake_nvcc: FakeNvcc) -> None:
    with pytest.raises(
        CompilerMissingError,
        match=r"no nvcc found .*pip install 'cuda-toolkit\[nvcc,cccl\]==13\.2\.\*'$",
    ):
        find_nvcc("13.2")
    with pytest.raises(CompilerMissingError, match=r"set CUDA_HOME to its folder$"):
        find_nvcc("12.8")


def test_the_runtime_of_the_packages_comes_before_that_of_the_toolkit(
    fake_nvcc: FakeNvcc, tmp_path: Path
) -> None:
    nvcc = Nvcc(fake_nvcc(tmp_path / "toolkit" / "bin" / "nvcc", "13.0"), "13.0")
    toolkit = tmp_path / "toolkit" / "lib64" / "libcudart.so.13"
    packaged = tmp_path / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    for library in (toolkit, packaged):
        library.parent.mkdir(parents=True)
        library.write_text("")

    assert find_runtime(nvcc) == packaged
    packaged.unlink()
    assert find_runtime(nvcc) == toolkit
    toolkit.unlink()
    with pytest.raises(BuildError, match=r"no libcudart\.so\.13 found"):
        find_runtime(nvcc)


def test_architectures_are_those_of_the_variable_or_of_the_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [(9, 0), (8, 6), (9, 0)]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0 9.0a;12.0+PTX")
    assert architectures() == ("8.0", "9.0a", "12.0+PTX")
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: gpus[index])
    assert capabilities() == architectures() == ("8.6", "9.0")
    gpus.clear()
    with pytest.raises(BuildError, match="set TORCH_CUDA_ARCH_LIST"):
        architectures()


@needs_nvcc
def test_a_cu_file_is_checked_for_every_architecture(tmp_path: Path) -> None:
    source = tmp_path / "hopper.cu"
    source.write_text(
        """#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#error compiled for Hopper
#endif
template <int A, int B> __global__ void fill(float* out) { out[threadIdx.x] = A + B; }
template __global__ void LIST(float*);
"""
    )
    defines = (("LIST", "fill<1, 2>"),)

    assert compile_check(source, "sm_80", defines=defines) > 0
    with pytest.raises(BuildError, match="compiled for Hopper"):
        compile_check(source, ["sm_80", "sm_90"], defines=defines)


@needs_nvcc
@pytest.mark.slow
def test_the_articles_kernel_compiles() -> None:
    folder = Path(__file__).parents[2]
    headers = (folder / "kernels" / "ops",)
    source = folder / "scripts" / "measure" / "article.cu"
    assert compile_check(source, "sm_90", include_dirs=headers) > 0


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_it_compiles_for_old_or_the_newest_gpus(name: str) -> None:
    # launched early where a GPU can
    old = name in ("normal", "cem_update", "cma_update", "discrete")
    arch = "sm_80" if old else known_architectures(find_nvcc())[-1]
    library = extension(name, "cuda")
    assert compile_check(library.sources[0], arch, include_dirs=library.include_dirs) > 0
