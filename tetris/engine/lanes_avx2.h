// Sixteen placements at a time in 16-bit lanes (AVX2). A column has 16 rows here, so the engine takes this path while
// no column is higher than 12 (a piece adds four rows at most) and the scalar one while the wall is higher.
// See lanes_scalar.h for what the names mean.
#pragma once

#if defined(__AVX2__)

#include <immintrin.h>

#include "lanes_scalar.h"

namespace tetris {

// Vectors of one repeated value, in memory: the compiler would rebuild a constant at every use, by three instructions
// instead of an operand. (Not const, lest it does so all the same.)
struct alignas(32) Repeated16 {
    static constexpr int COUNT = 32;
    int16_t values[COUNT][16];
    int8_t nibble[32], one[32];
    int16_t high_bit[16];
    constexpr Repeated16() : values(), nibble(), one(), high_bit() {
        for (int value = 0; value < COUNT; ++value) {
            for (int lane = 0; lane < 16; ++lane) values[value][lane] = static_cast<int16_t>(value);
        }
        for (int i = 0; i < 32; ++i) nibble[i] = 15, one[i] = 1;
        for (int lane = 0; lane < 16; ++lane) high_bit[lane] = -32768;
    }
};
inline Repeated16 repeated16;

struct Avx2Lanes {
    using Word = uint16_t;
    typedef uint16_t Bits __attribute__((vector_size(32)));
    typedef int16_t Ints __attribute__((vector_size(32)));
    struct Floats {
        __m256 low, high;
    };
    using ColumnBits = Bits;
    using ColumnInts = Ints;
    static constexpr int LANES = 16;
    static constexpr int SLOTS = 16;
    static constexpr int TOP = 15;
    static constexpr int MAX_GROUPS = 3;

    struct alignas(32) Constant {
        int16_t value[LANES] = {};
        constexpr void set(int lane, int v) { value[lane] = static_cast<int16_t>(v); }
    };

    TETRIS_FUNCTION static Bits bits(const Constant& c) { return (Bits)constant(c.value); }
    TETRIS_FUNCTION static Ints ints(const Constant& c) { return (Ints)constant(c.value); }
    TETRIS_FUNCTION static Bits bits(Word value) { return (Bits)_mm256_set1_epi16(static_cast<int16_t>(value)); }
    TETRIS_FUNCTION static Ints ints(int value) {
        if (__builtin_constant_p(value) && value > 0 && value < Repeated16::COUNT) {
            return (Ints)constant(repeated16.values[value]);
        }
        return (Ints)_mm256_set1_epi16(static_cast<int16_t>(value));
    }
    TETRIS_FUNCTION static Floats floats(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
    TETRIS_FUNCTION static Ints as_ints(Bits value) { return (Ints)value; }
    TETRIS_FUNCTION static Bits as_bits(Ints value) { return (Bits)value; }
    TETRIS_FUNCTION static Floats to_floats(Ints value) {
        const __m256i v = (__m256i)value;
        return {_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(v))),
                _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(v, 1)))};
    }
    TETRIS_FUNCTION static Floats add_product(Floats sum, float weight, Floats value) {
        const __m256 w = _mm256_set1_ps(weight);
        return {_mm256_add_ps(sum.low, _mm256_mul_ps(w, value.low)),
                _mm256_add_ps(sum.high, _mm256_mul_ps(w, value.high))};
    }

    TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }

    TETRIS_FUNCTION static Ints popcount(Bits value) {
        const Bits words[1] = {value};
        return popcount_sum(words);
    }
    template <int COUNT>
    TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
        __m256i bytes = count_bytes(words[0]);
        TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) bytes = _mm256_add_epi8(bytes, count_bytes(words[i]));
        return (Ints)_mm256_maddubs_epi16(bytes, constant(repeated16.one));
    }
    TETRIS_FUNCTION static Ints run_length(Bits value) { return popcount(value); }
    TETRIS_FUNCTION static Ints triangle(Ints n) {
        const __m256i table = _mm256_setr_epi8(0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120,  //
                                               0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 78, 91, 105, 120);
        return (Ints)_mm256_shuffle_epi8(table, (__m256i)n);
    }
    // The bits of two words fit side by side in one when the second is turned by eight.
    template <int COUNT>
    TETRIS_FUNCTION static Ints popcount_near(const Bits (&words)[COUNT]) {
        const __m256i swap = _mm256_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14,  //
                                              1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
        constexpr int PAIRS = COUNT / 2;
        Bits merged[(COUNT + 1) / 2];
        TETRIS_UNROLL for (int i = 0; i < PAIRS; ++i) {
            merged[i] = words[2 * i] | (Bits)_mm256_shuffle_epi8((__m256i)words[2 * i + 1], swap);
        }
        if constexpr (COUNT % 2 == 1) merged[PAIRS] = words[COUNT - 1];
        return popcount_sum(merged);
    }
    TETRIS_FUNCTION static Ints popcount_small(Bits value) {
        const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                               0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
        return (Ints)_mm256_shuffle_epi8(table, (__m256i)value & (__m256i)ints(15)) + (Ints)(value >> 4);
    }
    TETRIS_FUNCTION static Floats scale(Floats value, float factor) {
        const __m256 f = _mm256_set1_ps(factor);
        return {_mm256_mul_ps(value.low, f), _mm256_mul_ps(value.high, f)};
    }

    TETRIS_FUNCTION static Ints mask(bool condition) { return ints(condition ? -1 : 0); }
    TETRIS_FUNCTION static unsigned lanes(Ints condition) {
        const __m256i v = (__m256i)condition;
        const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        return static_cast<unsigned>(_mm_movemask_epi8(bytes));
    }
    TETRIS_FUNCTION static Ints maximum(Ints a, Ints b) { return a > b ? a : b; }
    TETRIS_FUNCTION static Ints select(Ints condition, Ints a, Ints b) { return condition ? a : b; }
    TETRIS_FUNCTION static Ints where(Ints condition, Ints value) { return condition & value; }
    TETRIS_FUNCTION static Ints count(Ints condition) { return -condition; }
    TETRIS_FUNCTION static bool any(Bits value) { return !_mm256_testz_si256((__m256i)value, (__m256i)value); }
    // For rows 0 .. 12: the two bytes of the word, looked up by row and by row + 8 (the table wraps at 16).
    TETRIS_FUNCTION static Bits row_unit(Ints row) {
        const __m256i table = _mm256_setr_epi8(0, 0, 0, 0, 0, -128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0,  //
                                               0, 0, 0, 0, 0, -128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0);
        return (Bits)_mm256_shuffle_epi8(table, (__m256i)(row + ((row + ints(8)) << 8)));
    }
    TETRIS_FUNCTION static Bits difference_flag(Ints difference) {
        const __m256i table = _mm256_setr_epi8(1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                               1, 2, 4, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        const __m256i index = _mm256_min_epu16((__m256i)(difference + ints(2)), (__m256i)ints(15));
        return (Bits)_mm256_shuffle_epi8(table, _mm256_or_si256(index, constant(repeated16.high_bit)));
    }

    // Three columns wide, two shapes share a vector: both halves see the same columns.
    template <int WIDTH, class T>
    TETRIS_FUNCTION static T at(T columns, const ShapeLanes<Avx2Lanes, WIDTH>&, int k) {
        const T shifted = shift_down(columns, k + FIRST_COLUMN);
        if constexpr (WIDTH != 3) return shifted;
        return (T)_mm256_permute2x128_si256((__m256i)shifted, (__m256i)shifted, 0);
    }
    template <class T>
    TETRIS_FUNCTION static T left(T columns) {
        return shift_up<1>(columns);
    }
    template <class T>
    TETRIS_FUNCTION static T right(T columns) {
        return shift_down(columns, 1);
    }
    TETRIS_FUNCTION static int sum(Ints columns) { return _mm_cvtsi128_si32(total_of(columns)); }
    TETRIS_FUNCTION static Ints total(Ints columns) { return (Ints)_mm256_broadcastw_epi16(total_of(columns)); }
    TETRIS_FUNCTION static int count_bits(Bits columns) { return _mm_cvtsi128_si32(count_bits_of(columns)); }
    TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) {
        return (Ints)_mm256_broadcastw_epi16(count_bits_of(columns));
    }
    TETRIS_FUNCTION static Bits or_all(Bits columns) {
        const __m256i v = (__m256i)columns;
        __m128i all = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        all = _mm_or_si128(all, _mm_shuffle_epi32(all, 0x4E));
        all = _mm_or_si128(all, _mm_shuffle_epi32(all, 0xB1));
        all = _mm_or_si128(all, _mm_srli_epi32(all, 16));
        return (Bits)_mm256_broadcastw_epi16(all);
    }
    TETRIS_FUNCTION static Word first(Bits value) { return value[0]; }
    TETRIS_FUNCTION static Bits or_before(Bits columns) {
        Bits seen = shift_up<1>(columns);
        seen |= shift_up<1>(seen);
        seen |= shift_up<2>(seen);
        seen |= shift_up<4>(seen);
        return seen | shift_up<8>(seen);
    }
    TETRIS_FUNCTION static Bits or_after(Bits columns) {
        Bits seen = shift_down(columns, 1);
        seen |= shift_down(seen, 1);
        seen |= shift_down(seen, 2);
        seen |= shift_down(seen, 4);
        return seen | shift_down(seen, 8);
    }
    TETRIS_FUNCTION static Bits load(const Word* slots) {
        return (Bits)_mm256_loadu_si256(reinterpret_cast<const __m256i*>(slots));
    }
    TETRIS_FUNCTION static void store(Bits columns, Word* slots) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(slots), (__m256i)columns);
    }

    TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
        const Word* slots = PIECE_COLUMNS.slots[piece][orientation] + PieceColumns::OFFSET - FIRST_COLUMN - column;
        return load(slots) >> row;
    }

    // The scores of all groups of placements so far, NaN for what is no candidate.
    struct Best {
        Floats score[MAX_GROUPS];
        const int* order[MAX_GROUPS];
        int groups = 0;
        __m256 most = _mm256_set1_ps(NEVER);
        TETRIS_FUNCTION Best() {}  // the scores stay unwritten
    };
    TETRIS_FUNCTION static bool worthwhile(Ints) { return true; }
    template <int WIDTH>
    TETRIS_FUNCTION static void consider(Best& best, Floats score, Ints candidate, const Group<Avx2Lanes, WIDTH>& group) {
        const __m256i other = (__m256i)~candidate;
        const __m256 low = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(other)));
        const __m256 high = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(other, 1)));
        score = {_mm256_or_ps(score.low, low), _mm256_or_ps(score.high, high)};
        best.most = _mm256_max_ps(score.low, best.most);  // of NaN and a number the second operand
        best.most = _mm256_max_ps(score.high, best.most);
        best.score[best.groups] = score;
        best.order[best.groups] = group.order;
        ++best.groups;
    }
    TETRIS_FUNCTION static Choice first_best(const Best& best) {
        __m128 most = _mm_max_ps(_mm256_castps256_ps128(best.most), _mm256_extractf128_ps(best.most, 1));
        most = _mm_max_ps(most, _mm_movehl_ps(most, most));
        most = _mm_max_ss(most, _mm_movehdup_ps(most));
        const float score = _mm_cvtss_f32(most);
        if (score == NEVER) return NO_CHOICE;
        const __m256 all = _mm256_broadcastss_ps(most);
        uint64_t equal = 0;
        for (int i = 0; i < best.groups; ++i) {
            const int low = _mm256_movemask_ps(_mm256_cmp_ps(best.score[i].low, all, _CMP_EQ_OQ));
            const int high = _mm256_movemask_ps(_mm256_cmp_ps(best.score[i].high, all, _CMP_EQ_OQ));
            equal |= static_cast<uint64_t>(low) << best.order[i][0] | static_cast<uint64_t>(high) << best.order[i][1];
        }
        return {score, lowest_bit(equal)};
    }

    // See RowGaps. Four columns a word, added as binary numbers digit by digit.
    TETRIS_FUNCTION static void count_gaps(Bits empty, uint32_t& ones, uint32_t& twos, uint32_t& fours, uint32_t& eights) {
        const __m256i v = (__m256i)empty;
        const uint64_t a = static_cast<uint64_t>(_mm256_extract_epi64(v, 0));
        const uint64_t b = static_cast<uint64_t>(_mm256_extract_epi64(v, 1));
        const uint64_t c = static_cast<uint64_t>(_mm256_extract_epi64(v, 2));
        const uint64_t one = a ^ b ^ c, two = majority(a, b, c);
        const uint64_t one_2 = one ^ (one >> 32), two_2 = one & (one >> 32);
        const uint64_t one_1 = one_2 ^ (one_2 >> 16), two_1 = one_2 & (one_2 >> 16);
        const uint64_t twos_2 = two ^ (two >> 32) ^ two_2, four_2 = majority(two, two >> 32, two_2);
        const uint64_t twos_1 = twos_2 ^ (twos_2 >> 16) ^ two_1, four_1 = majority(twos_2, twos_2 >> 16, two_1);
        ones = static_cast<Word>(one_1);
        twos = static_cast<Word>(twos_1);
        fours = static_cast<Word>(four_2 ^ (four_2 >> 16) ^ four_1);
        eights = static_cast<Word>(majority(four_2, four_2 >> 16, four_1));
    }

   private:
    struct PieceColumns {
        static constexpr int OFFSET = 16;
        Word slots[PIECES][MAX_ORIENTATIONS][32];
        constexpr PieceColumns() : slots() {
            for (int piece = 0; piece < PIECES; ++piece) {
                for (int o = 0; o < ORIENTATIONS[piece]; ++o) {
                    const Shape shape = SHAPES[piece][o];
                    for (int k = 0; k < shape.width; ++k) {
                        slots[piece][o][OFFSET + k] =
                            static_cast<Word>((1u << (16 - shape.bottom(k))) - (1u << (16 - shape.top(k))));
                    }
                }
            }
        }
    };
    static const PieceColumns PIECE_COLUMNS;

    TETRIS_FUNCTION static __m256i constant(const void* vector) {
        return _mm256_load_si256(static_cast<const __m256i*>(vector));
    }
    // The number of bits in each byte.
    TETRIS_FUNCTION static __m256i count_bytes(Bits words) {
        const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                                               0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
        const __m256i nibble = constant(repeated16.nibble), word = (__m256i)words;
        const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(word, nibble));
        const __m256i high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(word, 4), nibble));
        return _mm256_add_epi8(low, high);
    }
    TETRIS_FUNCTION static __m128i count_bits_of(Bits columns) {
        const __m256i quarters = _mm256_sad_epu8(count_bytes(columns), _mm256_setzero_si256());
        const __m128i halves = _mm_add_epi32(_mm256_castsi256_si128(quarters), _mm256_extracti128_si256(quarters, 1));
        return _mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves));
    }
    TETRIS_FUNCTION static uint64_t majority(uint64_t a, uint64_t b, uint64_t c) { return (a & b) | (c & (a ^ b)); }
    TETRIS_FUNCTION static __m128i total_of(Ints columns) {
        const __m256i pairs = _mm256_madd_epi16((__m256i)columns, (__m256i)ints(1));
        const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
        const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        return _mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1));
    }
    template <int N, class T>
    TETRIS_FUNCTION static T shift_up(T columns) {
        const __m256i v = (__m256i)columns;
        const __m256i low = _mm256_permute2x128_si256(v, v, 0x08);  // (0, low half)
        if constexpr (N == 8) return (T)low;
        return (T)_mm256_alignr_epi8(v, low, (16 - 2 * N) & 15);
    }
    template <class T>
    TETRIS_FUNCTION static T shift_down(T columns, int n) {
        const __m256i v = (__m256i)columns;
        const __m256i high = _mm256_permute2x128_si256(v, v, 0x81);  // (high half, 0)
        switch (n) {
            case 0: return columns;
            case 1: return (T)_mm256_alignr_epi8(high, v, 2);
            case 2: return (T)_mm256_alignr_epi8(high, v, 4);
            case 3: return (T)_mm256_alignr_epi8(high, v, 6);
            case 4: return (T)_mm256_alignr_epi8(high, v, 8);
            case 5: return (T)_mm256_alignr_epi8(high, v, 10);
            case 6: return (T)_mm256_alignr_epi8(high, v, 12);
            case 7: return (T)_mm256_alignr_epi8(high, v, 14);
            default: return (T)high;
        }
    }
};

inline constexpr Avx2Lanes::PieceColumns Avx2Lanes::PIECE_COLUMNS{};

}  // namespace tetris

#endif  // __AVX2__
