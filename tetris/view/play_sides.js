// The two sides of a race: the person, who moves pieces by keys, and the agent, which places them by its weights. The person's
// pieces turn by the Super Rotation System (SRS, harddrop.com/wiki/SRS), whose tables are written as offsets of a state: a turn
// from one state to another tries the differences of their offsets, the first one that fits.

const SLICE = 7, FLASH = 160; // milliseconds of a frame in which the agent plays; for which full rows are lit
const TONE = 160; // hertz, as a piece lands; an octave higher with each line
const REASONS = 7; // features that a hint names
const POINTS = [0, 100, 300, 500, 800]; // of the Tetris guideline, by lines at once, times the level
const LINES_PER_LEVEL = 10, FASTER = 0.85; // share of the time between falls that is left on the next level
const LEAST_WAIT = 0.001; // seconds between falls on the highest levels
const LOCK_DELAY = 0.5, MOST_DELAYS = 15; // seconds that a piece may lie; moves that begin them again

// All by piece, in the order of LETTERS. A state counts right turns from the one in which a piece appears, flat side down.
const FIRST_TURNS = [1, 0, 1, 1, 1, 0, 2]; // the engine's number of that shape; its next one is turned left
const IN_SQUARE = [[0, 1], [1, 0], [0, 0], [0, 0]]; // where a shape lies in the square that turns: column and row, by state
const CORNERS = [[[0, 2], [2, 0], [0, 1], [1, 0]], [[0, 0], [0, 0], [0, 0], [0, 0]], ...Array(5).fill(IN_SQUARE)];
const STILL = Array(5).fill([0, 0]);
const RIGHT = [[0, 0], [1, 0], [1, -1], [0, 2], [1, 2]], LEFT = RIGHT.map(([x, y]) => [-x, y]);
const OF_I = [STILL, [[0, 0], [2, 0], [-1, 0], [2, 1], [-1, -2]], [[0, 0], [3, 0], [-3, 0], [3, -1], [-3, -1]],
  [[0, 0], [1, 0], [-2, 0], [1, -2], [-2, 1]]];
const OFFSETS = [OF_I, Array(4).fill(STILL), ...Array(5).fill([STILL, RIGHT, STILL, LEFT])];

/** Plays a short, soft tone of a frequency in hertz. */
function playTone(frequency) {
  const audio = playTone.audio ??= new AudioContext(), tone = new OscillatorNode(audio, { frequency, type: "triangle" });
  tone.connect(new GainNode(audio, { gain: 0.1 })).connect(audio.destination);
  tone.start();
  tone.stop(audio.currentTime + 0.08);
}

/** The shape in which a piece appears; undefined for no piece. */
const firstShape = (engine, piece) => engine.shapes[piece]?.[FIRST_TURNS[piece]];

/** One player's board, and what was played on it. */
class Side {
  constructor(race, root) {
    const { engine, rules } = race;
    Object.assign(this, { race, engine, rules, root, drawn: 0, lines: 0, pieces: 0, games: 0, points: 0 });
    this.columns = new Uint32Array(10);
    this.board = new Uint8Array(rules.width * (rules.height + HEADROOM));
    this.cells = fill(root.querySelector(".board"), this.board.length);
    this.coming = [...root.querySelectorAll(".next")].map((element) => fill(element, 16));
  }

  get next() { return this.engine.piece(this.drawn); }

  get level() { return 1 + Math.floor(this.lines / LINES_PER_LEVEL); }

  /** The row of a piece's bottom after a straight drop. */
  rest({ shape, column }) {
    return Math.max(0, ...shape.cells.map(([x, y]) => 32 - Math.clz32(this.columns[column + x]) - y));
  }

  /** Places a piece, after a straight drop if it has no row; whether the game is over. */
  land(placement) {
    const { width } = this.rules, { shape, column } = placement;
    const isTuck = placement.row < this.rest(placement);
    const { row, full, over } = isTuck ? rest(this.columns, this.rules, placement, placement.row)
      : this.engine.land(this.columns, placement, this.next);
    if (full.length) {
      const before = this.board.slice();
      eachCell(width, shape, column, row, (index) => { before[index] = shape.piece + 1; });
      this.lit = { before, full, until: performance.now() + FLASH };
    }
    settle(this.board, width, shape, column, row, full);
    this.points += POINTS[full.length] * this.level;
    this.lines += full.length;
    this.pieces += 1;
    this.games += over;
    return over;
  }

  /** Shows the board with pieces on it, or instead rows as they became full. */
  draw(pieces, lit = null) {
    showBoard(this.cells, lit?.before ?? this.board, this.rules, lit ? [] : pieces, lit?.full ?? []);
    this.coming.forEach((cells, ahead) => showPiece(cells, firstShape(this.engine, this.engine.piece(this.drawn + ahead))));
    for (const name of ["lines", "pieces", "games", "points", "level"]) {
      for (const place of this.root.querySelectorAll(`.${name}`)) write(place, number(this[name]));
    }
  }
}

/** The controller: it plays so many pieces a second, or one whenever the person does. */
class Agent extends Side {
  progress = 0; // of the piece on its way: 0 as it comes, 1 when the next one comes

  plan() {
    const piece = this.next;
    this.drawn += 1;
    this.now = this.engine.choose(this.columns, piece, this.next);
  }

  step() {
    if (!this.now) this.plan();
    if (this.land(this.now)) this.board.fill(0);
    this.now = null;
  }

  advance(seconds, speed) {
    const due = performance.now() + SLICE;
    for (this.progress += seconds * speed; this.progress >= 1 && performance.now() < due; this.progress -= 1) this.step();
    this.progress = Math.min(this.progress, 1);
    if (speed && !this.now) this.plan();
  }

  show(speed) {
    if (!this.now || !speed) return this.draw([]);
    const row = this.rest(this.now), above = Math.max(0, this.rules.height - row);
    const up = speed <= FASTEST_FALL ? above * Math.max(0, 1 - this.progress / FALL) : 0;
    return this.draw([[`piece-${this.now.shape.piece}`, this.now, row + Math.round(up)]]);
  }
}

/**
 * The person. A piece appears above the board, and moves where it could have fallen straight down, as the agent's pieces do; with
 * `slides` wherever its cells are empty, and then it may lie for the lock delay. It is kept at most once before it is placed.
 */
class Person extends Side {
  held = null;
  hints = 0;
  seconds = 0;

  constructor(race, root, slides) {
    super(race, root);
    this.slides = slides;
  }

  take(piece = null, mayHold = true) {
    if (piece === null) [piece, this.drawn] = [this.next, this.drawn + 1];
    const shape = firstShape(this.engine, piece);
    const column = (this.rules.width - shape.width) >> 1;
    this.now = { shape, column, row: this.rules.height, state: 0 };
    Object.assign(this, { piece, mayHold, hint: null, waited: 0, lain: 0, delays: 0 }); // seconds without a fall, on the stack
  }

  /** Whether a piece may be somewhere: {shape, column, row}. */
  fits({ shape, column, row }) {
    if (column < 0 || column + shape.width > this.rules.width || row < 0) return false;
    if (!this.slides) return row >= this.rest({ shape, column });
    return shape.cells.every(([x, y]) => !(this.columns[column + x] >> row + y & 1));
  }

  /** Changes where the piece is, if it may be there; whether it was moved. */
  put(change) {
    const to = { ...this.now, ...change };
    if (!this.fits(to)) return false;
    if (this.lain && this.delays < MOST_DELAYS) [this.lain, this.delays] = [0, this.delays + 1];
    this.now = to;
    return true;
  }

  left() { return this.put({ column: this.now.column - 1 }); }

  right() { return this.put({ column: this.now.column + 1 }); }

  moveTo(column) {
    while (column < this.now.column && this.left());
    while (column > this.now.column && this.right());
  }

  rotate() { this.turn(1); }

  back() { this.turn(3); }

  /** Makes a number of right turns: puts the piece at the first place of SRS where it fits, if there is one. */
  turn(rights) {
    const { piece, now } = this, state = (now.state + rights) % 4, shapes = this.engine.shapes[piece];
    const shape = shapes[(FIRST_TURNS[piece] + 4 - state) % shapes.length]; // the engine's next shape is turned left
    const [from, to] = [CORNERS[piece][now.state], CORNERS[piece][state]];
    OFFSETS[piece][now.state].some(([x, y], test) => {
      const [toX, toY] = OFFSETS[piece][state][test];
      return this.put({ shape, state, column: now.column + to[0] - from[0] + x - toX, row: now.row + to[1] - from[1] + y - toY });
    });
  }

  /** The piece where it would come to rest. */
  get ghost() {
    let { row } = this.now;
    while (this.fits({ ...this.now, row: row - 1 })) row -= 1;
    return { ...this.now, row };
  }

  lower() {
    this.waited = 0;
    if (!this.put({ row: this.now.row - 1 }) && !this.slides) this.drop();
  }

  hold() {
    if (!this.mayHold || this.rules.rule === "original") return;
    const { held } = this;
    this.held = this.piece;
    this.take(held, false);
  }

  ask() {
    this.hints += this.hint ? 0 : 1;
    this.hint = this.hint ? null : this.engine.choose(this.columns, this.piece, this.next);
  }

  drop() {
    const { lines } = this, over = this.land(this.ghost);
    if (this.race.setting("sounds")) playTone(TONE * 2 ** (this.lines - lines));
    if (this.race.speed === 0) this.race.other.step();
    if (over) this.race.end();
    else this.take();
  }

  fall(seconds, pace) {
    this.seconds += seconds;
    if (!pace) return;
    const lies = this.slides && this.ghost.row === this.now.row;
    if (lies) this.lain += seconds;
    else this.waited += seconds;
    if (this.lain > LOCK_DELAY) return this.drop();
    const wait = Math.max(LEAST_WAIT, pace * FASTER ** (this.level - 1)), { pieces } = this;
    // What is left of the time counts for the next row: a piece falls as fast on every screen, several rows in a frame if need be.
    for (let { waited } = this; waited > wait && this.pieces === pieces; waited -= wait) {
      this.lower();
      this.waited = waited - wait;
    }
  }

  show(playing) {
    const { ghost, now } = this, shown = [["ghost", ghost, ghost.row], [`piece-${this.piece}`, now, now.row]];
    if (this.hint) shown.unshift(["hint", this.hint, this.rest(this.hint)]);
    this.draw(playing ? shown : [], this.lit?.until > performance.now() ? this.lit : null);
    showPiece(this.keeps ??= fill(find(".hold"), 16), firstShape(this.engine, this.held));
    find(".reasons").hidden = !this.hint || !playing;
    const room = matchMedia("(min-width: 900px)").matches ? [21, 5] : [15, 0]; // there is none for the values
    if (!this.hint) return;
    const isTuck = ghost.row < this.rest(ghost);
    write(find(".reasons pre"), isTuck ? "none: its pieces\nfall straight" : this.engine.reasons(this.columns, now, this.next, REASONS, ...room));
  }
}
