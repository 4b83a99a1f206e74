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
    const uint32_t words[6] = {
        one.word[0], one.word[1], one.word[2], one.word[3], two.word[0], two.word[1]};
    uint32_t order = 0x6543210;
    TETRIS_UNROLL for (int i = PIECES - 1; i >= 1; --i) {
      const int j =
          static_cast<int>((static_cast<uint64_t>(i + 1) * words[PIECES - 1 - i]) >> 32);
      const uint32_t differ = ((order >> (4 * i)) ^ (order >> (4 * j))) & 15u;
      order ^= (differ << (4 * i)) | (differ << (4 * j));
    }
    return order;
  }
};

// The pieces of a stream one after the other: a block or a bag is computed once.
struct PieceReader : PieceStream {
  uint64_t t;           // of the next piece
  int known;            // that piece; at first it may be another stream's
  philox::Block block;  // t's
  uint32_t order;       // the bag of t

  TETRIS_FUNCTION PieceReader(const PieceStream& pieces, uint64_t first_t)
      : PieceStream(pieces), t(first_t), block(), order(0) {
    refill();
    known = drawn();
  }

  TETRIS_FUNCTION int next() {
    const int falls = known;
    ++t;
    if (position() == 0) refill();
    known = drawn();
    return falls;
  }

 private:
  TETRIS_FUNCTION int drawn() const {
    return source.bag ? nth_field(order, position()) : drawn_by(block.word[position()]);
  }
  TETRIS_FUNCTION int position() const {
    return static_cast<int>(t % (source.bag ? PIECES : 4));
  }
  TETRIS_FUNCTION void refill() {
    if (source.bag) order = bag_of(t / PIECES);
    else block = block_of(t / 4);
  }
};

}  // namespace tetris
