// Philox4x32-10, the counter-based generator of J. Salmon, M. Moraes, R. Dror and D. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), for host and device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define PHILOX_FUNCTION __host__ __device__ __forceinline__
#else
#define PHILOX_FUNCTION inline
#endif

namespace philox {

struct Block {
  uint32_t word[4];
};

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

// Returns a block of four random words of Philox4x32-10 (J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). They are a pure function of a 128-bit counter, which
// is passed as two 64-bit halves, and of a 64-bit key.
//
// A round replaces the four words (c0, c1, c2, c3) of the counter by
//
//     (high(m1 c2) ^ c1 ^ k0, low(m1 c2), high(m0 c0) ^ c3 ^ k1, low(m0 c0)),
//
// where high and low are the halves of a product with a constant, m0 or m1. Then the Weyl
// constants are added to the two words (k0, k1) of the key.
PHILOX_FUNCTION Block block(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
  uint32_t c0 = uint32_t(counter_low);
  uint32_t c1 = uint32_t(counter_low >> 32);
  uint32_t c2 = uint32_t(counter_high);
  uint32_t c3 = uint32_t(counter_high >> 32);
  uint32_t k0 = uint32_t(key);
  uint32_t k1 = uint32_t(key >> 32);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < kRounds; ++round) {
    uint64_t product_0 = uint64_t(kMultiplier0) * c0;
    uint64_t product_1 = uint64_t(kMultiplier1) * c2;
    c0 = uint32_t(product_1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(product_1);
    c2 = uint32_t(product_0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(product_0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace philox
