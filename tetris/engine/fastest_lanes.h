// The lanes that suit the processor that the compiler was told to compile for.
#pragma once

#include "lanes_avx2.h"
#include "lanes_avx512.h"
#include "lanes_sse4.h"

namespace tetris {

#if defined(TETRIS_AVX512)
using FastestLanes = Avx512Lanes;
#elif defined(__AVX2__)
using FastestLanes = Avx2Lanes;
#elif defined(__SSE4_1__)
using FastestLanes = Sse4Lanes;
#else
using FastestLanes = ScalarLanes;
#endif

}  // namespace tetris
