// Which kernels an update on CUDA is, and their grids; on the current stream.
#pragma once

#include <algorithm>
#include <utility>

#include "arguments.h"
#include "single.cuh"
#include "sums.cuh"

namespace cem_tetris::update {

// Ranks a list of elites: writes job.elites where they are to be ranked, and `weight` where it
// is not null.
template <typename Key, typename Gpu> void launch_ranks(
    const Gpu& device, const Job& job, const int64_t* index, Device where, double* weight) {
  const int64_t problems = job.settings.problems, elites = job.settings.elites;
  int64_t largest = kTile;  // slots of the tiles that the last pass merges
  while (largest * kMerged < elites) largest *= kMerged;
  const int64_t count = divide_up(elites, largest) * largest, all = problems * count;
  STD_TORCH_CHECK(all < int64_t{1} << 30, "cem_update: expected fewer elites");
  Tensor keys = empty(where, sizeof(Key) == 8 ? ScalarType::Long : ScalarType::Int, {2, all});
  Tensor places = empty(where, ScalarType::Int, {2, all});
  Slots<Key> from{
      mutable_data<Key>(keys), mutable_data<int32_t>(places), static_cast<int32_t>(count)};
  Slots<Key> to{from.key + all, from.place + all, from.count};
  device.launch(tile_kernel<Key>, all / kTile, kTile, 0, job, index, from);
  for (int64_t size = kTile; size <= largest; size *= kMerged) {
    device.launch(merge_kernel<Key>, all / kRankThreads, kRankThreads, 0, job, index, from, to,
        static_cast<int32_t>(size), weight);
    std::swap(from, to);
  }
}

template <typename T, typename Gpu>
void launch_large(const Gpu& device, const Job& job, Device where) {
  const Settings& settings = job.settings;
  const int64_t problems = settings.problems, elites = settings.elites,
                dimensions = settings.dimensions;
  const int64_t most = std::max<int64_t>(1, 2 * device.multiprocessors / problems);
  const int64_t slice =
      divide_up(std::max(divide_up(settings.population, most), int64_t{4} * kSearchThreads),
          kSearchThreads) *
      kSearchThreads;
  const int64_t blocks = divide_up(settings.population, slice),
                chunks = divide_up(elites, kChunk);

  const int64_t search_bytes = problems * static_cast<int64_t>(sizeof(Search)),
                count_bytes = problems * blocks * 8;
  Tensor zeros = empty(where, ScalarType::Long, {(search_bytes + count_bytes) / 8});
  Tensor sums =
      empty(where, ScalarType::Double, {problems * chunks * (2 * dimensions + kScalars)});
  std::optional<Tensor> list, weight;
  if (settings.ranked) list = empty(where, ScalarType::Long, {problems, elites});
  if (job.weights != nullptr) weight = empty(where, ScalarType::Double, {problems, elites});
  char* memory = mutable_data<char>(zeros);
  double* doubles = mutable_data<double>(sums);
  const Workspace work{reinterpret_cast<Search*>(memory),
      reinterpret_cast<unsigned long long*>(memory + search_bytes),
      list ? mutable_data<int64_t>(*list) : job.elites,
      weight ? mutable_data<double>(*weight) : nullptr, doubles,
      doubles + problems * chunks * 2 * dimensions, slice, static_cast<int32_t>(blocks),
      static_cast<int32_t>(chunks)};
  device.zero(memory, search_bytes + count_bytes);
  const bool wide = is_wide(job);
  for (int top = 64; top > (wide ? 0 : 32); top -= kDigit) {
    const int bits = std::min(kDigit, top - (wide ? 0 : 32));
    device.launch(
        digit_kernel, problems * blocks, kSearchThreads, 0, job, work, top - bits, bits);
  }
  device.launch(list_kernel, problems * blocks, kSearchThreads, 0, job, work);
  if (settings.ranked || weight.has_value()) {
    // The list is in job.elites itself where nobody wants it ranked.
    (wide ? launch_ranks<uint64_t, Gpu> : launch_ranks<uint32_t, Gpu>)(device, job, work.index,
        where, work.weight);
  }
  constexpr int kPack = 16 / sizeof(T);
  const bool packs = dimensions >= kPack * kWarp && dimensions % kPack == 0 &&
                     reinterpret_cast<uintptr_t>(job.candidates) % 16 == 0;
  const int64_t tiles = divide_up(dimensions, packs ? kPack * kWarp : kWarp),
                sum_blocks = problems * chunks * (tiles + 1);
  const int threads = sum_blocks > device.multiprocessors ? kSumThreads : kThreads;
  device.launch(packs ? sums_kernel<T, kPack> : sums_kernel<T, 1>, sum_blocks, threads, 0, job,
      work, static_cast<int32_t>(tiles));
  const int64_t last = std::max<int64_t>(1, divide_up(dimensions, kWarp));
  device.launch(
      finish_kernel<T>, problems * last, kThreads, 0, job, work, static_cast<int32_t>(last));
}

// All that is left of an update of no problems.
__global__ void count_kernel(Job job) { *job.new_generation = *job.generation + 1; }

// The update; `Gpu` has a number of multiprocessors, launches kernels and zeroes memory.
template <typename Gpu> void launch(const Gpu& device, const Job& job, Device where) {
  const Settings& settings = job.settings;
  const bool wide = is_wide(job), doubles = job.type == Number::Double;
  if (settings.problems == 0) {
    device.launch(count_kernel, 1, 1, 0, job);
  } else if (settings.population <= kSinglePopulation &&
             settings.elites <=
                 (settings.ranked || job.weights != nullptr
                         ? (wide ? kSingleRanked<uint64_t> : kSingleRanked<uint32_t>)
                         : kSingleElites)) {
    using Launcher = typename Gpu::Launcher;
    auto* launch = wide ? (doubles ? launch_single<uint64_t, double, Launcher>
                                   : launch_single<uint64_t, float, Launcher>)
                        : (doubles ? launch_single<uint32_t, double, Launcher>
                                   : launch_single<uint32_t, float, Launcher>);
    launch(device, job);
  } else {
    (doubles ? launch_large<double, Gpu> : launch_large<float, Gpu>)(device, job, where);
  }
}

}  // namespace cem_tetris::update
