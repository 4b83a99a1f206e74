"""The schemas of all operators. They are registered when `kernels` and torch are imported.

A saved program calls operators by name, so they must exist before their first call: with a
schema, a fake kernel, a derivative, and the rules for vmap and autocast. Nothing is compiled
for this. The first call of an operator imports its module.
"""

import importlib
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import fallthrough_kernel


class Family(NamedTuple):
    """The operators of one folder."""

    schemas: tuple[str, ...]
    differentiable: tuple[str, ...] = ()  # those with a derivative


_SAMPLE = (
    "(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, SymInt generation, "
    "Tensor? seeds, Tensor? generations, bool shared_noise, bool antithetic, bool dim_first, "
    "ScalarType dtype, Tensor? low, Tensor? high) -> Tensor"
)
_CELL = (
    "(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
    "(Tensor new_h, Tensor new_cell, Tensor gates)"
)

# NAME_forward and NAME_no_grad are NAME without a derivative. A derivative costs every call of
# NAME some 40 us, which torch spends in Python code.
FAMILIES = {
    "elementwise": Family(
        (
            "sigmoid(Tensor x) -> Tensor",
            "sigmoid_forward(Tensor x) -> Tensor",
            "sigmoid_backward(Tensor grad, Tensor y) -> Tensor",
            "vector_add(Tensor a, Tensor b) -> Tensor",
            "vector_add_forward(Tensor a, Tensor b) -> Tensor",
            "elementwise_mult(Tensor a, Tensor b) -> Tensor",
            "elementwise_mult_forward(Tensor a, Tensor b) -> Tensor",
            "elementwise_mult_backward(Tensor grad, Tensor a, Tensor b) -> (Tensor, Tensor)",
        ),
        ("sigmoid", "sigmoid_backward", "vector_add", "elementwise_mult"),
    ),
    "lltm": Family(
        (
            f"lltm{_CELL}",
            f"lltm_forward{_CELL}",
            "lltm_backward(Tensor? grad_h, Tensor? grad_cell, Tensor input, Tensor weights, "
            "Tensor old_h, Tensor new_cell, Tensor gates, bool of_input, bool of_parameters, "
            "bool of_old_h) -> (Tensor d_input, Tensor d_weights, Tensor d_bias, "
            "Tensor d_old_h, Tensor d_old_cell)",
        ),
        ("lltm",),
    ),
    "normal": Family(
        (
            f"sample_normal{_SAMPLE}",
            f"sample_normal_no_grad{_SAMPLE}",
            # sample_normal_seeded has only the arguments of a simple call, with a seed below
            # 2^63. sample_normal_rows is for optimisers; it takes rows (..., R, d) and returns
            # (..., N, d). An argument of a schema costs the CPU some 60 ns even if it is not
            # passed; a view of a row costs a microsecond.
            "sample_normal_seeded(Tensor mean, Tensor std, SymInt num_samples, SymInt seed, "
            "SymInt generation=0, bool dim_first=True, bool shared_noise=False) -> Tensor",
            "sample_normal_rows(Tensor rows, SymInt num_samples, Tensor seed, "
            "Tensor generation, Tensor? low=None, Tensor? high=None) -> Tensor",
        ),
        ("sample_normal",),
    ),
    "cem_update": Family(
        (
            "cem_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, "
            "Tensor generation, Tensor? extra_variance, Tensor? weights, Tensor? std_floor, "
            "SymInt num_elites, bool maximize, int variance_about, float smoothing, "
            "float std_smoothing, float mean_averaging, bool ranked) "
            "-> (Tensor, Tensor, Tensor, Tensor)",
        )
    ),
    "cma_update": Family(
        (
            "cma_update(Tensor fitness, Tensor candidates, Tensor distribution, Tensor record, "
            "Tensor generation, Tensor factor, Tensor paths, Tensor weights, "
            "Tensor? extra_variance, Tensor? std_floor, SymInt num_elites, bool maximize, "
            "float smoothing, float mean_averaging, float mu_eff, float c_s, float d_s, "
            "float c_c, float c_1, float c_mu, float chi) "
            "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
            "draw_correlated(Tensor distribution, Tensor factor, SymInt population_size, "
            "Tensor seed, Tensor generation, Tensor? low=None, Tensor? high=None) -> Tensor",
        )
    ),
    "discrete": Family(
        (
            "sample_discrete(Tensor table, SymInt num_samples, Tensor seed, Tensor generation, "
            "ScalarType dtype, bool is_permutation) -> Tensor",
            "update_tables(Tensor fitness, Tensor candidates, Tensor tables, Tensor record, "
            "Tensor generation, Tensor sums, SymInt num_elites, int[] columns, int[] rows, "
            "int[] values, float[] rates, float[] floors, bool maximize) "
            "-> (Tensor, Tensor, Tensor)",
        )
    ),
}

_LIBRARY = torch.library.Library("cem_tetris", "FRAGMENT")
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU).add(
    torch._C.DispatchKey.AutocastCUDA
)


def _find_library(family: str) -> Any:
    """Return the `kernels.ops.library.Library` of a folder of operators."""
    return importlib.import_module(f"kernels.ops.{family}.op")._LIBRARY


def _load_and_run(family: str, operator: Any, *arguments: Any) -> Any:
    """Load the library of an operator that has no kernel yet, and call the operator again.

    The library registers a kernel, which torch calls from then on.
    """
    # Any tensor may decide which kernel torch calls. If one had no kernel after the loop, torch
    # would call this function again, without end.
    for tensor in arguments:
        if not isinstance(tensor, Tensor):
            continue
        if tensor.device.type not in ("cpu", "cuda") or tensor.layout is not torch.strided:
            raise NotImplementedError(
                "expected dense tensors on the CPU or on CUDA, "
                f"got {tensor.layout} on {tensor.device}"
            )
        _find_library(family).ensure(tensor)
    return operator(*arguments)


def _promote(operator: Any, *arguments: Any) -> Any:
    """Run an operator under autocast, in the widest type of its arguments up to float32.

    torch does the same for ``torch.cat``.
    """

    def has_narrow_type(argument: Any) -> bool:
        is_float = isinstance(argument, Tensor) and argument.is_floating_point()
        return is_float and argument.dtype is not torch.float64

    types = {argument.dtype for argument in arguments if has_narrow_type(argument)}
    if len(types) > 1:
        arguments = tuple(x.float() if has_narrow_type(x) else x for x in arguments)
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return operator(*arguments)


def vmap_in_a_loop(operator: Any, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
    """Implement ``torch.vmap`` for an operator: call it for every slice, and stack the results.

    A scalar result, such as the generation after an update, depends only on scalar arguments.
    If none of them is batched, it is the same for all slices, and is returned without stacking.

    Args:
        operator: the operator to call.
        info: information from ``torch.vmap``; ``info.batch_size`` is the number of slices.
        in_dims: the batched dimension of each argument. It is an integer only for a batched
            tensor; otherwise it is None, or for a list of numbers a list of None.
        arguments: the arguments, some of which are batched.

    Returns:
        The stacked result, and its batched dimension, which is None if the result is not
            stacked. Both are tuples if the operator returns several tensors.
    """
    pairs = list(zip(arguments, in_dims, strict=True))
    # A batch of scalars is a tensor with one dimension.
    has_batched_scalar = any(isinstance(dim, int) and x.dim() == 1 for x, dim in pairs)

    def stack(results: list[Tensor] | tuple[Tensor, ...]) -> tuple[Tensor, int | None]:
        """Return the results of all slices as a batch, and the dimension of the batch."""
        is_scalar = results[0].dim() == 0
        if is_scalar and not has_batched_scalar:
            return results[0], None
        return torch.stack(results)[: info.batch_size], 0

    outputs = []  # The tensor, or the tuple of tensors, that the operator returns for a slice.
    # For an empty batch one call tells the shapes of the results.
    for index in range(max(1, info.batch_size)):
        slice_arguments = []
        for x, dim in pairs:
            if isinstance(dim, int):
                # The sum over an empty batch is a slice of zeros.
                x = x.select(dim, index) if info.batch_size else x.sum(dim, dtype=x.dtype)
            # An argument that is not batched is passed to every call.
            slice_arguments.append(x)
        outputs.append(operator(*slice_arguments))
    if isinstance(outputs[0], Tensor):
        return stack(outputs)
    # Stack the first tensors of all tuples, then the second ones, and so on.
    batches = [stack(results) for results in zip(*outputs, strict=True)]
    tensors = tuple(tensor for tensor, _ in batches)
    dims = tuple(dim for _, dim in batches)
    return tensors, dims


def _register(family: str, schema: str) -> None:
    """Register an operator with torch: its schema, its derivative, and its rules.

    The rules tell torch what to do under autocast, vmap and tracing. The kernels are not
    registered here. The first call loads a compiled library, which registers them.

    Args:
        family: the folder of the operator.
        schema: the name of the operator, its arguments and its results.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    operator = getattr(torch.ops.cem_tetris, name).default
    # This kernel for any device loads the library. As soon as the library has registered a
    # kernel for the device itself, torch prefers that one.
    _LIBRARY.impl(name, partial(_load_and_run, family, operator), "CompositeExplicitAutograd")
    for key in ("AutocastCPU", "AutocastCUDA"):
        _LIBRARY.impl(name, partial(_promote, operator), key)
    torch.library.register_vmap(operator, partial(vmap_in_a_loop, operator), lib=_LIBRARY)
    _register_tracing_and_derivative(family, name)


def _register_tracing_and_derivative(family: str, name: str) -> None:
    """Register the functions that torch calls when it traces or differentiates an operator.

    They are defined in the module of the operator's folder. It is imported only when torch
    calls one of them for the first time.

    Args:
        family: the folder of the operator.
        name: the name of the operator.
    """

    def fake(*arguments: Any) -> Any:
        return _find_library(family).fake(name, *arguments)

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        _find_library(family).gradients[name].save(ctx, inputs, output)

    def backward(ctx: Any, *gradients: Any) -> Any:
        return _find_library(family).gradients[name].backward(ctx, *gradients)

    qualified = f"cem_tetris::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    differentiable_names = FAMILIES[family].differentiable
    if name in differentiable_names:
        torch.library.register_autograd(qualified, backward, setup_context=save, lib=_LIBRARY)
    elif not differentiable_names:
        # If no operator of the folder has a derivative, calls skip autograd, which is faster.
        _LIBRARY.impl(name, fallthrough_kernel, "Autograd")
    # Any other operator has no derivative, and keeps torch's default kernel for autograd.


for _family, (_schemas, _) in FAMILIES.items():
    for _schema in _schemas:
        _register(_family, _schema)
