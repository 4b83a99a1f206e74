// The decision: it scores every placement of a piece and takes the first best one, as
// tetris/game/decisions.py does.
#pragma once

#include "column_scores.h"
#include "own_features.h"
#include "piece_stream.h"
#include "row_features.h"
#include "step_tables.h"
#include "surface_features.h"

namespace tetris {

// What a decision looks at: the piece that falls; also the next one (preview); or all pieces
// that may come next (expectimax).
enum class Lookahead { none, preview, expectimax };

// What a source has prepared for the features that name it (see feature_definitions.h).
template <class L, class Source>
struct SourceData {
  decltype(Source::prepare(std::declval<const Board<L>&>())) prepared;
};

// The data of several sources, each of which is there once.
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

// Takes the place of ColumnScores, of their weights or of a StepTable where a list has no
// feature for them.
struct Nothing {
  template <class... Any>
  TETRIS_FUNCTION explicit Nothing(const Any&...) {}
};

// A list of distinct features. Weights are integers of at most 15 bits and a sign
// (tetris/play/quantized_weights.py), and so are the numerators of features: a sum is the same
// in any order.
//
// Functions below go over the list with a fold expression: `(f<Features>(weights[i++]), ...)`
// calls f for one feature after the other, with its weight.
template <class... Features>
struct FeatureList {
  static constexpr int COUNT = sizeof...(Features);
  static_assert(
      ((Features::denominator == 1 || std::is_same_v<Features, LandingHeight>) && ...),
      "expected a feature that is a whole number: double it here and in its reference in "
      "Python");
  static constexpr bool all_follow_drops = (follows_drops<Features>() & ...);
  // Features that ColumnScores scores.
  template <class F>
  static constexpr bool by_column = F::column_height >= 0 || F::column_step >= 0;
  static constexpr bool has_columns = all_follow_drops && (by_column<Features> || ...);
  static constexpr int NOT_BY_COLUMN = (0 + ... + (by_column<Features> ? 0 : 1));
  // If no such feature has a positive weight, the sum with their lower bounds is an upper bound
  // of the score.
  static constexpr bool has_bounds = all_follow_drops && (Features::has_lower_bound || ...);
  template <int STEPS>
  static constexpr bool has_table = ((Features::table_steps == STEPS) || ...);

  // The layout of a candidate's weights: COUNT weights, a table of one step if there is one, a
  // table of two steps if there is one.
  static constexpr int FIRST_TABLE = has_table<1> ? StepTable<ScalarLanes, 1>::SIZE : 0;
  static constexpr int SECOND_TABLE = has_table<2> ? StepTable<ScalarLanes, 2>::SIZE : 0;
  static constexpr int WEIGHTS_PER_CANDIDATE = COUNT + FIRST_TABLE + SECOND_TABLE;

  template <class L>
  using Prepared = typename WithSources<AllSourceData<L>, Features...>::Result;

  // The features that `values` adds up. They are taken in pairs, because vectors multiply and
  // add two at a time.
  template <class F>
  static constexpr bool summed = !F::zero_without_lines && !by_column<F> && F::table_steps == 0;
  static constexpr int SUMMED = (0 + ... + (summed<Features> ? 1 : 0));
  static constexpr int PAIRS = SUMMED / 2 + 1;

  // Loads the weights of the summed features, in pairs; the last pair may lack one or both,
  // whose weights are 0.
  template <class L>
  TETRIS_FUNCTION static void load_weights(
      const int32_t* weights, typename L::Weights (&pairs)[PAIRS]) {
    int32_t ordered[2 * PAIRS] = {};
    int i = 0, number = 0;
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

  // Returns the table of features of one step, or of two, behind the weights.
  template <int STEPS>
  TETRIS_FUNCTION static const int32_t* table(const int32_t* weights) {
    return weights + COUNT + (STEPS == 2 ? FIRST_TABLE : 0);
  }

  // Returns the weighted sum of all features of a board. `columns` are ColumnWeights, by which
  // the features of columns are scored together, or Nothing.
  template <class L, class Columns>
  TETRIS_FUNCTION static int value(
      const int32_t* weights, const Board<L>& board, const Columns& columns) {
    constexpr bool HAS_COLUMNS = !std::is_same_v<Columns, Nothing>;
    int sum = 0, i = 0;
    (add_of_board<Features, HAS_COLUMNS>(sum, weights[i++], board), ...);
    if constexpr (HAS_COLUMNS) sum += ColumnScores<L>::of(board, columns);
    if constexpr (has_table<1>) sum += StepTable<L, 1>::of(board, table<1>(weights));
    if constexpr (has_table<2>) sum += StepTable<L, 2>::of(board, table<2>(weights));
    return sum;
  }

  // Returns the part of the sum that describes the placement, not the board.
  template <class L>
  TETRIS_FUNCTION static int placement_value(const int32_t* weights, const Board<L>& board) {
    int sum = 0, i = 0;
    (add_of_placement<Features>(sum, weights[i++], board), ...);
    return sum;
  }

  // Returns whether no feature with a lower bound has a positive weight, so that scores have
  // upper bounds.
  TETRIS_FUNCTION static bool bounds(const int32_t* weights) {
    int i = 0;
    return ((weights[i++] <= 0 || !Features::has_lower_bound) && ...);
  }

  // Returns the score minus its upper bound. `board` is the one after the drop, and `touched`
  // are the columns under the piece and beside it.
  template <class L>
  TETRIS_FUNCTION static int value_above_bound(
      const int32_t* weights, const Board<L>& board, const typename L::ColumnInts& touched) {
    int sum = 0, i = 0;
    (add_above_bound<Features>(sum, weights[i++], board, touched), ...);
    return sum;
  }

  // Returns the weighted sums of the summed features after drops that complete no row, or upper
  // bounds of them if `bound`. ColumnScores and StepTable score the other features.
  template <class L, int WIDTH>
  TETRIS_FUNCTION static typename L::Scores values(const typename L::Weights* weights,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, bool bound) {
    // Features with a loop are computed first: during a loop all other values would have to
    // leave the registers.
    typename L::Ints looped[COUNT];
    int i = 0, j = 0;
    (compute_looped<Features>(looped[i++], prepared, drop, bound), ...);
    PairedSum<L> sum{L::scores(0), weights};
    (add<Features>(sum, looped[j++], prepared, drop), ...);
    return sum.scores;
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
    constexpr bool IS_SCORED_ELSEWHERE = F::table_steps > 0 || (HAS_COLUMNS && by_column<F>);
    if constexpr (!IS_SCORED_ELSEWHERE) sum += weight * F::of(board);
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
  TETRIS_FUNCTION static void compute_looped(typename L::Ints& value,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop, bool bound) {
    if constexpr (F::has_loop) {
      const SourceData<L, F>& source = prepared;
      value = F::has_lower_bound && bound ? F::lower_bound(source.prepared, drop)
                                          : after_drop<F>(prepared, drop);
    }
  }

  // A sum to which features are added one by one; every second one completes a pair and adds
  // both products.
  template <class L>
  struct PairedSum {
    typename L::Scores scores;
    const typename L::Weights* weights;
    typename L::Ints first_of_pair = {};
    int number = 0;  // of the next feature, among the summed ones
  };
  // Adds feature F to a sum, if it is one of the summed features; `looped` is its value if it
  // has a loop.
  template <class F, class L, int WIDTH>
  TETRIS_FUNCTION static void add(PairedSum<L>& sum, const typename L::Ints& looped,
      const Prepared<L>& prepared, const Drop<L, WIDTH>& drop) {
    if constexpr (summed<F>) {
      typename L::Ints value;
      if constexpr (F::has_loop) value = looped;
      else value = after_drop<F>(prepared, drop);

      const typename L::Weights& weights = sum.weights[sum.number / 2];
      bool completes_pair = sum.number % 2 == 1;
      ++sum.number;
      bool is_last = sum.number == SUMMED;
      if (completes_pair) {
        sum.scores = L::add_products(sum.scores, weights, sum.first_of_pair, value);
      } else if (is_last) {
        sum.scores = L::add_products(sum.scores, weights, value, L::ints(0));
      } else {
        sum.first_of_pair = value;
      }
    }
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
#if defined(TETRIS_FEATURE_HEADER)
    this->lines = landing.lines;
#endif
  }
};

// Returns the score of a placement by the features of its after-state (see FeatureList::value),
// or NO_CHOICE if it ends the game.
template <class List, class L, class Columns = Nothing>
TETRIS_FUNCTION Choice after_state_score(const Board<L>& board, const int32_t* weights,
    int piece, int placement, const Columns& columns = Nothing()) {
  Landing<L> landing(board, piece, placement);
  if (landing.over) return NO_CHOICE;
  AfterState<L> after(board, landing, piece, placement);
  return {List::value(weights, after, columns), placement};
}

// Calls visit(placement) for every placement of a piece, in the order of the search.
template <class L, class Visit>
TETRIS_FUNCTION void for_each_placement(
    const Geometry<L>& geometry, int piece, const Visit& visit) {
  for (int orientation = 0; orientation < MAX_ORIENTATIONS; ++orientation) {
    int width = shape_of(piece, orientation).width;
    if (width == 0) break;  // it has no more orientations
    for (int column = 0; column <= geometry.width - width; ++column) {
      visit(placement_number(orientation, column));
    }
  }
}

// Returns the choice where the next piece is known: the placement that begins the best pair of
// placements, or if every pair ends the game, the best placement of `piece` alone.
// `choose(board, piece)` returns the best placement of a piece.
template <class List, class L, class Choose>
TETRIS_FUNCTION Choice choose_by_pairs(
    const Board<L>& board, const int32_t* weights, int piece, int next, const Choose& choose) {
  Choice best = NO_CHOICE;
  for_each_placement(board.geometry, piece, [&](int placement) {
    Landing<L> landing(board, piece, placement);
    if (landing.over || ends_by_next(board.geometry, landing.cells, next)) return;
    AfterState<L> after(board, landing, piece, placement);
    Choice second = choose(after, next);
    if (second.placement == Choice::NONE) return;
    int first_value = List::placement_value(weights, after);
    best.consider({second.score + first_value, placement});
  });
  return best.placement != Choice::NONE ? best : choose(board, piece);
}

// How good a placement is in view of all pieces that may come next.
struct Prospect {
  int survived = -1;  // the number of next pieces with which the game goes on
  int64_t sum = 0;    // the scores of the best pairs that it begins with these pieces, added up
  TETRIS_FUNCTION bool exceeds(const Prospect& other) const {
    return survived != other.survived ? survived > other.survived : sum > other.sum;
  }
};

// Returns the choice that looks at all pieces that may come next: of the two placements with
// the best scores, the one with the better prospect.
//
//   score(placement)       the score of a placement of `piece` alone
//   search_on(board)       a search on a board
//   choose(search, piece)  the best placement of a piece on the board of a search
template <class List, class L, class Score, class SearchOn, class Choose>
TETRIS_FUNCTION Choice choose_by_prospects(const Board<L>& board, const int32_t* weights,
    int piece, const PieceSource& source, const Score& score, const SearchOn& search_on,
    const Choose& choose) {
  BestTwo two;
  for_each_placement(
      board.geometry, piece, [&](int placement) { two.consider(score(placement)); });
  Choice chosen = two.first;
  Prospect best;
  for (const Choice& first : {two.first, two.second}) {
    if (first.placement == Choice::NONE) break;
    Landing<L> landing(board, piece, first.placement);
    AfterState<L> after(board, landing, piece, first.placement);
    auto search = search_on(after);
    Prospect prospect{0, 0};
    for (int k = 0; k < source.count; ++k) {
      int next = source.at(k);
      Choice second = choose(search, next);
      if (second.placement == Choice::NONE) continue;
      if (ends_by_next(board.geometry, landing.cells, next)) continue;
      ++prospect.survived;
      prospect.sum += second.score + List::placement_value(weights, after);
    }
    if (prospect.exceeds(best)) {
      best = prospect;
      chosen = first;
    }
  }
  return chosen;
}

// Scores every placement of a piece on a board, in lanes L, by the features of a FeatureList.
//
// A placement that completes no row is scored by what its drop changes, many at a time
// (`score`). Others, which are few, are scored one by one by the features of their after-state
// (`score_after_state`).
template <class L, class List>
struct Chooser {
  using Prepared = typename List::template Prepared<L>;
  static constexpr bool MAY_BOUND = L::LANES > 1 && List::has_bounds;
  static constexpr bool HAS_COLUMNS = List::has_columns;
  template <int STEPS>
  static constexpr bool HAS_TABLE = List::all_follow_drops && List::template has_table<STEPS>;

  const Geometry<L>& geometry;
  const int32_t* weights;
  typename L::Weights lane_weights[List::PAIRS];
  std::conditional_t<HAS_COLUMNS, ColumnWeights<L>, Nothing> column_weights;
  const bool bounds;                // `score` computes upper bounds in place of scores
  typename L::Ints limit;           // a piece whose top is below this fits the board
  typename L::Ints survival_limit;  // as `limit`, for a piece that may complete rows

  TETRIS_FUNCTION Chooser(const Geometry<L>& board_geometry, const int32_t* list_weights)
      : geometry(board_geometry),
        weights(list_weights),
        column_weights(List::template column_weights<L>(list_weights)),
        bounds(MAY_BOUND && List::bounds(list_weights)),
        limit(L::ints(board_geometry.height + 1)),
        survival_limit(L::ints(board_geometry.height + 1 +
                               (board_geometry.clear_on_overflow ? MAX_PIECE_SIZE : 0))) {
    List::template load_weights<L>(list_weights, lane_weights);
  }

  // A board and what is computed of it once, before its placements are scored.
  struct Search {
    const Board<L>& board;
    const Ground<L> ground;
    const Prepared prepared;
    const std::conditional_t<HAS_COLUMNS, ColumnScores<L>, Nothing> columns;
    const std::conditional_t<HAS_TABLE<1>, StepTable<L, 1>, Nothing> steps;
    const std::conditional_t<HAS_TABLE<2>, StepTable<L, 2>, Nothing> step_pairs;
    typename L::Best best;  // of the placements that `score` has scored
    uint64_t unscored = 0;  // the set of placements that are left to score_after_state
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
  // The same on the board of a search. Placements that complete no row are scored in groups,
  // and the few others one by one.
  TETRIS_FUNCTION Choice choose(Search& search, int piece) const {
    score_all_groups(search, piece);
    Choice best = L::first_best(search.best);
    Choice choice = NO_CHOICE;
    for (uint64_t unscored = search.unscored; unscored != 0; unscored &= unscored - 1) {
      choice.consider(score_after_state(search.board, piece, lowest_bit(unscored)));
    }
    if constexpr (MAY_BOUND) {
      if (bounds && best.exceeds(choice)) {
        consider_bounds(search, piece, best, choice);
        return choice;
      }
    }
    choice.consider(best);
    return choice;
  }

  // The same where the next piece is known.
  TETRIS_FUNCTION Choice choose(const Board<L>& board, int piece, int next) const {
    auto choose_alone = [this](const Board<L>& on, int falls) { return choose(on, falls); };
    return choose_by_pairs<List>(board, weights, piece, next, choose_alone);
  }

  // The same in view of all pieces of a source that may come next.
  TETRIS_FUNCTION Choice choose(
      const Board<L>& board, int piece, const PieceSource& source) const {
    return choose_by_prospects<List>(
        board, weights, piece, source,
        [&](int placement) { return score_after_state(board, piece, placement); },
        [this](const Board<L>& on) { return Search(*this, on); },
        [this](Search& search, int falls) { return choose(search, falls); });
  }

  // Returns the score of a placement by the features of the board after it.
  TETRIS_OUTLINE Choice score_after_state(
      const Board<L>& board, int piece, int placement) const {
    return after_state_score<List>(board, weights, piece, placement, column_weights);
  }

  // Scores the placements of a group that complete no row and puts them into search.best.
  // Returns the set of lanes whose placements may not end the game and are left to
  // score_after_state.
  template <int WIDTH>
  TETRIS_FUNCTION unsigned score(Search& search, const Group<L, WIDTH>& group) const {
    Drop<L, WIDTH> drop(search.ground, group.shapes);
    // The top is above every limit in a lane without a placement: its shape is too high, or it
    // rests on a wall.
    auto top = drop.top();
    auto completed = drop.completed();
    auto may_survive = top < survival_limit;
    if constexpr (List::all_follow_drops) {
      auto completes_no_row = completed == L::bits(0);
      auto is_scored = completes_no_row & (top < limit);
      if (L::is_worth_scoring(is_scored)) {
        typename L::Scores scores =
            List::values(lane_weights, search.prepared, drop, MAY_BOUND && bounds);
        if constexpr (HAS_COLUMNS) scores = search.columns.after(scores, drop);
        if constexpr (HAS_TABLE<1>) scores = search.steps.after(scores, drop);
        if constexpr (HAS_TABLE<2>) scores = search.step_pairs.after(scores, drop);
        L::consider(search.best, scores, is_scored, group);
      }
      return L::lanes(L::without(may_survive, completes_no_row));
    } else {
      return L::lanes(may_survive);
    }
  }

 private:
  // Scores all groups of a piece; search.unscored becomes the set of placements that are left.
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
  // Vectors fit the registers better in a function of their own.
  template <int WIDTH>
  TETRIS_FUNCTION void score_group(Search& search, const Group<L, WIDTH>& group) const {
    unsigned lanes;
    if constexpr (L::LANES == 1) lanes = score(search, group);
    else lanes = score_outlined(search, group);
    search.unscored |= group.placements_of_lanes(lanes);
  }
  template <int WIDTH>
  TETRIS_OUTLINE unsigned score_outlined(Search& search, const Group<L, WIDTH>& group) const {
    return score(search, group);
  }

  // Takes the placements into account whose scores in search.best are upper bounds; `best` is
  // the one with the highest bound. Once its score is known, only placements with a bound at
  // least as high can still be better, and seldom is there one.
  TETRIS_FUNCTION void consider_bounds(
      const Search& search, int piece, const Choice& best, Choice& choice) const {
    int difference = value_above_bound(search.board, piece, best.placement);
    choice.consider({best.score + difference, best.placement});
    if (difference == 0) return;
    uint64_t others = L::at_least(search.best, choice.score) & ~(uint64_t{1} << best.placement);
    for (; others != 0; others &= others - 1) {
      int placement = lowest_bit(others);
      int bound = L::score_at(search.best, placement);
      if (bound < choice.score) continue;
      choice.consider({bound + value_above_bound(search.board, piece, placement), placement});
    }
  }

  // Returns the score of a placement minus its upper bound; it completes no row.
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
