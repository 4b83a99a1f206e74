// out = mean + std * z for small results, which take the device a few microseconds. The noise
// is not antithetic; there may be one problem or many. At these sizes the general kernel would
// lose time at its start, with its table in shared memory and its barriers.
//
// Roofline: the result fits into the L2 cache. So the latency of a thread's few hundred
// instructions limits the speed. A normal number takes 19 instructions, of which 4.2 are 32 x
// 32 -> 64 bit products.
//
// A thread draws a block of four consecutive samples of kDims consecutive dimensions. The fast
// side of the result is the one whose numbers are neighbours in memory: samples in the layout
// (..., d, N) (kDimFirst), dimensions in (..., N, d). The other one is the slow side. Threads
// are numbered along the fast side, then along the slow side, then by problem (batch entry), so
// that only the last threads of the grid are idle.
#pragma once

#include "sample.cuh"

namespace cem_tetris::normal {

// Computes n / divisor for n < 2^31 by a multiplication (T. Granlund, P. Montgomery: Division
// by invariant integers using multiplication, PLDI 1994).
struct Divider {
  uint32_t divisor, multiplier, shift;

  CEM_TETRIS_DEVICE_FUNCTION uint32_t quotient(uint32_t n) const {
    return divisor == 1 ? n : __umulhi(n, multiplier) >> shift;
  }
};

inline Divider make_divider(uint32_t divisor) {
  uint32_t log = 0;  // the binary logarithm of the divisor, rounded up
  while ((uint64_t{1} << log) < divisor) ++log;
  if (log == 0) return {1, 0, 0};
  uint64_t power = uint64_t{1} << (31 + log);
  return {divisor, uint32_t((power + divisor - 1) / divisor), log - 1};
}

// The arguments of small_kernel.
struct SmallDraw {
  Divider by_problem_threads;  // divides by the number of threads of a problem
  Divider by_row_threads;      // divides by the number of threads of one row of the slow side
  uint32_t threads;            // the threads of all problems
  bool is_staged;              // whether the results of a thread block go through shared memory
  Call call;                   // with float parameters
};

// Loads kDims numbers of a problem's vector, such as its means, from dimension `dimension` on.
template <int kDims>
CEM_TETRIS_DEVICE_FUNCTION void load_rows(
    Vector vector, int64_t problem, int64_t dimension, float (&values)[kDims]) {
  const float* data = static_cast<const float*>(vector.data);
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kDims; ++i) values[i] = data[problem * vector.stride + dimension + i];
}

// Stores a pack of kCount neighbouring numbers at once. Four floats are stored by __stcg,
// because ptxas would split a plain store into four.
template <typename T, int kCount>
CEM_TETRIS_DEVICE_FUNCTION void store_pack(T* to, const Pack<T, kCount>& x) {
  if constexpr (kCount == 4 && sizeof(T) == 4) {
    __stcg(reinterpret_cast<float4*>(to),
        make_float4(x.value[0], x.value[1], x.value[2], x.value[3]));
  } else {
    *reinterpret_cast<Pack<T, kCount>*>(to) = x;
  }
}

// The part of the result that a thread draws: kDims dimensions, from `dimension` on, of one
// block of four samples of a problem.
struct Part {
  uint32_t problem;
  int64_t dimension;
  int64_t first_sample;
};

// Returns mean + std * z for sample s of a tile. z is radius * cosine in the first sample of a
// pair, and radius * sine in the second one.
CEM_TETRIS_DEVICE_FUNCTION float sample_of(
    const Polar<float> (&pairs)[kTile / 2], int s, float mean, float std) {
  const Polar<float>& pair = pairs[s / 2];
  float direction = s % 2 == 0 ? pair.cosine : pair.sine;
  return fmaf(std * pair.radius, direction, mean);
}

// Computes x[s][i] = mean + std * z for the four samples 4 * block + s (kTile = 4) and the
// kDims dimensions `dimension` + i of a problem. One thread computes all of them. The results
// are not clamped yet.
//
// Two consecutive samples are a pair with one radius. set_pairs() draws the two pairs of one
// dimension. If noise.shared is true, the pairs of dimension 0 serve for all dimensions.
//
// The random words come from Philox, which encrypts the generation, the block of samples and
// the dimension in ten rounds. The first three rounds have a part that depends on the samples
// but not on the dimension, from samples_of(), and a part for which the opposite is true, from
// dimension_part(). So the first part is computed only once. set_pairs() joins the two parts
// and computes the other rounds, whose keys are late_round_keys.
template <int kDims>
CEM_TETRIS_DEVICE_FUNCTION void sample_rows(const Call& call, uint32_t problem,
    int64_t dimension, uint32_t block, float (&x)[kTile][kDims]) {
  Noise noise = call.noise;
  float means[kDims], stds[kDims];
  load_rows(call.mean, problem, dimension, means);
  load_rows(call.std, problem, dimension, stds);
  noise.load_seed(problem);
  Key key = make_key(noise.seed);
  LateKeys late_round_keys = late_keys(key);
  // Of the dimension, only the bits from 32 on matter here, which are 0 in a small result.
  const auto samples_part = samples_of<float>(key, noise.generation, /*dimension=*/0, block);
  auto set_samples = [&](int i, const Polar<float>(&pairs)[kTile / 2]) {
    CEM_TETRIS_UNROLL
    for (int s = 0; s < kTile; ++s) x[s][i] = sample_of(pairs, s, means[i], stds[i]);
  };
  Polar<float> pairs[kTile / 2];
  if (noise.shared) {
    set_pairs(late_round_keys, dimension_part(key, /*dimension=*/0, noise.generation),
        samples_part, pairs);
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kDims; ++i) set_samples(i, pairs);
  } else {
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kDims; ++i) {
      set_pairs(late_round_keys, dimension_part(key, dimension + i, noise.generation),
          samples_part, pairs);
      set_samples(i, pairs);
    }
  }
}

// Clamps the numbers x[sample][i] of the kDims dimensions `dimension` + i to one bound, lower
// or upper. is_beyond(value, limit) is value < limit for a lower bound, and value > limit for
// an upper one. Both are false for a NaN, which is therefore not changed. `bound` has a limit
// for each dimension of each problem. It has no data if there is no such bound.
template <int kDims, typename IsBeyond>
CEM_TETRIS_DEVICE_FUNCTION void clamp(Vector bound, int64_t problem, int64_t dimension,
    const IsBeyond& is_beyond, float (&x)[kTile][kDims]) {
  if (!bound.data) return;
  float limit[kDims];
  load_rows(bound, problem, dimension, limit);
  CEM_TETRIS_UNROLL
  for (int s = 0; s < kTile; ++s) {
    CEM_TETRIS_UNROLL
    for (int i = 0; i < kDims; ++i) {
      if (is_beyond(x[s][i], limit[i])) x[s][i] = limit[i];
    }
  }
}

// Stores the result of a thread block in the layout (..., N, d). The numbers go through shared
// memory, so that a warp writes complete cache lines.
//
// The result of a thread block is one contiguous piece of memory. A pack is kDims neighbouring
// numbers of a row. A thread has one pack in each of four consecutive rows (kTile samples), so
// its packs are not neighbours in memory. Therefore the block first collects its piece in
// shared memory. After the barrier a thread stores four packs that are blockDim.x apart, so
// that neighbouring threads store neighbouring packs.
//
// A row has as many packs as threads, row_threads. If a row has two, the packs of the piece
// belong, one after the other, to the threads
//
//     rows 0 to 3:  | 0 1 | 0 1 | 0 1 | 0 1 |
//     rows 4 to 7:  | 2 3 | 2 3 | 2 3 | 2 3 |
//
// x holds the thread's numbers, by sample and dimension. threads_before is the number of
// threads in earlier blocks.
template <typename T, int kDims>
CEM_TETRIS_DEVICE_FUNCTION void store_staged(
    const SmallDraw& job, uint32_t threads_before, const float (&x)[kTile][kDims], T* out) {
  __shared__ Pack<T, kDims> staged[kTile * kThreads];  // the packs of the piece, in order
  uint32_t row_threads = job.by_row_threads.divisor;
  uint32_t groups_before = job.by_row_threads.quotient(threadIdx.x);  // of four rows
  // The threads before this one in its own group have one pack each before first_pack, and
  // those in earlier groups have kTile.
  uint32_t first_pack = threadIdx.x + groups_before * (kTile - 1) * row_threads;
  CEM_TETRIS_UNROLL
  for (int s = 0; s < kTile; ++s) staged[first_pack + s * row_threads] = packed<T>(x[s]);
  __syncthreads();
  // Write the piece. All packs are loaded from shared memory before the first one is stored.
  auto* to = reinterpret_cast<Pack<T, kDims>*>(out) + kTile * int64_t(threads_before);
  uint32_t packs = kTile * (job.threads - threads_before);  // packs to the end of the result
  Pack<T, kDims> loaded[kTile];
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kTile; ++i) loaded[i] = staged[threadIdx.x + i * blockDim.x];
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kTile; ++i) {
    uint32_t position = threadIdx.x + i * blockDim.x;
    if (position < packs) store_pack(to[position].value, loaded[i]);
  }
}

// Stores the numbers x of a thread, by sample and dimension, in the layout (..., d, N). The
// number of samples is a multiple of kTile.
template <typename T, int kDims>
CEM_TETRIS_DEVICE_FUNCTION void store_by_dimension(
    const Noise& noise, const Part& own, const float (&x)[kTile][kDims], T* out) {
  T* to =
      out + (own.problem * noise.dimensions + own.dimension) * noise.samples + own.first_sample;
  CEM_TETRIS_UNROLL
  for (int i = 0; i < kDims; ++i) {
    const float row[kTile] = {x[0][i], x[1][i], x[2][i], x[3][i]};
    store_pack(to + i * noise.samples, packed<T>(row));
  }
}

// Stores the numbers x of a thread, by sample and dimension, in the layout (..., N, d). The
// last block of a problem may have fewer samples than kTile.
template <typename T, int kDims>
CEM_TETRIS_DEVICE_FUNCTION void store_by_sample(
    const Noise& noise, const Part& own, const float (&x)[kTile][kDims], T* out) {
  T* to =
      out + (own.problem * noise.samples + own.first_sample) * noise.dimensions + own.dimension;
  CEM_TETRIS_UNROLL
  for (int s = 0; s < kTile; ++s) {
    bool has_sample = own.first_sample + s < noise.samples;
    if (has_sample) store_pack(to + s * noise.dimensions, packed<T>(x[s]));
  }
}

// Kernel: draws mean + std * z, clamped to the bounds, for small results. A thread draws kDims
// dimensions of one block of four samples (kTile). The result has the layout (..., d, N) if
// kDimFirst is true, and otherwise (..., N, d). Its last side is the fast one, whose numbers
// are neighbours in memory; the other one is the slow side. Threads are numbered along the fast
// side, then along the slow side, then by problem (batch entry).
//
// All threads of a thread block must reach the barrier in store_staged(). So the surplus
// threads of the last block repeat the work of the last thread, and write the same numbers. The
// quotients are divisions by constants of the launch, which a Divider computes by a fast
// multiplication.
template <typename T, int kDims, bool kDimFirst>
__global__ __launch_bounds__(kThreads) void small_kernel(
    const __grid_constant__ SmallDraw job, T* __restrict__ out) {
  wait_for_previous_kernel();
  const Call& call = job.call;
  uint32_t threads_before = blockIdx.x * blockDim.x;
  uint32_t thread = min(threads_before + threadIdx.x, job.threads - 1);
  uint32_t problem = job.by_problem_threads.quotient(thread);
  uint32_t problem_thread = thread - problem * job.by_problem_threads.divisor;
  // The position of the thread along the slow and the fast side. One of the two counts
  // dimensions, kDims at a time, and the other one blocks of samples. by_row_threads divides by
  // the number of threads of one row of the slow side.
  uint32_t slow = job.by_row_threads.quotient(problem_thread);
  uint32_t fast = problem_thread - slow * job.by_row_threads.divisor;
  uint32_t block = kDimFirst ? fast : slow;
  // In (..., d, N) the dimensions of the last thread along the slow side may overlap those of
  // the thread before it. Both write the same numbers.
  int64_t dimension = kDimFirst ? min(slow * int64_t{kDims}, call.noise.dimensions - kDims)
                                : fast * int64_t{kDims};

  float x[kTile][kDims];
  sample_rows(call, problem, dimension, block, x);
  auto is_less = [](float value, float limit) { return value < limit; };
  auto is_greater = [](float value, float limit) { return value > limit; };
  clamp(call.low, problem, dimension, is_less, x);
  clamp(call.high, problem, dimension, is_greater, x);
  const Part own{problem, dimension, /*first_sample=*/int64_t(block) * kTile};
  if constexpr (kDimFirst) return store_by_dimension(call.noise, own, x, out);
  // If is_staged is true, the results of the thread block go through shared memory.
  if constexpr (kDims == kTile) {
    if (job.is_staged) return store_staged(job, threads_before, x, out);
  }
  store_by_sample(call.noise, own, x, out);
}

}  // namespace cem_tetris::normal
