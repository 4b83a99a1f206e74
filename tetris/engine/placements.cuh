// The placements of a piece as the searches of the GPU go through them.
#pragma once

#include "decision.h"
#include "thread_lanes.h"

namespace tetris {

// The shapes of WIDTH columns as the search wants them.
template <class L, int WIDTH>
struct ShapeConstants {
    ShapeLanes<L, WIDTH> shape[PIECES][MAX_ORIENTATIONS];
    constexpr ShapeConstants() {
        for (int piece = 0; piece < PIECES; ++piece) {
            for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
                if (SHAPES.shape[piece][i].width == WIDTH) shape[piece][i].set(0, SHAPES.shape[piece][i], 0);
            }
        }
    }
};
template <class L, int WIDTH>
__constant__ const ShapeConstants<L, WIDTH> SHAPE_CONSTANTS = ShapeConstants<L, WIDTH>();

struct Widths {
    int count[PIECES];                            // orientations
    int width[PIECES][MAX_ORIENTATIONS];          // columns of each
    int of_width[PIECES][MAX_PIECE_SIZE + 1][2];  // the orientations of so many columns, or -1
    constexpr Widths() : count(), width(), of_width() {
        for (int piece = 0; piece < PIECES; ++piece) {
            count[piece] = ORIENTATIONS[piece];
            for (auto& orientations : of_width[piece]) orientations[0] = orientations[1] = -1;
            for (int i = 0; i < ORIENTATIONS[piece]; ++i) {
                const int columns = SHAPES.shape[piece][i].width;
                width[piece][i] = columns;
                auto& orientations = of_width[piece][columns];
                orientations[orientations[0] < 0 ? 0 : 1] = i;
            }
        }
    }
};
__constant__ const Widths WIDTHS = Widths();

}  // namespace tetris
