// The pieces of a stream on all processors: a pure function of (seed, stream, t), as in tetris/game/piece_stream.py.
#pragma once

#include "philox.h"
#include "pieces.h"

namespace tetris {

// Where pieces are drawn from: `count` four-bit fields of `pieces`, or bags of all seven.
struct PieceSource {
  uint32_t pieces;
  int count;
  bool bag;

  // One of them.
  TETRIS_FUNCTION int at(int index) const { return nth_field(pieces, index); }

  // From what `packed_source` of tetris/game/piece_stream.py returns.
  static PieceSource of(int64_t pieces, int64_t count, bool bag) {
    return {static_cast<uint32_t>(pieces), static_cast<int>(count), bag};
  }
};

struct PieceStream {
  PieceSource source;
  uint64_t seed, stream;

  // Piece t.
  TETRIS_FUNCTION int piece(uint64_t t) const {
    if (source.bag) return nth_field(bag_of(t / PIECES), static_cast<int>(t % PIECES));
    const philox::Block block = block_of(t / 4);
    // Chosen, not indexed, so that the block can lie in registers.
    const int at = static_cast<int>(t % 4);
    const uint32_t early = at == 0 ? block.word[0] : block.word[1],
                   late = at == 2 ? block.word[2] : block.word[3];
    return drawn_by(at < 2 ? early : late);
  }

 protected:
  TETRIS_FUNCTION philox::Block block_of(uint64_t number) const {
    return philox::block(number, stream, seed);
  }
  TETRIS_FUNCTION int drawn_by(uint32_t word) const {
    return source.at(static_cast<int>((static_cast<uint64_t>(source.count) * word) >> 32));
  }
  // The order of a bag, four-bit fields: Fisher-Yates with the first six words of two blocks.
  TETRIS_FUNCTION uint32_t bag_of(uint64_t number) const {
    const philox::Block one = block_of(2 * number), two = block_of(2 * number + 1);
    const uint32_t words[6] = {one.word[0], one.word[1], one.word[2], one.word[3], two.word[0], two.word[1]};
    uint32_t order = 0x6543210;
    TETRIS_UNROLL for (int i = PIECES - 1; i >= 1; --i) {
      const int j = static_cast<int>((static_cast<uint64_t>(i + 1) * words[PIECES - 1 - i]) >> 32);
      const uint32_t differ = ((order >> (4 * i)) ^ (order >> (4 * j))) & 15u;
      order ^= (differ << (4 * i)) | (differ << (4 * j));
    }
    return order;
  }
};

// The pieces of a stream one after the other: those of a bag, or of four blocks, are computed at once.
struct PieceReader : PieceStream {
  uint64_t t;       // of the next piece
  int known;        // that piece; at first it may be another stream's
  int left;         // how many of `fields` there are
  uint64_t fields;  // four bits a piece, from t on

  PieceReader() = default;
  TETRIS_FUNCTION PieceReader(const PieceStream& pieces, uint64_t first_t) : PieceStream(pieces), t(first_t) {
    refill();
  }

  TETRIS_FUNCTION int next() {
    const int falls = known;
    ++t;
    fields >>= 4;
    if (--left == 0) refill();
    known = static_cast<int>(fields & 15);
    return falls;
  }

 private:
  TETRIS_OUTLINE void refill() {
    const int period = source.bag ? PIECES : 16, at = static_cast<int>(t % static_cast<uint64_t>(period));
    fields = source.bag ? bag_of(t / PIECES) : 0;
    for (int b = 0; b < 4 && !source.bag; ++b) {
      const philox::Block block = block_of(t / 16 * 4 + static_cast<uint64_t>(b));
      for (int i = 0; i < 4; ++i)
        fields |= static_cast<uint64_t>(drawn_by(block.word[i])) << (16 * b + 4 * i);
    }
    fields >>= 4 * at;
    left = period - at;
    known = static_cast<int>(fields & 15);
  }
};

}  // namespace tetris
