// The sampler on CUDA. The schemas are in op.cpp.

#include <torch/csrc/stable/library.h>

#include "backward.cuh"
#include "sample.cuh"
#include "small.cuh"

namespace cem_tetris::normal {
namespace {

// nvcc's own half types, for their conversions.
template <typename T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<torch::headeronly::Half> {
  using type = __half;
};
template <>
struct DeviceType<torch::headeronly::BFloat16> {
  using type = __nv_bfloat16;
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Tiles along the fast and the slow side to a grid: as many steps a thread as leave four blocks a
// multiprocessor twice over.
Shape make_shape(int64_t fast, int64_t slow, int device, int64_t* blocks) {
  int log_width = 0;
  while ((1 << log_width) < kThreads && (int64_t{1} << log_width) < fast) ++log_width;
  const int height = kThreads >> log_width;
  const int64_t across = divide_up(fast, int64_t{1} << log_width), wanted = 8 * multiprocessors(device);
  int steps = 1;
  while (steps < kMaxSteps && 2 * steps * height <= kMaxEntries &&
         across * divide_up(slow, 2 * steps * height) >= wanted) {
    steps *= 2;
  }
  const int64_t down = divide_up(slow, steps * height);
  *blocks = across * down;
  STD_TORCH_CHECK(*blocks < int64_t{1} << 31, "sample_normal: expected less than 2^31 blocks, got ", *blocks);
  return {log_width, steps, static_cast<uint32_t>(across), static_cast<uint32_t>(down),
          static_cast<uint32_t>(std::min(kGroup, across))};
}

template <typename T, int kRows>
void launch_small_rows(const SmallRows& job, int64_t blocks, const float* mean, const float* std,
                       Tensor& out) {
  auto* kernel =
      job.keys.seed_data != nullptr ? small_rows_kernel<T, kRows, true> : small_rows_kernel<T, kRows, false>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, current_stream(out)>>>(
      job, mean, std, static_cast<T*>(out.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

constexpr int64_t kSmallLoad = 64;  // blocks a multiprocessor: with more, the general kernels are as fast

SmallKeys small_keys(const Noise& noise) {
  SmallKeys keys{noise.seed_data, make_key(noise.seed), {}};
  for (int i = 0; i < kLateKeys; ++i) keys.late.word[i] = late_key(keys.key, i);
  return keys;
}

// (N, d).
template <typename T>
bool launch_small_columns(const Noise& noise, const float* mean, const float* std, Tensor& out) {
  const int64_t limit = kSmallLoad * multiprocessors(out.get_device_index()) * kThreads;
  if (noise.dimensions > limit || divide_up(noise.samples, kTile) > limit / noise.dimensions) return false;
  const int64_t threads = divide_up(noise.samples, kTile) * noise.dimensions;
  const SmallColumns job{static_cast<uint32_t>(noise.dimensions), static_cast<uint32_t>(threads),
                         noise.samples, noise.generation, small_keys(noise)};
  auto* kernel = noise.seed_data != nullptr ? small_columns_kernel<T, true> : small_columns_kernel<T, false>;
  kernel<<<static_cast<unsigned>(divide_up(threads, kThreads)), kThreads, 0, current_stream(out)>>>(
      job, mean, std, static_cast<T*>(out.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

// Whether a kernel for small results was launched; all else is left to the general ones.
template <typename T>
bool launch_small(const Noise& noise, Vector mean, Vector std, Tensor& out) {
  constexpr int kLeastWidth = 5;
  if (noise.shared || noise.antithetic || mean.type != ScalarType::Float || std.type != ScalarType::Float) {
    return false;
  }
  const auto* means = static_cast<const float*>(mean.data);
  const auto* stds = static_cast<const float*>(std.data);
  if (!noise.dim_first) return launch_small_columns<T>(noise, means, stds, out);
  if (noise.samples % kTile != 0 || noise.samples < kTile << kLeastWidth) return false;
  int log_width = kLeastWidth;
  while ((1 << log_width) < kThreads && (int64_t{kTile} << log_width) < noise.samples) ++log_width;
  const int64_t height = kThreads >> log_width,
                across = divide_up(noise.samples, int64_t{kTile} << log_width);
  const auto blocks = [&](int rows) { return across * divide_up(noise.dimensions, height * rows); };
  const int64_t load = blocks(1) / multiprocessors(out.get_device_index());  // blocks of one row each
  if (load >= kSmallLoad) return false;

  const SmallRows job{noise.dimensions,
                      noise.samples,
                      log_width,
                      static_cast<uint32_t>(across),
                      is_aligned(means, 16) && is_aligned(stds, 16),
                      noise.generation,
                      small_keys(noise)};
  if (load < 4 || noise.dimensions < 4) {
    launch_small_rows<T, 1>(job, blocks(1), means, stds, out);
  } else if (load < 15) {
    launch_small_rows<T, 2>(job, blocks(2), means, stds, out);
  } else {
    launch_small_rows<T, 4>(job, blocks(4), means, stds, out);
  }
  return true;
}

template <typename T>
void launch(Noise noise, Vector mean, Vector std, const std::optional<Tensor>& low,
            const std::optional<Tensor>& high, Tensor& out) {
  using Real = typename ComputeType<T>::type;
  const Bounds<Real> bounds = {low.has_value() ? static_cast<const Real*>(low->const_data_ptr()) : nullptr,
                               high.has_value() ? static_cast<const Real*>(high->const_data_ptr()) : nullptr};
  if (noise.samples == 1 || noise.dimensions == 1)
    noise.dim_first = noise.dimensions == 1;  // the same in memory
  if constexpr (sizeof(Real) == sizeof(float)) {
    if (bounds.low == nullptr && bounds.high == nullptr && launch_small<T>(noise, mean, std, out)) return;
  }
  const int64_t blocks_of_samples = divide_up(noise.samples, kTile),
                tiles = divide_up(noise.dimensions, kTile);
  int64_t blocks = 0;
  const Shape shape =
      make_shape(noise.dim_first ? blocks_of_samples : tiles, noise.dim_first ? tiles : blocks_of_samples,
                 out.get_device_index(), &blocks);
  const bool plain = !noise.shared && !noise.antithetic && bounds.low == nullptr && bounds.high == nullptr &&
                     noise.samples % kTile == 0 && noise.dimensions % kTile == 0;
  auto* kernel = noise.dim_first ? (plain ? rows_kernel<T, true> : rows_kernel<T, false>)
                                 : (plain ? columns_kernel<T, true> : columns_kernel<T, false>);
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, current_stream(out)>>>(
      noise, mean, std, bounds, shape, static_cast<T*>(out.mutable_data_ptr()));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor sample_normal_cuda(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                          std::optional<Tensor> seed_tensor, int64_t generation, bool shared_noise,
                          bool antithetic, std::optional<Tensor> low, std::optional<Tensor> high,
                          bool dim_first, ScalarType dtype) {
  const DeviceGuard guard(mean.get_device_index());
  const int64_t dimensions = mean.numel();
  const Tensor means = as_vector(mean, mean, mean.scalar_type(), "mean"),
               stds = as_vector(std, mean, mean.scalar_type(), "std");
  if (low.has_value()) low = as_vector(*low, mean, compute_type(dtype), "low");
  if (high.has_value()) high = as_vector(*high, mean, compute_type(dtype), "high");
  const Noise noise = make_noise(mean, seed_tensor, seed, generation, num_samples, dimensions, shared_noise,
                                 antithetic, dim_first);
  Tensor out =
      dim_first ? empty(mean, dimensions, num_samples, dtype) : empty(mean, num_samples, dimensions, dtype);
  if (dimensions == 0 || num_samples == 0) return out;
  dispatch(dtype, [&](auto zero) {
    launch<typename DeviceType<decltype(zero)>::type>(noise, vector_of(means), vector_of(stds), low, high,
                                                      out);
  });
  return out;
}

Tensor sample_normal_seeded_cuda(const Tensor& mean, const Tensor& std, int64_t num_samples, int64_t seed,
                                 int64_t generation, bool dim_first) {
  return sample_normal_cuda(mean, std, num_samples, seed, std::nullopt, generation, false, false,
                            std::nullopt, std::nullopt, dim_first, mean.scalar_type());
}

std::tuple<Tensor, Tensor> sample_normal_backward_cuda(const Tensor& grad, int64_t seed,
                                                       std::optional<Tensor> seed_tensor, int64_t generation,
                                                       bool shared_noise, bool antithetic, bool dim_first) {
  const DeviceGuard guard(grad.get_device_index());
  const Tensor gradient = torch::stable::contiguous(grad);
  const int64_t dimensions = grad.size(dim_first ? 0 : 1), samples = grad.size(dim_first ? 1 : 0);
  const Noise noise = make_noise(grad, seed_tensor, seed, generation, samples, dimensions, shared_noise,
                                 antithetic, dim_first);
  const ScalarType type = compute_type(grad.scalar_type());
  if (dimensions == 0 || samples == 0) {
    return {torch::stable::new_zeros(grad, {dimensions}, type),
            torch::stable::new_zeros(grad, {dimensions}, type)};
  }
  Tensor mean_grad = torch::stable::new_empty(grad, {dimensions}, type),
         std_grad = torch::stable::new_empty(grad, {dimensions}, type);
  dispatch(grad.scalar_type(), [&](auto zero) {
    using T = typename DeviceType<decltype(zero)>::type;
    using Real = typename ComputeType<T>::type;
    const int64_t chunks = divide_up(samples, kChunk);
    Tensor partial = torch::stable::new_empty(grad, {2, chunks, dimensions}, type);
    launch_backward<T, Real>(noise, static_cast<const T*>(gradient.const_data_ptr()), chunks,
                             static_cast<Real*>(partial.mutable_data_ptr()),
                             static_cast<Real*>(mean_grad.mutable_data_ptr()),
                             static_cast<Real*>(std_grad.mutable_data_ptr()), current_stream(grad));
  });
  return {mean_grad, std_grad};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(cem_tetris, CUDA, m) {
  m.impl("sample_normal", TORCH_BOX(&sample_normal_cuda));
  m.impl("sample_normal_no_grad", TORCH_BOX(&sample_normal_cuda));
  m.impl("sample_normal_seeded", TORCH_BOX(&sample_normal_seeded_cuda));
  m.impl("sample_normal_backward", TORCH_BOX(&sample_normal_backward_cuda));
}

}  // namespace cem_tetris::normal
