// The operators on CUDA. A draw is one kernel. An update is one kernel for the ranks of the
// candidates, then one or two for each family of variables.
#pragma once

#include "cem_update/launch.cuh"
#include "discrete.h"

namespace cem_tetris::discrete {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kGroup = 2 * kWarp;  // candidates of a warp; two per lane share a Philox block

// Returns the number of this warp in the grid.
CEM_TETRIS_DEVICE_FUNCTION uint32_t warp_of_grid() {
  return blockIdx.x * kWarps + threadIdx.x / kWarp;
}

// Kernel: draws categorical variables. call.table has one row of call.values probabilities for
// each variable. The result is problems x samples x variables; a sample is a candidate.
//
// The samples of a problem (batch entry) are divided into groups of 64 (kGroup). A warp draws
// one variable for the 64 samples of a group, and each of its lanes draws two of them. The
// kWarps warps of a thread block draw neighbouring variables for the same group. Consecutive
// thread blocks, blocks_per_group of them, draw all variables of a group.
//
// The results go through shared memory, so that neighbouring threads write neighbouring
// variables of a sample. wait_for_previous_kernel() and allow_next_kernel() let the kernels of
// a stream overlap: a kernel is set up while the one before it still runs.
__global__ void __launch_bounds__(kThreads) categorical_kernel(
    const __grid_constant__ Call call, uint32_t blocks_per_group, uint32_t groups_per_problem) {
  wait_for_previous_kernel();
  allow_next_kernel();
  // The categories by sample and variable. A row has one more column than it needs, so that
  // neighbouring rows begin in different banks of the shared memory.
  __shared__ int drawn[kGroup][kWarps + 1];
  uint32_t group = blockIdx.x / blocks_per_group;  // numbered through all problems
  uint32_t problem = group / groups_per_problem;
  int thread = int(threadIdx.x);
  int warp = thread / kWarp;
  int lane = thread % kWarp;
  int64_t first_variable = int64_t{blockIdx.x - group * blocks_per_group} * kWarps;
  int64_t first_sample = int64_t{group - problem * groups_per_problem} * kGroup;
  // A warp beyond the last variable reads the row of the last one, and its results are not
  // written.
  int64_t row = problem * call.rows + min(first_variable + warp, call.rows - 1);
  Noise noise(call, problem);
  // The two samples of a lane share a Philox block: one word of 64 random bits per sample.
  int64_t samples_block = first_sample / 2 + lane;
  auto set_words = [&](uint64_t* words) {
    noise.set(samples_block, first_variable + warp, words);
  };
  int categories[2];
  constexpr int kLoads = 4;  // probabilities that a lane loads at once
  const double* probabilities = call.table + row * call.values;
  draw_category<kLoads>(probabilities, int(call.values), set_words, categories);
  for (int s = 0; s < 2; ++s) drawn[2 * lane + s][warp] = categories[s];
  __syncthreads();  // A thread writes results that other warps have drawn.
  // Result i of the group is that of sample i / kWarps and variable i % kWarps.
#pragma unroll 1
  for (int i = thread; i < kGroup * kWarps; i += kThreads) {
    int64_t sample = first_sample + i / kWarps;
    int64_t variable = first_variable + i % kWarps;
    if (sample < call.samples && variable < call.rows) {
      int64_t position = (problem * call.samples + sample) * call.rows + variable;
      call.put(position, drawn[i / kWarps][i % kWarps]);
    }
  }
}

// Kernel: draws permutations, one warp per candidate and one item per step. The probabilities
// of an item depend on the previous item. The items are divided among the lanes of the warp. A
// prefix sum over the lanes' sums of weights finds the lane that has the next item.
//
// One bit for each item, in shared memory, says whether the item is still free. A thread has
// the bits of its own items, in words that are kThreads apart. Latency limits the speed of the
// kernel.
__global__ void __launch_bounds__(kThreads)
    permutation_kernel(const __grid_constant__ Call call) {
  constexpr int kBits = 32;  // bits of a word
  wait_for_previous_kernel();
  allow_next_kernel();
  int n = int(call.values);
  int lane_items = (n + kWarp - 1) / kWarp;
  int lane = int(threadIdx.x % kWarp);
  int first = min(lane * lane_items, n);
  int count = min(lane_items, n - first);
  int64_t i = warp_of_grid();
  int64_t problem = i / call.samples;
  int64_t candidate = i - problem * call.samples;
  if (problem >= call.problems) return;
  auto* free_bits = reinterpret_cast<uint32_t*>(dynamic_shared()) + threadIdx.x;
  for (int j = 0; j < lane_items; j += kBits) free_bits[j / kBits * kThreads] = kAll;
  const double* table = call.table + problem * call.rows * n + first;
  const double* row = table;
  Noise noise(call, problem);
  // Lane l computes the random words of step l of every 32 steps, for the two candidates that
  // share a Philox block. It also keeps the item of that step until 32 items are written.
  uint64_t words[2];
  int item = 0;  // the item of the current step
  int lane_item = 0;
#pragma unroll 1
  for (int step = 0; step < n; ++step) {
    int step_lane = step % kWarp;  // the lane that holds the step's random word
    if (step_lane == 0) noise.set(candidate / 2, step + lane, words);
    uint64_t own_word = candidate % 2 == 0 ? words[0] : words[1];
    uint64_t word = __shfl_sync(kAll, own_word, step_lane);
    uint64_t sum, sum_to_lane;
    uint64_t total = 0;
    bool is_uniform = true;
    // Returns the weight of the lane's item j; 0 if it is taken.
    auto weight_of = [&](int j) {
      uint64_t is_free = free_bits[j / kBits * kThreads] >> j % kBits & 1;
      return is_uniform ? is_free : (0 - is_free) & weight(row[j]);
    };
    // The loop first uses the probabilities in the row. If no free item has a positive weight,
    // it runs again with equal weights.
    do {
      is_uniform = !is_uniform;
      sum = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j) sum += weight_of(j);
      sum_to_lane = warp_scan(sum, lane);
      total = __shfl_sync(kAll, sum_to_lane, kWarp - 1);
    } while (total == 0);
    uint64_t target = multiply_high(word, total);
    int winner = __popc(__ballot_sync(kAll, sum_to_lane <= target));
    if (lane == winner) {
      uint64_t prefix = sum_to_lane - sum;
      int place = 0;
#pragma unroll 4
      for (int j = 0; j < count; ++j) {
        prefix += weight_of(j);
        place += (prefix <= target);
      }
      free_bits[place / kBits * kThreads] &= ~(1u << place % kBits);
      item = first + place;
    }
    item = __shfl_sync(kAll, item, winner);
    row = table + int64_t{1 + item} * n;
    if (lane == step_lane) lane_item = item;
    bool writes = step_lane == kWarp - 1 || step == n - 1;  // the items of up to 32 steps
    if (writes && lane <= step_lane) call.put(i * n + step - step_lane + lane, lane_item);
  }
}

// Launches the kernel that draws the candidates of all problems (batch entries). The last
// parameter, the device for scratch tensors, has no name, because a draw needs none.
template <typename Gpu>
void launch(const Gpu& gpu, const Call& call, Device) {
  int64_t candidates = call.problems * call.samples;
  STD_TORCH_CHECK(candidates < int64_t{1} << 31, "expected fewer candidates");
  if (call.is_permutation) {
    // A warp draws one permutation. Each of its threads has a part of the items, and keeps one
    // bit per item in shared memory, in words of 32 bits.
    int64_t items_per_thread = divide_up(call.values, kWarp);
    int64_t words_per_thread = divide_up(items_per_thread, 32);
    int64_t bytes_per_block = kThreads * words_per_thread * 4;
    return gpu.launch_early(
        permutation_kernel, divide_up(candidates, kWarps), kThreads, bytes_per_block, call);
  }
  // A warp draws one variable for a group of kGroup candidates. The kWarps warps of a block
  // draw different variables for the same group.
  int64_t blocks_per_group = divide_up(call.rows, kWarps);
  int64_t groups_per_problem = divide_up(call.samples, kGroup);
  gpu.launch_early(categorical_kernel, call.problems * groups_per_problem * blocks_per_group,
      kThreads, /*bytes=*/0, call, uint32_t(blocks_per_group), uint32_t(groups_per_problem));
}

constexpr int kAtOnce = 4;                 // keys that a thread loads at once
constexpr int kTile = kAtOnce * kThreads;  // keys that a block loads at once

// Kernel: ranks the candidates of every problem (batch entry), one warp per candidate. A warp
// compares the key of its candidate with all others; a key is an integer that ranks a fitness,
// the best one first. The rank is the number of better candidates. Candidates of equal fitness
// share their ranks, and get the mean weight of these ranks.
//
// The kernel sets three arrays:
//
// - call.weights: the weight of every candidate;
// - call.values: the fitness of every elite, and NaN for the other candidates;
// - call.best: the index of the best candidate of every problem.
//
// A problem has `blocks` thread blocks.
template <typename Type>
__global__ void __launch_bounds__(kThreads)
    rank_kernel(const __grid_constant__ Move call, uint32_t blocks) {
  wait_for_previous_kernel();
  allow_next_kernel();
  __shared__ typename Type::Key keys[kTile];
  int samples = int(call.settings.population);
  bool maximize = call.settings.maximize;
  int thread = int(threadIdx.x);
  int lane = thread % kWarp;
  uint32_t problem = blockIdx.x / blocks;
  uint32_t first = problem * samples;
  int i = int(blockIdx.x - problem * blocks) * kWarps + thread / kWarp;  // the candidate
  // Loads the fitness of candidate k; beyond the last candidate, that one is loaded again.
  auto load_fitness = [&](int k) {
    return load<Type>(call.fitness, first + min(k, samples - 1));
  };
  const auto fitness = load_fitness(i);
  const auto own_key = Type::key(fitness, maximize);
  int better = 0;
  int equal = 0;
  int before = 0;  // those of the equal candidates that have a lower index
#pragma unroll 1
  for (int tile = 0; tile < samples; tile += kTile) {
    typename Type::Bits loaded[kAtOnce];
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) loaded[u] = load_fitness(tile + u * kThreads + thread);
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      keys[u * kThreads + thread] = Type::key(loaded[u], maximize);
    }
    __syncthreads();  // Every warp reads all keys of the tile.
#pragma unroll 8
    for (int turn = 0; turn < kTile / kWarp; ++turn) {
      const auto key = keys[turn * kWarp + lane];
      int k = tile + turn * kWarp + lane;
      better += (k < samples && key < own_key);
      equal += (k < samples && key == own_key);
      before += (k < i && key == own_key);
    }
    __syncthreads();  // The next tile overwrites the keys.
  }
  better = warp_sum(better);
  equal = warp_sum(equal);
  before = warp_sum(before);
  if (lane != 0 || i >= samples) return;
  int rank = better + before;
  bool failed = Type::kCanFail && own_key == Type::kFailed;
  bool is_elite = !failed && rank < call.settings.elites;
  call.weights[first + i] = weight_of(call, better, better + equal);
  call.values[first + i] = is_elite ? Type::value(fitness) : kNaN;
  if (rank == 0) call.best[problem] = i;
}

constexpr int kMoveThreads = 512;
constexpr int kMoveWarps = kMoveThreads / kWarp;
constexpr int kRowsOfBlock = 8;
constexpr int kParts = kMoveThreads / kRowsOfBlock;  // threads that share a row's candidates
constexpr int kLoads = 16;                           // candidates that a thread loads at once
constexpr int kPlaces = 2 * kChunk;                  // elites that finish() keeps at once

using Sum = unsigned long long;  // the 64-bit type of atomicAdd

// Writes the record and the best candidate of a problem. All threads of one block of
// move_kernel call the function.
//
// The fitness of the elites is added in the order of update.h. In every round, the threads
// append the fitness of up to kMoveThreads elites to a ring buffer of kPlaces numbers in shared
// memory, in index order. Warp 0 adds up (folds) every chunk of the ring as soon as the chunk
// is complete.
template <typename T>
CEM_TETRIS_DEVICE_FUNCTION void finish(const Move& call, int64_t problem) {
  double* ring = dynamic_shared();
  __shared__ int warp_counts[kMaxWarps];
  int thread = int(threadIdx.x);
  int lane = thread % kWarp;
  int samples = int(call.settings.population);
  bool maximize = call.settings.maximize;
  const double* values = call.values + problem * samples;
  // Returns the worse fitness. NaN means no fitness; fmin() and fmax() return the other number.
  auto worse = [&](double a, double b) { return maximize ? fmin(a, b) : fmax(a, b); };
  int64_t best = call.best[problem];
  int64_t offset = problem * call.width + call.cells;  // where the best candidate is stored
  double fittest = values[best];
  double known = call.record[problem * kFigures + kBestFitness];
  double worst = kNaN;
  double sum = 0.0;  // lane l has the sum of chunk l
  int places = 0;    // how many elites have been appended
  int chunk = 0;     // the next chunk to fold
#pragma unroll 1
  for (int first = 0; first < samples; first += kMoveThreads) {
    double x = first + thread < samples ? values[first + thread] : kNaN;
    bool is_elite = x == x;
    // A thread has one candidate, item 0. `ordinal` numbers the elites of this round.
    auto append = [&](int, int ordinal) { ring[(places + ordinal) % kPlaces] = x; };
    visit_in_index_order<1>(warp_counts, [&](int) { return is_elite; }, append);
    places += __syncthreads_count(is_elite);
    if (thread >= kWarp) continue;
    bool is_last = first + kMoveThreads >= samples;
    int least = is_last ? 1 : kChunk;  // only the last chunk may be incomplete
    for (; places - chunk * kChunk >= least; ++chunk) {
      int begin = chunk * kChunk;
      int end = min(places, begin + kChunk);
      double folded = warp_folded(begin, end, [&](int64_t p) {
        worst = worse(worst, ring[p % kPlaces]);
        return ring[p % kPlaces];
      });
      double chunk_sum = __shfl_sync(kAll, folded, 0);
      if (lane == chunk) sum += chunk_sum;
    }
  }
  double top = places > 0 ? fittest : 0.0;
  bool is_new_best = places > 0 && is_better(top, known, maximize);
#pragma unroll 1
  for (int c = thread; c < call.width - call.cells; c += kMoveThreads) {
    call.after[offset + c] =
        is_new_best ? double(call.columns_of<T>(problem, best, c)[0]) : call.before[offset + c];
  }
  if (thread >= kWarp) return;
  sum = warp_fold(sum);
#pragma unroll 1
  for (int step = kWarp / 2; step > 0; step /= 2) {
    worst = worse(worst, __shfl_xor_sync(kAll, worst, step));
  }
  if (lane == 0) write_record(call, problem, places, top, sum, worst, *call.generation);
}

// Kernel: adds up the weights of the candidates that have the same value, for every variable of
// a family. `sums` has one sum for each problem, row of the family's table, and value; all of
// them are 0 before the kernel. One warp handles a candidate, and each of its lanes every 32nd
// column. The kernel is for permutations, and for tables that do not fit into the shared memory
// of move_kernel.
//
// A family is a group of discrete variables with equally many values. Its table has a row for
// each variable, which is a column of the candidates. In a permutation (has_transitions), the
// row depends on the item in the previous column: it is row 1 + that item, or row 0 for the
// first column. value_of() returns the index of a candidate's value in the row.
template <typename T>
__global__ void __launch_bounds__(kThreads) count_kernel(
    const __grid_constant__ Move call, const __grid_constant__ Family family, Sum* sums) {
  int64_t i = warp_of_grid();  // numbers the candidates of all problems
  int64_t problem = i / call.settings.population;
  if (problem >= call.settings.problems) return;
  int64_t candidate = i - problem * call.settings.population;
  const T* x = call.columns_of<T>(problem, candidate, family.first_column);
  Sum weight = Sum(call.weights[i]);
#pragma unroll 4
  for (int64_t column = threadIdx.x % kWarp; column < family.columns; column += kWarp) {
    int64_t transition_row = column == 0 ? 0 : 1 + value_of(family, x[column - 1]);
    int64_t table_row = family.has_transitions() ? transition_row : column;
    int64_t row = problem * family.rows + table_row;
    atomicAdd(sums + row * family.values + value_of(family, x[column]), weight);
  }
}

// Adds up the weights of a problem's candidates that have the same value, for each of up to
// kRowsOfBlock = 8 neighbouring variables of a family. `first` is the first variable, and
// `variables` is their number. All threads of a block call the function together.
//
// Thread t has the variable `first` + t % 8, and every kParts-th candidate, beginning with
// candidate t / 8. It adds the weight of a candidate to sums[value * kMoveThreads + t] in
// shared memory. No other thread uses these sums, so the additions need not be atomic.
// move_kernel adds up the sums of all threads. If there are fewer than 8 variables, the threads
// without a variable repeat the last one, and their sums are not used.
//
// A thread loads kLoads candidates before it uses the first one.
template <typename T>
CEM_TETRIS_DEVICE_FUNCTION void count_values(const Move& call, const Family& family,
    uint32_t problem, int first, int variables, Sum* sums) {
  int thread = int(threadIdx.x);
  int samples = int(call.settings.population);
  int part = thread / kRowsOfBlock;
  int64_t candidate_size = call.width - call.cells;  // from one candidate to the next
  int variable = first + min(thread % kRowsOfBlock, variables - 1);
  // `x` points to the thread's variable in its next candidate.
  const T* x = call.columns_of<T>(problem, part, family.first_column + variable);
  const int64_t* weights = call.weights + int64_t{problem} * samples;
#pragma unroll 1
  for (int begin = part; begin < samples; begin += kLoads * kParts) {
    T number[kLoads];
    int64_t weight[kLoads];
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kLoads; ++u, x += kParts * candidate_size) {
      int i = begin + u * kParts;  // the candidate; one after the last has no weight
      number[u] = i < samples ? *x : T(0);
      weight[u] = i < samples ? weights[i] : 0;
    }
    CEM_TETRIS_UNROLL
    for (int u = 0; u < kLoads; ++u) {
      sums[value_of(family, number[u]) * kMoveThreads + thread] += weight[u];
    }
  }
}

// Kernel: moves the table of a family towards the elites. It adds the sums of the candidates'
// weights to the probabilities, and normalises each row. A block has kRowsOfBlock rows.
//
// If `counted` is null, the block first adds up the weights in its shared memory. Otherwise
// `counted` holds the sums, which count_kernel has computed. A problem has `blocks` blocks. If
// the last block has no rows, it writes the problem's record and best candidate (finish()).
template <typename T>
__global__ void __launch_bounds__(kMoveThreads) move_kernel(const __grid_constant__ Move call,
    const __grid_constant__ Family family, uint32_t blocks, Sum* counted) {
  uint32_t problem = blockIdx.x / blocks;
  int first = int(blockIdx.x - problem * blocks) * kRowsOfBlock;
  int thread = int(threadIdx.x);
  int lane = thread % kWarp;
  int values = int(family.values);
  int rows = min(kRowsOfBlock, int(family.rows) - first);
  bool must_count = !counted;
  Sum* sums = must_count ? reinterpret_cast<Sum*>(dynamic_shared())
                         : counted + (problem * family.rows + first) * values;
  int value_stride = must_count ? kMoveThreads : 1;
  int row_stride = must_count ? 1 : values;
  // Returns the address of a sum. In shared memory it is the sum of the first of the kParts
  // threads that share the row.
  auto sum_of = [&](int row, int value) {
    return sums + value * value_stride + row * row_stride;
  };
#pragma unroll 1
  for (int k = 0; must_count && k < values; ++k) sums[k * kMoveThreads + thread] = 0;
  wait_for_previous_kernel();
  allow_next_kernel();
  if (rows <= 0) return finish<T>(call, problem);
  if (must_count) count_values<T>(call, family, problem, first, rows, sums);
  __syncthreads();
  // Replace the sums by the new probabilities, which are not normalised yet.
  int64_t offset = problem * call.width + family.first_cell + int64_t{first} * values;
#pragma unroll 1
  for (int cell = thread; cell < values * kRowsOfBlock; cell += kMoveThreads) {
    int value = cell / kRowsOfBlock;
    int row = cell % kRowsOfBlock;
    if (row >= rows) continue;
    double p = call.before[offset + row * values + value];
    Sum* own = sum_of(row, value);
    Sum sum = own[0];
    if (must_count) {
#pragma unroll 9
      for (int part = 1; part < kParts; ++part) sum += own[part * kRowsOfBlock];
    }
    own[0] = bit_cast<Sum>(increase(family, p, int64_t(sum)));
  }
  __syncthreads();
  // Normalise the rows, one warp per row.
#pragma unroll 1
  for (int row = thread / kWarp; row < rows; row += kMoveWarps) {
    double total = 0.0;
#pragma unroll 1
    for (int k = lane; k < values; k += kWarp) total += bit_cast<double>(*sum_of(row, k));
    CEM_TETRIS_UNROLL
    for (int step = kWarp / 2; step > 0; step /= 2) {
      total += __shfl_xor_sync(kAll, total, step);
    }
#pragma unroll 1
    for (int k = lane; k < values; k += kWarp) {
      call.after[offset + row * values + k] =
          normalise(bit_cast<double>(*sum_of(row, k)), total);
    }
  }
}

// Launches the kernels that move the tables of a family towards the elites, for all problems
// (batch entries). A family is a group of discrete variables with equally many values. A block
// of move_kernel moves kRowsOfBlock rows of a problem's table. It needs the sums of the weights
// of the candidates that have the same value, and computes them itself if they fit into its
// shared memory. Otherwise, and for permutations (has_transitions), count_kernel computes them
// first, in global memory, which is allocated on `device`. With the first family, every
// problem has one more block, which writes its record and best candidate.
template <typename T, typename Gpu>
void move(const Gpu& gpu, const Move& call, const Family& family, Device device) {
  int64_t problems = call.settings.problems;
  int64_t row_blocks = divide_up(family.rows, kRowsOfBlock);
  bool is_first_family = family.first_column == 0;
  int64_t blocks = row_blocks + (is_first_family ? 1 : 0);
  int64_t bytes = sizeof(Sum) * std::max<int64_t>(kPlaces, kMoveThreads * family.values);
  std::optional<Tensor> zeros;
  Sum* counted = nullptr;  // the sums of count_kernel
  // try_dynamic_memory() returns false if a block cannot have this shared memory.
  if (family.has_transitions() || !gpu.try_dynamic_memory(move_kernel<T>, bytes)) {
    int64_t cells = problems * family.rows * family.values;
    zeros = empty(device, ScalarType::Long, {cells});
    counted = mutable_data<Sum>(*zeros);
    gpu.zero(counted, sizeof(Sum) * cells);
    gpu.launch(count_kernel<T>, divide_up(problems * call.settings.population, kWarps),
        kThreads, /*bytes=*/0, call, family, counted);
    bytes = sizeof(Sum) * kPlaces;
  }
  gpu.launch_early(move_kernel<T>, problems * blocks, kMoveThreads, bytes, call, family,
      uint32_t(blocks), counted);
}

// Launches an update of all problems (batch entries): a kernel that ranks the candidates, with
// one warp per candidate, then the kernels that move the table of every family of discrete
// variables. If there are no problems, only the generation advances.
template <typename Gpu>
void launch(const Gpu& gpu, const Move& call, Device device) {
  int64_t problems = call.settings.problems;
  if (problems == 0)
    return gpu.launch(advance_kernel, /*blocks=*/1, /*threads=*/1, /*bytes=*/0, call);
  int64_t blocks = divide_up(call.settings.population, kWarps);
  visit_fitness(call.fitness_type, [&](auto kind) {
    gpu.launch_early(rank_kernel<decltype(kind)>, problems * blocks, kThreads, /*bytes=*/0,
        call, uint32_t(blocks));
  });
  bool is_double = call.type == Number::Double;
  auto* move_family = is_double ? move<double, Gpu> : move<float, Gpu>;
  for (const Family& family : *call.families) move_family(gpu, call, family, device);
}

}  // namespace cem_tetris::discrete
