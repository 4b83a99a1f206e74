// Chooses the kernels of an update on CUDA and their grids, and launches them on the current
// stream.
#pragma once

#include "arguments.h"
#include "single.cuh"
#include "sums.cuh"

namespace cem_tetris::update {

// Returns the size of the tiles that the last merge of launch_ranks() joins. Every merge joins
// up to kMerged tiles, so the sizes are kTile * kMerged^m.
inline int64_t last_tile_size(int64_t elites) {
  int64_t size = kTile;
  while (size * kMerged < elites) size *= kMerged;
  return size;
}

// Launches a merge sort that ranks the elites of every problem (batch entry) by fitness. First
// tile_kernel sorts tiles of kTile elites. Then every merge_kernel joins up to kMerged tiles
// into one, and the last of them writes the results:
//
// - job.elites: the elites from the best to the worst one, if settings.ranked is true;
// - weight: the weight of every elite, in the order of `list`, unless `weight` is null.
//
// `list` has the candidate indices of the elites in ascending order, (problems, elites).
// `device` is where scratch tensors are allocated.
template <typename Key, typename Gpu>
void launch_ranks(
    const Gpu& gpu, const Job& job, const int64_t* list, Device device, double* weight) {
  int64_t last_size = last_tile_size(job.settings.elites);
  // Every problem is padded to whole tiles of the last merge.
  int64_t problem_entries = divide_up(job.settings.elites, last_size) * last_size;
  int64_t entries = job.settings.problems * problem_entries;
  STD_TORCH_CHECK(entries < int64_t{1} << 30, "cem_update: expected fewer elites");
  // An entry is the key of an elite and its place, the position in `list`. A merge reads one
  // half of these tensors and writes the other half.
  ScalarType key_type = sizeof(Key) == 8 ? ScalarType::Long : ScalarType::Int;
  Tensor keys = empty(device, key_type, {2, entries});
  Tensor places = empty(device, ScalarType::Int, {2, entries});
  Entries<Key> from{
      mutable_data<Key>(keys), mutable_data<int32_t>(places), int32_t(problem_entries)};
  Entries<Key> to{from.key + entries, from.place + entries, from.per_problem};
  gpu.launch(tile_kernel<Key>, entries / kTile, kTile, /*bytes=*/0, job, list, from);
  for (int64_t size = kTile; size <= last_size; size *= kMerged) {
    gpu.launch(merge_kernel<Key>, entries / kRankThreads, kRankThreads, /*bytes=*/0, job, list,
        from, to, int32_t(size), weight);
    std::swap(from, to);
  }
}

// Launches the two kernels that compute the new distributions and records from the lists of
// elites in `work`. sums_kernel adds up each chunk of a list, and finish_kernel adds up the
// chunks of each problem and writes the results.
//
// In sums_kernel a warp has a tile of dimensions. Each of its lanes loads one pack of every
// elite: 16 bytes, which are kPack dimensions. If not all packs are aligned, or if the
// dimensions do not fill a tile of packs, a lane loads one dimension instead.
template <typename T, typename Gpu>
void launch_sums(const Gpu& gpu, const Job& job, const Workspace& work) {
  int64_t problems = job.settings.problems;
  int64_t dimensions = job.settings.dimensions;
  constexpr int kPack = 16 / sizeof(T);
  bool is_aligned = reinterpret_cast<uintptr_t>(job.candidates) % 16 == 0;
  bool has_aligned_rows = is_aligned && dimensions % kPack == 0;
  bool loads_packs = has_aligned_rows && dimensions >= kPack * kWarp;
  auto* kernel = loads_packs ? sums_kernel<T, kPack> : sums_kernel<T, 1>;
  int64_t tiles = divide_up(dimensions, loads_packs ? kPack * kWarp : kWarp);
  // A chunk has one block for each tile, and one more for the sums of the fitness and of the
  // weights.
  int64_t sum_blocks = problems * work.chunks * (tiles + 1);
  // If a multiprocessor gets several blocks, a block has kSumThreads = 256 threads, so that
  // four blocks run at the same time. Otherwise it has kThreads = 1024.
  int threads = sum_blocks > gpu.multiprocessors ? kSumThreads : kThreads;
  gpu.launch(kernel, sum_blocks, threads, /*bytes=*/0, job, work, int32_t(tiles));
  // A block of finish_kernel has 32 dimensions. Without dimensions, one block writes the
  // record.
  int64_t finish_blocks = std::max<int64_t>(1, divide_up(dimensions, kWarp));
  gpu.launch(finish_kernel<T>, problems * finish_blocks, kThreads, /*bytes=*/0, job, work,
      int32_t(finish_blocks));
}

// Launches an update of populations that are too large for one block: the radix search for the
// key of the worst elite, the list of elites, their ranks if they are needed, the sums of the
// chunks, and the marginals. Allocates the workspace.
template <typename T, typename Gpu>
void launch_large(const Gpu& gpu, const Job& job, Device device) {
  const Settings& settings = job.settings;
  int64_t problems = settings.problems;
  int64_t elites = settings.elites;
  int64_t dimensions = settings.dimensions;
  // There are two blocks for each multiprocessor, or fewer, so that a thread has at least four
  // candidates. A slice is the candidates of one block.
  int64_t most_blocks = std::max<int64_t>(1, 2 * gpu.multiprocessors / problems);
  int64_t least_slice = int64_t{4} * kSearchThreads;
  int64_t wanted_slice = std::max(divide_up(settings.population, most_blocks), least_slice);
  int64_t slice = divide_up(wanted_slice, kSearchThreads) * kSearchThreads;
  int64_t blocks = divide_up(settings.population, slice);
  int64_t chunks = divide_up(elites, kChunk);

  int64_t search_bytes = problems * int64_t{sizeof(Search)};
  int64_t zero_bytes = search_bytes + problems * blocks * int64_t{sizeof(WideKey)};
  int64_t moments = problems * chunks * 2 * dimensions;
  Tensor zeros = empty(device, ScalarType::Long, {zero_bytes / 8});
  Tensor sums = empty(device, ScalarType::Double, {moments + problems * chunks * kScalars});
  // If the elites need not be ranked, job.elites itself holds the list.
  std::optional<Tensor> list, weight;
  if (settings.ranked) list = empty(device, ScalarType::Long, {problems, elites});
  if (job.weights) weight = empty(device, ScalarType::Double, {problems, elites});
  char* memory = mutable_data<char>(zeros);
  Workspace work;
  work.search = reinterpret_cast<Search*>(memory);
  work.counts = reinterpret_cast<WideKey*>(memory + search_bytes);
  work.index = list ? mutable_data<int64_t>(*list) : job.elites;
  work.weight = weight ? mutable_data<double>(*weight) : nullptr;
  work.partial = mutable_data<double>(sums);
  work.scalar = work.partial + moments;
  work.slice = slice;
  work.blocks = int32_t(blocks);
  work.chunks = int32_t(chunks);
  gpu.zero(memory, zero_bytes);

  bool wide = is_wide(job);
  int lowest = wide ? 0 : 32;  // the lowest bit of a key; a key of 32 bits is the upper half
  for (int top = 64; top > lowest; top -= kDigit) {
    int bits = std::min(kDigit, top - lowest);
    gpu.launch(digit_kernel, problems * blocks, kSearchThreads, /*bytes=*/0, job, work,
        top - bits, bits);
  }
  gpu.launch(list_kernel, problems * blocks, kSearchThreads, /*bytes=*/0, job, work);
  if (settings.ranked || weight.has_value()) {
    auto* launch = wide ? launch_ranks<uint64_t, Gpu> : launch_ranks<uint32_t, Gpu>;
    launch(gpu, job, work.index, device, work.weight);
  }
  launch_sums<T>(gpu, job, work);
}

// Kernel: an update of no problems only advances the generation.
__global__ void advance_kernel(Job job) { *job.new_generation = *job.generation + 1; }

// Launches the kernels of an update. If one block can hold the population and the elites, it is
// a single kernel, otherwise several. If there are no problems (batch entries), only the
// generation advances.
//
// `gpu` launches kernels, sets memory to zero, and knows the number of multiprocessors; in
// tests it is an object that emulates a GPU on the CPU. `device` is where new tensors are
// allocated.
template <typename Gpu>
void launch(const Gpu& gpu, const Job& job, Device device) {
  const Settings& settings = job.settings;
  if (settings.problems == 0)
    return gpu.launch(advance_kernel, /*blocks=*/1, /*threads=*/1, /*bytes=*/0, job);
  bool has_wide_fitness = is_wide(job);  // a fitness of 64 bits
  bool has_doubles = job.type == Number::Double;
  bool needs_ranks = settings.ranked || job.weights;  // weights belong to ranks
  int64_t most_ranked = has_wide_fitness ? kSingleRanked<uint64_t> : kSingleRanked<uint32_t>;
  int64_t most_elites = needs_ranks ? most_ranked : kSingleElites;
  if (settings.population <= kSinglePopulation && settings.elites <= most_elites) {
    // The width of the keys and the type of the candidates select one of four kernels.
    using Launcher = typename Gpu::Launcher;
    auto* launch = has_doubles ? launch_single<uint32_t, double, Launcher>
                               : launch_single<uint32_t, float, Launcher>;
    if (has_wide_fitness) {
      launch = has_doubles ? launch_single<uint64_t, double, Launcher>
                           : launch_single<uint64_t, float, Launcher>;
    }
    launch(gpu, job);
  } else {
    auto* launch = has_doubles ? launch_large<double, Gpu> : launch_large<float, Gpu>;
    launch(gpu, job, device);
  }
}

}  // namespace cem_tetris::update
