// The decision: every placement of a piece scored, the first best one taken (see tetris/game/decisions.py, which it equals).
#pragma once

#include "column_scores.h"
#include "own_features.h"
#include "piece_stream.h"
#include "row_features.h"
#include "step_tables.h"
#include "surface_features.h"

namespace tetris {

// What a decision looks at: the piece that falls; the next one, too; or, where that is not known, all that may come next.
enum class Lookahead { none, preview, expectimax };

// What a feature, or several of one source, know of the board before the drop.
template <class L, class Source>
struct Slot {
  decltype(Source::prepare(std::declval<const Board<L>&>())) prepared;
};

// One slot for every source.
template <class L, class... Sources>
struct Slots : Slot<L, Sources>... {
  template <class S>
  using With =
      std::conditional_t<(std::is_same_v<S, Sources> || ...), Slots, Slots<L, Sources..., S>>;
  TETRIS_FUNCTION explicit Slots(const Board<L>& board)
      : Slot<L, Sources>{Sources::prepare(board)}... {}
};

// The slots of the sources that are given, and of those features' that are not among them.
template <class Given, class... Features>
struct WithSources {
  using Known = Given;
};
template <class Given, class F, class... More>
struct WithSources<Given, F, More...>
    : WithSources<typename Given::template With<SourceOf<F>>::template With<SecondSourceOf<F>>,
          More...> {};

// In place of ColumnScores, their weights or a StepTable where there are none.
struct Nothing {
  template <class... Any>
  TETRIS_FUNCTION explicit Nothing(const Any&...) {}
};

// A list of features with their weights. `Features...` are distinct. Weights are whole numbers of at most 15 bits and a sign
// (tetris/play/quantized_weights.py), and so are the numerators of features: a sum is the same in any order.
template <class... Features>
struct FeatureList {
  static constexpr int COUNT = sizeof...(Features);
  static_assert(
      ((Features::denominator == 1 || std::is_same_v<Features, LandingHeight>) && ...),
      "expected a feature that is a whole number: double it here and in its reference in "
      "Python");
  static constexpr bool all_follow_drops = (follows_drops<Features>() & ...);
  // Scored by ColumnScores.
  template <class F>
  static constexpr bool by_column = F::column_height >= 0 || F::column_step >= 0;
  static constexpr bool has_columns = all_follow_drops && (by_column<Features> || ...);
  // Without a part of features of negative weight a score is bounded above.
  static constexpr bool has_bounds = all_follow_drops && (Features::has_least || ...);
  static constexpr int APART = (0 + ... + (by_column<Features> ? 0 : 1));  // those that are not
  template <int STEPS>
  static constexpr bool has_table = ((Features::table_steps == STEPS) || ...);
  // Weights of a candidate, and tables of them, from one candidate to the next.
  static constexpr int ROW = COUNT + (has_table<1> ? StepTable<ScalarLanes, 1>::SIZE : 0) +
                             (has_table<2> ? StepTable<ScalarLanes, 2>::SIZE : 0);

  template <class L>
  using Prepared = typename WithSources<Slots<L>, Features...>::Known;

  // The features that `values` adds up, in pairs: one product and sum may do for two.
  template <class F>
  static constexpr bool summed = !F::zero_without_lines && !by_column<F> && F::table_steps == 0;
  static constexpr int SUMMED = (0 + ... + (summed<Features> ? 1 : 0)), PAIRS = SUMMED / 2 + 1;

  template <class L>
  TETRIS_FUNCTION static void load_weights(
      const int32_t* from, typename L::Weights (&to)[PAIRS]) {
    int32_t ordered[2 * PAIRS] = {};
    int i = 0, place = 0;
    (set_summed<Features>(ordered, from[i++], place), ...);
    TETRIS_UNROLL for (int k = 0; k < PAIRS; ++k) to[k] =
        L::weights(ordered[2 * k], ordered[2 * k + 1]);
  }

  template <class L>
  TETRIS_FUNCTION static ColumnWeights<L> column_weights(const int32_t* from) {
    int32_t heights[MAX_WIDTH] = {}, steps[MAX_WIDTH] = {};
    int i = 0;
    (set_column<Features>(heights, steps, from[i++]), ...);
    return {heights, steps};
  }

  // The weighted sum over a whole board. `columns`: ColumnWeights, by which the features of columns are scored together, or
  // Nothing.
  template <class L, class Columns>
  TETRIS_FUNCTION static int value(
      const int32_t* weights, const Board<L>& board, const Columns& columns) {
    constexpr bool TOGETHER = !std::is_same_v<Columns, Nothing>;
    int sum = 0, i = 0;
    (add_whole<Features, TOGETHER>(sum, weights[i++], board), ...);
    if constexpr (TOGETHER) sum += ColumnScores<L>::of(board, columns);
    if constexpr (has_table<1>) sum += StepTable<L, 1>::of(board, table<1>(weights));
    if constexpr (has_table<2>) sum += StepTable<L, 2>::of(board, table<2>(weights));
    return sum;
  }

  template <int STEPS>
  TETRIS_FUNCTION static const int32_t* table(const int32_t* weights) {
    return weights + COUNT + (STEPS == 2 && has_table<1> ? StepTable<ScalarLanes, 1>::SIZE : 0);
  }

  // The part of it that tells of the placement, not of the board.
  template <class L>
  TETRIS_FUNCTION static int placement_value(const int32_t* weights, const Board<L>& board) {
    int sum = 0, i = 0;
    (add_of_placement<Features>(sum, weights[i++], board), ...);
    return sum;
  }

  // Whether none of them has a positive weight.
  TETRIS_FUNCTION static bool bounds(const int32_t* weights) {
    int i = 0;
    return ((weights[i++] <= 0 || !Features::has_least) && ...);
  }

  // What takes a bound to the score, by the board after the drop.
  template <class L>
  TETRIS_FUNCTION static int rest_value(
      const int32_t* weights, const Board<L>& board, const typename L::ColumnInts& touched) {
    int sum = 0, i = 0;
    ((sum += Features::has_least ? weights[i] * Features::rest_of(board, touched) : 0, ++i),
        ...);
    return sum;
  }

  // The weighted sums, or bounds, of the after-states of drops that complete no row, without what ColumnScores and StepTable score.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Scores values(const typename L::Weights* weights,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, bool bound) {
    // Those that loop come first: what is at hand before a loop has to be put aside during it.
    typename L::Ints early[COUNT];
    int i = 0, j = 0;
    (compute_early<Features>(early[i++], prepared, drop, bound), ...);
    Sum<L> sum{L::scores(0), weights};
    (add<Features>(sum, early[j++], prepared, drop), ...);
    return sum.scores;
  }

  // What the numerator of feature i is multiplied by.
  TETRIS_FUNCTION static constexpr float reciprocal(int i) {
    constexpr float all[] = {1.0f / Features::denominator...};
    return all[i];
  }

  // Writes the numerators of the features of a whole board.
  template <class L>
  TETRIS_FUNCTION static void numerators(const Board<L>& board, int (&to)[COUNT]) {
    int i = 0;
    ((to[i++] = Features::of(board)), ...);
  }

  // Writes those of the after-states of a drop that completes no row.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static void numerators(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, typename L::Ints (&to)[COUNT]) {
    int i = 0;
    ((to[i++] = after_drop<Features>(prepared, drop)), ...);
  }

 private:
  template <class F, bool TOGETHER, class L>
  TETRIS_FUNCTION static void add_whole(int& sum, int32_t weight, const Board<L>& board) {
    if constexpr (F::table_steps == 0 && !(TOGETHER && by_column<F>))
      sum += weight * F::of(board);
  }
  template <class F, class L>
  TETRIS_FUNCTION static void add_of_placement(
      int& sum, int32_t weight, const Board<L>& board) {
    if constexpr (F::of_placement) sum += weight * F::of(board);
  }
  template <class F>
  TETRIS_FUNCTION static void set_column(
      int32_t (&heights)[MAX_WIDTH], int32_t (&steps)[MAX_WIDTH], int32_t weight) {
    if constexpr (F::column_height >= 0) heights[F::column_height] = weight;
    if constexpr (F::column_step >= 0) steps[F::column_step] = weight;
  }
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after_drop(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    return after_drop_of<F>(static_cast<const Slot<L, SourceOf<F>>&>(prepared).prepared,
        static_cast<const Slot<L, SecondSourceOf<F>>&>(prepared).prepared, drop);
  }
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static void compute_early(typename L::Ints& value,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, bool bound) {
    if constexpr (F::loops)
      value = F::has_least && bound
                  ? F::least(static_cast<const Slot<L, F>&>(prepared).prepared, drop)
                  : after_drop<F>(prepared, drop);
  }
  template <class F, int SIZE>
  TETRIS_FUNCTION static void set_summed(int32_t (&ordered)[SIZE], int32_t weight, int& place) {
    if constexpr (summed<F>) ordered[place++] = weight;
  }
  template <class L>
  struct Sum {
    typename L::Scores scores;
    const typename L::Weights* weights;
    typename L::Ints first = {};  // of a pair
    int place = 0;                // of the next feature among those summed
  };
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static void add(Sum<L>& sum, const typename L::Ints& early,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    if constexpr (summed<F>) {
      typename L::Ints value;
      if constexpr (F::loops) value = early;
      else value = after_drop<F>(prepared, drop);
      const auto& weights = sum.weights[sum.place / 2];
      const bool second = sum.place % 2 == 1;
      ++sum.place;
      if (second) sum.scores = L::add_products(sum.scores, weights, sum.first, value);
      else if (sum.place == SUMMED)
        sum.scores = L::add_products(sum.scores, weights, value, L::ints(0));
      else sum.first = value;
    }
  }
};

// The after-state of a placement that does not end the game, full rows removed.
template <class L>
struct AfterState : Board<L> {
  TETRIS_FUNCTION AfterState(const Board<L>& board, const Landing<L>& landing, int piece,
      int place, typename L::Keeper keeper = {})
      : Board<L>(board.geometry, landing.cells, keeper) {
    this->twice_landing_height =
        2 * landing.row + shape_of(piece, orientation_of(place)).height - 1;
    this->eroded_cells = landing.eroded_cells;
#if defined(TETRIS_FEATURE_HEADER)
    this->lines = landing.lines;
#endif
  }
};

// The score of a placement by the after-state itself; see FeatureList::value.
template <class List, class L, class Columns = Nothing>
TETRIS_FUNCTION Choice whole_score(const Board<L>& board, const int32_t* weights, int piece,
    int place, const Columns& columns = Nothing()) {
  const Landing<L> landing(board, piece, place);
  if (landing.over) return NO_CHOICE;
  const AfterState<L> after(board, landing, piece, place);
  return {List::template value<L>(weights, after, columns), place};
}

// Calls visit(place) for every placement of a piece, in the order of the search.
template <class L, class Visit>
TETRIS_FUNCTION void each_placement(
    const Geometry<L>& geometry, int piece, const Visit& visit) {
  for (int orientation = 0; orientation < MAX_ORIENTATIONS; ++orientation) {
    const int width = shape_of(piece, orientation).width;
    if (width == 0) break;  // it has no more orientations
    for (int column = 0; column <= geometry.width - width; ++column)
      visit(orientation * ORDER_STRIDE + column);
  }
}

// The choice where the next piece is known: the placement that begins the best pair, or the best one on its own where every
// pair ends the game. `choose(board, piece)` returns the best placement of a piece.
template <class List, class L, class Choose>
TETRIS_FUNCTION Choice choose_by_pairs(
    const Board<L>& board, const int32_t* weights, int piece, int next, const Choose& choose) {
  Choice best = NO_CHOICE;
  each_placement(board.geometry, piece, [&](int place) {
    const Landing<L> landing(board, piece, place);
    if (landing.over || ends_by_next(board.geometry, landing.cells, next)) return;
    const AfterState<L> after(board, landing, piece, place);
    const Choice second = choose(after, next);
    if (second.place == Choice::NONE) return;
    best.consider({second.score + List::template placement_value<L>(weights, after), place});
  });
  return best.place != Choice::NONE ? best : choose(board, piece);
}

// How a placement does with the pieces that may come next: with how many of them the game goes on, and the sum of the best
// pairs that it begins with these.
struct Prospect {
  int survived = -1;
  int64_t sum = 0;
  TETRIS_FUNCTION bool exceeds(const Prospect& other) const {
    return survived != other.survived ? survived > other.survived : sum > other.sum;
  }
};

// The choice where the next piece is not known, but thought of: of the two placements that are best on their own the one of the
// better prospect. `score(place)` is that of a placement on its own; `choose(search, piece)` returns the best placement of a
// piece on the board of `search`, which `search_on(board)` makes.
template <class List, class L, class Score, class SearchOn, class Choose>
TETRIS_FUNCTION Choice choose_by_prospects(const Board<L>& board, const int32_t* weights,
    int piece, const PieceSource& source, const Score& score, const SearchOn& search_on,
    const Choose& choose) {
  BestTwo two;
  each_placement(board.geometry, piece, [&](int place) { two.consider(score(place)); });
  Choice chosen = two.first;
  Prospect most;
  for (const Choice& first : {two.first, two.second}) {
    if (first.place == Choice::NONE) break;
    const Landing<L> landing(board, piece, first.place);
    const AfterState<L> after(board, landing, piece, first.place);
    auto search = search_on(after);
    Prospect found{0, 0};
    for (int k = 0; k < source.count; ++k) {
      const int next = source.at(k);
      const Choice second = choose(search, next);
      if (second.place == Choice::NONE || ends_by_next(board.geometry, landing.cells, next))
        continue;
      ++found.survived;
      found.sum += second.score + List::template placement_value<L>(weights, after);
    }
    if (found.exceeds(most)) most = found, chosen = first;
  }
  return chosen;
}

// Scores every placement of a piece on a board. `L` is the lanes, `List` the FeatureList.
template <class L, class List>
struct Chooser {
  using Prepared = typename List::template Prepared<L>;
  static constexpr bool MAY_BOUND = L::LANES > 1 && List::has_bounds;

  const Geometry<L>& geometry;
  const int32_t* weights;
  typename L::Weights lane_weights[List::PAIRS];
  std::conditional_t<List::has_columns, ColumnWeights<L>, Nothing> column_weights;
  const bool bounds;          // placements that complete no row have bounds in place of scores
  typename L::Ints too_high;  // where no piece that fits the board ends
  typename L::Ints too_high_to_survive;  // nor one that completes a row

  TETRIS_FUNCTION Chooser(const Geometry<L>& g, const int32_t* w)
      : geometry(g),
        weights(w),
        column_weights(List::template column_weights<L>(w)),
        bounds(MAY_BOUND && List::bounds(w)),
        too_high(L::ints(g.height + 1)),
        too_high_to_survive(
            L::ints(g.height + 1 + (g.clear_on_overflow ? MAX_PIECE_SIZE : 0))) {
    List::template load_weights<L>(w, lane_weights);
  }

  // What is known of the board while its placements are scored.
  struct Search {
    const Board<L>& board;
    const Ground<L> ground;
    const Prepared prepared;
    const std::conditional_t<List::has_columns, ColumnScores<L>, Nothing> columns;
    const std::conditional_t<List::all_follow_drops && List::template has_table<1>,
        StepTable<L, 1>, Nothing>
        steps;
    const std::conditional_t<List::all_follow_drops && List::template has_table<2>,
        StepTable<L, 2>, Nothing>
        step_pairs;
    typename L::Best best;  // among the placements that complete no row
    uint64_t rest =
        0;  // the placements to be scored by their whole after-state: a bit a place in the order
    TETRIS_FUNCTION Search(const Chooser& chooser, const Board<L>& b)
        : board(b),
          ground(b),
          prepared(b),
          columns(b, chooser.column_weights),
          steps(b, List::template table<1>(chooser.weights)),
          step_pairs(b, List::template table<2>(chooser.weights)) {}
  };

  // NO_CHOICE where every placement ends the game.
  TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece) const {
    Search search(*this, board);
    return choose(search, piece);
  }
  TETRIS_FUNCTION Choice choose(Search& search, int piece) const {
    search.best.clear();
    search.rest = 0;
    const Plan<L>& plan = PLANS<L>[piece];
    for (int i = 0; i < plan.ones.count; ++i) score_group(search, plan.ones.group[i]);
    for (int i = 0; i < plan.fours.count; ++i) score_group(search, plan.fours.group[i]);
    for (int i = 0; i < plan.twos.count; ++i) score_group(search, plan.twos.group[i]);
    for (int i = 0; i < plan.threes.count; ++i) score_group(search, plan.threes.group[i]);
    Choice best = L::first_best(search.best), choice = NO_CHOICE;
    for (uint64_t rest = search.rest; rest != 0; rest &= rest - 1) {
      choice.consider(score_whole(search.board, piece, lowest_bit(rest)));
    }
    if constexpr (MAY_BOUND) {
      if (bounds && best.exceeds(choice)) {
        const int rest = rest_value(search.board, piece, best.place);
        choice.consider({best.score + rest, best.place});
        if (rest == 0) return choice;
        // Seldom another bound is as high as this score.
        uint64_t more = L::at_least(search.best, choice.score) & ~(uint64_t{1} << best.place);
        for (; more != 0; more &= more - 1) {
          const int place = lowest_bit(more), score = L::score_at(search.best, place);
          if (score >= choice.score)
            choice.consider({score + rest_value(search.board, piece, place), place});
        }
        return choice;
      }
    }
    choice.consider(best);
    return choice;
  }

  // The same where the next piece is known.
  TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece, int next) const {
    return choose_by_pairs<List>(board, weights, piece, next,
        [this](const Board<L>& on, int falls) { return choose(on, falls); });
  }

  // The same where it is not known, but thought of.
  TETRIS_FUNCTION Choice choose(
      const Board<L>& board, int piece, const PieceSource& source) const {
    return choose_by_prospects<List>(
        board, weights, piece, source,
        [&](int place) { return score_whole(board, piece, place); },
        [this](const Board<L>& on) { return Search(*this, on); },
        [this](Search& search, int falls) { return choose(search, falls); });
  }

  // A placement by its whole after-state.
  TETRIS_OUTLINE Choice score_whole(const Board<L>& board, int piece, int place) const {
    return whole_score<List>(board, weights, piece, place, column_weights);
  }

  // Scores the placements of a group that complete no row; the lanes of those that have to be scored by their whole
  // after-state.
  template <int WIDTH>
  TETRIS_FUNCTION unsigned score(Search& search, const Group<L, WIDTH>& group) const {
    const Drop<L, WIDTH> drop(search.ground, group.shapes);
    // A lane without a placement ends higher than any: its shape is too high, or it touches a column beside the board.
    const auto end = drop.end();
    const auto completed = drop.completed();
    const auto whole = end < too_high_to_survive;
    if constexpr (List::all_follow_drops) {
      const auto incomplete = completed == L::bits(0);
      const auto plain = incomplete & (end < too_high);
      if (L::worthwhile(plain)) {
        typename L::Scores scores =
            List::values(lane_weights, search.prepared, drop, MAY_BOUND && bounds);
        if constexpr (List::has_columns) scores = search.columns.after(scores, drop);
        if constexpr (List::template has_table<1>) scores = search.steps.after(scores, drop);
        if constexpr (List::template has_table<2>)
          scores = search.step_pairs.after(scores, drop);
        L::consider(search.best, scores, plain, group);
      }
      return L::lanes(L::without(whole, incomplete));
    } else {
      return L::lanes(whole);
    }
  }

 private:
  TETRIS_OUTLINE int rest_value(const Board<L>& board, int piece, int place) const {
    const int row =
        L::landing_row(board.heights, shape_of(piece, orientation_of(place)), column_of(place));
    const auto dropped = L::piece_columns(piece, orientation_of(place), column_of(place), row);
    const auto under = L::nonzero(dropped);
    return List::template rest_value<L>(weights,
        Board<L>(board.geometry, board.cells | dropped),
        L::left(under) | under | L::right(under));
  }
  // Vectors fit the registers better in a function of their own.
  template <int WIDTH>
  TETRIS_FUNCTION void score_group(Search& search, const Group<L, WIDTH>& group) const {
    if constexpr (L::LANES == 1) search.rest |= group.in_order(score(search, group));
    else search.rest |= group.in_order(score_apart(search, group));
  }
  template <int WIDTH>
  TETRIS_OUTLINE unsigned score_apart(Search& search, const Group<L, WIDTH>& group) const {
    return score(search, group);
  }
};

}  // namespace tetris
