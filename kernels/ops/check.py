"""Compares every implementation of an operator with its reference: ``python -m kernels check``.

`cases.py` lists the operators and their inputs; docs/writing_a_kernel.md takes the same steps
by hand.
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
from kernels.ops.report import OK, Outcome, Report, Unavailable, one_line, run_check

_SIMULATOR_VARIABLE = "NUMBA_ENABLE_CUDASIM"
_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of |difference| / (1 + |expected|)
_SEED = 1


def run(names: Sequence[str] = (), device: str = "cpu") -> Report:
    """Check the operators that the names select.

    A missing Numba or GPU counts as a failure only for the device ``"cuda"``.
    """
    chosen = choose(names, sorted(CASES))
    return Report(
        [outcome for name in chosen for outcome in check_operator(name, CASES[name], device)]
    )


def check_operator(name: str, case: Case, device: str) -> list[Outcome]:
    """Check every implementation of an operator, and return one outcome per step.

    gradcheck compares the derivatives of the reference and of the operator with finite
    differences. The other steps compare the results of the Numba prototype, the C++ kernel and
    the CUDA kernel with the reference. If Numba or a GPU is missing, the steps that need it are
    reported as absent. With the device "cuda" they fail instead.
    """
    outcomes: list[Outcome] = []

    def run_step(title: str, check: Callable[[], Any], *, needed: bool = True) -> bool:
        """Run a step, append its outcome, and return whether it succeeded."""
        is_needed = needed or device == "cuda"
        outcome = run_check(f"{name}: {title}", check, needed=is_needed)
        outcomes.append(outcome)
        return outcome.result == OK

    # `case.gradients` is False for an operator without a derivative.
    if case.gradients:
        check_reference = partial(_check_gradient, case, case.reference, ["cpu"])
        run_step("gradcheck, reference", check_reference)
    if case.prototype:
        run_step("Numba kernel", partial(_check_numba, case, name), needed=False)
    run_step("C++ kernel", partial(_check_results, case, "cpu"))
    check_cuda = partial(_check_results, case, "cuda")
    works_on_gpu = run_step("CUDA kernel", check_cuda, needed=False)
    if case.gradients:
        devices = ["cpu", "cuda"] if works_on_gpu else ["cpu"]
        check_derivative = partial(_check_gradient, case, case.operator, devices)
        run_step("gradcheck, operator", check_derivative)
    return outcomes


def _check_gradient(case: Case, function: Callable[..., Any], devices: Sequence[str]) -> str:
    """Compare the derivatives of a function with finite differences, in float64."""
    for device in devices:
        inputs = _make_inputs(case, case.small, torch.float64, device)
        # The default tolerances of gradcheck would accept an error of 0.001.
        torch.autograd.gradcheck(
            partial(function, **case.arguments), inputs, atol=1e-6, rtol=1e-5
        )
    return ", ".join(devices)


def _check_results(case: Case, device: str) -> tuple[float, str]:
    """Compare an operator with its reference. Return the largest error and the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise Unavailable(
            "torch sees no GPU: see what python -m kernels doctor --device cuda says"
        )
    evaluate = partial(_evaluate, case.operator, case, case.large, device=device)
    where = torch.cuda.get_device_name() if device == "cuda" else device
    return _largest_error(case, case.large, evaluate), where


def _check_numba(case: Case, name: str) -> tuple[float, str]:
    """Compare the prototype with the reference. Return the largest error and the device."""
    where = load_numba()
    return _largest_error(case, case.small, partial(_evaluate_numba, case, name)), where


def _evaluate_numba(case: Case, name: str, dtype: torch.dtype) -> Tensors:
    """Return the results of an operator's Numba prototype, then the gradients of its inputs.

    The prototype's module defines ``NAME_forward(*inputs)`` and, if the operator has a
    derivative, ``NAME_backward(*output_gradients, *inputs)``. Both take and return NumPy
    arrays. The output gradients are random.
    """
    functions = vars(importlib.import_module(case.prototype))
    inputs = _make_inputs(case, case.small, dtype, "cpu")
    arrays = [tensor.detach().numpy() for tensor in inputs]
    with warnings.catch_warnings():
        # Numba warns that a grid of a few blocks is slow. Here it is intended.
        warnings.filterwarnings("ignore", message="Grid size")
        forward = functions[f"{name}_forward"]
        outputs = _as_tuple(forward(*arrays, **case.arguments))
        input_gradients: tuple[Any, ...] = ()
        # `case.gradients` is False for an operator without a derivative.
        if case.gradients:
            output_tensors = [torch.from_numpy(output) for output in outputs]
            output_gradients = [tensor.numpy() for tensor in _draw_gradients(output_tensors)]
            backward = functions[f"{name}_backward"]
            input_gradients = _as_tuple(backward(*output_gradients, *arrays, **case.arguments))
    return tuple(torch.from_numpy(array) for array in (*outputs, *input_gradients))


def load_numba() -> str:
    """Import Numba, and return a text that says what runs its kernels: a GPU or the simulator.

    Raises:
        Unavailable: Numba does not work.
    """
    if not torch.cuda.is_available():
        # This variable turns the simulator on. Numba reads it when it imports numba.cuda.
        os.environ.setdefault(_SIMULATOR_VARIABLE, "1")
    try:
        import numba
        from numba import cuda

        if numba.config.ENABLE_CUDASIM:
            return f"simulator, numba {numba.__version__}"
        # Compile and launch an empty kernel, to find out whether the GPU can be used.
        cuda.jit(lambda: None)[1, 1]()
    except Exception as error:  # A broken installation may raise any error.
        remedy = f"run pip install -e '.[prototype]', or set {_SIMULATOR_VARIABLE}=1"
        raise Unavailable(f"Numba does not work ({one_line(error)}): {remedy}") from error
    return f"{torch.cuda.get_device_name()}, numba {numba.__version__}"


def _make_inputs(case: Case, size: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensors:
    """Return random inputs, which are equal up to rounding for all types and devices."""
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

    The gradients are those of a random linear combination of the results. There are none for an
    operator without a derivative, for which ``case.gradients`` is False.
    """
    inputs = _make_inputs(case, size, dtype, device)
    outputs = _as_tuple(function(*inputs, **case.arguments))
    if not case.gradients:
        return outputs
    output_gradients = [tensor.to(device) for tensor in _draw_gradients(outputs)]
    input_gradients = torch.autograd.grad(outputs, inputs, output_gradients)
    results = [output.detach() for output in outputs]
    return (*results, *input_gradients)


def _draw_gradients(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Return random gradients of outputs for the backward pass."""
    generator = torch.Generator().manual_seed(_SEED + 1)
    return [
        torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs
    ]


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _largest_error(
    case: Case, size: tuple[int, ...], evaluate: Callable[[torch.dtype], Tensors]
) -> float:
    """Compare an implementation with the reference, and return the largest error of all dtypes.

    The expected values are computed by the reference on the CPU. The error of an element is
    |result - expected| / (1 + |expected|).

    Args:
        case: the operator, its reference and its inputs.
        size: the size of the inputs.
        evaluate: returns the results of the implementation for inputs of a dtype, then the
            gradients of the inputs if the operator has a derivative.

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
            # Print the error message on one line.
            msg=lambda text: " ".join(text.split()),
        )
        for result, target in zip(results, expected, strict=True):
            error = (result.double() - target.double()).abs() / (1.0 + target.double().abs())
            # `Tensor.max` fails for a tensor without elements, so take the maximum of a list.
            largest = max([largest, *error.flatten().tolist()])
    return largest
