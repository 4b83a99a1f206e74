// Included before every source for ThreadSanitizer: parallel loops on threads of their own, which it sees start and end.
// Those of torch are OpenMP's, whose barriers it does not see.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace torch::stable {

inline uint32_t thread_count() { return 4; }

template <class F>
void loop_on_threads(int64_t begin, int64_t end, int64_t, const F& f) {
  const int64_t share = std::max<int64_t>(1, (end - begin + 3) / 4);
  std::vector<std::thread> threads;
  for (int64_t from = begin; from < end; from += share) {
    threads.emplace_back([&f, from, to = std::min(end, from + share)] { f(from, to); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace torch::stable

#define parallel_for loop_on_threads
#define get_num_threads thread_count
