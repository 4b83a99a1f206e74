// resample.cu's kernel on emulated threads, as an operator with its schema.
#include <torch/csrc/stable/library.h>

#include "cuda_emulation.h"

// As shared memory that nobody has written yet: every block finds in it what the last one left.
namespace tetris {
struct DrawMemory;
DrawMemory& draw_memory();
}
#include "resample.h"
tetris::DrawMemory& tetris::draw_memory() {
    static DrawMemory memory;
    return memory;
}

namespace {
using namespace tetris;

struct Emulated {
    static void launch(const Tensor&, const Draw& job, unsigned population) {
        cuda_emulation::launch(population, static_cast<unsigned>(draw_threads(job.streams)), 0, [&] { draw_streams(job); });
    }
};
}  // namespace

STABLE_TORCH_LIBRARY(TETRIS_LIBRARY, m) { m.def(TETRIS_DRAW_SCHEMA); }
STABLE_TORCH_LIBRARY_IMPL(TETRIS_LIBRARY, CPU, m) { m.impl("draw", TORCH_BOX(&draw<Emulated>)); }
