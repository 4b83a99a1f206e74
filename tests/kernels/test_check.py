"""``python -m kernels check``: what it finds, what it skips, what it prints."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.ops import check
from kernels.ops.check import STEPS, Case, Outcome, Report

OPERATORS = ("cem_update", "elementwise_mult", "lltm", "normal", "sigmoid", "vector_add")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")


def square(x: Tensor) -> Tensor:
    return x * x


CASE = Case(
    reference=square,
    operator=square,
    inputs=lambda generator, size: (torch.randn(size, generator=generator, dtype=torch.float64),),
    small=(5,),
    large=(100,),
)


@pytest.fixture
def prototype(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A prototype of ``square``, and a Numba that is there."""
    module = ModuleType("a_prototype")
    module.forward = lambda x: x * x  # type: ignore[attr-defined]
    module.backward = lambda grad, x: 2 * x * grad  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_prototype", module)
    monkeypatch.setattr(check, "load_numba", lambda: "a simulator")
    return module


def walk(case: Case, device: str = "cpu") -> dict[str, Outcome]:
    outcomes = check.walk("square", case, "a_prototype", device)
    assert tuple(outcome.step for outcome in outcomes) == STEPS
    return {outcome.step: outcome for outcome in outcomes}


@pytest.mark.usefixtures("prototype")
def test_an_operator_that_is_right_passes() -> None:
    found = walk(CASE)

    assert {outcome.result for step, outcome in found.items() if step != "CUDA kernel"} == {"ok"}
    assert found["C++ kernel"].error == 0.0
    assert found["Numba kernel"].note == "a simulator"


@pytest.mark.usefixtures("prototype")
def test_a_wrong_value_fails_with_its_size() -> None:
    found = walk(replace(CASE, operator=lambda x: x * x + 0.25 * (x == x.max())))

    assert found["C++ kernel"].result == "FAILED"
    assert found["C++ kernel"].error is not None
    assert 0.01 < found["C++ kernel"].error < 0.25  # measured against 1 + the largest square


class WrongDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 2.001 * x * grad


@pytest.mark.usefixtures("prototype")
def test_an_operator_without_a_derivative_is_compared_by_its_results() -> None:
    found = walk(replace(CASE, operator=WrongDerivative.apply, gradients=False))
    wrong = walk(replace(CASE, operator=lambda x: x * x + 1, gradients=False))

    assert found["C++ kernel"].result == found["Numba kernel"].result == "ok"
    assert wrong["C++ kernel"].result == "FAILED"
    for step in ("gradcheck, reference", "gradcheck, operator"):
        assert (found[step].result, found[step].note) == ("skipped", "it has no derivative")


@pytest.mark.usefixtures("prototype")
def test_a_wrong_derivative_of_the_operator_fails_twice() -> None:
    found = walk(replace(CASE, operator=WrongDerivative.apply))

    assert found["C++ kernel"].result == "FAILED"
    assert found["gradcheck, operator"].result == "FAILED"
    assert "GradcheckError" in found["gradcheck, operator"].note


def test_a_wrong_gradient_of_the_prototype_fails(prototype: ModuleType) -> None:
    prototype.backward = lambda grad, x: x * grad  # type: ignore[attr-defined]

    assert walk(CASE)["Numba kernel"].result == "FAILED"


def test_without_numba_the_prototype_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setitem(sys.modules, "numba", None)  # makes the import fail
    found = walk(CASE)["Numba kernel"]

    assert found.result == "skipped"
    assert "pip install numba-cuda" in found.note


@pytest.mark.parametrize(
    ("device", "result", "numpy_version", "remedy"),
    [
        ("cpu", "skipped", "2.5.0", "pip install 'numpy<2.5' (this is NumPy 2.5.0)"),
        ("cuda", "FAILED", "2.4.6", "pip install -U 'numba-cuda[cu"),
    ],
)
def test_a_broken_numba_is_reported_as_such(
    device: str, result: str, numpy_version: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setattr(np, "__version__", numpy_version)
    broken = ModuleType("numba")  # without the module ``cuda``
    monkeypatch.setitem(sys.modules, "numba", broken)
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)  # another test may have imported it
    found = walk(CASE, device)["Numba kernel"]

    assert found.result == result
    assert found.note.startswith("Numba does not import (ImportError: cannot import name 'cuda'")
    assert remedy in found.note


@no_gpu
@pytest.mark.usefixtures("prototype")
@pytest.mark.parametrize(("device", "result"), [("cpu", "skipped"), ("cuda", "FAILED")])
def test_a_missing_gpu_is_a_failure_only_where_it_was_asked_for(device: str, result: str) -> None:
    found = walk(CASE, device)["CUDA kernel"]

    assert found.result == result
    assert "doctor --device cuda" in found.note


def test_the_report_is_an_aligned_table() -> None:
    report = Report(
        "cpu",
        [
            Outcome("square", "C++ kernel", "ok", 1.5e-7, 0.25, "cpu"),
            Outcome("square", "CUDA kernel", "skipped", None, 0.0, "no GPU"),
        ],
    )

    assert str(report).splitlines() == [
        "operator  step         result   max error  seconds  note",
        "square    C++ kernel   ok         1.5e-07     0.25  cpu",
        "          CUDA kernel  skipped                0.00  no GPU",
        "",
        "1 ok, 1 skipped, 0 FAILED",
    ]
    assert report.works


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("got 'sigmiod'; did you mean 'sigmoid'?")):
        check.run(["sigmiod"], "cpu")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_project_s_operator_passes(operator: str) -> None:
    report = check.run([operator])

    assert report.works, report
    ran = {step.step for step in report.steps if step.result == "ok" or "no derivative" in step.note}
    assert set(STEPS) - ran <= {"Numba kernel", "CUDA kernel"}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and a CUDA build of torch")
def test_the_project_s_operators_pass_on_a_gpu() -> None:
    report = check.run(OPERATORS)

    ran = [step.result for step in report.steps if step.step == "CUDA kernel"]
    assert ran == ["ok"] * len(OPERATORS), report
