// The operators on the CPU: threads share the candidates.
#pragma once

#include <algorithm>

#include "discrete.h"

namespace cem_tetris::discrete {
namespace {

constexpr int kPairs = 32;  // of candidates, whose noise is made by vectors
constexpr int kBlock = 16;  // items that are passed over at once

void draw_categories(const Call& call) {
  const int64_t groups = divide_up(call.samples, 2 * kPairs);
  torch::stable::parallel_for(0, call.problems * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t problem = i / groups, first = i % groups * 2 * kPairs;
      const Noise noise(call, problem, false);
      const int64_t place = (problem * call.samples + first) * call.width;
      for (int64_t v = 0; v < call.width; ++v) {
        const auto set = [&](uint64_t* word) {
          for (int l = 0; l < kPairs; ++l) noise.set(first / 2 + l, v, word + 2 * l);
        };
        int64_t found[2 * kPairs];
        draw_category<1>(call.table + problem * call.starts[call.width] + call.starts[v],
            static_cast<int>(call.starts[v + 1] - call.starts[v]), set, found);
        for (int64_t s = std::min<int64_t>(call.samples - first, 2 * kPairs); s-- > 0;) {
          call.put(place + s * call.width + v, found[s]);
        }
      }
    }
  });
}

// Sets weights to those of the items left; returns their sum.
uint64_t weigh(const double* row, const uint64_t* left, int n, uint64_t* weights) {
  uint64_t total = 0;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & weight(row[k]);
  if (total != 0) return total;
  for (int k = 0; k < n; ++k) total += weights[k] = left[k] & 1;
  return total;
}

void draw_permutations(const Call& call) {
  const int n = static_cast<int>(call.width);
  const int64_t grain = std::max(1, 4096 / n / n);
  torch::stable::parallel_for(0, call.problems * call.samples, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> left(n), weights(divide_up(n, kBlock) * kBlock);  // left: all bits, or none
    for (int64_t i = begin; i < end; ++i) {
      const int64_t problem = i / call.samples, candidate = i % call.samples;
      const double *const table = call.table + problem * (n + 1) * n, *row = table;
      const Noise noise(call, problem, true);
      std::fill(left.begin(), left.end(), ~uint64_t{0});
      for (int step = 0; step < n; ++step) {
        uint64_t word[2], sum;
        noise.set(candidate / 2, step, word);
        uint64_t below = multiply_high(word[candidate % 2], weigh(row, left.data(), n, weights.data()));
        const uint64_t* item = weights.data();
        for (;; item += kBlock, below -= sum) {
          sum = 0;
          for (int k = 0; k < kBlock; ++k) sum += item[k];
          if (sum > below) break;
        }
        for (; *item <= below; ++item) below -= *item;
        const int64_t found = item - weights.data();
        left[found] = 0;
        row = table + (1 + found) * n;
        call.put(i * n + step, found);
      }
    }
  });
}

void run(const Call& call, Device) { (call.starts != nullptr ? draw_categories : draw_permutations)(call); }

}  // namespace
}  // namespace cem_tetris::discrete
