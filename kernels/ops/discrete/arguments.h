// The operators' arguments as the kernels want them.
#pragma once

#include <vector>

#include "discrete.h"
#include "tensors.h"

namespace cem_tetris::discrete {
namespace {

constexpr char kCategoricalSchema[] =
    "sample_categorical(Tensor tables, int[] sizes, SymInt num_samples, Tensor seed, Tensor generation) "
    "-> Tensor";
constexpr char kPermutationSchema[] =
    "sample_permutation(Tensor table, SymInt num_samples, Tensor seed, Tensor generation) -> Tensor";

using Starts = std::vector<int64_t>;  // where the categories of each variable begin, and the last one's end

// Calls run(call). shape: of the table of a problem.
template <typename F> Tensor with_call(const Tensor& given, std::initializer_list<int64_t> shape,
    int64_t width, int64_t samples, const Tensor& given_seed, const Tensor& generation, const F& run) {
  const Sizes sizes = given.sizes();
  const Problems problems{Device(given), {sizes.data(), sizes.size() - shape.size()}};
  const Tensor table = problems.check(given, "the table", ScalarType::Double, shape),
               seed = problems.check(given_seed, "seed", ScalarType::Long, {});
  problems.require(generation, "generation", ScalarType::Long, {}, false);
  STD_TORCH_CHECK(
      samples >= 0 && samples < int64_t{1} << 31, "expected num_samples in 0..2^31 - 1, got ", samples);
  const Tensor out = problems.empty(ScalarType::Long, {samples, width});
  const Call call{problems.count(), samples, width, const_data<double>(table), const_data<int64_t>(seed),
      const_data<int64_t>(generation), mutable_data<int64_t>(out)};
  if (call.problems * samples * width != 0) run(call, problems.device);
  return out;
}

template <void (&run)(const Call&, const Starts&, Device)> Tensor sample_categorical(const Tensor& tables,
    std::vector<int64_t> sizes, int64_t samples, const Tensor& seed, const Tensor& generation) {
  STD_TORCH_CHECK(tables.dim() >= 1, "expected tables of shape (..., T), got ()");
  Starts starts{0};
  for (const int64_t size : sizes) {
    STD_TORCH_CHECK(
        size >= 1 && size <= kMostCategories, "expected sizes from 1 to ", kMostCategories, ", got ", size);
    starts.push_back(starts.back() + size);
  }
  return with_call(tables, {starts.back()}, static_cast<int64_t>(sizes.size()), samples, seed, generation,
      [&](const Call& call, Device device) { run(call, starts, device); });
}

template <void (&run)(const Call&, Device)> Tensor sample_permutation(
    const Tensor& table, int64_t samples, const Tensor& seed, const Tensor& generation) {
  const int64_t n = table.dim() < 2 ? 0 : table.sizes().back();
  STD_TORCH_CHECK(n >= 1 && n <= kMostItems,
      "expected table of shape (..., n + 1, n), 1 <= n <= ", kMostItems, ", got ", text_of(table.sizes()));
  return with_call(table, {n + 1, n}, n, samples, seed, generation, run);
}

}  // namespace
}  // namespace cem_tetris::discrete
