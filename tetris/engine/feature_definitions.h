// The features of an after-state, which is the board after a landing. They equal their
// definitions in tetris/game/features.py. A feature is a struct with
//
//   denominator     the value of the feature is an integer divided by this number. It is 1
//                   except for LandingHeight (DENOMINATORS of tetris/game/features.py)
//   of(board)       the integer, computed from a board
//   of_placement    whether the feature describes the placement, not the board
//                   (PLACEMENT_FEATURES of tetris/game/features.py)
//
// and, for speed,
//
//   prepare(board)  the data of the board before the drop that `after` needs; it is computed
//                   once per decision
//   after(prepared, drop)
//                   the integers after drops that complete no row, one per lane, from 0 to
//                   32767
//   has_loop        whether `after` has a loop whose length depends on the board
//   column_height, column_step
//                   the column whose height the feature is, or the column whose step to the
//                   next column has this size; otherwise -1. These features are scored together
//                   (column_scores.h)
//   lower_bound(prepared, drop), above_lower_bound(board, touched)
//                   if has_lower_bound: a part of `after` that can be computed quickly, and the
//                   rest, which is not negative, from the board after the drop. `touched` is
//                   all ones in the columns under the piece and beside it
//   table_steps     1 or 2 if the feature represents all features of so many consecutive steps
//                   (step_tables.h); otherwise 0
//   hidden_units    the number of hidden units that the feature represents (hidden_units.h)
//
// A feature that cannot be computed from the columns that a drop touches has no `after`, and
// sets whole_board_only = true. Then all features of a list are computed from the board after
// every placement, which takes several times as long.
//
// Features that need the same preparation name the struct that does it as their `Source`. A
// feature that also needs a second preparation names its struct as `SecondSource`, and has
// after(prepared, second, drop).
//
// The names of the structs are those of tetris/game/features.py in PascalCase. Features of rows
// are in row_features.h, and features of the heights of columns in surface_features.h.
#pragma once

#include <type_traits>
#include <utility>

#include "board.h"

namespace tetris {

// Returns, for every column, the set of all rows from its lowest cell upwards. The lowest cell
// is the highest bit of a column, so the result has this bit and all lower bits. The result of
// an empty column is 0.
template <class L>
TETRIS_FUNCTION auto from_lowest_row(typename L::ColumnBits columns) {
#if defined(__CUDA_ARCH__)
  // __clz is 32 for an empty column, and the shift by 32 gives 0.
  return map_slots([](uint32_t x) { return __funnelshift_rc(~0u, 0u, __clz(x)); }, columns);
#else
  // The first round extends each cell upwards by one row, the next round by two more rows, then
  // by four, and so on, until all rows of a word are covered.
  TETRIS_UNROLL for (int rows = 1; rows <= L::TOP; rows *= 2) {
    columns = columns | (columns >> rows);
  }
  return columns;
#endif
}

// The default values of a feature.
struct FeatureBase {
  static constexpr int denominator = 1;
  static constexpr bool whole_board_only = false;
  static constexpr bool zero_without_lines = false, of_placement = false;
  static constexpr bool has_loop = false, has_lower_bound = false;
  static constexpr int column_height = -1, column_step = -1;
  static constexpr int table_steps = 0;
  static constexpr int hidden_units = 0;
  template <class L>
  TETRIS_FUNCTION static int prepare(const Board<L>&) {
    return 0;
  }
};

// A feature that represents others, whose part of the score is computed elsewhere.
struct Representative : FeatureBase {
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>&) {
    return 0;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>&) {
    return L::ints(0);
  }
};

template <class F>
constexpr bool REPRESENTS = std::is_base_of_v<Representative, F>;

// Represents COUNT hidden units in a rollout: see hidden_units.h.
template <int COUNT>
struct HiddenUnits : Representative {
  static constexpr int hidden_units = COUNT;
};

// The struct that prepares a feature: its Source, or itself.
template <class F, class = void>
struct source {
  using type = F;
};
template <class F>
struct source<F, std::void_t<typename F::Source>> {
  using type = typename F::Source;
};
template <class F>
using SourceOf = typename source<F>::type;
// The struct of a second preparation: its SecondSource, or the first one.
template <class F, class = void>
struct second_source {
  using type = SourceOf<F>;
};
template <class F>
struct second_source<F, std::void_t<typename F::SecondSource>> {
  using type = typename F::SecondSource;
};
template <class F>
using SecondSourceOf = typename second_source<F>::type;
// Returns the values of feature F after drops, one per lane. `first` and `second` are the data
// that its sources have prepared. Without a second source, F::after takes only `first`.
template <class F, class First, class Second, class D>
TETRIS_FUNCTION auto after_drop_of(const First& first, const Second& second, const D& drop) {
  if constexpr (std::is_same_v<SourceOf<F>, SecondSourceOf<F>>) return F::after(first, drop);
  else return F::after(first, second, drop);
}

// A feature that counts bits: Self::factor times the number of bits of Self::words(board),
// which has one word per column, plus Self::offset(geometry). Its preparation is the value
// before the drop.
template <class Self>
struct BitCount : FeatureBase {
  static constexpr int factor = 1;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return Self::factor * L::count_bits(Self::words(board)) + Self::offset(board.geometry);
  }
  template <class L>
  TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
    auto bits = L::count_bits_everywhere(Self::words(board));
    auto total = Self::factor == 2 ? bits + bits : bits;
    return total + L::ints(Self::offset(board.geometry));
  }
  template <class L>
  TETRIS_FUNCTION static int offset(const Geometry<L>&) {
    return 0;
  }
};

struct LandingHeight : FeatureBase {
  static constexpr int denominator = 2;
  static constexpr bool of_placement = true;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return board.twice_landing_height;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>& drop) {
    return drop.row + drop.top() - L::ints(1);
  }
};

struct ErodedCells : FeatureBase {
  static constexpr bool zero_without_lines = true;
  static constexpr bool of_placement = true;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return board.eroded_cells;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>&) {
    return L::ints(0);
  }
};

struct Lines : FeatureBase {
  static constexpr bool zero_without_lines = true;
  static constexpr bool of_placement = true;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return board.lines;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(int, const Drop<L, WIDTH>&) {
    return L::ints(0);
  }
};

struct RowTransitions : BitCount<RowTransitions> {
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return (board.cells ^ L::right(board.cells)) & board.geometry.edges;
  }
  // A word has L::TOP + 1 rows. Each row above the board is empty, and has two transitions at
  // the side walls, which are subtracted.
  template <class L>
  TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
    return 2 * (geometry.height - (L::TOP + 1));
  }
  // Returns the number of row transitions after a drop that completes no row, for every
  // placement. A row transition is a pair of neighbouring cells of a row, one full and one
  // empty. `total` is their number before the drop.
  //
  // Every row of the piece has two ends. An end adds a transition if the cell beside it is
  // empty, and removes one if this cell is full. So the number grows by 2 * (rows of the piece
  // - ends beside full cells).
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
    // Returns the rows of the piece that end beside a full cell in column k, which is k columns
    // right of the piece's left edge. A set of rows is a word with one bit per row.
    auto full_beside = [&](int k) {
      auto cells = drop.cells_before(k);
      auto rows_that_end_here = drop.piece_rows(drop.shape.contact[k + 1]);
      return cells & rows_that_end_here;
    };
    auto half_growth = L::ints(drop.shape.height);
    // Subtract the ends beside full cells. popcount_near counts the bits of two words together.
    constexpr bool ROWS_ARE_FULL = WIDTH == 1 || WIDTH == 4;  // the I piece has these widths
    if constexpr (ROWS_ARE_FULL) {
      half_growth = half_growth - L::popcount_near(full_beside(-1), full_beside(WIDTH));
    } else {
      // A row may be shorter than the piece is wide, and end beside a column of the piece. It
      // has only one left end, so a bitwise OR joins the sets of left ends of two columns.
      auto left_ends = full_beside(-1) | full_beside(0);
      auto right_ends = full_beside(WIDTH - 1) | full_beside(WIDTH);
      half_growth = half_growth - L::popcount_near(left_ends, right_ends);
    }
    // A row may also begin or end beside the middle column of a piece of three columns.
    if constexpr (WIDTH == 3) half_growth = half_growth - L::popcount(full_beside(1));
    return total + half_growth + half_growth;
  }
};

struct ColumnTransitions : BitCount<ColumnTransitions> {
  // A column has one transition at its top, and two for every run of consecutive holes. `words`
  // marks the lowest cell of each run.
  static constexpr int factor = 2;
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    auto holes = board.holes();
    return L::without(holes, holes << 1);
  }
  template <class L>
  TETRIS_FUNCTION static int offset(const Geometry<L>& geometry) {
    return geometry.width;
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
    auto new_runs = L::ints(0);
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      new_runs = new_runs + L::one_where(drop.covers_gap(k));
    }
    return total + (new_runs + new_runs);
  }
};

struct Holes : BitCount<Holes> {
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return board.holes();
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Ints total, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) total = total + drop.gap(k);
    return total;
  }
};

// The sum of the depths of wells. A well cell is an empty cell between two full neighbours.
//
// Self::depths<L>(wells, cells) returns the sum of the depths of COUNT columns, one integer per
// lane. wells[i] and cells[i] are the well cells and the full cells of column i.
template <class Self>
struct WellFeature : FeatureBase {
  static constexpr bool has_loop = true;
  template <class L>
  struct Prepared {
    typename L::Ints total;
    // The depth of each column, and the sum of the depths of each column and the next one.
    typename L::template Cached<uint16_t, typename L::ColumnInts> depths, pairs;
  };
  template <class L>
  TETRIS_FUNCTION static auto column_depths(const Board<L>& board) {
    using Bits = typename L::ColumnBits;
    const Bits& cells = board.cells;
    Bits between = L::left(cells) & L::right(cells) & board.geometry.inside;
    const Bits wells[1] = {L::without(between, cells)};
    const Bits columns[1] = {cells};
    return Self::template depths<L>(wells, columns);
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return L::sum(column_depths(board));
  }
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    auto depths = column_depths(board);
    auto pairs = depths + L::right(depths);
    return {L::total(depths), cache<uint16_t>(board, depths), cache<uint16_t>(board, pairs)};
  }
  // Returns the sum of the depths of all wells after a drop that completes no row, for every
  // placement. A well cell is an empty cell between two full cells of its row.
  //
  // A drop can change the wells in the columns under the piece and in the two columns beside
  // it. Their depths are computed again, and the depths of all other columns stay the same.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    using Bits = typename L::Bits;
    constexpr int CHANGED = WIDTH + 2;  // the number of columns that can change
    // These columns after the drop, and one more column on each side, from left to right. The
    // first one is two columns left of the piece's left edge.
    Bits columns[CHANGED + 2];
    TETRIS_UNROLL for (int i = 0; i < CHANGED + 2; ++i) columns[i] = drop.cells_after(i - 2);
    Bits wells[CHANGED], cells[CHANGED];
    TETRIS_UNROLL for (int i = 0; i < CHANGED; ++i) {
      Bits left = columns[i];
      Bits right = columns[i + 2];
      cells[i] = columns[i + 1];
      wells[i] = L::without(left & right, cells[i]);
    }
    // lower_bound returns the sum of the depths of all other columns.
    auto unchanged_depths = lower_bound<L>(prepared, drop);
    return unchanged_depths + Self::template depths<L>(wells, cells);
  }
  // Returns the sum of the depths of the wells that a drop does not change, for every
  // placement. It is the sum over the board before the drop, minus the depths of the columns
  // that may change: those at offsets -1 to WIDTH from the piece's left edge.
  //
  // drop.at_offset(x, k) is the value of x in the column at offset k. prepared.pairs holds, for
  // every column, the depth of this column plus the depth of the next one.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto lower_bound(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    auto unchanged = prepared.total;
    // Subtract the depths of two columns at a time, and of the last column alone if the number
    // of columns, WIDTH + 2, is odd.
    TETRIS_UNROLL for (int k = -1; k < WIDTH; k += 2) {
      unchanged = unchanged - drop.at_offset(prepared.pairs, k);
    }
    if constexpr (WIDTH % 2 == 1) {
      unchanged = unchanged - drop.at_offset(prepared.depths, WIDTH);
    }
    return unchanged;
  }
  template <class L>
  TETRIS_FUNCTION static int above_lower_bound(
      const Board<L>& board, typename L::ColumnInts touched) {
    return L::sum(column_depths(board) & touched);
  }
};

struct Wells : WellFeature<Wells> {
  static constexpr bool has_lower_bound = true;

  // Returns the sum of the depths of the wells in COUNT columns, for every lane. The depth of a
  // well cell is the number of consecutive empty cells from itself downwards. wells[i] and
  // cells[i] are the well cells and the full cells of column i, one bit per row.
  //
  // All well cells fall at the same time, by one row per round, until they meet a full cell.
  // Each of them counts 1 in every round in which it still falls.
  template <class L, class Bits, int COUNT>
  TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&cells)[COUNT]) {
    Bits falling[COUNT];
    TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) falling[i] = wells[i];
    auto total = L::popcount_sum(falling);
    for (;;) {
      Bits falling_anywhere = falling[0] ^ falling[0];  // zeros in the type of Bits
      TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
        // A shift to the left moves cells down by one row.
        falling[i] = L::without(falling[i] << 1, cells[i]);
        falling_anywhere = falling_anywhere | falling[i];
      }
      if (!L::any(falling_anywhere)) return total;
      total = total + L::popcount_sum(falling);
    }
  }
};

struct WellsFast : WellFeature<WellsFast> {
  // Returns the sum of the depths of the wells in COUNT columns. In a run of empty cells, let k
  // be the number of cells from its topmost well cell downwards. The first of these cells
  // counts 1, the second one 2, and so on, and their sum is 1 + 2 + ... + k. The loop handles
  // one run per column and round, from the top; most columns have only one run.
  template <class L, class Bits, int COUNT>
  TETRIS_FUNCTION static auto depths(const Bits (&wells)[COUNT], const Bits (&cells)[COUNT]) {
    Bits rest[COUNT];
    auto total = depth_of_topmost_runs<L>(wells, cells, rest);
    while (L::any(union_of(rest))) {
      total = total + depth_of_topmost_runs<L>(rest, cells, rest);
    }
    return total;
  }

 private:
  // Returns the sum of the depths of the topmost runs of COUNT columns, for every lane. A run
  // consists of the empty cells from a well cell down to the next full cell, and a run of n
  // cells has the depth 1 + 2 + ... + n. rest[i] becomes the well cells below the topmost run.
  //
  // wells[i] and cells[i] are the well cells and the full cells of column i, one bit per row.
  // The lowest bit is the topmost row. An example of a column, with the lowest bit on the left:
  //
  //     cells:            0 0 0 0 0 1 1
  //     topmost:          0 0 1 0 0 0 0    the topmost well cell
  //     cells - topmost:  0 0 1 1 1 0 1    borrows from the next full cell below
  //     run:              0 0 1 1 1 0 0    the bits that the subtraction has set
  template <class L, class Bits, int COUNT>
  TETRIS_FUNCTION static auto depth_of_topmost_runs(
      const Bits (&wells)[COUNT], const Bits (&cells)[COUNT], Bits (&rest)[COUNT]) {
    auto total = L::as_ints(Bits{});  // zeros
    TETRIS_UNROLL for (int i = 0; i < COUNT; ++i) {
      Bits topmost = wells[i] & -wells[i];  // the lowest bit
      Bits run = L::without(cells[i] - topmost, cells[i]);
      total = total + L::triangle(L::popcount(run));
      rest[i] = L::without(wells[i], run);
    }
    return total;
  }
  template <class Bits, int COUNT>
  TETRIS_FUNCTION static Bits union_of(const Bits (&words)[COUNT]) {
    Bits all = words[0];
    TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) all = all | words[i];
    return all;
  }
};

struct HoleDepth : BitCount<HoleDepth> {
  // Returns the cells that have a hole below them in their column, which are all cells above
  // the column's lowest hole.
  template <class L>
  TETRIS_FUNCTION static auto words(const Board<L>& board) {
    return from_lowest_row<L>(board.holes()) & board.cells;
  }
  template <class L>
  struct Prepared {
    typename L::Ints total;
    typename L::template Cached<uint8_t, typename L::ColumnInts>
        has_hole;  // made by L::nonzero
  };
  template <class L>
  TETRIS_FUNCTION static Prepared<L> prepare(const Board<L>& board) {
    auto has_hole = L::nonzero(board.holes());
    return {BitCount::prepare(board), cache<uint8_t>(board, has_hole)};
  }
  // Returns the depth after drops that complete no row, one number per lane. In a column with a
  // hole after the drop, the cells of the piece are added. Such a column had a hole before, or
  // there is a gap below the piece.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    auto depth = prepared.total;
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      auto had_hole = L::flag(drop.at_offset(prepared.has_hole, k));
      auto has_hole = had_hole | drop.covers_gap(k);
      depth = depth + L::ints_where(has_hole, L::ints(drop.shape.cells[k]));
    }
    return depth;
  }
};

// The number of columns with at least one hole.
struct ColumnsWithHoles : FeatureBase {
  using Source = HoleDepth;
  struct Total {
    template <class L>
    TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
      return L::ints(of(board));
    }
  };
  using SecondSource = Total;
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    auto holes = board.holes();
    auto negative_with_hole = (holes | -holes) & board.geometry.inside;
    return popcount(L::negative(L::as_ints(negative_with_hole)));
  }
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(const HoleDepth::Prepared<L>& columns,
      typename L::Ints total, const Drop<L, WIDTH>& drop) {
    TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
      auto had_hole = L::flag(drop.at_offset(columns.has_hole, k));
      auto has_hole = had_hole | drop.covers_gap(k);
      total = total + L::one_where(has_hole) - L::one_where(had_hole);
    }
    return total;
  }
};

// The number of columns whose topmost cell has an empty cell below it.
struct ThinCovers : FeatureBase {
  // Returns these columns as a set (see ScalarLanes::negative).
  template <class L>
  TETRIS_FUNCTION static uint32_t columns(const Board<L>& board) {
    auto topmost = board.cells & -board.cells;
    auto covered = L::without(topmost << 1, board.cells) & board.geometry.inside;
    return L::negative(L::as_ints(-covered));  // `covered` has one bit or none
  }
  template <class L>
  TETRIS_FUNCTION static int of(const Board<L>& board) {
    return popcount(columns(board));
  }
  template <class L>
  TETRIS_FUNCTION static auto prepare(const Board<L>& board) {
    return L::bits(typename L::Word(columns(board)));
  }
  // Returns the number of columns whose topmost cell has an empty cell directly below it, after
  // a drop that completes no row. Every lane computes the number for one placement.
  //
  // `before` is the set of these columns before the drop; bit c + 1 is column c. A drop changes
  // only the columns under the piece. After it, a column under the piece counts if the piece
  // has a single cell in it and there is a gap below this cell.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static auto after(typename L::Bits before, const Drop<L, WIDTH>& drop) {
    // Bits 1 to WIDTH are the columns under a piece whose left edge is over column 0.
    // in_columns moves these bits to the column of each placement.
    constexpr uint32_t UNDER_PIECE = ((1u << WIDTH) - 1) << 1;
    auto under_piece = L::template in_columns<UNDER_PIECE>(drop.shape);
    auto untouched = L::without(before, under_piece);
    auto total = L::popcount(untouched);
    // A piece of width 1 is an upright I. It has four cells in its column, so the topmost cell
    // has no empty cell directly below it.
    if constexpr (WIDTH > 1) {
      TETRIS_UNROLL for (int k = 0; k < WIDTH; ++k) {
        auto has_single_cell = L::ints(drop.shape.has_single_cell[k]);  // 1 or 0
        total = total + L::ints_where(drop.covers_gap(k), has_single_cell);
      }
    }
    return total;
  }
};

// Whether a feature has `after`, a template of the lanes and the width of the piece.
template <class F, class = void>
struct has_after : std::false_type {};
template <class F>
struct has_after<F, std::void_t<decltype(&F::template after<ScalarLanes, 1>)>>
    : std::true_type {};

// Returns whether a feature has `after`. A feature without it has to set whole_board_only, so
// that nobody makes a list of features slow by accident.
template <class F>
constexpr bool follows_drops() {
  static_assert(has_after<F>::value != F::whole_board_only,
      "expected a feature with after(prepared, drop), or without it and with whole_board_only "
      "= true");
  return has_after<F>::value;
}

}  // namespace tetris
