// A race with the agent on the same pieces. A person keeps a piece at most once before it is placed; by the original rule, none.

const SLICE = 7, FLASH = 160; // milliseconds of a frame in which the agent plays; for which full rows are lit
const REASONS = 7, REPEATED = ["left", "right", "lower"], MOVES = { left: [0, -1], right: [0, 1], rotate: [1, 0] };
const find = (selector) => document.querySelector(selector);
const number = (value) => value.toLocaleString("en");
const counted = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;
const randomSeed = () => String(crypto.getRandomValues(new Uint32Array(1))[0]);
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

/** One player's board, and what was played on it. */
class Side {
  constructor(race, root) {
    const { engine, rules } = race;
    Object.assign(this, { race, engine, rules, root, drawn: 0, lines: 0, pieces: 0, games: 0, columns: new Uint32Array(10) });
    this.board = new Uint8Array(rules.width * (rules.height + HEADROOM));
    this.cells = fill(root.querySelector(".board"), this.board.length);
    this.coming = fill(root.querySelector(".next"), 16);
  }

  get next() { return this.engine.piece(this.drawn); }

  /** The row of a piece's bottom after a straight drop. */
  rest({ shape, column }) {
    return Math.max(0, ...shape.cells.map(([x, y]) => 32 - Math.clz32(this.columns[column + x]) - y));
  }

  /** Places a piece; whether the game is over. */
  land({ shape, column }) {
    const { width } = this.rules, { row, full, over } = this.engine.land(this.columns, { shape, column }, this.next);
    if (full.length) {
      const before = this.board.slice();
      eachCell(width, shape, column, row, (index) => { before[index] = shape.piece + 1; });
      this.lit = { before, full, until: performance.now() + FLASH };
    }
    settle(this.board, width, shape, column, row, full);
    Object.assign(this, { lines: this.lines + full.length, pieces: this.pieces + 1, games: this.games + over });
    return over;
  }

  /** Shows the board with pieces on it, or instead rows as they became full. */
  draw(pieces, lit = null) {
    showBoard(this.cells, lit?.before ?? this.board, this.rules, lit ? [] : pieces, lit?.full ?? []);
    showPiece(this.coming, this.engine.shapes[this.next][0]);
    for (const name of ["lines", "pieces", "games"]) write(this.root.querySelector(`.${name}`), number(this[name]));
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

/** The person. A piece waits above the board, and moves sideways as far as it could have fallen straight down. */
class Person extends Side {
  held = null;
  hints = 0;
  seconds = 0;

  take(piece = null, mayHold = true) {
    if (piece === null) [piece, this.drawn] = [this.next, this.drawn + 1];
    Object.assign(this, { piece, mayHold, hint: null, row: null, waited: 0 }); // waited: seconds since it last fell
    this.put(0, (this.rules.width - this.engine.shapes[piece][0].width) >> 1);
  }

  put(turn, column) {
    const shapes = this.engine.shapes[this.piece], shape = shapes[turn % shapes.length];
    const now = { shape, column: Math.min(Math.max(column, 0), this.rules.width - shape.width) };
    if (this.row === null || this.rest(now) <= this.row) this.now = now;
  }

  move(turn, by) { this.put(this.now.shape.turn + turn, this.now.column + by); }

  get height() { return this.row ?? Math.max(this.rules.height, this.rest(this.now)); }

  lower() {
    this.waited = 0;
    if (this.height <= this.rest(this.now)) this.drop();
    else this.row = this.height - 1;
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
    const over = this.land(this.now);
    if (this.race.speed === 0) this.race.other.step();
    if (over) this.race.end();
    else this.take();
  }

  fall(seconds, pace) {
    this.seconds += seconds;
    this.waited += seconds;
    if (pace && this.waited > pace * 0.85 ** Math.floor(this.lines / 10)) this.lower();
  }

  show(playing) {
    const shown = [["ghost", this.now, this.rest(this.now)], [`piece-${this.piece}`, this.now, this.height]];
    if (this.hint) shown.unshift(["hint", this.hint, this.rest(this.hint)]);
    this.draw(playing ? shown : [], this.lit?.until > performance.now() ? this.lit : null);
    showPiece(this.keeps ??= fill(find(".hold"), 16), this.engine.shapes[this.held]?.[0]);
    find(".reasons").hidden = !this.hint || !playing;
    const room = matchMedia("(min-width: 900px)").matches ? [21, 5] : [15, 0]; // there is none for the values
    if (this.hint) write(find(".reasons pre"), this.engine.reasons(this.columns, this.now, this.next, REASONS, ...room));
  }
}

class Race {
  constructor(engine, parts) {
    const asked = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const { board, rule, pieces, seed, you, agent, by } = { seed: randomSeed(), ...parts.rules, ...asked };
    const [width, height] = board.split("x").map(Number);
    Object.assign(this, { engine, agents: [], phase: "start", rules: { width, height, rule, pieces, seed } });
    this.friend = you ? `${counted(+you, "line")} on these pieces, the agent ${number(+agent)}.` : "";
    if (you) write(find("#challenge"), `A friend cleared ${this.friend} Your turn.`);
    write(find("#rules"), `${board} board, ${rule} rule, pieces ${pieces}, seed ${seed}`);
    document.body.style = `--width: ${width}; --height: ${height}`;
    find("#holds").hidden = rule === "original";
    for (const each of parts.agents) if (!engine.complaint(each, this.rules)) this.add(each);
    this.choose(Math.max(0, this.agents.findIndex(({ name }) => name === by)));
    this.listen((target, event, act) => target.addEventListener(event, act));
    find("#start").showModal();
    requestAnimationFrame((now) => this.frame(now, now));
  }

  add(agent) { find("#agent").append(new Option(agent.name, this.agents.push(agent) - 1)); }

  /** Begins again, with another controller. */
  choose(index) {
    this.agent = this.agents[index];
    find("#agent").value = index;
    write(find(".rival h2"), this.agent.name);
    this.restart();
  }

  restart() {
    this.engine.prepare(this.rules, this.agent);
    [this.you, this.other] = [new Person(this, find(".you")), new Agent(this, find(".rival"))];
    this.you.take();
  }

  /** Plays the same pieces, or new ones where a dialog was left with that. */
  play(dialog) {
    if (dialog.returnValue === "new") [this.rules.seed, this.friend] = [randomSeed(), ""];
    dialog.returnValue = "";
    this.restart();
    this.phase = "play";
  }

  get score() { return `you ${number(this.you.lines)}, agent ${number(this.other.lines)}`; }

  end() {
    this.phase = "end";
    const { you, other, agent, rules: { width, height, ...rules } } = this;
    const shared = { ...rules, board: `${width}x${height}`, you: you.lines, agent: other.lines, by: agent.name };
    history.replaceState(null, "", `#${new URLSearchParams(shared)}`);
    const games = other.games ? `and lost ${counted(other.games, "game")}` : "and still stands";
    write(find("#verdict"), you.lines > other.lines ? "You won." : you.lines < other.lines ? "The agent won." : "A draw.");
    write(find("#result"), this.score);
    write(find("#story"), `You placed ${counted(you.pieces, "piece")} in ${you.seconds.toFixed(0)} s with ${counted(you.hints, "hint")}; `
      + `${agent.name} placed ${number(other.pieces)} ${games}.${this.friend && ` Your friend cleared ${this.friend}`}`);
    write(find("#share"), "Copy the link");
    find("#link").value = location.href;
    find("#local").hidden = location.protocol !== "file:";
    find("#end").showModal();
  }

  async read(file) {
    const agent = await file.text().then(JSON.parse).catch(() => ({})), wrong = this.engine.complaint(agent, this.rules);
    for (const place of document.querySelectorAll(".wrong")) write(place, wrong);
    if (wrong) return;
    this.add({ ...agent, name: agent.name || file.name });
    this.choose(this.agents.length - 1);
  }

  frame(now, last) {
    const seconds = Math.min(now - last, 250) / 1000, { you, other, phase } = this;
    this.speed = phase === "start" ? 5 : Number(find("#speed").value);
    if (phase === "play") you.fall(seconds, Number(find("#pace").value));
    if (this.phase === phase && ["play", "start"].includes(phase)) other.advance(seconds, this.speed);
    you.show(["play", "pause"].includes(this.phase));
    other.show(this.speed);
    write(find("#score"), phase === "start" ? "Tetris against the agent" : this.score);
    find(".you").classList.toggle("paused", phase === "pause");
    requestAnimationFrame((next) => this.frame(next, now));
  }

  act(name) {
    if (this.phase === "pause" || (this.phase === "play" && name === "pause")) this.phase = this.phase === "pause" ? "play" : "pause";
    else if (this.phase === "play") name in MOVES ? this.you.move(...MOVES[name]) : this.you[name]();
  }

  listen(on) {
    const buttons = [...document.querySelectorAll("[data-act]")];
    on(document, "keydown", (event) => {
      const name = buttons.find(({ dataset }) => dataset.keys.split(",").includes(event.key.toLowerCase()))?.dataset.act;
      if (!name || !["play", "pause"].includes(this.phase) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      if (!event.repeat || REPEATED.includes(name)) this.act(name);
    });
    for (const button of buttons) {
      const press = (wait) => {
        this.act(button.dataset.act);
        if (REPEATED.includes(button.dataset.act)) button.timer = setTimeout(press, wait, 70);
      };
      on(button, "pointerdown", () => press(240));
      for (const end of ["pointerup", "pointerleave", "pointercancel"]) on(button, end, () => clearTimeout(button.timer));
    }
    for (const dialog of document.querySelectorAll("dialog")) on(dialog, "close", () => this.play(dialog));
    on(find("#share"), "click", () => {
      const text = `Tetris, ${this.score} on the same pieces. Yours: ${location.href}`;
      Promise.resolve().then(() => navigator.clipboard.writeText(text)) // a page from http has no clipboard
        .then(() => write(find("#share"), "Copied"), () => find("#link").select());
    });
    on(find("#agent"), "change", ({ target }) => this.choose(target.value));
    on(find("#file"), "change", ({ target }) => this.read(target.files[0]));
    on(document, "change", ({ target }) => target.blur()); // the keys are the game's again
    for (const kind of ["dragover", "drop"]) on(document, kind, (event) => event.preventDefault());
    on(document, "drop", ({ dataTransfer }) => this.read(dataTransfer.files[0] ?? new Blob()));
    on(document, "visibilitychange", () => { if (this.phase === "play" && document.hidden) this.phase = "pause"; });
    on(window, "hashchange", () => location.reload());
    this.swipe(find(".you .board"), on);
  }

  /** On the board a finger moves the piece; a tap turns it, a flick down drops it, one up keeps it. */
  swipe(board, on) {
    let from = null;
    on(board, "pointerdown", ({ pointerId, clientX, clientY }) => {
      board.setPointerCapture(pointerId);
      from = { clientX, clientY, column: this.you.now.column, moved: false };
    });
    on(board, "pointermove", ({ clientX }) => {
      const by = from && Math.round((clientX - from.clientX) / (board.clientWidth / this.rules.width));
      if (by) from.moved = true;
      if (from?.moved && this.phase === "play") this.you.put(this.you.now.shape.turn, from.column + by);
    });
    on(board, "pointerup", ({ clientY }) => {
      const down = clientY - from?.clientY;
      if (from && !from.moved) this.act(Math.abs(down) < 40 ? "rotate" : down > 0 ? "drop" : "hold");
      from = null;
    });
  }
}

const parts = JSON.parse(find("#parts").textContent);
unpack(parts.wasm).then((wasm) => WebAssembly.instantiate(wasm)).then(({ instance }) => {
  globalThis.race = new Race(new Engine(parts, instance), parts); // for the console, and for tests
}).catch((error) => write(find("#score"), `The game does not start: ${error.message}`));
