// The games of a replay, for player.js: the board before any placement, by the rules of tetris/game.py.

const HEADROOM = 4; // rows above the board: a piece that ends the game comes to rest there
const SNAPSHOT = 256; // pieces between two boards that are kept, to go back from

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A stream of games: the board before placement `index`, which can be any. */
class Games {
  constructor(replay, numbers) {
    Object.assign(this, { width: replay.width, height: replay.height, clears: replay.clear_on_overflow });
    this.lastNext = replay.last_next; // a piece by the original rule, otherwise null
    this.first = []; // orientation of each piece
    for (const shape of replay.shapes) this.first[shape.piece] ??= shape;
    this.numbers = numbers;
    // Every placement, in the order of its number.
    this.all = replay.shapes.flatMap((shape) =>
      Array.from({ length: replay.width - shape.width + 1 }, (_, column) => ({ shape, column })));
    this.snapshots = [];
    this.state = {
      index: 0, lines: 0, gameLines: 0, games: 0,
      cells: new Uint8Array(this.width * (this.height + HEADROOM)), // 0 empty, else the piece plus one
    };
  }

  goTo(index) {
    if (index < this.state.index) this.state = this.snapshots[Math.floor(index / SNAPSHOT)];
    while (this.state.index < index) this.carryOut();
  }

  /** What placement `index` does: where the piece rests, which rows it fills, if it ends the game. */
  look() {
    const { shape, column } = this.all[this.numbers[this.state.index]];
    const { cells } = this.state;
    let row = 0;
    for (let x = 0; x < shape.width; x++) {
      let height = this.height + HEADROOM;
      while (height && !cells[(height - 1) * this.width + column + x]) height--;
      const bottom = Math.min(...shape.cells.filter(([cx]) => cx === x).map(([, cy]) => cy));
      row = Math.max(row, height - bottom);
    }
    const overflows = row + shape.height > this.height;
    const full = [];
    for (let y = row; y < row + shape.height && (this.clears || !overflows); y++) {
      let count = shape.cells.filter(([, cy]) => cy === y - row).length;
      for (let x = 0; x < this.width; x++) count += cells[y * this.width + x] > 0;
      if (count === this.width) full.push(y);
    }
    const placed = { shape, column, row, full };
    return { ...placed, over: row + shape.height - full.length > this.height || this.blocks(placed) };
  }

  /** By the original rule: whether the next piece does not appear, in the middle of the uppermost rows. */
  blocks(placed) {
    if (this.lastNext === null) return false;
    const following = this.numbers[this.state.index + 1];
    const next = this.first[following === undefined ? this.lastNext : this.all[following].shape.piece];
    const left = Math.floor((this.width - next.width) / 2), bottom = this.height - next.height;
    const cells = this.after(placed);
    return next.cells.some(([x, y]) => cells[(bottom + y) * this.width + left + x]);
  }

  /** The cells after a placement. */
  after({ shape, column, row, full }) {
    const { width } = this, cells = this.state.cells.slice();
    for (const [x, y] of shape.cells) cells[(row + y) * width + column + x] = shape.piece + 1;
    for (const y of [...full].reverse()) {
      cells.copyWithin(y * width, (y + 1) * width);
      cells.fill(0, -width);
    }
    return cells;
  }

  carryOut() {
    const { index, lines, gameLines, games, cells } = this.state;
    if (index % SNAPSHOT === 0) this.snapshots[index / SNAPSHOT] = this.state;
    const placed = this.look(), { full, over } = placed;
    this.state = {
      index: index + 1,
      lines: lines + full.length,
      gameLines: over ? 0 : gameLines + full.length,
      games: games + over,
      cells: over ? new Uint8Array(cells.length) : this.after(placed),
    };
  }
}
