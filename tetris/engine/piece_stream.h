// The pieces of a stream, on all devices. A piece is a pure function of (seed, stream, t), as
// in tetris/game/piece_stream.py.
#pragma once

#include "philox.h"
#include "pieces.h"

namespace tetris {

// The source of random pieces. If `bag` is true, all seven pieces are drawn in a random order,
// then again, and so on. Otherwise each piece is drawn independently of the others from `count`
// pieces, which are the four-bit fields of `pieces`.
struct PieceSource {
  uint32_t pieces;
  int count;
  bool bag;

  // Returns piece `index` of `pieces`.
  TETRIS_FUNCTION int at(int index) const { return nth_field(pieces, index); }

  // Returns the source that `packed_source` of tetris/game/piece_stream.py has packed into
  // numbers.
  static PieceSource of(int64_t pieces, int64_t count, bool bag) {
    return {uint32_t(pieces), int(count), bag};
  }
};

struct PieceStream {
  PieceSource source;
  uint64_t seed, stream;

  // Returns piece t of the stream. Without bags, a random block has four words, which draw four
  // consecutive pieces.
  TETRIS_FUNCTION int piece(uint64_t t) const {
    if (source.bag) return nth_field(bag_of(t / PIECES), int(t % PIECES));
    philox::Block block = block_of(t / 4);
    // Select the word without an index, because a GPU cannot hold an array in registers that is
    // indexed by a variable.
    int number = int(t % 4);
    uint32_t early = number == 0 ? block.word[0] : block.word[1];
    uint32_t late = number == 2 ? block.word[2] : block.word[3];
    return drawn_by(number < 2 ? early : late);
  }

 protected:
  TETRIS_FUNCTION philox::Block block_of(uint64_t number) const {
    return philox::block(number, stream, seed);
  }
  // Returns the piece that a random word draws: piece number count * word / 2^32, rounded down.
  TETRIS_FUNCTION int drawn_by(uint32_t word) const {
    return source.at(int((uint64_t(source.count) * word) >> 32));
  }
  // Returns a random order of the seven pieces, for bag `number` of the stream. The order is
  // packed into fields of four bits, with the first piece in the lowest bits.
  //
  // This is a Fisher-Yates shuffle. Its six random words come from two Philox blocks, which
  // depend only on the seed, the stream and `number`.
  TETRIS_FUNCTION uint32_t bag_of(uint64_t number) const {
    philox::Block one = block_of(2 * number);
    philox::Block two = block_of(2 * number + 1);
    const uint32_t words[6] = {
        one.word[0], one.word[1], one.word[2], one.word[3], two.word[0], two.word[1]};
    uint32_t order = 0x6543210;  // the pieces 0 to 6 in order
    TETRIS_UNROLL for (int i = PIECES - 1; i >= 1; --i) {
      uint32_t word = words[PIECES - 1 - i];
      int j = int((uint64_t(i + 1) * word) >> 32);  // a random integer from 0 to i
      // Swap fields i and j: the XOR of a field with the difference is the other field.
      uint32_t difference = ((order >> (4 * i)) ^ (order >> (4 * j))) & 15u;
      order ^= (difference << (4 * i)) | (difference << (4 * j));
    }
    return order;
  }
};

// Reads the pieces of a stream one after another, and computes each block or bag only once.
struct PieceReader : PieceStream {
  uint64_t t;           // the number of the next piece
  int known;            // the next piece; the caller may replace the first one
  philox::Block block;  // the block that contains piece t
  uint32_t order;       // the bag that contains piece t

  TETRIS_FUNCTION PieceReader(const PieceStream& pieces, uint64_t first_t)
      : PieceStream(pieces), t(first_t), block(), order(0) {
    refill();
    known = drawn();
  }

  // Returns the next piece, and advances to the piece after it.
  TETRIS_FUNCTION int next() {
    int falls = known;
    ++t;
    if (position() == 0) refill();
    known = drawn();
    return falls;
  }

 private:
  TETRIS_FUNCTION int drawn() const {
    return source.bag ? nth_field(order, position()) : drawn_by(block.word[position()]);
  }
  TETRIS_FUNCTION int position() const { return int(t % (source.bag ? PIECES : 4)); }
  TETRIS_FUNCTION void refill() {
    if (source.bag) order = bag_of(t / PIECES);
    else block = block_of(t / 4);
  }
};

}  // namespace tetris
