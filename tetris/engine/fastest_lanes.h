// The fastest lanes for the processor for which this file is compiled (FastestLanes), and the
// lanes for stacks that are too high for these (TallLanes).
#pragma once

#include "lanes_scalar.h"
#include "lanes_vector.h"

namespace tetris {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__AVX512VPOPCNTDQ__)
using FastestLanes =
    VectorLanes<Register<int32_t, 16>, Register<uint32_t, 16>, Register<int32_t, 16>>;
using TallLanes = FastestLanes;
#elif defined(__AVX2__)
using FastestLanes =
    VectorLanes<Register<int16_t, 16>, Register<uint16_t, 16>, Pair<Register<int32_t, 8>>>;
using TallLanes = VectorLanes<Pair<Register<int32_t, 8>>, Pair<Register<uint32_t, 8>>,
    Pair<Register<int32_t, 8>>>;
#elif defined(__SSE4_1__) || defined(__aarch64__)
using FastestLanes = VectorLanes<Pair<Register<int16_t, 8>>, Pair<Register<uint16_t, 8>>,
    Pair<Pair<Register<int32_t, 4>>>>;
using TallLanes = ScalarLanes;
#else
using FastestLanes = ScalarLanes;
using TallLanes = ScalarLanes;
#endif

}  // namespace tetris
