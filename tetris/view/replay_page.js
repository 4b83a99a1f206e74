// The element tetris-player plays the replay in the JSON inside it, which tetris/view/replay_page.py made and checked.

const SPEEDS = [1, 2, 5, 10, 20, 50, 100, 500, 2000];
const REASONS = 12; // features that are shown
const VERSION = 2; // of replays, as in tetris/record/replay.py
const ICONS = { Play: "M4 2v12l9-6z", Pause: "M3 2h4v12H3zM9 2h4v12H9z" };

/** Whether the text of a replay has its digest, as `_digest` in tetris/record/replay.py: true where the browser cannot tell. */
async function isWhole(text, digest) {
  if (!crypto.subtle || !JSON.rawJSON) return true; // Without rawJSON, `source` is unknown, too.
  const sorted = JSON.parse(text, (key, value, { source }) => {
    if (source !== undefined) return source;
    if (Array.isArray(value)) return `[${value}]`;
    if (!key) delete value.digest;
    return `{${Object.keys(value).sort().map((name) => `"${name}":${value[name]}`)}}`;
  });
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(sorted)));
  return digest === `sha256:${[...hash].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** A stream of games, played by the engine: the board before placement `index`, which can be any, and the counts up to there. */
class Games {
  /** Plays placements by their numbers, or where there are none what the controller chooses for the pieces of `others`. */
  constructor(engine, { width, height, rule, boards = {}, landings = {}, after }, numbers, others) {
    Object.assign(this, { width, size: width * (height + HEADROOM) });
    // The placements of all pieces; the number of a placement is its index.
    const all = engine.parts.shapes.flatMap((shape) =>
      Array.from({ length: width - shape.width + 1 }, (_, column) => ({ shape, column })));
    const shown = numbers ? Array.from(numbers, (number) => all[number]) : others;
    const piece = (t) => shown[t]?.shape.piece ?? after ?? engine.piece(t);
    const columns = new Uint32Array(10); // bit y of a column is row y
    this.placements = shown.map((placed, t) => {
      const board = (numbers || !t) && boards[t]; // its rows, if placement t begins on another board than the last one left
      if (board) columns.forEach((_, c) => { columns[c] = board.reduce((bits, row, y) => bits | (row >> c & 1) << y, 0); });
      const chosen = numbers ? placed : engine.choose(columns, piece(t), piece(t + 1));
      const slid = numbers ? landings[t] : undefined; // the row of a piece that did not fall straight down
      const landed = slid === undefined ? engine.land(columns, chosen, piece(t + 1)) : rest(columns, { width, height, rule }, chosen, slid);
      return { ...chosen, ...landed, board };
    });
    this.restart();
  }

  restart() {
    const cells = new Uint8Array(this.size); // 0 empty, else the piece plus one
    this.state = { index: 0, lines: 0, gameLines: 0, games: 0, cells };
    this.enter();
  }

  /** Puts the stack on the board that the next placement begins with, where it is another one than was left. */
  enter() {
    const { state: { cells }, now: { board } = {}, width } = this;
    if (!board) return;
    const below = board.length - Math.ceil((cells.findLastIndex(Boolean) + 1) / width), before = cells.slice();
    cells.fill(0);
    board.forEach((row, y) => {
      for (let x = 0; x < width; x += 1) if (row >> x & 1) cells[y * width + x] = before[(y - below) * width + x] || UNKNOWN;
    });
  }

  /** Goes to a placement: back by playing again from the start. */
  goTo(index) {
    if (index < this.state.index) this.restart();
    while (this.state.index < index) this.carryOut();
  }

  /** What placement `index` does: where the piece rests, which rows it fills, if it ends the game. */
  get now() { return this.placements[this.state.index]; }

  /** The piece after it; undefined at the end. */
  get next() { return this.placements[this.state.index + 1]?.shape.piece; }

  carryOut() {
    const { state, width, now: { shape, column, row, full, over } } = this;
    settle(state.cells, width, shape, column, row, full);
    state.index += 1;
    state.lines += full.length;
    state.gameLines += full.length;
    state.games += over;
    if (over) Object.assign(state, { cells: new Uint8Array(this.size), gameLines: 0 });
    this.enter();
  }
}

class TetrisPlayer extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return;
    this.replay = JSON.parse(this.querySelector("script").textContent);
    const template = document.getElementById("tetris-player");
    this.attachShadow({ mode: "open" }).append(template.content.cloneNode(true));
    this.tabIndex = 0;
    this.find = (selector) => this.shadowRoot.querySelector(selector);
    this.playing = false;
    this.speed = this.replay.speed;
    this.progress = FALL; // of the piece on its way: 0 as it comes, 1 when the next one comes
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.load().catch((error) => { this.find(".rules").textContent = `The replay cannot be played: ${error.message}`; });
  }

  async load() {
    const parts = JSON.parse(document.getElementById("tetris-engine").textContent);
    const { instance } = await WebAssembly.instantiate(await unpack(parts.wasm));
    this.engine = new Engine(parts, instance);
    this.begin(this.replay, await unpack(this.replay.placements));
  }

  /** Plays a replay, or without numbers of placements what its controller does; see `Games`. */
  begin(replay, numbers) {
    this.engine.parts.lookahead = replay.lookahead;
    this.engine.prepare(replay, replay.controller ?? { features: "holes", weights: [-1] });
    const games = new Games(this.engine, replay, numbers, this.games?.placements);
    Object.assign(this, { replay, games, count: games.placements.length });
    this.drawHeights();
    this.find("h2").textContent = this.replay.title;
    this.find(".rules").textContent = this.replay.subtitle;
    this.find(".position").max = this.count;
    const speeds = [...new Set([...SPEEDS, this.speed])].sort((a, b) => a - b);
    this.find(".speed").replaceChildren(
      ...speeds.map((speed) => new Option(`${speed.toLocaleString()} ${speed === 1 ? "piece" : "pieces"}/s`, speed)),
    );
    this.find(".speed").value = this.speed;
    for (const name of ["width", "height"]) this.style.setProperty(`--${name}`, this.replay[name]);
    this.board = fill(this.find(".board"), this.games.size);
    this.next = fill(this.find(".next"), 4 * 4);
    this.ownPage = "pageKeys" in document.body.dataset && location.protocol !== "about:"; // not one inside a notebook
    this.listens ||= this.listen();
    this.setPlaying(false);
    Object.assign(this.find(".why"), { hidden: !this.replay.controller, open: this.ownPage });
    this.find(".whole").hidden = !document.fullscreenEnabled;
    this.goToLink();
    this.draw();
  }

  /** Draws how high the stack is after each piece, the highest of a stretch, behind the slider. */
  drawHeights() {
    const { games, count, replay: { width, height } } = this, stretches = Math.min(count, 600);
    const highest = new Float64Array(stretches);
    for (let index = 0; index < count; index += 1) {
      const stretch = Math.floor(index * stretches / count);
      const top = Math.ceil((games.state.cells.findLastIndex(Boolean) + 1) / width) / height;
      highest[stretch] = Math.max(highest[stretch], Math.min(top, 1));
      games.carryOut();
    }
    games.restart();
    this.find(".heights").setAttribute("viewBox", `0 0 ${stretches} 1`);
    this.find(".heights path").setAttribute("d", `M0 1${[...highest].map((y, x) => `V${(1 - y).toFixed(3)}H${x + 1}`).join("")}V1z`);
  }

  /** Goes to the piece that the page's address names: #piece=120. */
  goToLink() {
    const piece = this.ownPage && location.hash.match(/^#piece=(\d+)$/)?.[1];
    if (piece) this.games.goTo(Math.min(Math.max(piece - 1, 0), this.count - 1));
  }

  /** Shows a replay, or how a controller plays the pieces of the one that is shown: files of this package. */
  async take(file) {
    const [given, text] = await file.text().then((text) => [JSON.parse(text), text]).catch(() => [{}, ""]);
    const isReplay = given.format === "cem-tetris-replay";
    const { rules, seed, lookahead = "none", controller = null } = isReplay ? given : { controller: given };
    const rule = rules && RULES[rules.original ? 2 : Number(rules.clear_on_overflow)];
    const { boards = {}, landings = {} } = isReplay ? given : this.replay;
    const game = rules && { ...rules, rule, seed: String(seed ?? 0), lookahead, after: undefined };
    const replay = { ...this.replay, ...game, controller, boards, landings };
    const isRefused = isReplay && (given.version !== VERSION || !await isWhole(text, given.digest));
    const complaint = controller && this.engine.complaint(controller, replay);
    const wrong = isRefused ? `Expected a replay of version ${VERSION} that was not edited.` : !isReplay && complaint;
    if (wrong) {
      this.find(".rules").textContent = isReplay ? wrong : `Neither a replay nor a controller for this board: ${wrong}`;
      return;
    }
    if (complaint) replay.controller = null; // the page shows the placements, and cannot explain them
    replay.title = controller?.name ?? file.name.replace(/\.json$/, "");
    replay.subtitle = `${replay.width}x${replay.height} board, ${replay.rule} rule, pieces ${replay.pieces}`;
    this.begin(replay, isReplay ? await unpack(given.placements) : null);
  }

  /** Why the controller put the piece there. */
  reasons(now) {
    const { cells } = this.games.state, { width, height } = this.replay, columns = new Uint32Array(10);
    cells.forEach((cell, at) => { if (cell && at < width * height) columns[at % width] |= 1 << Math.floor(at / width); });
    return this.engine.reasons(columns, now, this.games.next ?? this.replay.after ?? -1, REASONS);
  }

  listen() {
    const on = (selector, event, act) => this.find(selector).addEventListener(event, act);
    const place = this.ownPage ? document : this;
    for (const kind of ["dragover", "drop"]) place.addEventListener(kind, (event) => event.preventDefault());
    place.addEventListener("drop", ({ dataTransfer: { files } }) => { if (files.length) this.take(files[0]); });
    on(".position", "input", (event) => this.seek(Number(event.target.value) - 1));
    on(".speed", "change", (event) => { this.speed = Number(event.target.value); });
    const actions = {
      start: () => this.seek(0),
      back: () => this.seek(this.games.state.index - 1),
      step: () => this.seek(this.games.state.index + 1),
      play: () => this.setPlaying(!this.playing),
      whole: () => (document.fullscreenElement ? document.exitFullscreen() : this.requestFullscreen()),
    };
    on(".why", "toggle", () => this.draw());
    addEventListener("hashchange", () => {
      this.setPlaying(false);
      this.goToLink();
      this.draw();
    });
    for (const [name, act] of Object.entries(actions)) on(`.${name}`, "click", act);
    const keys = {
      " ": actions.play, f: actions.whole, ArrowLeft: actions.back, ArrowRight: actions.step, Home: actions.start,
      End: () => this.seek(this.count - 1), ArrowUp: () => this.changeSpeed(1), ArrowDown: () => this.changeSpeed(-1),
    };
    // A page of its own hears the keys wherever the focus is.
    place.addEventListener("keydown", (event) => {
      // A control that has the focus answers to the keys that are its own.
      const own = event.composedPath()[0].tagName;
      const taken = own === "SELECT" || (own === "BUTTON" && event.key === " ");
      if (!(event.key in keys) || taken || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    return true;
  }

  seek(index) {
    this.setPlaying(false);
    this.games.goTo(Math.min(Math.max(index, 0), this.count - 1));
    this.progress = FALL;
    this.draw();
    if (!this.ownPage) return;
    clearTimeout(this.linking); // browsers take few addresses a second
    this.linking = setTimeout(() => history.replaceState(null, "", `#piece=${this.games.state.index + 1}`), 200);
  }

  changeSpeed(by) {
    const select = this.find(".speed");
    select.selectedIndex = Math.min(Math.max(select.selectedIndex + by, 0), select.options.length - 1);
    this.speed = Number(select.value);
  }

  setPlaying(playing) {
    if (playing && this.games.state.index === this.count - 1) this.games.goTo(0);
    this.playing = playing;
    const name = playing ? "Pause" : "Play";
    Object.assign(this.find(".play"), { title: name, ariaLabel: name });
    this.find(".play path").setAttribute("d", ICONS[name]);
    cancelAnimationFrame(this.request);
    this.last = undefined;
    if (playing) this.request = requestAnimationFrame((now) => this.advance(now));
  }

  advance(now) {
    this.progress += (Math.min(now - (this.last ?? now), 250) / 1000) * this.speed;
    this.last = now;
    const { index } = this.games.state;
    const target = Math.min(index + Math.floor(this.progress), this.count - 1);
    this.games.goTo(target);
    this.progress -= Math.floor(this.progress);
    if (target === this.count - 1) this.seek(target);
    else this.request = requestAnimationFrame((next) => this.advance(next));
    this.draw();
  }

  draw() {
    const { games, games: { now }, replay: { height } } = this;
    const falls = !this.still.matches && this.speed <= FASTEST_FALL && this.progress < FALL;
    const down = falls && now.row < height ? this.progress / FALL : 1;
    const row = Math.round(height + (now.row - height) * down);
    const pieces = [[`piece-${now.shape.piece}`, now, row]];
    showBoard(this.board, games.state.cells, this.replay, pieces, down === 1 ? now.full : []);
    this.showCounts(now);
    if (!this.find(".why").open || this.explained === now) return;
    this.explained = now; // the reasons of a placement are worked out once, not in every frame
    write(this.find(".why pre"), this.reasons(now));
  }

  showCounts(now) {
    const { state, next } = this.games;
    const counts = {
      lines: state.lines + now.full.length,
      game: state.gameLines + now.full.length,
      pieces: state.index + 1,
      games: state.games + now.over,
    };
    for (const [name, count] of Object.entries(counts)) {
      write(this.find(`.${name}`), count.toLocaleString());
    }
    this.find(".position").value = state.index + 1;
    showPiece(this.next, this.engine.shapes[next]?.[0]);
  }
}

// A page may hold the program several times: the first one defines the element.
if (!customElements.get("tetris-player")) customElements.define("tetris-player", TetrisPlayer);
