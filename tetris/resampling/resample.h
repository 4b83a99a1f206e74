// What the draw of importance splitting asks of its arguments, and its job, on the GPU and where it is emulated.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <initializer_list>

#include "resample.cuh"

namespace tetris {

using torch::stable::Tensor;

#define TETRIS_DRAW_SCHEMA                                                                                             \
    "draw(Tensor columns, Tensor games, Tensor(a!) before, Tensor(b!) mass, Tensor(c!) held, Tensor(d!) ends, "        \
    "int count, bool counts, int bits, int own) -> Tensor"

// `columns` (population, streams, width) int32; `games`, `before` and `mass` (population, streams) int64; `held`
// (population, LEVELS) and `ends` (population,) float64. The result is of `mass`'s shape and type.
template <class Launch>
Tensor draw(const Tensor& columns, const Tensor& games, Tensor before, Tensor mass, Tensor held, Tensor ends,
            int64_t count, bool counts, int64_t bits, int64_t own) {
    using torch::headeronly::ScalarType;
    const auto check = [](bool condition, const char* message) { STD_TORCH_CHECK(condition, message); };
    check(columns.scalar_type() == ScalarType::Int && held.scalar_type() == ScalarType::Double &&
              ends.scalar_type() == ScalarType::Double,
          "expected int32 columns, float64 held and ends");
    check(columns.dim() == 3 && columns.is_contiguous() && columns.size(1) > 0 && columns.size(2) > 0,
          "expected contiguous columns of shape (population, streams, width)");
    using Tensors = std::initializer_list<const Tensor*>;
    for (const Tensor* each : Tensors{&columns, &games, &before, &held, &ends}) {
        check(each->get_device_index() == mass.get_device_index() && each->is_cuda() == mass.is_cuda(),
              "expected all tensors on one device");
    }
    const int64_t population = columns.size(0), streams = columns.size(1);
    check(streams <= 1 << 13, "expected at most 8192 streams");
    for (const Tensor* each : Tensors{&games, &before, &mass}) {
        check(each->scalar_type() == ScalarType::Long && each->is_contiguous() && each->dim() == 2 &&
                  each->size(0) == population && each->size(1) == streams,
              "expected contiguous int64 games, before and mass of shape (population, streams)");
    }
    check(held.is_contiguous() && held.dim() == 2 && held.size(0) == population && held.size(1) == LEVELS,
          "expected contiguous held of shape (population, levels)");
    check(ends.is_contiguous() && ends.dim() == 1 && ends.size(0) == population, "expected ends of shape (population,)");
    check(count > 0 && bits >= 0 && own >= 0, "expected a count from 1, bits and own from 0");
    Tensor source = torch::stable::new_empty(mass, {population, streams});
    Tensor scratch = torch::stable::new_empty(mass, {4, population, streams});
    if (population == 0) return source;
    int64_t* room = scratch.mutable_data_ptr<int64_t>();
    const int64_t all = population * streams;
    Draw job{};
    job.streams = static_cast<int>(streams);
    job.width = static_cast<int>(columns.size(2));
    job.columns = reinterpret_cast<const uint32_t*>(columns.const_data_ptr<int32_t>());
    job.games = games.const_data_ptr<int64_t>();
    job.before = before.mutable_data_ptr<int64_t>();
    job.mass = mass.mutable_data_ptr<int64_t>();
    job.held = held.mutable_data_ptr<double>();
    job.ends = ends.mutable_data_ptr<double>();
    job.count = static_cast<double>(count);
    job.counts = counts;
    job.bits = bits;
    job.own = own;
    job.source = source.mutable_data_ptr<int64_t>();
    job.level = room;
    job.order = room + all;
    job.until = room + 2 * all;
    job.after = room + 3 * all;
    Launch::launch(mass, job, static_cast<unsigned>(population));
    return source;
}

}  // namespace tetris
