// Sixteen placements at a time in 32-bit lanes (AVX-512 with its population count). A column has 32 rows: every board fits.
// See lanes_scalar.h for what the names mean.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VPOPCNTDQ__)
#define TETRIS_AVX512

#include <immintrin.h>

#include <cstring>

#include "lanes_scalar.h"

namespace tetris {

// The sums 1 + 2 + ... + n, and the lanes that lane i takes its value from where both halves see the same columns.
struct alignas(64) Avx512Constants {
    int32_t triangle[32];
    int32_t twice[8][16];
    constexpr Avx512Constants() : triangle(), twice() {
        for (int n = 0; n < 32; ++n) triangle[n] = n * (n + 1) / 2;
        for (int n = 0; n < 8; ++n) {
            for (int lane = 0; lane < 16; ++lane) twice[n][lane] = lane % 8 + n;
        }
    }
};
inline constexpr Avx512Constants AVX512_CONSTANTS;

struct Avx512Lanes {
    using Register = __m512i;
    using Word = uint32_t;
    static constexpr int LANES = 16;
    static constexpr int SLOTS = 16;
    static constexpr int TOP = 31;
    static constexpr int MAX_STACK = MAX_HEIGHT;
    static constexpr int MAX_GROUPS = 3;

    struct Mask {
        __mmask16 m;
        TETRIS_FUNCTION friend Mask operator&(Mask a, Mask b) { return {_kand_mask16(a.m, b.m)}; }
        TETRIS_FUNCTION friend Mask operator|(Mask a, Mask b) { return {_kor_mask16(a.m, b.m)}; }
    };
    struct Bits {
        Register r;
        TETRIS_FUNCTION friend Bits operator&(Bits a, Bits b) { return {_mm512_and_si512(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator|(Bits a, Bits b) { return {_mm512_or_si512(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator^(Bits a, Bits b) { return {_mm512_xor_si512(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator+(Bits a, Bits b) { return {_mm512_add_epi32(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a, Bits b) { return {_mm512_sub_epi32(a.r, b.r)}; }
        TETRIS_FUNCTION friend Bits operator<<(Bits a, unsigned n) { return {_mm512_slli_epi32(a.r, n)}; }
        TETRIS_FUNCTION friend Bits operator>>(Bits a, unsigned n) { return {_mm512_srli_epi32(a.r, n)}; }
        TETRIS_FUNCTION friend Bits operator~(Bits a) { return {_mm512_xor_si512(a.r, _mm512_set1_epi32(-1))}; }
        TETRIS_FUNCTION friend Bits operator-(Bits a) { return {_mm512_sub_epi32(_mm512_setzero_si512(), a.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Bits a, Bits b) { return {_mm512_cmpeq_epi32_mask(a.r, b.r)}; }
    };
    struct Ints {
        Register r;
        TETRIS_FUNCTION friend Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a, Ints b) { return {_mm512_sub_epi32(a.r, b.r)}; }
        TETRIS_FUNCTION friend Ints operator-(Ints a) { return {_mm512_sub_epi32(_mm512_setzero_si512(), a.r)}; }
        TETRIS_FUNCTION friend Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator>(Ints a, Ints b) { return {_mm512_cmpgt_epi32_mask(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator<(Ints a, Ints b) { return {_mm512_cmplt_epi32_mask(a.r, b.r)}; }
        TETRIS_FUNCTION friend Mask operator==(Ints a, Ints b) { return {_mm512_cmpeq_epi32_mask(a.r, b.r)}; }
        TETRIS_FUNCTION int operator[](int lane) const { return reinterpret_cast<const Lane*>(&r)[lane]; }
    };
    using Floats = __m512;
    using Unit = Ints;  // how far a pattern is shifted
    using Weight = __m512;
    using ColumnBits = Bits;
    using ColumnInts = Ints;

    struct alignas(64) Constant {
        int32_t value[LANES] = {};
        constexpr void set(int lane, int v) { value[lane] = v; }
    };

    // See ScalarLanes.
    template <class T, class Columns>
    using Kept = Columns;
    using Keeper = ScalarLanes::Keeper;

    TETRIS_FUNCTION static Bits bits(const Constant& c) { return {_mm512_load_si512(c.value)}; }
    TETRIS_FUNCTION static Ints ints(const Constant& c) { return {_mm512_load_si512(c.value)}; }
    TETRIS_FUNCTION static Bits bits(Word value) { return {_mm512_set1_epi32(static_cast<int>(value))}; }
    TETRIS_FUNCTION static Ints ints(int value) { return {_mm512_set1_epi32(value)}; }
    TETRIS_FUNCTION static ColumnBits bits_everywhere(Word value) { return bits(value); }
    TETRIS_FUNCTION static ColumnInts ints_everywhere(int value) { return ints(value); }
    TETRIS_FUNCTION static Ints as_ints(Bits value) { return {value.r}; }
    TETRIS_FUNCTION static Floats floats(float value) { return _mm512_set1_ps(value); }
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Weight weight(float value) { return _mm512_set1_ps(value); }
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats to_floats(Ints value) {
        const Floats whole = _mm512_cvtepi32_ps(value.r);
        if constexpr (DENOMINATOR == 1) return whole;
        return _mm512_mul_ps(whole, floats(1.0f / DENOMINATOR));
    }
    // sum + weight * (value / DENOMINATOR).
    template <int DENOMINATOR>
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Ints value) {
        return add_product(sum, weight, to_floats<DENOMINATOR>(value));
    }
    TETRIS_FUNCTION static Floats add_product(Floats sum, const Weight& weight, Floats value) {
        return _mm512_add_ps(sum, _mm512_mul_ps(weight, value));
    }

    TETRIS_FUNCTION static Ints popcount(Bits value) { return {_mm512_popcnt_epi32(value.r)}; }
    template <int COUNT>
    TETRIS_FUNCTION static Ints popcount_sum(const Bits (&words)[COUNT]) {
        Ints total = popcount(words[0]);
        TETRIS_UNROLL for (int i = 1; i < COUNT; ++i) total = total + popcount(words[i]);
        return total;
    }
    TETRIS_FUNCTION static Ints run_length(Bits value) { return popcount(value); }
    TETRIS_FUNCTION static Ints times(Ints a, Ints b) { return {_mm512_mullo_epi32(a.r, b.r)}; }
    TETRIS_FUNCTION static Ints triangle(Ints n) {
        const Register low = _mm512_load_si512(AVX512_CONSTANTS.triangle);
        const Register high = _mm512_load_si512(AVX512_CONSTANTS.triangle + 16);
        return {_mm512_permutex2var_epi32(low, n.r, high)};
    }
    TETRIS_FUNCTION static Ints popcount_near(Bits first, Bits second) {
        return popcount(Bits{_mm512_or_si512(first.r, _mm512_rol_epi32(second.r, 16))});
    }
    TETRIS_FUNCTION static Ints popcount_small(Bits value) { return popcount(value); }

    TETRIS_FUNCTION static Mask exceeds(Ints a, Ints b) { return a > b; }
    TETRIS_FUNCTION static Mask flag(Ints value) { return {_mm512_movepi32_mask(value.r)}; }
    TETRIS_FUNCTION static Mask without(Mask a, Mask b) { return {_kandn_mask16(b.m, a.m)}; }
    TETRIS_FUNCTION static Bits without(Bits a, Bits b) { return {_mm512_andnot_si512(b.r, a.r)}; }
    TETRIS_FUNCTION static unsigned lanes(Mask condition) { return _cvtmask16_u32(condition.m); }
    TETRIS_FUNCTION static Ints maximum(Ints a, Ints b) { return {_mm512_max_epi32(a.r, b.r)}; }
    TETRIS_FUNCTION static Ints select(Mask condition, Ints a, Ints b) {
        return {_mm512_mask_mov_epi32(b.r, condition.m, a.r)};
    }
    TETRIS_FUNCTION static Bits select(Mask condition, Bits a, Bits b) {
        return {_mm512_mask_mov_epi32(b.r, condition.m, a.r)};
    }
    TETRIS_FUNCTION static Ints where(Mask condition, Ints value) {
        return {_mm512_maskz_mov_epi32(condition.m, value.r)};
    }
    TETRIS_FUNCTION static Bits bits_where(Mask condition, Bits value) {
        return {_mm512_maskz_mov_epi32(condition.m, value.r)};
    }
    TETRIS_FUNCTION static Ints count(Mask condition) { return where(condition, ints(1)); }
    TETRIS_FUNCTION static bool any(Bits value) { return _mm512_test_epi32_mask(value.r, value.r) != 0; }
    TETRIS_FUNCTION static Unit row_unit(Ints row) { return ints(TOP - 3) - row; }
    TETRIS_FUNCTION static Bits rows(const Constant& pattern, Unit unit) {
        return {_mm512_sllv_epi32(_mm512_load_si512(pattern.value), unit.r)};
    }
    // Shifts beyond the word give 0.
    TETRIS_FUNCTION static Bits step_flag(Ints step) {
        return {_mm512_and_si512(_mm512_sllv_epi32(_mm512_set1_epi32(1), (step - ints(1)).r), _mm512_set1_epi32(31))};
    }
    TETRIS_FUNCTION static Ints nonzero(Bits columns) {
        return {_mm512_movm_epi32(_mm512_test_epi32_mask(columns.r, columns.r))};
    }

    TETRIS_FUNCTION static uint32_t negative(Ints columns) {
        return _cvtmask16_u32(_mm512_movepi32_mask(columns.r)) >> (FIRST_COLUMN - 1);
    }
    template <uint32_t PATTERN, int WIDTH>
    TETRIS_FUNCTION static Bits in_columns(const ShapeLanes<Avx512Lanes, WIDTH>&) {
        return {_mm512_load_si512(COLUMN_SETS<int32_t, PATTERN, WIDTH>.lane)};
    }
    template <class Shapes>
    TETRIS_FUNCTION static Bits in_columns(const Constant& pattern, const Shapes&) {
        return bits(pattern);
    }

    // Three columns wide, two shapes share a vector: both halves see the same columns.
    template <int WIDTH, class T>
    TETRIS_FUNCTION static T at(T columns, const ShapeLanes<Avx512Lanes, WIDTH>&, int k) {
        if constexpr (WIDTH != 3) return {move_down(columns.r, k + FIRST_COLUMN)};
        return {_mm512_permutexvar_epi32(_mm512_load_si512(AVX512_CONSTANTS.twice[k + FIRST_COLUMN]), columns.r)};
    }
    template <class T>
    TETRIS_FUNCTION static T left(T columns) {
        return {move_up<1>(columns.r)};
    }
    template <class T>
    TETRIS_FUNCTION static T right(T columns) {
        return {move_down(columns.r, 1)};
    }
    TETRIS_FUNCTION static int sum(Ints columns) { return _mm512_reduce_add_epi32(columns.r); }
    TETRIS_FUNCTION static Ints total(Ints columns) { return ints(sum(columns)); }
    TETRIS_FUNCTION static int count_bits(Bits columns) { return sum(popcount(columns)); }
    TETRIS_FUNCTION static Ints count_bits_everywhere(Bits columns) { return total(popcount(columns)); }
    TETRIS_FUNCTION static Word or_columns(Bits columns) {
        return static_cast<Word>(_mm512_reduce_or_epi32(columns.r));
    }
    TETRIS_FUNCTION static Bits or_all(Bits columns) { return bits(or_columns(columns)); }
    TETRIS_FUNCTION static Bits or_up_to(Bits columns) {
        Register seen = columns.r;
        seen = _mm512_or_si512(seen, move_up<1>(seen));
        seen = _mm512_or_si512(seen, move_up<2>(seen));
        seen = _mm512_or_si512(seen, move_up<4>(seen));
        return {_mm512_or_si512(seen, move_up<8>(seen))};
    }
    TETRIS_FUNCTION static Bits or_from(Bits columns) {
        Register seen = columns.r;
        seen = _mm512_or_si512(seen, move_down(seen, 1));
        seen = _mm512_or_si512(seen, move_down(seen, 2));
        seen = _mm512_or_si512(seen, move_down(seen, 4));
        return {_mm512_or_si512(seen, move_down(seen, 8))};
    }
    TETRIS_FUNCTION static Bits load(const Word* slots) { return {_mm512_loadu_si512(slots)}; }
    TETRIS_FUNCTION static void store(Bits columns, Word* slots) { _mm512_storeu_si512(slots, columns.r); }

    TETRIS_FUNCTION static Bits piece_columns(int piece, int orientation, int column, int row) {
        const Word* slots = PIECE_COLUMNS<Word>.slots[piece][orientation] + PieceColumns<Word>::OFFSET - FIRST_COLUMN - column;
        return {_mm512_srl_epi32(_mm512_loadu_si512(slots), _mm_cvtsi32_si128(row))};
    }
    TETRIS_FUNCTION static int landing_row(const Ints& heights, const Shape& shape, int x) {
        const auto* columns = reinterpret_cast<const Lane*>(&heights.r) + FIRST_COLUMN + x;
        int32_t rows;
        std::memcpy(&rows, shape.first_row, sizeof(rows));
        const __m128i height = _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns));
        __m128i row = _mm_sub_epi32(height, _mm_cvtepi8_epi32(_mm_cvtsi32_si128(rows)));
        row = _mm_max_epi32(row, _mm_unpackhi_epi64(row, row));
        row = _mm_max_epi32(row, _mm_srli_epi64(row, 32));
        return _mm_cvtsi128_si32(row);
    }

    // The scores of all groups of placements so far.
    struct Best {
        Floats score[MAX_GROUPS];
        __mmask16 candidates[MAX_GROUPS];
        const int* order[MAX_GROUPS];
        int groups = 0;
        Floats most = _mm512_set1_ps(NEVER);
        TETRIS_FUNCTION Best() {}  // the scores stay unwritten
    };
    TETRIS_FUNCTION static bool worthwhile(Mask) { return true; }
    template <int WIDTH>
    TETRIS_FUNCTION static void consider(Best& best, Floats score, Mask candidate, const Group<Avx512Lanes, WIDTH>& group) {
        // Of NaN and a number the maximum is the second operand.
        best.most = _mm512_mask_max_ps(best.most, candidate.m, score, best.most);
        best.score[best.groups] = score;
        best.candidates[best.groups] = candidate.m;
        best.order[best.groups] = group.order;
        ++best.groups;
    }
    TETRIS_FUNCTION static Choice first_best(const Best& best) {
        const float score = _mm512_reduce_max_ps(best.most);
        if (score == NEVER) return NO_CHOICE;
        const Floats all = _mm512_set1_ps(score);
        uint64_t equal = 0;
        for (int i = 0; i < best.groups; ++i) {
            const unsigned found =
                _cvtmask16_u32(_mm512_mask_cmp_ps_mask(best.candidates[i], best.score[i], all, _CMP_EQ_OQ));
            equal |= static_cast<uint64_t>(found & 0xFF) << best.order[i][0] |
                     static_cast<uint64_t>(found >> 8) << best.order[i][1];
        }
        return {score, lowest_bit(equal)};
    }

   private:
    typedef int32_t Lane __attribute__((may_alias));
    // Lane i becomes lane i - N (move_up) or i + n (move_down); zeros come in.
    template <int N>
    TETRIS_FUNCTION static Register move_up(Register a) {
        return _mm512_alignr_epi32(a, _mm512_setzero_si512(), 16 - N);
    }
    TETRIS_FUNCTION static Register move_down(Register a, int n) {
        const Register zero = _mm512_setzero_si512();
        switch (n) {
            case 0: return a;
            case 1: return _mm512_alignr_epi32(zero, a, 1);
            case 2: return _mm512_alignr_epi32(zero, a, 2);
            case 3: return _mm512_alignr_epi32(zero, a, 3);
            case 4: return _mm512_alignr_epi32(zero, a, 4);
            case 5: return _mm512_alignr_epi32(zero, a, 5);
            case 6: return _mm512_alignr_epi32(zero, a, 6);
            case 7: return _mm512_alignr_epi32(zero, a, 7);
            default: return _mm512_alignr_epi32(zero, a, 8);
        }
    }
};

}  // namespace tetris

#endif  // AVX-512
