// Sixteen games at a time: a lane of a vector is a game, and all of them place the same piece in the same column. A board column
// is a vector; nothing goes from lane to lane. See lanes_scalar.h for what the names mean.
#pragma once

#if defined(__AVX2__)

#include "lanes_vector.h"

namespace tetris {

// `V`: VectorLanes of 16 bits, whose operations on lanes these are.
template <class V> struct GameLanes : V {
  using typename V::Bits;
  using typename V::Ints;
  using typename V::Number;
  using typename V::Word;
  using ColumnBits = ColumnArray<Bits>;
  using ColumnInts = ColumnArray<Ints>;
  static constexpr int GAMES = V::LANES, LANES = 1, SLOTS = ColumnBits::SLOTS;

  struct Constant {
    Number value = 0;
    constexpr void set(int, int v) { value = static_cast<Number>(v); }
  };
  template <class T, class Columns> using Kept = Columns;
  struct Keeper {
    template <class T, class Columns> TETRIS_FUNCTION Columns keep(const Columns& columns) {
      Columns kept = mapped([](auto x) TETRIS_INLINE { return x; }, columns);
      kept.slot[0] = kept.slot[Columns::SLOTS - 1] = typename Columns::Number{};
      return kept;
    }
  };

  using V::any;
  using V::bits;
  using V::ints;
  using V::popcount;
  using V::without;
#define TETRIS_OF_COLUMNS(function)                                                        \
  using V::function;                                                                       \
  template <class T> TETRIS_FUNCTION static auto function(const ColumnArray<T>& columns) { \
    return mapped([](T x) TETRIS_INLINE { return V::function(x); }, columns);              \
  }
  TETRIS_OF_COLUMNS(as_ints)
  TETRIS_OF_COLUMNS(nonzero)
  TETRIS_OF_COLUMNS(step_flag)
  TETRIS_OF_COLUMNS(triangle)
#undef TETRIS_OF_COLUMNS
  TETRIS_FUNCTION static Bits bits(const Constant& c) { return V::bits(static_cast<Word>(c.value)); }
  TETRIS_FUNCTION static Ints ints(const Constant& c) { return repeat<Ints>(c.value); }
  TETRIS_FUNCTION static Bits rows(const Constant& pattern, typename V::Unit unit) {
    return unit * bits(pattern);
  }
  TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return everywhere(V::bits(value)); }
  TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return everywhere(V::ints(value)); }
  TETRIS_FUNCTION static ColumnInts popcount(const ColumnBits& columns) {
    ColumnInts result = everywhere(Ints{});
    TETRIS_UNROLL for (int i = FIRST_COLUMN; i < FIRST_COLUMN + MAX_WIDTH; ++i) result.slot[i] =
        V::popcount(columns.slot[i]);
    return result;
  }
  template <class Words> TETRIS_FUNCTION static auto run_length(const Words& words) {
    return popcount(words);
  }
  template <int COUNT> TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
    return count_bits_in(words);
  }
  template <int COUNT> TETRIS_FUNCTION static ColumnInts popcount_sum(const ColumnBits (&words)[COUNT]) {
    static_assert(COUNT == 1);
    return popcount(words[0]);
  }
  template <class T>
  TETRIS_FUNCTION static ColumnArray<T> without(const ColumnArray<T>& a, const ColumnArray<T>& b) {
    return mapped([](T x, T y) TETRIS_INLINE { return and_not(x, y); }, a, b);
  }
  TETRIS_FUNCTION static Bits or_all(const ColumnBits& columns) {
    Bits all = columns.slot[FIRST_COLUMN];
    TETRIS_UNROLL for (int i = FIRST_COLUMN + 1; i < FIRST_COLUMN + MAX_WIDTH; ++i) all =
        all | columns.slot[i];
    return all;
  }
  TETRIS_FUNCTION static bool any(const ColumnBits& columns) { return V::any(or_all(columns)); }
  TETRIS_FUNCTION static Ints total(const ColumnInts& columns) {
    Ints all = columns.slot[FIRST_COLUMN];
    TETRIS_UNROLL for (int i = FIRST_COLUMN + 1; i < FIRST_COLUMN + MAX_WIDTH; ++i) all =
        all + columns.slot[i];
    return all;
  }
  TETRIS_FUNCTION static Ints count_bits_everywhere(const ColumnBits& columns) {
    Bits words[MAX_WIDTH + 1];  // from the left wall on
    TETRIS_UNROLL for (int i = 0; i <= MAX_WIDTH; ++i) words[i] = columns.slot[FIRST_COLUMN - 1 + i];
    return count_bits_in(words);
  }
  TETRIS_FUNCTION static Ints sum(const ColumnInts& columns) { return total(columns); }
  template <class T> TETRIS_FUNCTION static ColumnArray<T> left(const ColumnArray<T>& columns) {
    ColumnArray<T> result;
    result.slot[1] = T{};  // beyond the walls there is nothing
    TETRIS_UNROLL for (int i = 2; i < SLOTS - 1; ++i) result.slot[i] = columns.slot[i - 1];
    return result;
  }
  template <class T> TETRIS_FUNCTION static ColumnArray<T> right(const ColumnArray<T>& columns) {
    ColumnArray<T> result;
    result.slot[SLOTS - 2] = T{};
    TETRIS_UNROLL for (int i = 1; i < SLOTS - 2; ++i) result.slot[i] = columns.slot[i + 1];
    return result;
  }
  TETRIS_FUNCTION static ColumnBits or_up_to(ColumnBits columns) {
    TETRIS_UNROLL for (int i = 2; i < SLOTS - 1; ++i) columns.slot[i] = columns.slot[i] | columns.slot[i - 1];
    return columns;
  }
  TETRIS_FUNCTION static ColumnBits or_from(ColumnBits columns) {
    TETRIS_UNROLL for (int i = SLOTS - 3; i > 0; --i) columns.slot[i] = columns.slot[i] | columns.slot[i + 1];
    return columns;
  }
  TETRIS_FUNCTION static ColumnBits load(const Word* slots) {
    ColumnBits result;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) result.slot[i] = V::bits(slots[i]);
    return result;
  }
  TETRIS_FUNCTION static unsigned lanes_of(typename V::Scores a) { return signs(packed(a)); }
  // Where the score of a game lies: a field of four bits a game.
  static constexpr uint64_t SCORE_PLACES = 0xFEDC7654BA983210u;
  TETRIS_FUNCTION static int score_of(int game) { return static_cast<int>(SCORE_PLACES >> (4 * game) & 15); }
  // From and to rows of sixteen words a game.
  TETRIS_FUNCTION static ColumnBits columns_of(const Word* const (&games)[GAMES]) {
    ColumnBits result;
    TETRIS_UNROLL for (int first = 0; first < 16; first += 8) {
      Bits words[8];
      TETRIS_UNROLL for (int i = 0; i < 8; ++i) words[i] =
          (Bits)_mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(games[i + 8] + first),
              reinterpret_cast<const __m128i*>(games[i] + first));
      transpose(words);
      TETRIS_UNROLL for (int i = 0; i < 8; ++i) {
        if (first + i < SLOTS) result.slot[first + i] = words[i];
      }
    }
    return result;
  }
  TETRIS_FUNCTION static void to_games(const ColumnBits& columns, Word* const (&games)[GAMES]) {
    TETRIS_UNROLL for (int first = 0; first < 16; first += 8) {
      Bits words[8];
      TETRIS_UNROLL for (int i = 0; i < 8; ++i) words[i] =
          first + i < SLOTS ? columns.slot[first + i] : Bits{};
      transpose(words);
      TETRIS_UNROLL for (int i = 0; i < 8; ++i) {
        tetris::store(half<0>(words[i]), games[i] + first);
        tetris::store(half<1>(words[i]), games[i + 8] + first);
      }
    }
  }
  template <int WIDTH, class T> TETRIS_FUNCTION static T at(
      const ColumnArray<T>& columns, const ShapeLanes<GameLanes, WIDTH>& shape, int k) {
    return columns.slot[shape.column.value + k + FIRST_COLUMN];
  }

 private:
  // Eight by eight words in each sixteen bytes.
  TETRIS_FUNCTION static void transpose(Bits (&words)[8]) {
    TETRIS_UNROLL for (int round = 0; round < 3; ++round) {
      Bits next[8];
      TETRIS_UNROLL for (int i = 0; i < 4; ++i) {
        const auto both = interleaved(words[i], words[i + 4]);
        next[2 * i] = as<Word>(both.low);
        next[2 * i + 1] = as<Word>(both.high);
      }
      TETRIS_UNROLL for (int i = 0; i < 8; ++i) words[i] = next[i];
    }
  }
  template <class T> TETRIS_FUNCTION static ColumnArray<T> everywhere(T value) {
    ColumnArray<T> result;
    TETRIS_UNROLL for (int i = 0; i < SLOTS; ++i) result.slot[i] = value;
    return result;
  }
};

}  // namespace tetris

#endif
