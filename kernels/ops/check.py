"""Compares every form of each operator with its reference: ``python -m kernels check``.

`cases.py` says what is compared; docs/writing_a_kernel.md takes the same steps by hand.
"""

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.ops.cases import CASES, Case, Tensors, choose
from kernels.ops.report import OK, Outcome, Report, Unavailable, ask, one_line

_SIMULATOR = "NUMBA_ENABLE_CUDASIM"
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of |difference| / (1 + |expected|)
_SEED = 1


def run(names: Sequence[str] = (), device: str = "cpu") -> Report:
    """Check operators, or all operators of folders.

    Only for the device ``"cuda"`` are Numba and a GPU necessary.
    """
    chosen = choose(names, sorted(CASES))
    return Report(
        [outcome for name in chosen for outcome in check_operator(name, CASES[name], device)]
    )


def check_operator(name: str, case: Case, device: str) -> list[Outcome]:
    """Check one operator in every form that it has, and return an outcome for every step.

    The derivatives of the reference and of the operator are compared with finite differences;
    the Numba prototype, the C++ kernel and the CUDA kernel with the reference. The steps that
    need Numba or a GPU may be absent without being a failure, unless the device is "cuda".

    The prototype's module has ``NAME_forward(*inputs)`` and ``NAME_backward(*gradients,
    *inputs)``, Numba kernels that take and return NumPy arrays.
    """
    outcomes: list[Outcome] = []

    def step(title: str, question: Callable[[], Any], *, needed: bool = True) -> bool:
        """Append the outcome of a step, and return whether it has succeeded."""
        outcome = ask(f"{name}: {title}", question, needed=needed or device == "cuda")
        outcomes.append(outcome)
        return outcome.result == OK

    if case.gradients:
        step("gradcheck, reference", partial(_check_gradient, case, case.reference, ["cpu"]))
    if case.prototype:
        step("Numba kernel", partial(_check_numba, case, name), needed=False)
    step("C++ kernel", partial(_check_results, case, "cpu"))
    works_on_gpu = step("CUDA kernel", partial(_check_results, case, "cuda"), needed=False)
    if case.gradients:
        devices = ["cpu", "cuda"] if works_on_gpu else ["cpu"]
        step("gradcheck, operator", partial(_check_gradient, case, case.operator, devices))
    return outcomes


def _check_gradient(case: Case, function: Callable[..., Any], devices: Sequence[str]) -> str:
    """Compare the derivative with finite differences, in float64."""
    for device in devices:
        inputs = _make_inputs(case, case.small, torch.float64, device)
        # Its own tolerances would let an error of a thousandth pass.
        torch.autograd.gradcheck(
            partial(function, **case.arguments), inputs, atol=1e-6, rtol=1e-5
        )
    return ", ".join(devices)


def _check_results(case: Case, device: str) -> tuple[float, str]:
    """Compare an operator with its reference; return the largest error and the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise Unavailable(
            "torch sees no GPU: see what python -m kernels doctor --device cuda says"
        )
    evaluate = partial(_evaluate, case.operator, case, case.large, device=device)
    where = torch.cuda.get_device_name() if device == "cuda" else device
    return _largest_error(case, case.large, evaluate), where


def _check_numba(case: Case, name: str) -> tuple[float, str]:
    """Compare the prototype with the reference; return the largest error and where it ran."""
    where = load_numba()
    return _largest_error(case, case.small, partial(_evaluate_numba, case, name)), where


def _evaluate_numba(case: Case, name: str, dtype: torch.dtype) -> Tensors:
    """Return what a prototype in Numba computes: its results, then its inputs' gradients.

    Its module has ``NAME_forward(*inputs)`` and, if the operator has a derivative,
    ``NAME_backward(*output_gradients, *inputs)``, which take and return NumPy arrays.
    """
    kernels = vars(importlib.import_module(case.prototype))
    inputs = _make_inputs(case, case.small, dtype, "cpu")
    arrays = [tensor.detach().numpy() for tensor in inputs]
    with warnings.catch_warnings():
        # Numba warns about grids of a few blocks, which are on purpose here.
        warnings.filterwarnings("ignore", message="Grid size")
        results = _as_tuple(kernels[f"{name}_forward"](*arrays, **case.arguments))
        if case.gradients:
            outputs = [torch.from_numpy(result) for result in results]
            output_gradients = [tensor.numpy() for tensor in _draw_weights(outputs)]
            backward = kernels[f"{name}_backward"]
            results += _as_tuple(backward(*output_gradients, *arrays, **case.arguments))
    return tuple(torch.from_numpy(result) for result in results)


def load_numba() -> str:
    """Import Numba, and return a description of what its kernels run on.

    This is the GPU, or Numba's simulator if there is none.

    Raises:
        Unavailable: Numba does not work.
    """
    if not torch.cuda.is_available():
        # Numba reads this variable when numba.cuda is first imported.
        os.environ.setdefault(_SIMULATOR, "1")
    try:
        import numba
        from numba import cuda

        if numba.config.ENABLE_CUDASIM:
            return f"simulator, numba {numba.__version__}"
        # Compiling and launching an empty kernel shows whether the GPU can be used.
        cuda.jit(lambda: None)[1, 1]()
    except Exception as error:  # an installation can be broken in any way
        remedy = f"run pip install 'cem-tetris[prototype]', or set {_SIMULATOR}=1"
        raise Unavailable(f"Numba does not work ({one_line(error)}): {remedy}") from error
    return f"{torch.cuda.get_device_name()}, numba {numba.__version__}"


def _make_inputs(case: Case, size: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensors:
    """Return the same random inputs for every type and device, to rounding."""
    tensors = case.inputs(torch.Generator().manual_seed(_SEED), *size)
    return tuple(tensor.to(device, dtype).requires_grad_(case.gradients) for tensor in tensors)


def _evaluate(
    function: Callable[..., Any],
    case: Case,
    size: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
) -> Tensors:
    """Return the results of a function on a case's inputs, then the gradients of the inputs.

    The gradients are those of a random linear combination of the results. An operator without
    a derivative has none.
    """
    inputs = _make_inputs(case, size, dtype, device)
    outputs = _as_tuple(function(*inputs, **case.arguments))
    if not case.gradients:
        return outputs
    output_gradients = [tensor.to(device) for tensor in _draw_weights(outputs)]
    input_gradients = torch.autograd.grad(outputs, inputs, output_gradients)
    results = [output.detach() for output in outputs]
    return (*results, *input_gradients)


def _draw_weights(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return random gradients of outputs, for the backward pass: no two elements are equal."""
    generator = torch.Generator().manual_seed(_SEED + 1)
    return [
        torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs
    ]


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _largest_error(
    case: Case, size: tuple[int, ...], evaluate: Callable[[torch.dtype], Tensors]
) -> float:
    """Return the largest error of an implementation in float32 and float64.

    The error of an element is |result - expected| / (1 + |expected|), where the reference on
    the CPU gives what is expected. ``evaluate`` returns the implementation's results, and the
    gradients if the operator has a derivative, for inputs of a dtype.

    Raises:
        AssertionError: an error is larger than the tolerance of its dtype.
    """
    largest = 0.0
    for dtype, tolerance in _TOLERANCE.items():
        expected = [
            tensor.detach() for tensor in _evaluate(case.reference, case, size, dtype, "cpu")
        ]
        results = [tensor.detach().cpu() for tensor in evaluate(dtype)]
        torch.testing.assert_close(
            results,
            expected,
            rtol=tolerance,
            atol=tolerance,
            msg=lambda text: " ".join(text.split()),  # on one line
        )
        for result, target in zip(results, expected, strict=True):
            error = (result.double() - target.double()).abs() / (1.0 + target.double().abs())
            # The list may be empty, where error.max() would raise an error.
            largest = max([largest, *error.flatten().tolist()])
    return largest
