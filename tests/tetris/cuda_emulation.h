// CUDA's threads on a CPU, for tests where there is no GPU: a block's threads are fibers that take turns, so that code of
// warps (shuffles, votes, atomics, barriers) runs as written, one thread at a time. It shows what is computed, not races.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#define __device__
#define __global__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace cuda_emulation {

struct Index {
  unsigned x;
};
struct Thread {
  ucontext_t start;
  jmp_buf place;  // where it gave way
  std::vector<char> stack;
  unsigned index;
  bool started = false, done = false;
};
struct Meeting {
  std::array<uint64_t, 32> values, result;
  int arrived = 0;
  uint64_t generation = 0;
};

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::map<unsigned, Meeting>> meetings;  // of each warp, by mask
  struct Barrier {
    int arrived = 0;
    uint64_t passed = 0;
  };
  std::array<Barrier, 16> barriers;
  std::vector<unsigned char> shared;
  jmp_buf scheduler;
  Thread* current = nullptr;
  std::function<void()> body;
};
inline Block* block = nullptr;
inline Index block_index, block_size, grid_size;

inline Index thread_index() { return {block->current->index}; }

// A context is only what a fiber starts with: swapcontext asks the kernel for the signal mask, each time, and _setjmp does not.
inline void give_way() {
  if (_setjmp(block->current->place) == 0) _longjmp(block->scheduler, 1);
}
// Returns when the thread gives way. Not inlined: a caller's local variables might otherwise be lost.
[[gnu::noinline]] inline void resume(Thread& thread) {
  block->current = &thread;
  if (_setjmp(block->scheduler) != 0) return;
  if (thread.started) _longjmp(thread.place, 1);
  thread.started = true;
  setcontext(&thread.start);
}

inline void enter() {
  block->body();
  block->current->done = true;
  give_way();
}

inline std::array<uint64_t, 32> meet(unsigned mask, uint64_t value) {
  const unsigned lane = block->current->index % 32;
  Meeting& meeting = block->meetings[block->current->index / 32][mask];
  const uint64_t generation = meeting.generation;
  meeting.values[lane] = value;
  if (++meeting.arrived == __builtin_popcount(mask)) {
    meeting.result = meeting.values;
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    while (meeting.generation == generation) give_way();
  }
  return meeting.result;
}

// Runs the blocks of a kernel one after the other.
inline void launch(
    unsigned blocks, unsigned threads, size_t shared_bytes, const std::function<void()>& body) {
  for (unsigned b = 0; b < blocks; ++b) {
    Block own;
    block = &own;
    block_index = {b}, block_size = {threads}, grid_size = {blocks};
    own.body = body;
    own.shared.resize(shared_bytes, 0xA5);  // nobody has written it yet
    own.meetings.resize((threads + 31) / 32);
    for (unsigned i = 0; i < threads; ++i) {
      auto thread = std::make_unique<Thread>();
      thread->index = i;
      thread->stack.resize(64 << 10);
      getcontext(&thread->start);
      thread->start.uc_stack.ss_sp = thread->stack.data();
      thread->start.uc_stack.ss_size = thread->stack.size();
      thread->start.uc_link = nullptr;
      makecontext(&thread->start, reinterpret_cast<void (*)()>(enter), 0);
      own.threads.push_back(std::move(thread));
    }
    for (bool running = true; running;) {
      running = false;
      for (auto& thread : own.threads) {
        if (thread->done) continue;
        running = true;
        resume(*thread);
      }
    }
  }
}

template <class T>
uint64_t to_bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_emulation

#define threadIdx (cuda_emulation::thread_index())
#define blockIdx (cuda_emulation::block_index)
#define blockDim (cuda_emulation::block_size)
#define gridDim (cuda_emulation::grid_size)

inline void __syncwarp(unsigned mask = ~0u) { cuda_emulation::meet(mask, 0); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { cuda_emulation::give_way(); }
// PTX's barrier.sync.
inline void emulated_barrier(int number, int threads) {
  auto& barrier = cuda_emulation::block->barriers[static_cast<size_t>(number)];
  const uint64_t before = barrier.passed;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.passed;
  } else {
    while (barrier.passed == before) cuda_emulation::give_way();
  }
}
inline void __syncthreads() {
  emulated_barrier(0, static_cast<int>(cuda_emulation::block->threads.size()));
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return cuda_emulation::from_bits<T>(
      cuda_emulation::meet(mask, cuda_emulation::to_bits(value))[lane & 31]);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int step) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane >= step ? lane - step : lane);
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  const auto values = cuda_emulation::meet(mask, value);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (mask >> i & 1) != 0 && values[i] != 0 ? 1u << i : 0u;
  return result;
}
inline bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline unsigned __match_any_sync(unsigned mask, int value) {
  const auto values = cuda_emulation::meet(mask, cuda_emulation::to_bits(value));
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) {
    result |= (mask >> i & 1) != 0 && cuda_emulation::from_bits<int>(values[i]) == value
                  ? 1u << i
                  : 0u;
  }
  return result;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int step) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, value, lane + step < 32 ? lane + step : lane);
}
inline int __reduce_add_sync(unsigned mask, int value) {
  const auto values = cuda_emulation::meet(mask, cuda_emulation::to_bits(value));
  int result = 0;
  for (int i = 0; i < 32; ++i)
    result += (mask >> i & 1) != 0 ? cuda_emulation::from_bits<int>(values[i]) : 0;
  return result;
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  const auto values = cuda_emulation::meet(mask, value);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i)
    result |= (mask >> i & 1) != 0 ? static_cast<unsigned>(values[i]) : 0u;
  return result;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  const auto values = cuda_emulation::meet(mask, value);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && values[i] > result) result = static_cast<unsigned>(values[i]);
  }
  return result;
}
// Whoever waits for a word to change asks again and again.
template <class T>
T atomicAdd(T* word, std::common_type_t<T> value) {
  cuda_emulation::give_way();
  const T old = *word;
  *word += value;
  return old;
}
inline uint32_t atomicSub(uint32_t* word, uint32_t value) {
  return atomicAdd(word, 0u - value);
}
template <class T>
T atomicCAS(T* word, T expected, T value) {
  cuda_emulation::give_way();
  const T old = *word;
  if (old == expected) *word = value;
  return old;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(uint64_t bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline uint32_t __brev(uint32_t bits) {
  uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= (bits >> i & 1) << (31 - i);
  return result;
}
