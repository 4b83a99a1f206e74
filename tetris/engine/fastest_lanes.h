// The lanes that suit the processor that the compiler was told to compile for.
#pragma once

#include "lanes_scalar.h"
#include "lanes_vector.h"

namespace tetris {

#if defined(TETRIS_AVX512)
using FastestLanes = Avx512Lanes;
using TallLanes = Avx512Lanes;  // where a stack is too high for the fastest ones
#elif defined(__AVX2__)
using FastestLanes = Avx2Lanes;
using TallLanes = Avx2TallLanes;
#elif defined(TETRIS_VECTORS)
using FastestLanes = SixteenByteLanes;
using TallLanes = ScalarLanes;
#else
using FastestLanes = ScalarLanes;
using TallLanes = ScalarLanes;
#endif

}  // namespace tetris
