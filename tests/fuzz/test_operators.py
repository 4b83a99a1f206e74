"""Operators on tensors of random shapes, strides, types and values against plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fuzzing import fuzz, st
from torch import Tensor

from kernels import (
    cem_update,
    cem_update_reference,
    elementwise_mult,
    elementwise_mult_reference,
    sample_normal,
    sample_normal_reference,
    sigmoid,
    sigmoid_reference,
    vector_add,
    vector_add_reference,
)

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17]), max_size=4) | st.sampled_from(
    [[1000], [33, 65], [4099]]
)
SPECIAL = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e-40, 1e38, -88.8)
UNSIGNED = torch.iinfo(torch.int64).max


@st.composite
def layouts(draw: Any, values: Tensor) -> Tensor:
    """The same values in memory of another layout."""
    how = draw(st.integers(0, 4))
    if how == 1 and values.dim() >= 2:
        first, second = draw(st.permutations(range(values.dim())))[:2]
        return values.transpose(first, second).contiguous().transpose(first, second)
    if how == 2:
        return torch.stack([values, values], dim=-1)[..., 1]
    if how == 3:
        return torch.cat([values.new_zeros(1), values.flatten()])[1:].view(values.shape)
    if how == 4 and values.dim() and values.shape[0] > 1:
        return values[:1].expand(values.shape)  # of other values: it is made before the comparison
    return values.contiguous()


@st.composite
def tensors(draw: Any, shape: Any, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))
    if dtype.is_floating_point:
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * draw(st.sampled_from([1, 30]))
        if values.numel():
            flat = values.view(-1)
            for special in draw(st.lists(st.sampled_from(SPECIAL), max_size=3)):
                flat[draw(st.integers(0, values.numel() - 1))] = special
        values = values.to(dtype)
    else:
        info = torch.iinfo(dtype)
        values = torch.randint(info.min, info.max, shape, generator=generator, dtype=dtype)
    return draw(layouts(values))


def same(ours: Any, theirs: Any, **tolerances: float) -> None:
    torch.testing.assert_close(ours, theirs, equal_nan=True, **(tolerances or {"rtol": 0, "atol": 0}))


@pytest.mark.parametrize(
    ("ours", "theirs", "count"),
    [
        (sigmoid, sigmoid_reference, 1),
        (vector_add, vector_add_reference, 2),
        (elementwise_mult, elementwise_mult_reference, 2),
    ],
)
def test_elementwise(ours: Any, theirs: Any, count: int) -> None:
    def check(data: Any) -> None:
        dtype = data.draw(st.sampled_from(FLOATING if count == 1 else FLOATING + INTEGERS))
        shape = data.draw(SHAPES)
        values = [data.draw(tensors(shape, dtype)) for _ in range(count)]
        info = torch.finfo(dtype) if count == 1 else None
        same(ours(*values), theirs(*values), **({"rtol": 2 * info.eps, "atol": info.tiny} if info else {}))

    fuzz(check, 30, data=st.data())


def test_sample_normal() -> None:
    def check(data: Any) -> None:
        dtype = data.draw(st.sampled_from(FLOATING))
        *batch, d = data.draw(
            st.sampled_from([[1], [7], [40], [129], [2, 3], [3, 33], [2, 2, 5], [0, 3], [0]])
        )
        shape, n = (*batch, d), data.draw(st.sampled_from([0, 1, 2, 15, 16, 17, 33, 300]))
        mean, std = (torch.randn(shape, generator=torch.Generator().manual_seed(i)).to(dtype) for i in (1, 2))
        mean, std = data.draw(layouts(mean)), data.draw(layouts(std.abs()))
        seed = (
            torch.arange(mean[..., 0].numel()).view(batch) if batch else data.draw(st.integers(0, UNSIGNED))
        )
        bounds = data.draw(st.sampled_from([None, (-0.5, 0.75), (0.0, 0.0)]))
        options = {name: data.draw(st.booleans()) for name in ("shared_noise", "antithetic", "dim_first")}
        options |= {"seed": seed, "generation": data.draw(st.integers(0, (1 << 38) - 1))}
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        zeros = torch.zeros(shape, dtype=exact)
        z = sample_normal(zeros, zeros + 1, n, **options)
        x = sample_normal(mean, std, n, bounds=bounds, **options)
        expected = sample_normal_reference(
            mean.to(exact), std.to(exact), z, bounds=bounds, dim_first=options["dim_first"]
        )
        same(x, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=16 * torch.finfo(exact).eps)
        assert x.is_contiguous()

    fuzz(check, 40, data=st.data())


def test_cem_update() -> None:
    def check(data: Any) -> None:
        def pick(*values: Any) -> Any:
            return data.draw(st.sampled_from(values))

        dtype, batch = pick(torch.float32, torch.float64), pick((), (1,), (3,), (2, 2), (0,))
        population, d = pick(1, 2, 7, 33, 200), pick(1, 3, 16, 65)
        elites = data.draw(st.integers(1, population))
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
        candidates = torch.randn((*batch, population, d), generator=generator, dtype=dtype)
        distribution = torch.rand((*batch, 4, d), generator=generator, dtype=dtype)
        record = torch.full((*batch, 5), float("nan"), dtype=torch.float64)
        record[..., 4] = 0
        weights = torch.rand(elites, generator=generator, dtype=torch.float64) + 0.1
        arguments = (
            data.draw(tensors((*batch, population), pick(*FLOATING, torch.int32, torch.int64))),
            data.draw(layouts(candidates)),
            data.draw(layouts(distribution)),
            *(record, torch.tensor(pick(0, 1, 5)), elites),
        )
        options = {
            "maximize": pick(False, True),
            "weights": pick(None, weights / weights.sum()),
            "extra_variance": pick(None, torch.tensor([0.5, 0.0], dtype=torch.float64)),
            "std_floor": pick(None, torch.full((d,), 0.3, dtype=dtype)),
            "variance_about": pick("new_mean", "new_mean_unbiased", "old_mean"),
            "smoothing": pick(1.0, 0.25),
            "std_smoothing": pick(1.0, 0.5),
            "mean_averaging": pick(0.0, 0.5),
        }
        ours, theirs = cem_update(*arguments, **options), cem_update_reference(*arguments, **options)
        same(ours[2:], theirs[2:])
        same(ours[1], theirs[1], rtol=1e-12, atol=1e-300)
        same(ours[0], theirs[0], rtol=1e-5, atol=1e-6)

    fuzz(check, 40, data=st.data())
