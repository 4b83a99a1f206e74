// Which kernels an update on CUDA is, and their grids.
#pragma once

#include <algorithm>

#include "arguments.h"
#include "single.cuh"

namespace cem_tetris::update {


inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline Job make_job(Arguments& arguments) {
  bool can_fail = false;
  visit_fitness(arguments.fitness_type, [&](auto type) { can_fail = decltype(type)::kCanFail; });
  return {arguments.settings,
          arguments.fitness_type,
          can_fail,
          arguments.fitness.const_data_ptr(),
          arguments.candidates.const_data_ptr(),
          arguments.distribution.const_data_ptr(),
          Arguments::data<void>(arguments.std_floor),
          static_cast<const double*>(arguments.record.const_data_ptr()),
          Arguments::data<double>(arguments.extra_variance),
          Arguments::data<double>(arguments.weights),
          static_cast<const int64_t*>(arguments.generation.const_data_ptr()),
          arguments.new_distribution.mutable_data_ptr(),
          static_cast<double*>(arguments.new_record.mutable_data_ptr()),
          static_cast<int64_t*>(arguments.new_generation.mutable_data_ptr()),
          static_cast<int64_t*>(arguments.elites.mutable_data_ptr())};
}

// Narrow tiles spread the rows of many elites over the device; wide ones select less often.
inline Grid make_grid(const Settings& settings, int multiprocessors) {
  const int64_t full = 2 * multiprocessors;
  const bool narrow = settings.elites > kChunk &&
                      settings.problems * divide_up(settings.dimensions, kMinWidth) <= full;
  const int width = narrow ? kMinWidth : kMaxWidth;
  const int64_t tiles = divide_up(settings.dimensions, width);
  const int64_t most = std::max<int64_t>(1, full / settings.problems);
  int64_t blocks = std::max<int64_t>(1, std::min(tiles, most));
  const bool separate = settings.problems * (blocks + 1) <= full;  // the record then costs no time
  STD_TORCH_CHECK(tiles < int64_t{1} << 31, "cem_update: expected fewer dimensions");
  return {static_cast<int>(tiles), width, static_cast<int>(blocks + (separate ? 1 : 0)),
          static_cast<int>(separate ? blocks : 0)};
}

template <typename Key, typename T, typename Device>
void launch_single(const Device& device, const Job& job) {
  const Settings& settings = job.settings;
  const Grid grid = make_grid(settings, device.multiprocessors);
  const bool few = settings.problems * grid.blocks <= 2 * device.multiprocessors;
  const int64_t population = settings.population;
  const int threads = static_cast<int>(
      std::min<int64_t>(1024, std::max<int64_t>(divide_up(population, kWarp) * kWarp, few ? 512 : 128)));
  auto* kernel = population <= 1024   ? single_kernel<Key, T, 1>
                 : population <= 4096 ? single_kernel<Key, T, 4>
                                      : single_kernel<Key, T, 16>;
  const int64_t bytes = single_bytes<Key>(settings.elites, settings.ranked || job.weights != nullptr);
  device.launch(kernel, settings.problems * grid.blocks, threads, bytes, job, grid);
}

// The whole operator; `Device` has a number of multiprocessors and launches kernels.
template <typename Device>
Outputs run(const Device& device, Arguments& arguments) {
  const Job job = make_job(arguments);
  const bool wide = arguments.fitness_type == ScalarType::Double || arguments.fitness_type == ScalarType::Long,
             doubles = arguments.type == ScalarType::Double;
  auto* launch = wide ? (doubles ? launch_single<uint64_t, double, Device> : launch_single<uint64_t, float, Device>)
                      : (doubles ? launch_single<uint32_t, double, Device> : launch_single<uint32_t, float, Device>);
  launch(device, job);
  return {arguments.new_distribution, arguments.new_record, arguments.new_generation, arguments.elites};
}

}  // namespace cem_tetris::update
