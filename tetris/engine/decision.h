// The decision: it scores every placement of a piece and chooses the best one, as
// tetris/game/decisions.py does. Of equally good placements it chooses the first one.
#pragma once

#include "column_scores.h"
#include "hidden_units.h"
#include "own_features.h"
#include "piece_stream.h"
#include "row_features.h"
#include "step_tables.h"
#include "surface_features.h"

namespace tetris {

// The pieces that a decision considers:
//
// - none: only the falling piece;
// - preview: also the next piece;
// - expectimax: also all pieces that may come next.
enum class Lookahead { none, preview, expectimax };

// The data that a source has prepared for the features that name it (see
// feature_definitions.h).
template <class L, class Source>
struct SourceData {
  decltype(Source::prepare(std::declval<const Board<L>&>())) prepared;
};

// The data of several different sources.
template <class L, class... Sources>
struct AllSourceData : SourceData<L, Sources>... {
  template <class Source>
  using With = std::conditional_t<(std::is_same_v<Source, Sources> || ...), AllSourceData,
      AllSourceData<L, Sources..., Source>>;
  TETRIS_FUNCTION explicit AllSourceData(const Board<L>& board)
      : SourceData<L, Sources>{Sources::prepare(board)}... {}
};

// Adds the sources of features to `Data`.
template <class Data, class... Features>
struct WithSources {
  using Result = Data;
};
template <class Data, class F, class... More>
struct WithSources<Data, F, More...>
    : WithSources<typename Data::template With<SourceOf<F>>::template With<SecondSourceOf<F>>,
          More...> {};

// A placeholder for ColumnScores, ColumnWeights, a StepTable or a HiddenLayer in a list that
// has no feature for them.
struct Nothing {
  template <class... Any>
  TETRIS_FUNCTION explicit Nothing(const Any&...) {}
};

// A list of distinct features. Weights are integers with a sign and at most 15 bits
// (tetris/play/quantized_weights.py), and so are the numerators of features. So a sum does not
// depend on the order of its terms.
//
// The functions below go through the list with a fold expression: `(f<Features>(weights[i++]),
// ...)` calls f for one feature after another, with its weight.
template <class... Features>
struct FeatureList {
  static constexpr int COUNT = sizeof...(Features);
  static_assert(
      ((Features::denominator == 1 || std::is_same_v<Features, LandingHeight>) && ...),
      "expected a feature that is a whole number: double it here and in its reference in "
      "Python");
  // Whether every feature has a function `after`, which computes it from the changes that a
  // drop makes. If one feature has none, all features are computed from the board after each
  // placement.
  static constexpr bool computable_from_drops = (follows_drops<Features>() & ...);
  // Whether ColumnScores scores a feature.
  template <class F>
  static constexpr bool by_column = F::column_height >= 0 || F::column_step >= 0;
  static constexpr bool has_columns = computable_from_drops && (by_column<Features> || ...);
  static constexpr int NOT_BY_COLUMN = (0 + ... + (by_column<Features> ? 0 : 1));
  static constexpr int UNITS = (0 + ... + Features::hidden_units);
  // Whether some features have lower bounds. If none of these features has a positive weight,
  // the score with the bounds in place of the features is an upper bound of the exact score.
  // With hidden units there is no such bound.
  static constexpr bool has_bounds =
      UNITS == 0 && computable_from_drops && (Features::has_lower_bound || ...);
  template <int STEPS>
  static constexpr bool has_table = ((Features::table_steps == STEPS) || ...);

  // The layout of a candidate's weights: COUNT weights, then the table of single steps, the
  // table of pairs of steps and the hidden units, if the list has features for them.
  static constexpr int FIRST_TABLE = has_table<1> ? StepTable<ScalarLanes, 1>::SIZE : 0;
  static constexpr int SECOND_TABLE = has_table<2> ? StepTable<ScalarLanes, 2>::SIZE : 0;
  static constexpr int FIRST_OF_UNITS = COUNT + FIRST_TABLE + SECOND_TABLE;

  template <class L>
  using Prepared = typename WithSources<AllSourceData<L>, Features...>::Result;

  // Whether `values` adds up a feature. These features are added in pairs, because a vector
  // instruction multiplies and adds two of them at a time.
  template <class F>
  static constexpr bool summed = !F::zero_without_lines && !by_column<F> && !REPRESENTS<F>;
  static constexpr int SUMMED_FEATURES = (0 + ... + (summed<Features> ? 1 : 0));
  static constexpr int PAIRS = SUMMED_FEATURES / 2 + 1;
  // Returns how many of them are before F in the list.
  template <class F>
  static constexpr int summed_before() {
    int count = 0;
    bool found = false;
    auto visit = [&](bool is_f, bool is_summed) {
      found = found || is_f;
      count += !found && is_summed ? 1 : 0;
    };
    (visit(std::is_same_v<F, Features>, summed<Features>), ...);
    return count;
  }

  // The hidden units. Their inputs are the features that `values` adds up.
  template <class L>
  using Layer = HiddenLayer<L, UNITS, SUMMED_FEATURES>;
  static constexpr int WEIGHTS_PER_CANDIDATE = FIRST_OF_UNITS + Layer<ScalarLanes>::SIZE;

  // Loads the weights of the features that `values` adds up, in pairs. `weights` holds the
  // weights of all features of the list, in the order of the list. The last pair may have only
  // one feature or none; the weight of a missing feature is 0.
  template <class L>
  TETRIS_FUNCTION static void load_weights(
      const int32_t* weights, typename L::Weights (&pairs)[PAIRS]) {
    int32_t ordered[2 * PAIRS] = {};
    int i = 0;
    int number = 0;  // how many summed features have been written to `ordered`
    (set_summed<Features>(ordered, weights[i++], number), ...);
    TETRIS_UNROLL for (int k = 0; k < PAIRS; ++k) {
      pairs[k] = L::weights(ordered[2 * k], ordered[2 * k + 1]);
    }
  }

  template <class L>
  TETRIS_FUNCTION static ColumnWeights<L> column_weights(const int32_t* weights) {
    int32_t heights[MAX_WIDTH] = {}, steps[MAX_WIDTH] = {};
    int i = 0;
    (set_column<Features>(heights, steps, weights[i++]), ...);
    return {heights, steps};
  }

  // Returns the table for features of STEPS steps, which follows the weights in memory.
  template <int STEPS>
  TETRIS_FUNCTION static const int32_t* table(const int32_t* weights) {
    return weights + COUNT + (STEPS == 2 ? FIRST_TABLE : 0);
  }

  // Returns the weighted sum of all features of a board. If `columns` are ColumnWeights, the
  // features of single columns are scored together; if it is Nothing, they are scored one by
  // one.
  template <class L, class Columns>
  TETRIS_FUNCTION static int value(
      const int32_t* weights, const Board<L>& board, const Columns& columns) {
    constexpr bool HAS_COLUMNS = !std::is_same_v<Columns, Nothing>;
    int sum = 0, i = 0;
    (add_of_board<Features, HAS_COLUMNS>(sum, weights[i++], board), ...);
    if constexpr (HAS_COLUMNS) sum += ColumnScores<L>::of(board, columns);
    if constexpr (has_table<1>) sum += StepTable<L, 1>::of(board, table<1>(weights));
    if constexpr (has_table<2>) sum += StepTable<L, 2>::of(board, table<2>(weights));
    if constexpr (UNITS > 0) {
      typename Layer<ScalarLanes>::Inputs inputs;
      (set_input<Features>(inputs, board), ...);
      sum = Layer<ScalarLanes>(weights + FIRST_OF_UNITS).add(sum, inputs);
    }
    return sum;
  }

  // Returns the weighted sum of the features that describe the placement, not the board.
  template <class L>
  TETRIS_FUNCTION static int placement_value(const int32_t* weights, const Board<L>& board) {
    int sum = 0, i = 0;
    (add_of_placement<Features>(sum, weights[i++], board), ...);
    return sum;
  }

  // Returns whether scores have upper bounds. They do if no feature with a lower bound has a
  // positive weight.
  TETRIS_FUNCTION static bool bounds(const int32_t* weights) {
    int i = 0;
    return ((weights[i++] <= 0 || !Features::has_lower_bound) && ...);
  }

  // Returns the exact score of a placement minus its upper bound, which `values` computed. The
  // difference is not positive. `board` is the board after the drop. `touched` is all ones in
  // the columns under the piece and beside it, and 0 in the other columns.
  template <class L>
  TETRIS_FUNCTION static int value_above_bound(
      const int32_t* weights, const Board<L>& board, const typename L::ColumnInts& touched) {
    int sum = 0, i = 0;
    (add_above_bound<Features>(sum, weights[i++], board, touched), ...);
    return sum;
  }

  // Returns the weighted sum of the features for which `summed` is true, after a drop that
  // completes no row, for every placement (lane). ColumnScores and StepTable score the other
  // features.
  //
  // If `bound` is true, features that have a lower bound are replaced by this bound. Their
  // weights are not positive, so the sum is then an upper bound of the exact sum. `weights` are
  // the pairs that load_weights has made. `prepared` is the data that the features have
  // computed from the board before the drop. `layer` are the hidden units, whose part is added.
  template <class L, int WIDTH, class AnyLayer>
  TETRIS_FUNCTION static typename L::Scores values(const typename L::Weights* weights,
      const AnyLayer& layer, const Prepared<L>& prepared, const Drop<L, WIDTH>& drop,
      bool bound) {
    // Features with a loop are computed first, because a loop needs all registers. Values that
    // were computed before it would have to be moved to memory.
    typename L::Ints loop_values[COUNT];
    int i = 0, j = 0;
    (compute_loop_value<Features>(loop_values[i++], prepared, drop, bound), ...);
    PairedSum<L> sum{L::scores(0), weights};
    (add<Features>(sum, loop_values[j++], prepared, drop), ...);
    if constexpr (UNITS > 0) return layer.add(sum.scores, sum.inputs);
    else return sum.scores;
  }

  // Returns the factor that turns the numerator of feature i into its value.
  TETRIS_FUNCTION static constexpr float reciprocal(int i) {
    constexpr float all[] = {1.0f / Features::denominator...};
    return all[i];
  }

  // Writes the numerators of the features of a board.
  template <class L>
  TETRIS_FUNCTION static void numerators(const Board<L>& board, int (&result)[COUNT]) {
    int i = 0;
    ((result[i++] = Features::of(board)), ...);
  }

  // Writes the numerators of the features after drops that complete no row.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static void numerators(const Prepared<L>& prepared,
      const Drop<L, WIDTH>& drop, typename L::Ints (&result)[COUNT]) {
    int i = 0;
    ((result[i++] = after_drop<Features>(prepared, drop)), ...);
  }

 private:
  template <class F, bool HAS_COLUMNS, class L>
  TETRIS_FUNCTION static void add_of_board(int& sum, int32_t weight, const Board<L>& board) {
    constexpr bool IS_SCORED_ELSEWHERE = REPRESENTS<F> || (HAS_COLUMNS && by_column<F>);
    if constexpr (!IS_SCORED_ELSEWHERE) sum += weight * F::of(board);
  }
  template <class F, class Inputs, class L>
  TETRIS_FUNCTION static void set_input(Inputs& inputs, const Board<L>& board) {
    if constexpr (summed<F>) inputs.template set<summed_before<F>()>(F::of(board));
  }
  template <class F, class L>
  TETRIS_FUNCTION static void add_of_placement(
      int& sum, int32_t weight, const Board<L>& board) {
    if constexpr (F::of_placement) sum += weight * F::of(board);
  }
  template <class F, class L>
  TETRIS_FUNCTION static void add_above_bound(
      int& sum, int32_t weight, const Board<L>& board, const typename L::ColumnInts& touched) {
    if constexpr (F::has_lower_bound) sum += weight * F::above_lower_bound(board, touched);
  }
  template <class F>
  TETRIS_FUNCTION static void set_column(
      int32_t (&heights)[MAX_WIDTH], int32_t (&steps)[MAX_WIDTH], int32_t weight) {
    if constexpr (F::column_height >= 0) heights[F::column_height] = weight;
    if constexpr (F::column_step >= 0) steps[F::column_step] = weight;
  }
  template <class F, int SIZE>
  TETRIS_FUNCTION static void set_summed(
      int32_t (&ordered)[SIZE], int32_t weight, int& number) {
    if constexpr (summed<F>) ordered[number++] = weight;
  }
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Ints after_drop(
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    const SourceData<L, SourceOf<F>>& source = prepared;
    const SourceData<L, SecondSourceOf<F>>& second_source = prepared;
    return after_drop_of<F>(source.prepared, second_source.prepared, drop);
  }
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static void compute_loop_value(typename L::Ints& value,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, bool bound) {
    if constexpr (F::has_loop) {
      const SourceData<L, F>& source = prepared;
      value = F::has_lower_bound && bound ? F::lower_bound(source.prepared, drop)
                                          : after_drop<F>(prepared, drop);
    }
  }

  // A weighted sum to which features are added one by one, for every placement (lane). Every
  // second feature completes a pair, and then both products are added.
  template <class L>
  struct PairedSum {
    typename L::Scores scores;
    const typename L::Weights* weights;  // weights[i]: both weights of pair i
    typename L::Ints first_of_pair = {};
    std::conditional_t<(UNITS > 0), typename Layer<L>::Inputs, Nothing> inputs{};

    // Adds the product of the next feature's weight and its value to `scores`.
    //
    // A vector instruction computes sum + weight_0 * value_0 + weight_1 * value_1. So the first
    // value of a pair is only stored, and the second one adds both products.
    template <int INDEX>
    TETRIS_FUNCTION void add(typename L::Ints value) {
      const typename L::Weights& weights_of_pair = weights[INDEX / 2];
      if constexpr (UNITS > 0) inputs.template set<INDEX>(value);
      constexpr bool COMPLETES_PAIR = INDEX % 2 == 1;
      constexpr bool IS_LAST = INDEX + 1 == SUMMED_FEATURES;
      if constexpr (COMPLETES_PAIR) {
        scores = L::add_products(scores, weights_of_pair, first_of_pair, value);
      } else if constexpr (IS_LAST) {  // it has no partner
        scores = L::add_products(scores, weights_of_pair, value, L::ints(0));
      } else {
        first_of_pair = value;
      }
    }
  };
  // Adds feature F to `sum`, unless it is scored elsewhere. If the computation of F has a loop,
  // `loop_value` is its value, which compute_loop_value() has computed before.
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static void add(PairedSum<L>& sum, const typename L::Ints& loop_value,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    constexpr int INDEX = summed_before<F>();
    if constexpr (summed<F> && F::has_loop) sum.template add<INDEX>(loop_value);
    else if constexpr (summed<F>) sum.template add<INDEX>(after_drop<F>(prepared, drop));
  }
};

// The board after a landing that does not end the game.
template <class L>
struct AfterState : Board<L> {
  TETRIS_FUNCTION AfterState(const Board<L>& board, const Landing<L>& landing, int piece,
      int placement, typename L::ColumnCache column_cache = {})
      : Board<L>(board.geometry, landing.cells, column_cache) {
    int piece_height = shape_of(piece, orientation_of(placement)).height;
    this->twice_landing_height = 2 * landing.row + piece_height - 1;
    this->eroded_cells = landing.eroded_cells;
    this->lines = landing.lines;
  }
};

// Returns a placement with its score, which is the weighted sum of the features of the board
// after it (see FeatureList::value). Returns NO_CHOICE if the placement ends the game.
template <class List, class L, class Columns = Nothing>
TETRIS_FUNCTION Choice after_state_score(const Board<L>& board, const int32_t* weights,
    int piece, int placement, const Columns& columns = Nothing()) {
  Landing<L> landing(board, piece, placement);
  if (landing.over) return NO_CHOICE;
  AfterState<L> after(board, landing, piece, placement);
  return {List::value(weights, after, columns), placement};
}

// Calls visit(placement) for every placement of a piece: orientation after orientation, and
// within an orientation from the leftmost column to the rightmost one. If placements have equal
// scores, the first one in this order wins.
template <class L, class Visit>
TETRIS_FUNCTION void for_each_placement(
    const Geometry<L>& geometry, int piece, const Visit& visit) {
  for (int orientation = 0; orientation < MAX_ORIENTATIONS; ++orientation) {
    int width = shape_of(piece, orientation).width;
    if (width == 0) break;  // the piece has no more orientations
    for (int column = 0; column <= geometry.width - width; ++column) {
      visit(placement_number(orientation, column));
    }
  }
}

// Chooses a placement of `piece` when the next piece, `next`, is known: returns the placement
// that begins the best pair of placements of both pieces, with the score of the pair. If every
// pair ends the game, returns the best placement of `piece` alone.
//
// choose(board, piece) returns the best placement of one piece with its score, or NO_CHOICE if
// every placement ends the game.
template <class List, class L, class Choose>
TETRIS_FUNCTION Choice choose_by_pairs(
    const Board<L>& board, const int32_t* weights, int piece, int next, const Choose& choose) {
  Choice best = NO_CHOICE;
  for_each_placement(board.geometry, piece, [&](int placement) {
    Landing<L> landing(board, piece, placement);
    if (landing.over || next_piece_ends_game(board.geometry, landing.cells, next)) return;
    AfterState<L> after(board, landing, piece, placement);
    Choice second = choose(after, next);  // an AfterState is a Board
    if (second.placement == Choice::NONE) return;
    // second.score includes the features of the final board and of the second placement. Add
    // the features that describe the first placement.
    int first_value = List::placement_value(weights, after);
    best.consider({second.score + first_value, placement});
  });
  return best.placement != Choice::NONE ? best : choose(board, piece);
}

// The value of a placement over all pieces that may come next. A prospect with more survived
// pieces is better. If the numbers are equal, the prospect with the greater value is better.
//
// The score of a survived piece is that of the best pair of placements. The value is the sum of
// these scores, plus WORST_WEIGHT times the least of them. Games end through bad pieces, so the worst piece says more about how long
// a game lasts than the others do (benchmarks/notes/lookahead-tried.md).
struct Prospect {
  static constexpr int64_t WORST_WEIGHT = 4;
  int survived = -1;  // the number of next pieces with which the game goes on
  int worst = 0;      // the least score of these pieces
  int64_t sum = 0;    // the sum of their scores

  // Adds a next piece with which the game goes on, and its score.
  TETRIS_FUNCTION void add(int score) {
    bool is_worst = survived == 0 || score < worst;
    worst = is_worst ? score : worst;
    sum += score;
    ++survived;
  }
  TETRIS_FUNCTION int64_t value() const { return sum + WORST_WEIGHT * worst; }
  TETRIS_FUNCTION bool exceeds(const Prospect& other) const {
    return survived != other.survived ? survived > other.survived : value() > other.value();
  }
};

// Returns the prospect of a placement of `piece`, which must not end the game, if every piece
// of `source` may come next. make_search and choose are those of choose_by_prospects.
template <class List, class L, class MakeSearch, class Choose>
TETRIS_FUNCTION Prospect prospect_of(const Board<L>& board, const int32_t* weights, int piece,
    int placement, const PieceSource& source, const MakeSearch& make_search,
    const Choose& choose) {
  Landing<L> landing(board, piece, placement);
  AfterState<L> after(board, landing, piece, placement);
  auto search = make_search(after);
  Prospect prospect{0};
  for (int k = 0; k < source.count; ++k) {
    int next = source.at(k);
    Choice second = choose(search, next);
    if (second.placement == Choice::NONE) continue;  // every placement of `next` ends the game
    if (next_piece_ends_game(board.geometry, landing.cells, next)) continue;
    // second.score does not include the features that describe the first placement.
    int first_value = List::placement_value(weights, after);
    prospect.add(second.score + first_value);
  }
  return prospect;
}

// Expectimax: chooses a placement of `piece` when every piece of `source` may come next.
//
// Only the two placements with the highest scores of their own are compared, and the one with
// the better prospect is returned. The prospect of a placement is the number of next pieces
// with which the game goes on, and a value that their best scores determine.
//
//   score_alone(placement)  returns the placement with its score, ignoring the next piece
//   make_search(board)      returns a search, which holds the data that is computed once per
//                           board
//   choose(search, next)    returns the best placement of a piece on the board of that search
template <class List, class L, class ScoreAlone, class MakeSearch, class Choose>
TETRIS_FUNCTION Choice choose_by_prospects(const Board<L>& board, const int32_t* weights,
    int piece, const PieceSource& source, const ScoreAlone& score_alone,
    const MakeSearch& make_search, const Choose& choose) {
  BestTwo best_two;
  for_each_placement(
      board.geometry, piece, [&](int placement) { best_two.consider(score_alone(placement)); });
  Choice chosen = best_two.first;
  Prospect best_prospect;  // as long as it is not set, every other prospect exceeds it
  for (const Choice& candidate : {best_two.first, best_two.second}) {
    if (candidate.placement == Choice::NONE) break;
    Prospect prospect = prospect_of<List>(
        board, weights, piece, candidate.placement, source, make_search, choose);
    if (prospect.exceeds(best_prospect)) {
      best_prospect = prospect;
      chosen = candidate;
    }
  }
  return chosen;
}

// Scores every placement of a piece on a board, in lanes L, by the features of a FeatureList.
//
// Placements that complete no row are scored many at a time, from the changes that their drops
// make (`score_drops`). The other placements, which are few, are scored one by one, from the
// board after the placement (`score_after_state`).
template <class L, class List>
struct Chooser {
  using Prepared = typename List::template Prepared<L>;
  static constexpr bool MAY_BOUND = L::LANES > 1 && List::has_bounds;
  static constexpr bool HAS_COLUMNS = List::has_columns;
  template <int STEPS>
  static constexpr bool HAS_TABLE =
      List::computable_from_drops && List::template has_table<STEPS>;

  const Geometry<L>& geometry;
  const int32_t* weights;
  typename L::Weights lane_weights[List::PAIRS];
  std::conditional_t<(List::UNITS > 0), typename List::template Layer<L>, Nothing> layer;
  std::conditional_t<HAS_COLUMNS, ColumnWeights<L>, Nothing> column_weights;
  const bool bounds;  // whether `score_drops` computes upper bounds in place of scores
  // A piece whose top is below fitting_limit lies inside the board. A piece whose top is not
  // below survival_limit ends the game. The limits differ only under the rule
  // clear_on_overflow. There a piece may reach up to MAX_PIECE_SIZE rows above the top, and the
  // game goes on if the removal of full rows brings the piece back inside.
  typename L::Ints fitting_limit;
  typename L::Ints survival_limit;

  TETRIS_FUNCTION Chooser(const Geometry<L>& board_geometry, const int32_t* list_weights)
      : geometry(board_geometry),
        weights(list_weights),
        layer(list_weights + List::FIRST_OF_UNITS),
        column_weights(List::template column_weights<L>(list_weights)),
        bounds(MAY_BOUND && List::bounds(list_weights)),
        fitting_limit(L::ints(board_geometry.height + 1)),
        survival_limit(L::ints(board_geometry.height + 1 +
                               (board_geometry.clear_on_overflow ? MAX_PIECE_SIZE : 0))) {
    List::template load_weights<L>(list_weights, lane_weights);
  }

  // A board, and the data that is computed once before its placements are scored.
  struct Search {
    const Board<L>& board;
    const Ground<L> ground;
    const Prepared prepared;
    const std::conditional_t<HAS_COLUMNS, ColumnScores<L>, Nothing> columns;
    const std::conditional_t<HAS_TABLE<1>, StepTable<L, 1>, Nothing> steps;
    const std::conditional_t<HAS_TABLE<2>, StepTable<L, 2>, Nothing> step_pairs;
    typename L::Best best;  // the best of the placements that score_drops has scored
    uint64_t unscored = 0;  // the set of placements that are left for score_after_state
    TETRIS_FUNCTION Search(const Chooser& chooser, const Board<L>& searched_board)
        : board(searched_board),
          ground(searched_board),
          prepared(searched_board),
          columns(searched_board, chooser.column_weights),
          steps(searched_board, List::template table<1>(chooser.weights)),
          step_pairs(searched_board, List::template table<2>(chooser.weights)) {}
  };

  // Returns the best placement of a piece, or NO_CHOICE if every placement ends the game.
  TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece) const {
    Search search(*this, board);
    return choose(search, piece);
  }
  // Returns the best placement of a piece on the board of a search, with its score, or
  // NO_CHOICE if every placement ends the game.
  //
  // The placements that complete no row are scored first, many at a time. The others are left
  // in search.unscored, a bit mask of placement numbers, and are scored one by one.
  TETRIS_FUNCTION Choice choose(Search& search, int piece) const {
    score_all_groups(search, piece);
    Choice best_of_groups = L::first_best(search.best);
    Choice choice = NO_CHOICE;
    uint64_t unscored = search.unscored;
    for (; unscored != 0; unscored = without_lowest_bit(unscored)) {
      int placement = lowest_bit(unscored);
      choice.consider(score_after_state(search.board, piece, placement));
    }
    if constexpr (MAY_BOUND) {
      // The scores of the groups may be only upper bounds. Then compute the exact scores of the
      // placements that can still be the best ones.
      if (bounds && best_of_groups.exceeds(choice)) {
        consider_bounds(search, piece, best_of_groups, choice);
        return choice;
      }
    }
    choice.consider(best_of_groups);
    return choice;
  }

  // Returns the best placement of a piece when the next piece is known; see choose_by_pairs.
  TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece, int next) const {
    auto choose_alone = [this](const Board<L>& board_after_first, int second_piece) {
      return choose(board_after_first, second_piece);
    };
    return choose_by_pairs<List>(board, weights, piece, next, choose_alone);
  }

  // Returns the best placement of a piece when every piece of a source may come next; see
  // choose_by_prospects.
  TETRIS_FUNCTION Choice choose(
      const Board<L>& board, int piece, const PieceSource& source) const {
    auto score_alone = [&](int placement) {
      return score_after_state(board, piece, placement);
    };
    auto make_search = [this](const Board<L>& after) { return Search(*this, after); };
    auto choose_next = [this](Search& search, int next) { return choose(search, next); };
    return choose_by_prospects<List>(
        board, weights, piece, source, score_alone, make_search, choose_next);
  }

  // Returns a placement with its score, computed from the board after it.
  TETRIS_OUTLINE Choice score_after_state(
      const Board<L>& board, int piece, int placement) const {
    return after_state_score<List>(board, weights, piece, placement, column_weights);
  }

  // Scores the placements of a group, one per lane, that lie inside the board and complete no
  // row, and records their scores in search.best. Returns the lanes that the caller has to
  // score one by one, as a bit mask. The top of the piece and the completed rows determine what
  // happens to a lane:
  //
  //     top                               no row completed    rows completed
  //     below fitting_limit               scored here         returned
  //     below survival_limit              ends the game       returned
  //     at survival_limit or higher       ends the game       ends the game
  //
  // Scores are computed from the changes that the drop makes to the board. If some feature
  // cannot be computed in this way, all lanes below survival_limit are returned.
  template <int WIDTH>
  TETRIS_FUNCTION unsigned score_drops(Search& search, const Group<L, WIDTH>& group) const {
    Drop<L, WIDTH> drop(search.ground, group.shapes);
    // In a lane without a placement the top is above both limits.
    auto top = drop.top();
    auto completed_rows = drop.completed();
    auto may_survive = top < survival_limit;
    if constexpr (List::computable_from_drops) {
      auto completes_no_row = completed_rows == L::bits(0);
      auto is_scored = completes_no_row & (top < fitting_limit);
      // Scalar lanes skip a placement that is not scored. Vector lanes always compute scores.
      if (L::is_worth_scoring(is_scored)) {
        L::record_scores(search.best, compute_scores(search, drop), is_scored, group);
      }
      auto is_unscored = L::without(may_survive, completes_no_row);
      return L::lanes(is_unscored);
    } else {
      return L::lanes(may_survive);
    }
  }

 private:
  // Returns the score of every placement of a drop, one per lane. The scores hold for the lanes
  // in which the piece lies inside the board and completes no row. If `bounds` is true, they
  // are upper bounds of the exact scores.
  template <int WIDTH>
  TETRIS_FUNCTION typename L::Scores compute_scores(
      const Search& search, const Drop<L, WIDTH>& drop) const {
    typename L::Scores scores =
        List::values(lane_weights, layer, search.prepared, drop, MAY_BOUND && bounds);
    // Features of single columns and of steps have tables of weights.
    if constexpr (HAS_COLUMNS) scores = search.columns.after(scores, drop);
    if constexpr (HAS_TABLE<1>) scores = search.steps.after(scores, drop);
    if constexpr (HAS_TABLE<2>) scores = search.step_pairs.after(scores, drop);
    return scores;
  }

  // Scores all groups of placements of a piece. search.unscored becomes the set of placements
  // that are left for score_after_state.
  TETRIS_FUNCTION void score_all_groups(Search& search, int piece) const {
    search.best.clear();
    search.unscored = 0;
    const Plan<L>& plan = PLANS<L>[piece];
    score_groups(search, plan.ones);
    score_groups(search, plan.fours);
    score_groups(search, plan.twos);
    score_groups(search, plan.threes);
  }
  template <class Groups>
  TETRIS_FUNCTION void score_groups(Search& search, const Groups& groups) const {
    for (int i = 0; i < groups.count; ++i) score_group(search, groups.group[i]);
  }
  // Scores one group. With vectors, a separate function that is not inlined does the work,
  // because the compiler then keeps more values in registers.
  template <int WIDTH>
  TETRIS_FUNCTION void score_group(Search& search, const Group<L, WIDTH>& group) const {
    unsigned lanes;
    if constexpr (L::LANES == 1) lanes = score_drops(search, group);
    else lanes = score_drops_outlined(search, group);
    search.unscored |= group.placements_of_lanes(lanes);
  }
  template <int WIDTH>
  TETRIS_OUTLINE unsigned score_drops_outlined(
      Search& search, const Group<L, WIDTH>& group) const {
    return score_drops(search, group);
  }

  // Replaces `choice` by the best placement of search.best if that placement is better.
  //
  // The scores in search.best are upper bounds, because exact scores are slow to compute.
  // `best` has the highest bound, so its exact score is computed first. After that, only
  // placements whose bound is at least the best exact score so far have to be considered.
  TETRIS_FUNCTION void consider_bounds(
      const Search& search, int piece, const Choice& best, Choice& choice) const {
    int exact_minus_bound = value_above_bound(search.board, piece, best.placement);
    choice.consider({best.score + exact_minus_bound, best.placement});
    if (exact_minus_bound == 0) return;  // the exact score equals the highest bound
    // A set of placements is a bit mask.
    uint64_t candidates = L::at_least(search.best, choice.score);
    uint64_t others = candidates & ~(uint64_t{1} << best.placement);
    for (; others != 0; others = without_lowest_bit(others)) {
      int placement = lowest_bit(others);
      int bound = L::score_at(search.best, placement);
      if (bound < choice.score) continue;  // choice.score may have risen since at_least
      int exact_score = bound + value_above_bound(search.board, piece, placement);
      choice.consider({exact_score, placement});
    }
  }

  // Returns the exact score of a placement that completes no row, minus its upper bound; see
  // FeatureList::value_above_bound.
  TETRIS_OUTLINE int value_above_bound(const Board<L>& board, int piece, int placement) const {
    int orientation = orientation_of(placement);
    int column = column_of(placement);
    int row = L::landing_row(board.heights, shape_of(piece, orientation), column);
    auto dropped = L::piece_columns(piece, orientation, column, row);
    Board<L> after(board.geometry, board.cells | dropped);
    auto under = L::nonzero(dropped);
    auto touched = L::left(under) | under | L::right(under);
    return List::value_above_bound(weights, after, touched);
  }
};

}  // namespace tetris
