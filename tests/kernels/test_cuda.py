"""nvcc, the CUDA runtime and the architectures; the tests that compile skip where no nvcc is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kernels.loader.cuda
import kernels.ops
from kernels import BuildError, CompilerMissingError, Extension, compile_check
from kernels.loader.cuda import (
    Nvcc,
    architectures,
    find_nvcc,
    find_runtime,
    gencode_flags,
    known_architectures,
)

FOLDER = Path(kernels.ops.__file__).parent
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
        path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n")
        path.chmod(0o755)
        return path

    return write


def test_nvcc_of_cuda_home_comes_before_path_and_packages(
    fake_nvcc: FakeNvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.2")
    assert find_nvcc() == Nvcc(packaged, "13.2", "V13.2.88", "packages")

    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "13.1")
    assert find_nvcc() == Nvcc(on_path, "13.1", "V13.1.88", "PATH")

    at_home = fake_nvcc(tmp_path / "home" / "bin" / "nvcc", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc("13.0") == Nvcc(at_home, "12.8", "V12.8.88", "CUDA_HOME")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_HOME", "home")
    assert find_nvcc().path == at_home


def test_a_missing_nvcc_names_packages_of_the_version_of_torch(fake_nvcc: FakeNvcc) -> None:
    with pytest.raises(
        CompilerMissingError, match=r"no nvcc found .*pip install 'cuda-toolkit\[nvcc,cccl\]==13\.2\.\*'$"
    ):
        find_nvcc("13.2")
    with pytest.raises(
        CompilerMissingError, match=r"no nvcc found .*pip install 'cuda-toolkit\[nvcc,cccl\]'$"
    ):
        find_nvcc()


def test_an_nvcc_with_headers_of_another_version_is_refused(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.5")
    header = tmp_path / "nvidia" / "cu13" / "include" / "cuda_runtime_api.h"
    header.parent.mkdir()
    header.write_text("#define CUDART_VERSION  13050\n")
    assert find_nvcc("13.2").path == nvcc

    header.write_text("#define CUDART_VERSION  13020\n")
    with pytest.raises(
        CompilerMissingError, match=r"is of CUDA 13\.5 and its headers of 13\.2: .*cccl\]==13\.2"
    ):
        find_nvcc("13.2")


def test_the_runtime_of_the_packages_comes_before_that_of_the_toolkit(
    fake_nvcc: FakeNvcc, tmp_path: Path
) -> None:
    nvcc = Nvcc(fake_nvcc(tmp_path / "toolkit" / "bin" / "nvcc", "13.0"), "13.0", "V13.0.88", "PATH")
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


def test_nvcc_is_asked_what_it_compiles_for(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "bin" / "nvcc", "13.1")
    with nvcc.open("a") as script:
        script.write("echo sm_90 sm_90a sm_120 sm_100\n")

    assert known_architectures(find_nvcc()) == ("sm_90", "sm_100", "sm_120")


def test_without_gpu_and_variable_there_is_no_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(BuildError, match="set TORCH_CUDA_ARCH_LIST"):
        architectures()


def test_architectures_become_flags_of_nvcc() -> None:
    assert gencode_flags(("8.0", "12.0a+PTX")) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_120a,code=sm_120a",
        "-gencode=arch=compute_120a,code=compute_120a",
    ]
    with pytest.raises(BuildError, match="got 'Hopper'"):
        gencode_flags(("Hopper",))


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is a CUDA build")
def test_a_cuda_library_needs_a_cuda_build_of_torch() -> None:
    with pytest.raises(BuildError, match=r"expected a CUDA build of torch for probe, got .*pytorch\.org"):
        Extension("probe", (FOLDER / "probe.cu",), cuda=True).load()


@needs_nvcc
def test_a_cu_file_is_checked_for_every_architecture(tmp_path: Path) -> None:
    source = tmp_path / "hopper.cu"
    source.write_text(
        "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n#error compiled for Hopper\n#endif\n"
        "__global__ void kernel() {}\n"
    )

    assert compile_check(source, "sm_80") > 0
    with pytest.raises(BuildError, match="compiled for Hopper"):
        compile_check(source, ["sm_80", "sm_90"])
