"""What every operator promises beyond its numbers, as functions that test_contract.py calls for
all.

A check takes a function of tensors, ``f(*inputs) -> Tensor`` or a tuple of them, and the
inputs; bind all other arguments with a lambda. ``f`` has to be pure: an operator that draws
random numbers is given its seed. Inputs that require gradients keep doing so. Results have to
be equal bit for bit unless tolerances (``rtol=`` and ``atol=``) are given. Nothing here knows
an operator.

    check_device(f, *inputs)             CUDA: the bits of the CPU
    check_compiles(backend, f, *inputs)  torch.compile(fullgraph=True): results, and gradients
                                         of the inputs that require them
    check_noncontiguous(f, *inputs)      every layout of ``layouts`` gives what contiguous
                                         inputs give, and no input is written, nor its
                                         neighbours in memory
    check_misfits(f, *inputs)            a tensor of another size, type or device than the
                                         others raises an error, and the same one where
                                         torch.compile or export traces
    check_autocast(f, *inputs)           under autocast an input may be bfloat16; the others
                                         keep their bits
    check_graph_replay(f, *inputs)       CUDA: a captured graph, replayed with other values in
                                         the same memory
    check_cuda(f, *inputs)               CUDA: that, and the current stream orders the work, not
                                         the default one

``DEVICES`` parametrizes a test over the CPU and CUDA; ``cuda`` marks a test that needs a GPU;
``skip_unless_free(bytes)`` is for tests of large tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

Function = Callable[..., Any]

_needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU and a CUDA build of torch"
)
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, _needs_gpu])]


def cuda(test: Function) -> Function:
    """Marks a test that needs a GPU; it skips itself where there is none."""
    return pytest.mark.cuda(_needs_gpu(test))


def skip_unless_free(count: int) -> None:
    """Skips a test where the current CUDA device has fewer free bytes."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < count:
        pytest.skip(f"needs {count / 2**30:.0f} GiB of GPU memory, {free / 2**30:.0f} are free")


def assert_same(actual: Any, expected: Any, **tolerances: float) -> None:
    """Compares tensors, or tuples of them: values (NaN equals NaN), types and devices."""
    torch.testing.assert_close(
        actual, expected, equal_nan=True, **(tolerances or {"rtol": 0, "atol": 0})
    )


def check_device(f: Function, *inputs: Any, **given: Any) -> None:
    """Compares a call, bit for bit, with that of the same tensors on CUDA."""
    there, given_there = tree_map_only(Tensor, Tensor.cuda, (inputs, given))
    assert_same(
        tree_map_only(Tensor, Tensor.cpu, f(*there, **given_there)), f(*inputs, **given)
    )


def check_compiles(backend: str, f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Compares ``torch.compile(f, fullgraph=True)`` with ``f``."""
    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    assert_same(
        results_and_gradients(compiled, inputs), results_and_gradients(f, inputs), **tolerances
    )


def layouts(tensor: Tensor) -> dict[str, Tensor]:
    """Returns views with the tensor's values whose memory is not contiguous or not aligned, by
    name."""
    other = torch.zeros_like(tensor)
    flat = torch.cat([other.flatten()[:1], tensor.flatten()])
    result = {
        "every second element": torch.stack([tensor, other], dim=-1)[..., 0],
        "not aligned": flat[1:].view(tensor.shape),
    }
    if tensor.dim() >= 2:
        result["transposed"] = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        result["rows of a wider tensor"] = torch.cat([tensor, other], dim=-1)[
            ..., : tensor.shape[-1]
        ]
    if tensor.dim() == 4:
        result["channels last"] = tensor.contiguous(memory_format=torch.channels_last)
    return result


def check_noncontiguous(f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Calls ``f`` with all inputs, then with one of them, in each of ``layouts``; it has to
    keep them."""
    plain = [x.detach().contiguous() for x in inputs]
    expected = f(*plain)
    views = [layouts(x) for x in plain]
    for name in dict.fromkeys(name for view in views for name in view):
        every = [view.get(name, x) for view, x in zip(views, plain, strict=True)]
        for arguments in [
            every,
            *([*plain[:i], every[i], *plain[i + 1 :]] for i in range(len(plain))),
        ]:
            try:
                assert_same(f(*arguments), expected, **tolerances)
            except AssertionError as error:
                shapes = ", ".join(f"{tuple(x.shape)} by {x.stride()}" for x in arguments)
                raise AssertionError(f"{name} ({shapes}): {error}") from error
        _check_inputs_kept(f, *every)


def _check_inputs_kept(f: Function, *inputs: Tensor) -> None:
    """Compares the whole storage of every input before and after a call."""
    before = [_storage(x).clone() for x in inputs]
    f(*inputs)
    for x, kept in zip(inputs, before, strict=True):
        assert torch.equal(_storage(x), kept), "the function wrote into an input"


def check_misfits(f: Function, *inputs: Tensor, free: Mapping[str, Sequence[int]]) -> None:
    """Calls ``f`` with each input replaced in turn. free: where any size, type or device
    does."""
    f(*inputs)
    for position, x in enumerate(inputs):
        misfits = {
            "size": torch.stack([x, x]) if x.dim() == 0 else torch.cat([x, x], dim=-1),
            "type": x.to(torch.float64 if x.dtype is torch.float32 else torch.float32),
        } | ({"device": x.cpu()} if x.is_cuda else {})
        for what, misfit in misfits.items():
            if position not in free.get(what, ()):
                arguments = (*inputs[:position], misfit, *inputs[position + 1 :])
                refusal = _refusal(f, *arguments)
                assert refusal, f"another {what} of input {position} is taken"
                with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                    refusal_of_fake = _refusal(f, *map(mode.from_tensor, arguments))
                if what == "device":  # of two devices either one may be called the other
                    refusal, refusal_of_fake = (
                        x.partition(", got")[0] for x in (refusal, refusal_of_fake)
                    )
                assert refusal_of_fake == refusal


def _refusal(f: Function, *arguments: Tensor) -> str:
    """Returns the error of a call."""
    try:
        f(*arguments)
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_autocast(f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Calls ``f`` under autocast, with all inputs and with each float32 one in bfloat16."""
    places = [i for i, x in enumerate(inputs) if x.dtype is torch.float32]
    rounded = [inputs]
    for i in places if len(places) > 1 else ():  # one alone keeps its type
        rounded.append((*inputs[:i], inputs[i].bfloat16(), *inputs[i + 1 :]))
    for arguments in rounded:
        wide = [x.float() if x.dtype is torch.bfloat16 else x for x in arguments]
        with torch.autocast(inputs[0].device.type, torch.bfloat16):
            result = f(*arguments)
        assert_same(result, f(*wide), **tolerances)


def check_graph_replay(f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Captures ``f`` in a CUDA graph and replays it with the inputs and then with other
    values."""
    static = [_copy(x) for x in inputs]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        f(*static)  # builds and loads the library, which a capture forbids
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = f(*static)
    for values in (inputs, [_other_values(x) for x in inputs]):
        with torch.no_grad():
            for to, value in zip(static, values, strict=True):
                to.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert_same(output, f(*[_copy(value) for value in values]), **tolerances)


def check_cuda(f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Replays ``f`` in a graph, and calls it on a stream of its own."""
    check_graph_replay(f, *inputs, **tolerances)
    _check_side_stream(f, *inputs, **tolerances)


def _check_side_stream(f: Function, *inputs: Tensor, **tolerances: float) -> None:
    """Calls ``f`` on a stream where its inputs get their values late; torch's streams wait for
    no other."""
    expected = f(*inputs)
    late = [_copy(x) for x in inputs]
    with torch.no_grad():
        for x in late:
            x.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)  # clock cycles: tens of milliseconds
        with torch.no_grad():
            for x, value in zip(late, inputs, strict=True):
                x.copy_(value)
        output = f(*late)
        torch.cuda.current_stream().synchronize()
    assert_same(output, expected, **tolerances)


def results_and_gradients(f: Function, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Returns what a function gives, and gradients of the inputs that require them."""
    arguments = [_copy(x) for x in inputs]
    results = _tuple(f(*arguments))
    wanted = [x for x in arguments if x.requires_grad]
    if not wanted:
        return list(results)
    # A different weight for every element: gradients of a plain sum hide a wrong order of
    # elements.
    weights = [
        torch.linspace(0.5, 1.5, y.numel()).view(y.shape).to(y.device, y.dtype) for y in results
    ]
    return [*results, *torch.autograd.grad(results, wanted, weights)]


def _tuple(results: Any) -> tuple[Tensor, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _other_values(tensor: Tensor) -> Tensor:
    """Returns the elements in the opposite order: values that the operator is known to take."""
    return tensor.detach().flatten().flip(0).view(tensor.shape)


def _storage(tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
