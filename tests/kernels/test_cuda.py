"""nvcc, the CUDA runtime and the architectures; the tests that compile skip where no nvcc is."""

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
    gencode_flags,
    known_architectures,
)

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
    assert find_nvcc() == Nvcc(packaged, "13.2.88")

    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "13.1")
    assert find_nvcc() == Nvcc(on_path, "13.1.88")

    at_home = fake_nvcc(tmp_path / "home" / "bin" / "nvcc", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    assert find_nvcc("13.0") == Nvcc(at_home, "12.8.88")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_HOME", "home")
    assert find_nvcc().path == at_home
    monkeypatch.setenv("CUDA_HOME", "runtime_only")
    assert find_nvcc().path == on_path


def test_nvcc_of_the_major_version_of_torch_is_preferred(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    packaged = fake_nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.2")
    on_path = fake_nvcc(tmp_path / "bin" / "nvcc", "12.8")

    assert find_nvcc("13.0").path == packaged
    assert find_nvcc("12.6").path == on_path
    assert find_nvcc("11.8").path == on_path


def test_a_missing_nvcc_names_packages_of_the_version_of_torch(fake_nvcc: FakeNvcc) -> None:
    with pytest.raises(
        CompilerMissingError, match=r"no nvcc found .*pip install 'cuda-toolkit\[nvcc,cccl\]==13\.2\.\*'$"
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


def test_nvcc_is_asked_what_it_compiles_for(fake_nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "bin" / "nvcc", "13.1")
    with nvcc.open("a") as script:
        script.write("echo sm_90 sm_90a sm_120 sm_100\n")

    assert known_architectures(find_nvcc()) == ("sm_90", "sm_100", "sm_120")


def test_architectures_are_those_of_the_variable_or_of_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_architectures_become_flags_of_nvcc() -> None:
    assert gencode_flags(("8.0", "12.0a+PTX")) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_120a,code=sm_120a",
        "-gencode=arch=compute_120a,code=compute_120a",
    ]
    with pytest.raises(BuildError, match="got 'Hopper'"):
        gencode_flags(("Hopper",))


@needs_nvcc
def test_a_cu_file_is_checked_for_every_architecture(tmp_path: Path) -> None:
    source = tmp_path / "hopper.cu"
    source.write_text(
        "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n#error compiled for Hopper\n#endif\n"
        "template <int A, int B> __global__ void fill(float* out) { out[threadIdx.x] = A + B; }\n"
        "template __global__ void LIST(float*);\n"
    )
    defines = (("LIST", "fill<1, 2>"),)

    assert compile_check(source, "sm_80", defines=defines) > 0
    with pytest.raises(BuildError, match="compiled for Hopper"):
        compile_check(source, ["sm_80", "sm_90"], defines=defines)


def test_a_wrong_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected architectures such as 'sm_90', got '9\.0'"):
        compile_check(Path("fill.cu"), "9.0")
    with pytest.raises(ValueError, match="got none"):
        compile_check(Path("fill.cu"), [])
