// The elites of one problem, on the CPU: a bisection for the key of the last elite, and ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cem_tetris::update {

// Places 0 to K - 1 hold those that did not fail in index order, then the first
// that did.
template <typename Key> class Selector {
 public:
  std::vector<Key> keys;
  std::vector<int64_t> rank;  // of each place, where set_ranks was called
  int64_t usable = 0, best = 0;

  Selector(int64_t population, int64_t wanted) : keys(population), rank(wanted), wanted_(wanted) {}

  // index: K + 1 places, the last one is scratch. can_fail: whether the largest key says that one failed.
  void select(bool can_fail, int64_t* index) {
    Key least = ~Key(0), most = 0, failures = 0;  // the population is below 2^31
    for (const Key key : keys) {
      const bool failed = can_fail && key == kFailed;
      least = std::min(least, key);
      most = std::max(most, failed ? Key(0) : key);
      failures += failed ? 1 : 0;
    }
    const auto passed = static_cast<int64_t>(keys.size() - failures);
    usable = std::min(passed, wanted_);
    best = std::find(keys.begin(), keys.end(), least) - keys.begin();
    if (passed <= wanted_) {
      take_usable(can_fail, index);
    } else {
      take(threshold(least, most), index);
    }
  }

  // Sets the ranks of all places.
  void set_ranks(const int64_t* index) {
    for (int64_t p = usable; p < wanted_; ++p) rank[p] = p;
    order_.resize(usable);
    for (int64_t p = 0; p < usable; ++p) order_[p] = {keys[index[p]], static_cast<uint32_t>(p)};
    std::sort(order_.begin(), order_.end());
    for (int64_t r = 0; r < usable; ++r) rank[order_[r].second] = r;
  }

  // The place of an elite of the largest key.
  int64_t worst_place(const int64_t* index) const {
    int64_t worst = 0;
    for (int64_t p = 1; p < usable; ++p) {
      if (keys[index[p]] > keys[index[worst]]) worst = p;
    }
    return worst;
  }

 private:
  static constexpr Key kFailed = ~Key(0);

  int64_t count_to(Key limit) const {
    Key count = 0;
    for (const Key key : keys) count += key <= limit ? 1 : 0;
    return static_cast<int64_t>(count);
  }

  // The least key that no fewer than K keys are at or below; of several limits with K keys, any one.
  Key threshold(Key low, Key high) const {
    while (low < high) {
      const Key middle = low + (high - low) / 2;
      const int64_t count = count_to(middle);
      if (count == wanted_) return middle;
      if (count > wanted_) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // All below the limit and the first at it.
  void take(Key limit, int64_t* index) const {
    const auto population = static_cast<int64_t>(keys.size());
    int64_t place = 0;
    if (count_to(limit) == wanted_) {
      for (int64_t i = 0; i < population; ++i) {
        index[place] = i;
        place += keys[i] <= limit ? 1 : 0;
      }
      return;
    }
    int64_t ties = wanted_ - (limit > 0 ? count_to(limit - 1) : 0);
    for (int64_t i = 0; i < population && place < wanted_; ++i) {
      const bool tie = keys[i] == limit && ties > 0;
      index[place] = i;
      place += keys[i] < limit || tie ? 1 : 0;
      ties -= tie ? 1 : 0;
    }
  }

  void take_usable(bool can_fail, int64_t* index) const {
    int64_t place = 0, failed = usable;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!can_fail || keys[i] != kFailed) {
        index[place++] = static_cast<int64_t>(i);
      } else if (failed < wanted_) {
        index[failed++] = static_cast<int64_t>(i);
      }
    }
  }

  int64_t wanted_;
  std::vector<std::pair<Key, uint32_t>> order_;
};

}  // namespace cem_tetris::update
