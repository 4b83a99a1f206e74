// The engine in WebAssembly (tetris/engine/browser.cpp), and what tetris/play and tetris/record make of a controller: its rounded
// weights, its choice, the reasons for a placement. `parts` is what tetris/view/play_page.py writes.

const LETTERS = "IOTZSJL", RULES = ["published", "clear-on-overflow", "original"], LOOKAHEADS = ["none", "preview", "expectimax"];
const NEVER = -(2 ** 31), MOST_WEIGHT = 32767, SMALLEST = 2 ** -200;
const FURTHER = { column_height: 0, height_difference: 1, step: 1, step_pair: 2 }; // columns that a feature looks at

/** A feature's family and its numbers: step_pair_3_0_1 is ["step_pair", 3, 0, 1]. */
function family(name) {
  const [, stem, numbers] = name.match(/^(.*?)((?:_\d+)*)$/s);
  return [stem, ...numbers.split("_").slice(1).map(Number)];
}

/** The nearest integer; of two that are equally near, the even one. */
function roundHalfToEven(number) {
  const isHalf = Math.abs(number % 1) === 0.5;
  return isHalf ? 2 * Math.round(number / 2) : Math.round(number);
}

class Engine {
  constructor(parts, { exports: calls }) {
    calls._initialize();
    const view = (Kind, at, count) => new Kind(calls.memory.buffer, at, count);
    const count = parts.features.length + 2; // and tables of weights, of steps and of pairs of them
    this.weights = view(Int32Array, calls.weights_at(), count + 16 * 8 + 16 * 64);
    this.numerators = view(Int32Array, calls.numerators_at(), count);
    this.board = view(Uint32Array, calls.board_at(), 10);
    this.shapes = [...LETTERS].map((_, piece) => parts.shapes.filter((shape) => shape.piece === piece));
    Object.assign(this, { calls, parts, known: new Map(parts.features.map((name, index) => [name, index])) });
  }

  /** The features of a list or a set on a board, as `feature_names` in tetris/game/feature_sets.py. */
  names(features, width) {
    const names = (this.parts.sets[features] ?? features).split(/\s*,\s*/).map((name) => [name, ...family(name)]);
    return names.filter(([, stem, column]) => !(column + FURTHER[stem] >= width)).map(([name]) => name);
  }

  /** What is wrong with a controller on a board, or nothing. */
  complaint({ format, features, weights }, { width, height }) {
    if (format !== "cem-tetris-controller") return "This is no controller.json.";
    const names = this.names(features, width), unknown = names.find((name) => !(this.place(name) >= 0));
    if (unknown) return `This page does not know the feature ${unknown}.`;
    return names.length === weights.length ? "" : `This controller cannot play on ${width}x${height}.`;
  }

  /** Sets board, pieces and controller. */
  prepare({ width, height, rule, pieces, seed }, { features, weights }) {
    this.width = width;
    this.features = this.names(features, width);
    this.lookahead = LOOKAHEADS.indexOf(this.parts.lookahead);
    this.denominators = this.features.map((name) => this.parts.denominators[name] ?? 1);
    this.quantize(weights);
    this.weights.fill(0);
    this.features.forEach((name, index) => { this.weights[this.place(name)] = this.whole[index]; });
    const bag = pieces === "bag";
    const letters = [...(bag || pieces === "uniform" ? LETTERS : pieces)];
    const packed = letters.reduce((sum, letter, place) => sum + LETTERS.indexOf(letter) * 16 ** place, 0); // four bits a piece
    const [low, high] = [0n, 32n].map((shift) => Number(BigInt.asUintN(32, BigInt(seed) >> shift)));
    this.calls.prepare(width, height, RULES.indexOf(rule), packed, letters.length, bag, low, high);
  }

  /**
   * Rounds the weights as `quantized_weights` in tetris/play/quantized_weights.py: to whole multiples of `step`, a power of two.
   * `whole` are the multiples, of which the greatest has 15 bits.
   */
  quantize(weights) {
    const shares = weights.map((weight, index) => Math.fround(weight) / this.denominators[index]);
    const greatest = Math.max(SMALLEST, ...shares.map(Math.abs));
    const bits = new DataView(new ArrayBuffer(8));
    bits.setFloat64(0, greatest);
    const exponent = (bits.getUint32(0) >>> 20) - 1023; // of the greatest weight, from the bits of the float
    this.step = 2 ** (exponent - 14);
    this.whole = shares.map((share) => Math.max(-MOST_WEIGHT, Math.min(MOST_WEIGHT, roundHalfToEven(share / this.step))));
  }

  /** Where a feature's weight lies; those of steps are in tables, by column and classes. */
  place(name) {
    const [stem, column, ...classes] = family(name), start = { step: 0, step_pair: 16 * 8 }[stem];
    if (start === undefined) return this.known.get(name);
    return this.numerators.length + start + classes.reduce((place, each) => place * 8 + each, 2 + column);
  }

  piece(t) { return this.calls.piece_at(t); }

  /** The placement that the controller chooses on a board of columns: {shape, column}. */
  choose(columns, piece, next) {
    this.board.set(columns);
    const place = this.calls.choose(piece, next, this.lookahead);
    return { shape: this.shapes[piece][place >> 4], column: place & 15 };
  }

  /** Places a piece on a board of columns, which changes: the row of its bottom, the rows removed, whether the game is over. */
  land(columns, { shape, column }, next) {
    const filled = columns.slice();
    this.board.set(columns);
    const packed = this.calls.land(shape.piece, shape.turn << 4 | column, next);
    columns.set(this.board);
    const row = packed & 255, lines = packed >> 8 & 255, over = packed >> 16 > 0;
    return { row, full: lines ? this.fullRows(filled, shape, column, row) : [], over };
  }

  /** Fills a piece's cells, and returns the rows that are full then. */
  fullRows(columns, shape, column, row) {
    for (const [x, y] of shape.cells) columns[column + x] |= 1 << row + y;
    const isFull = (y) => columns.subarray(0, this.width).every((bits) => bits >> y & 1);
    return [0, 1, 2, 3].map((y) => row + y).filter(isFull);
  }

  /** Features and margin of a placement as `explain` in tetris/record/explanation.py; null where it ends the game. */
  explain(columns, { shape: { piece, turn }, column }, next) {
    this.board.set(columns);
    const scored = (place, known) => ({ score: this.calls.score(piece, place, known), values: this.values() });
    const played = turn << 4 | column; // the number of the placement
    // With preview, a placement is scored together with the next piece's, unless every such pair ends the game.
    const isPair = this.lookahead === 1 && scored(played, next).score !== NEVER;
    const known = isPair ? next : -1;
    const own = scored(played, known);
    if (own.score === NEVER) return null;
    const places = this.shapes[piece].flatMap((shape) =>
      Array.from({ length: this.width - shape.width + 1 }, (_, left) => shape.turn << 4 | left));
    const best = places.filter((place) => place !== played).map((place) => scored(place, known)) // of all others
      .reduce((most, other) => (other.score > most.score ? other : most), { score: NEVER });
    // The lead of a feature is what it adds to the score more than to that of the best other placement.
    const rows = this.features.map((name, index) => ({
      name, value: own.values[index] / this.denominators[index],
      lead: this.whole[index] * this.step * (own.values[index] - (best.values?.[index] ?? 0)),
    }));
    return { rows, value: own.score * this.step, margin: best.values ? (own.score - best.score) * this.step : null };
  }

  /** What `explain` found, in lines: the most decisive features first, `most` of them; room for names and values. */
  reasons(columns, placement, next, most, room = 21, values = 5) {
    const found = this.explain(columns, placement, next);
    if (!found) return "the game ends";
    const line = (name, value, lead) =>
      name.replaceAll("_", " ").slice(0, room).padEnd(room) + value.padStart(values).slice(0, values) + lead.padStart(7);
    const rows = found.rows.sort((a, b) => Math.abs(b.lead) - Math.abs(a.lead)).slice(0, most);
    return [line("margin", "", found.margin?.toFixed(2) ?? "-"), line("feature", "value", "adds"),
      ...rows.map(({ name, value, lead }) => line(name, String(value), (lead + 0).toFixed(2)))].join("\n");
  }

  /** The numerators of the controller's features on the board that was scored last. */
  values() {
    const height = (column) => this.numerators[this.known.get(`column_height_${column}`)];
    const step = (column) => Math.min(Math.max(height(column + 1) - height(column) + 3, 0), 6);
    return this.features.map((name) => {
      const [, column, ...classes] = family(name);
      if (this.known.has(name)) return this.numerators[this.known.get(name)];
      return Number(classes.every((own, further) => step(column + further) === own));
    });
  }
}
