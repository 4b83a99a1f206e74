"""Walk operators through the workflow in which they are written, and compares every stage with the first.

A formula in PyTorch, its derivative checked by finite differences, the kernels in Numba, in C++, in CUDA, and
the derivative of the finished operator: ``python -m kernels check``. Each operator's folder says in
``check.py`` what to compare (a ``Case``); this file knows no operator. docs/writing_a_kernel.md walks the
same way by hand.
"""

from __future__ import annotations

import importlib
import os
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernels.loader.doctor import DEVICES
from kernels.loader.toolchain import BuildError, CompilerMissingError
from kernels.ops.library import operators
from kernels.support.names import unknown_name

Tensors = tuple[Tensor, ...]

STEPS = (
    "PyTorch reference",
    "gradcheck, reference",
    "Numba kernel",
    "C++ kernel",
    "CUDA kernel",
    "gradcheck, operator",
)
OK, SKIPPED, FAILED = "ok", "skipped", "FAILED"

_SKIPPABLE = ("Numba kernel", "CUDA kernel")
_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
_SEED = 1


@dataclass(frozen=True)
class Case:
    """What the walk has to know of one operator. ``CASES`` in the ``check.py`` of its folder has it by name.

    Attributes:
        reference: the formula in plain PyTorch: tensors to a tensor or a tuple of them.
        operator: the public function; the same arguments and results.
        inputs: makes float64 inputs on the CPU of a generator and a size, which is passed on as it is.
        small: the size for finite differences and for Numba's simulator, which is slow.
        large: the size for C++ and CUDA.
        arguments: what all of them, the prototype too, get by name beside the tensors.
        tolerance: the largest |difference| / (1 + |expected|), for each type that is checked.
        gradients: whether the operator has a derivative; without one, results alone are compared.
    """

    reference: Callable[..., Any]
    operator: Callable[..., Any]
    inputs: Callable[..., Tensors]
    small: tuple[int, ...]
    large: tuple[int, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[torch.dtype, float] = field(default_factory=lambda: dict(_TOLERANCE))
    gradients: bool = True


@dataclass(frozen=True)
class Outcome:
    """What one step found.

    Attributes:
        operator: the operator's folder.
        step: the step's name.
        result: ``"ok"``, ``"skipped"`` or ``"FAILED"``.
        error: the largest difference, as ``Case.tolerance`` measures it; None where nothing is compared.
        seconds: how long it took, a build included.
        note: what it ran on, what is wrong, or the remedy.
    """

    operator: str
    step: str
    result: str
    error: float | None
    seconds: float
    note: str


@dataclass(frozen=True)
class Report:
    """What the walk found.

    Attributes:
        device: what had to work, ``"cpu"`` or ``"cuda"``.
        steps: the outcomes in order.
    """

    device: str
    steps: list[Outcome]

    @property
    def works(self) -> bool:
        """Whether no step failed."""
        return all(step.result != FAILED for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return {"device": self.device, "works": self.works, "steps": [asdict(step) for step in self.steps]}

    def __str__(self) -> str:
        """The report as a table."""
        rows = [("operator", "step", "result", "max error", "seconds", "note")]
        previous = ""
        for step in self.steps:
            name = "" if step.operator == previous else step.operator
            error = "" if step.error is None else f"{step.error:.1e}"
            rows.append((name, step.step, step.result, error, f"{step.seconds:.2f}", step.note))
            previous = step.operator
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:>{widths[3]}}  {e:>{widths[4]}}  {f}"
            for a, b, c, d, e, f in rows
        ]
        counts = [sum(step.result == result for step in self.steps) for result in (OK, SKIPPED, FAILED)]
        verdict = f"{counts[0]} {OK}, {counts[1]} {SKIPPED}, {counts[2]} {FAILED}"
        return "\n".join([*(line.rstrip() for line in lines), "", verdict])


class Unavailable(Exception):  # noqa: N818  (not an error: it skips the step)
    """Something that a step needs is not here."""


class NotApplicable(Exception):  # noqa: N818  (not an error: it skips the step)
    """The operator has nothing that a step could check."""


class Mismatch(Exception):  # noqa: N818  (a finding)
    """Two stages differ by more than the tolerance."""

    def __init__(self, message: str, error: float | None = None) -> None:
        """Keep the difference, where there is a number."""
        super().__init__(message)
        self.error = error


def run(names: Sequence[str] = (), device: str = "cpu") -> Report:
    """Walk operators through all steps.

    Args:
        names: the operators' folders; all where it is empty.
        device: what has to work. With ``"cpu"`` a step that needs Numba or a GPU is skipped where that is not
            here; with ``"cuda"`` it fails.

    Returns:
        The report. An operator that is wrong does not raise.

    Raises:
        ValueError: there is no such operator or device.
    """
    if device not in DEVICES:
        raise unknown_name("device", device, DEVICES)
    known = {
        name: (case, folder)
        for folder in operators()
        for name, case in importlib.import_module(f"kernels.ops.{folder}.check").CASES.items()
    }
    for name in names:
        if name not in known:
            raise unknown_name("operator", name, sorted(known))
    outcomes = []
    for name in names or sorted(known):
        case, folder = known[name]
        outcomes += walk(name, case, f"kernels.ops.{folder}.prototype", device)
    return Report(device, outcomes)


def walk(name: str, case: Case, prototype: str, device: str) -> list[Outcome]:
    """Take one operator through all steps.

    Args:
        name: for the report.
        case: the operator.
        prototype: the module with ``forward(*inputs)`` and ``backward(*gradients, *inputs)`` in Numba, which
            take and return NumPy arrays; of a folder with several operators ``NAME_forward`` and so on.
        device: as in ``run``.
    """
    questions: list[Callable[[], tuple[float | None, str]]] = [
        lambda: _reference(case),
        lambda: _gradcheck(case, case.reference, ["cpu"]),
        lambda: _numba(case, prototype, name),
        lambda: _operator(case, "cpu"),
        lambda: _operator(case, "cuda"),
        lambda: _gradcheck(case, case.operator, ["cpu", "cuda"] if outcomes[-1].result == OK else ["cpu"]),
    ]
    outcomes: list[Outcome] = []
    for step, question in zip(STEPS, questions, strict=True):
        outcomes.append(_outcome(name, step, device == "cuda" or step not in _SKIPPABLE, question))
    return outcomes


def _outcome(
    operator: str, step: str, needed: bool, question: Callable[[], tuple[float | None, str]]
) -> Outcome:
    """Ask a question, and turns its answer or the error in its place into an outcome."""
    began = time.perf_counter()
    result, error = OK, None
    try:
        error, note = question()
    except Mismatch as mismatch:
        result, error, note = FAILED, mismatch.error, str(mismatch)
    except NotApplicable as reason:
        result, note = SKIPPED, str(reason)
    except (Unavailable, CompilerMissingError) as missing:
        result, note = FAILED if needed else SKIPPED, str(missing)
    except Exception as problem:  # a kernel can fail in any way, and the other steps still tell something
        result, note = FAILED, _one_line(problem)
    return Outcome(operator, step, result, error, round(time.perf_counter() - began, 3), note)


def _one_line(problem: Exception) -> str:
    text = next((line for line in str(problem).splitlines() if line.strip()), "")
    if isinstance(problem, BuildError):
        return text
    place = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"


def _reference(case: Case) -> tuple[float | None, str]:
    """Evaluate the formula: results and gradients have to be finite."""
    for dtype in case.tolerance:
        results = _evaluate(case.reference, case, case.large, dtype, "cpu")
        if not all(bool(result.isfinite().all()) for result in results):
            raise Mismatch(f"{_name(dtype)}: results or gradients are not finite")
    return None, ", ".join(_name(dtype) for dtype in case.tolerance)


def _gradcheck(case: Case, function: Callable[..., Any], devices: Sequence[str]) -> tuple[float | None, str]:
    """Compare the derivative with finite differences, in float64."""
    if not case.gradients:
        raise NotApplicable("it has no derivative")
    for device in devices:
        inputs = _inputs(case, case.small, torch.float64, device)
        # Its own tolerances would let an error of a thousandth pass.
        torch.autograd.gradcheck(
            lambda *tensors: function(*tensors, **case.arguments), inputs, atol=1e-6, rtol=1e-5
        )
    return None, ", ".join(devices)


def _operator(case: Case, device: str) -> tuple[float | None, str]:
    """Compare the operator's results and gradients on a device with the reference's on the CPU."""
    where = "cpu"
    if device == "cuda":
        if not torch.cuda.is_available():
            raise Unavailable("torch sees no GPU: see what python -m kernels doctor --device cuda says")
        where = torch.cuda.get_device_name()
    errors = []
    for dtype, tolerance in case.tolerance.items():
        expected = _evaluate(case.reference, case, case.large, dtype, "cpu")
        actual = _evaluate(case.operator, case, case.large, dtype, device)
        errors.append(_compare(actual, expected, tolerance, _name(dtype)))
    return max(errors), where


def _numba(case: Case, module: str, name: str) -> tuple[float | None, str]:
    """Compare the prototype's results and gradients with the reference's."""
    where = load_numba()
    found = vars(importlib.import_module(module))
    prefix = "" if "forward" in found else f"{name}_"
    errors = []
    for dtype, tolerance in case.tolerance.items():
        expected = _evaluate(case.reference, case, case.small, dtype, "cpu")
        arrays = [tensor.detach().numpy() for tensor in _inputs(case, case.small, dtype, "cpu")]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Grid size")  # small on purpose
            outputs = _tuple(found[f"{prefix}forward"](*arrays, **case.arguments))
            gradients: Any = ()
            if case.gradients:
                weights = _weights([torch.from_numpy(output) for output in outputs])
                gradients = found[f"{prefix}backward"](
                    *(w.numpy() for w in weights), *arrays, **case.arguments
                )
        actual = tuple(torch.from_numpy(array) for array in (*outputs, *_tuple(gradients)))
        errors.append(_compare(actual, expected, tolerance, _name(dtype)))
    return max(errors), where


def load_numba() -> str:
    """Import Numba: for the GPU where torch sees one, else for its simulator.

    Numba chooses when ``numba.cuda`` is first imported, so this has to come before. A person who sets
    ``NUMBA_ENABLE_CUDASIM`` chooses for it.

    Returns:
        What the kernels will run on.

    Raises:
        Unavailable: Numba is not installed, does not import, or cannot use the GPU.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault(_SIMULATOR, "1")
    try:
        import numba
        from numba import cuda
    except ModuleNotFoundError as error:
        raise Unavailable(f"no Numba ({error}): run pip install numba-cuda 'numpy<2.5'") from error
    except Exception as error:  # an installation can be broken in any way
        raise Unavailable(f"Numba does not import ({_one_line(error)}): {_numba_remedy()}") from error
    if numba.config.ENABLE_CUDASIM:
        return f"simulator, numba {numba.__version__}"
    try:
        cuda.jit(lambda: None)[1, 1]()
    except Exception as error:  # each of the libraries that it looks for has an error of its own
        remedy = f"{_numba_remedy()}, or set {_SIMULATOR}=1 for the simulator"
        raise Unavailable(f"Numba cannot use the GPU ({_one_line(error)}): {remedy}") from error
    return f"{torch.cuda.get_device_name()}, numba {numba.__version__}"


def _numba_remedy() -> str:
    """Say what to install. The newest numba-cuda, 0.30.4, launches no kernel beside NumPy 2.5 or newer."""
    if tuple(int(number) for number in np.__version__.split(".")[:2]) >= (2, 5):
        return f"run pip install 'numpy<2.5' (this is NumPy {np.__version__})"
    major = (torch.version.cuda or "13").partition(".")[0]
    return f"run pip install -U 'numba-cuda[cu{major}]'"


def _inputs(case: Case, size: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensors:
    made = case.inputs(torch.Generator().manual_seed(_SEED), *size)
    return tuple(tensor.to(device, dtype).requires_grad_(case.gradients) for tensor in made)


def _evaluate(
    function: Callable[..., Any], case: Case, size: tuple[int, ...], dtype: torch.dtype, device: str
) -> Tensors:
    """Return a function's results and the gradients of its inputs, if it has any."""
    inputs = _inputs(case, size, dtype, device)
    outputs = _tuple(function(*inputs, **case.arguments))
    if not case.gradients:
        return outputs
    weights = [weight.to(device) for weight in _weights(outputs)]
    return (*(output.detach() for output in outputs), *torch.autograd.grad(outputs, inputs, weights))


def _weights(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients that go into the backward pass: no two elements get the same."""
    generator = torch.Generator().manual_seed(_SEED + 1)
    return [torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs]


def _tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _compare(actual: Tensors, expected: Tensors, tolerance: float, name: str) -> float:
    """Return the largest difference.

    Raises:
        Mismatch: it is above the tolerance, or shapes or types differ.
    """
    found = [(tuple(tensor.shape), tensor.dtype) for tensor in actual]
    wanted = [(tuple(tensor.shape), tensor.dtype) for tensor in expected]
    if found != wanted:
        raise Mismatch(f"{name}: expected results and gradients of {wanted}, got {found}")
    errors = [0.0]
    for a, e in zip(actual, expected, strict=True):
        a, e = a.detach().cpu().double(), e.detach().double()
        error = (a - e).abs() / (1.0 + e.abs())
        if not error.isfinite().all():
            raise Mismatch(f"{name}: results or gradients are not finite")
        errors += [float(error.max())] if error.numel() else []
    if max(errors) > tolerance:
        raise Mismatch(f"{name}: expected a difference of at most {tolerance:.1e}", max(errors))
    return max(errors)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
