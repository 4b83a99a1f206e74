"""``python -m kernels check``: what it finds, what it skips, what it prints."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import kernels
from kernels import CompilerMissingError
from kernels.ops import check
from kernels.ops.cases import Case
from kernels.ops.report import Outcome, Report

REFERENCES = [
    name.removesuffix("_reference") for name in kernels.__all__ if name.endswith("_reference")
]
OPERATORS = {name.removeprefix("sample_") for name in REFERENCES}
no_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="is about a machine without a GPU"
)


def square(x: Tensor) -> Tensor:
    return x * x


CASE = Case(
    reference=square,
    operator=square,
    inputs=lambda generator, size: (
        torch.randn(size, generator=generator, dtype=torch.float64),
    ),
    small=(5,),
    large=(100,),
    arguments={},
    prototype="a_prototype",
)


@pytest.fixture
def prototype(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A prototype of ``square``, and a Numba that is there."""
    module = ModuleType("a_prototype")
    module.square_forward = lambda x: x * x  # type: ignore[attr-defined]
    module.square_backward = lambda grad, x: 2 * x * grad  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_prototype", module)
    monkeypatch.setattr(check, "load_numba", lambda: "a simulator")
    return module


def walk(case: Case, device: str = "cpu") -> dict[str, Outcome]:
    outcomes = check.check_operator("square", case, device)
    return {outcome.name.removeprefix("square: "): outcome for outcome in outcomes}


def without_a_compiler(x: Tensor) -> Tensor:
    raise CompilerMissingError("no compiler", "install one")


def broken(x: Tensor) -> Tensor:
    raise RuntimeError("broken\nand more")


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
@pytest.mark.parametrize(
    ("change", "step", "note"),
    [
        (
            {"operator": lambda x: x * x + 0.25 * (x == x.max())},
            "C++ kernel",
            "difference: 0.25 at index",
        ),
        ({"operator": WrongDerivative.apply}, "C++ kernel", "are not close! "),
        ({"operator": WrongDerivative.apply}, "gradcheck, operator", "GradcheckError"),
        ({"reference": WrongDerivative.apply}, "gradcheck, reference", "GradcheckError"),
        ({"reference": lambda x: x * x / 0}, "C++ kernel", ""),
        ({"operator": lambda x: (x * x).half()}, "C++ kernel", "'dtype' do not match: "),
        ({"operator": without_a_compiler}, "C++ kernel", "no compiler: install one"),
        ({"operator": broken}, "C++ kernel", "RuntimeError: broken (test_check.py, line "),
    ],
)
def test_what_is_wrong_fails(change: dict[str, Any], step: str, note: str) -> None:
    found = walk(replace(CASE, **change))

    assert found[step].result == "FAILED"
    assert note in found[step].note
    assert list(found)[-1] == "gradcheck, operator"  # the walk goes on


@pytest.mark.usefixtures("prototype")
def test_an_operator_without_a_derivative_is_compared_by_its_results() -> None:
    found = walk(replace(CASE, operator=WrongDerivative.apply, gradients=False))
    wrong = walk(replace(CASE, operator=lambda x: x * x + 1, gradients=False))

    assert found["C++ kernel"].result == found["Numba kernel"].result == "ok"
    assert wrong["C++ kernel"].result == "FAILED"
    assert not [step for step in found if step.startswith("gradcheck")]


def test_a_wrong_gradient_of_the_prototype_fails(prototype: ModuleType) -> None:
    prototype.square_backward = lambda grad, x: x * grad  # type: ignore[attr-defined]

    assert walk(CASE)["Numba kernel"].result == "FAILED"


def test_without_numba_the_prototype_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    monkeypatch.setitem(sys.modules, "numba", None)  # makes the import fail
    found = walk(CASE)["Numba kernel"]

    assert found.result == "absent"
    assert "pip install -e '.[prototype]'" in found.note


@no_gpu
@pytest.mark.usefixtures("prototype")
@pytest.mark.parametrize(("device", "result"), [("cpu", "absent"), ("cuda", "FAILED")])
def test_a_missing_gpu_is_a_failure_only_where_it_was_asked_for(
    device: str, result: str
) -> None:
    found = walk(CASE, device)["CUDA kernel"]

    assert found.result == result
    assert "doctor --device cuda" in found.note


def test_every_operator_of_the_project_passes() -> None:
    report = check.run()

    assert report.works, str(report)
    assert {each.name.split(":")[0] for each in report.outcomes} == OPERATORS
    absent = {each.name.split(": ")[1] for each in report.outcomes if each.result == "absent"}
    assert absent <= {"Numba kernel", "CUDA kernel"}


@pytest.mark.cuda
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU and a CUDA build of torch"
)
def test_every_operator_of_the_project_passes_on_a_gpu() -> None:
    found = {each.name: each.result for each in check.run().outcomes}

    assert {found[f"{operator}: CUDA kernel"] for operator in OPERATORS} == {"ok"}, found


def test_the_difference_that_is_shown_is_the_largest_of_all_results(
    prototype: ModuleType,
) -> None:
    difference = 2e-13  # within the tolerances of both types

    def first_is_off(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * x + difference * (1 + x * x), x

    case = replace(
        CASE,
        reference=lambda x: (x * x, x),
        operator=first_is_off,
        gradients=False,
        prototype="",
    )
    found = walk(case)["C++ kernel"]
    assert found.error is not None
    assert found.error == pytest.approx(difference, rel=0.1, abs=0.0)


def test_a_report_with_one_failure_does_not_work() -> None:
    good, bad = Outcome("a", "ok", "", 0.1, 0.0), Outcome("b", "FAILED", "why", 12.34)
    assert Report([good]).works
    assert not Report([good, bad]).works
    assert str(Report([good, bad])).splitlines() == [
        "ok       a     0.1 s  error 0.0e+00, ",
        "FAILED   b    12.3 s  why",
        "",
        "does not work",
    ]
