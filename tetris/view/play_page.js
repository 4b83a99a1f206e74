// A race with the agent on the same pieces. A person keeps a piece at most once before it is placed; by the original rule, none.

const SOFT_DROP = 40; // milliseconds between the rows of a piece that is lowered
const TAP = 40, STRAIGHT = 1.5; // pixels of a finger that taps; a flick is so much longer than wide
const find = (selector) => document.querySelector(selector);
const number = (value) => value.toLocaleString("en");
const counted = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;
const randomSeed = () => String(crypto.getRandomValues(new Uint32Array(1))[0]);

/** Opens a dialog with the focus on one of its elements. The attribute autofocus would take the focus from a page around this one. */
function showDialog(dialog, element) {
  find(dialog).showModal();
  find(element).focus();
}

// What a link may say after its #.
const LINK = {
  __proto__: null, // else it has toString
  board: /^([4-9]|10)x([4-9]|1\d|2[0-4])$/, rule: /^(published|clear-on-overflow|original)$/,
  pieces: { test: canonicalPieces }, seed: { test: (text) => /^\d{1,20}$/.test(text) && BigInt(text) < 2n ** 64n },
  you: /^\d{1,15}$/, agent: /^\d{1,15}$/, by: /./,
};

/** The pieces of a link as `_canonical_pieces` in tetris/game/rules.py; empty if they are not valid. */
function canonicalPieces(text) {
  if (/^(uniform|bag)$/i.test(text)) return text.toLowerCase();
  const letters = [...LETTERS].filter((letter) => text.toUpperCase().includes(letter)).join("");
  if (letters.length < text.length) return ""; // an unknown letter, or one that is there twice
  return letters === LETTERS ? "uniform" : letters;
}

/** The values of the page's link, and what is wrong with it, or nothing. */
function readLink() {
  const link = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const name = Object.keys(link).find((key) => !LINK[key]?.test(link[key]));
  if (name) return [{}, `The link cannot be read (${name}=${link[name]}): here are other pieces.`];
  if (link.pieces) link.pieces = canonicalPieces(link.pieces);
  return [link, ""];
}

class Race {
  /** The second engine is that of a player that learns on the page. */
  constructor(engine, learner, parts) {
    const [link, wrong] = readLink();
    const { board, rule, pieces, seed, you, agent, by } = { seed: randomSeed(), ...parts.rules, ...link };
    const [width, height] = board.split("x").map(Number);
    Object.assign(this, { engine, learner, agents: [], phase: "start", demonstration: 5, held: new Map(), rules: { width, height, rule, pieces, seed } });
    this.friend = you && agent ? `${counted(+you, "line")} on these pieces, the agent ${number(+agent)}.` : "";
    if (this.friend) write(find("#challenge"), `A friend cleared ${this.friend} Your turn.`);
    this.say(wrong);
    document.body.style = `--width: ${width}; --height: ${height}`;
    find("#holds").hidden = rule === "original";
    if (!["uniform", "bag"].includes(pieces)) find("#pieces").append(new Option(`${pieces} only`, pieces));
    this.recall();
    find("#pieces").value = pieces;
    for (const each of parts.agents) if (!engine.complaint(each, this.rules)) this.add(each);
    const index = this.agents.findIndex(({ name }) => name === by);
    if (by && index < 0) this.say(`This page does not know the agent ${by}.`);
    this.choose(Math.max(0, index));
    this.listen((target, event, act) => target.addEventListener(event, act));
    // In a frame the keys are those of the page around it until somebody clicks here.
    if (window.parent === window) showDialog("#start", "#play");
    else find("#open").hidden = false;
    find("#home").hidden = window.parent !== window || !location.protocol.startsWith("http");
    requestAnimationFrame((now) => this.frame(now, now));
  }

  say(wrong) {
    for (const place of document.querySelectorAll(".wrong")) write(place, wrong);
  }

  add(agent) { find("#agent").append(new Option(agent.name, this.agents.push(agent) - 1)); }

  /** Begins again, with another controller. */
  choose(index) {
    this.agent = this.agents[index];
    find("#agent").value = index;
    write(find(".rival h2"), this.agent.name);
    if (this.phase !== "end") this.restart(); // the result stays until its dialog is left
  }

  /** Learns a controller, which plays on the agent's board meanwhile, until the person begins. */
  async train() {
    find("#train").disabled = true;
    this.demonstration = 100;
    const learned = { name: "learned here" };
    let shown = this.agent; // until the person chooses another
    for await (const { generation, weights, best, median } of learn(this.learner, this.rules)) {
      if (this.phase !== "start") return;
      Object.assign(learned, { features: LEARNED_FEATURES, weights });
      if (generation === 1) this.add(learned);
      if (this.agent === shown) {
        this.choose(this.agents.indexOf(learned));
        shown = learned;
      }
      write(find("#learning"), `Generation ${generation} of ${GENERATIONS}: with ${number(MOST_PIECES)} pieces on a low board the best ` +
        `of ${POPULATION} players cleared ${counted(best, "line")}, half of them no more than ${number(median)}.`);
    }
    find("#train").disabled = false;
  }

  setting(name) { return Number(find(`#${name}`).value); }

  /** Keeps a setting for the next visit, where the browser lets the page. */
  keep({ id, value }) {
    try { localStorage.setItem(id, value); } catch { /* in some frames, and where cookies are blocked */ }
  }

  /** Takes the settings of the last visit. */
  recall() {
    try {
      for (const element of document.querySelectorAll("[data-kept]")) {
        const { value } = element;
        element.value = localStorage.getItem(element.id);
        element.value ||= value; // it is empty where nothing was kept, or what the element cannot be
      }
    } catch { /* as in keep */ }
  }

  restart() {
    this.rules.pieces = find("#pieces").value;
    this.engine.prepare(this.rules, this.agent);
    const { width, height, rule, pieces, seed } = this.rules;
    write(find("#rules"), `${width}x${height} board, ${rule} rule, pieces ${pieces}, seed ${seed}`);
    const previews = this.setting("previews");
    document.querySelectorAll(".you .next").forEach((element, ahead) => { element.hidden = ahead >= previews; });
    this.you = new Person(this, find(".you"), find("#moves").value === "slide");
    this.other = new Agent(this, find(".rival"));
    this.you.take();
  }

  /** Plays the same pieces, or new ones where a dialog was left with that. */
  play(dialog) {
    if (dialog.returnValue === "new") [this.rules.seed, this.friend] = [randomSeed(), ""];
    dialog.returnValue = "";
    find("#open").hidden = true;
    this.held.clear();
    this.restart();
    this.phase = "play";
  }

  get score() { return `you ${number(this.you.lines)}, agent ${number(this.other.lines)}`; }

  end() {
    this.phase = "end";
    const { you, other, agent, rules: { width, height, ...rules } } = this;
    const shared = { ...rules, board: `${width}x${height}`, you: you.lines, agent: other.lines, by: agent.name };
    const link = new URL(location); // inside a notebook the base of relative addresses is the notebook's
    link.hash = new URLSearchParams(shared);
    history.replaceState(null, "", link);
    const games = other.games ? `and lost ${counted(other.games, "game")}` : "and still stands";
    const verdict = you.lines > other.lines ? "You won." : you.lines < other.lines ? "The agent won." : "A draw.";
    const facts = [
      `You placed ${counted(you.pieces, "piece")} in ${you.seconds.toFixed(0)} s with ${counted(you.hints, "hint")}.`,
      `${counted(you.points, "point")} on level ${you.level}.`,
      `${agent.name} placed ${number(other.pieces)} ${games}.`,
      this.friend && `Your friend cleared ${this.friend}`,
    ];
    const isFile = !location.protocol.startsWith("http");
    write(find("#verdict"), verdict);
    write(find("#result"), this.score);
    write(find("#story"), facts.join(" "));
    write(find("#share"), "Copy the link");
    find("#link").value = location.href;
    find("#local").hidden = !isFile;
    drawCard(find("#card"), this, [verdict, ...facts], isFile ? location.hash : location.href);
    showDialog("#end", "#verdict");
  }

  async read(file) {
    const agent = await file.text().then(JSON.parse).catch(() => ({})), wrong = this.engine.complaint(agent, this.rules);
    this.say(wrong);
    if (wrong) return;
    this.add({ ...agent, name: agent.name || file.name });
    this.choose(this.agents.length - 1);
  }

  frame(now, last) {
    const seconds = Math.min(now - last, 250) / 1000, { you, other, phase } = this;
    this.speed = phase === "start" ? this.demonstration : this.setting("speed");
    if (phase === "play") this.repeat(now);
    if (this.phase === "play") you.fall(seconds, this.setting("pace"));
    if (this.phase === phase && ["play", "start"].includes(phase)) other.advance(seconds, this.speed);
    you.show(["play", "pause"].includes(this.phase));
    other.show(this.speed);
    write(find("#score"), phase === "start" ? "Tetris against the agent" : this.score);
    find(".you").classList.toggle("paused", phase === "pause");
    requestAnimationFrame((next) => this.frame(next, now));
  }

  act(name) {
    if (this.phase === "pause" || (this.phase === "play" && name === "pause")) this.phase = this.phase === "pause" ? "play" : "pause";
    else if (this.phase === "play" && name === "restart") this.restart();
    else if (this.phase === "play") this.you[name]();
  }

  /** Acts, and again while the key or the button is down: left and right after the delay (DAS) at the rate (ARR) that was set. */
  press(name) {
    this.act(name);
    if (name === "left") this.held.delete("right");
    if (name === "right") this.held.delete("left");
    const wait = { left: this.setting("das"), right: this.setting("das"), lower: SOFT_DROP }[name];
    if (wait !== undefined) this.held.set(name, performance.now() + wait);
  }

  repeat(now) {
    for (const [name, due] of this.held) {
      const rate = name === "lower" ? SOFT_DROP : Math.max(1, this.setting("arr"));
      let next = due;
      for (; next <= now && this.phase === "play"; next += rate) this.act(name);
      this.held.set(name, next);
    }
  }

  listen(on) {
    const buttons = [...document.querySelectorAll("[data-act]")];
    const actOf = ({ key, code }) => {
      const name = key > "~" ? code.slice(3) : key; // a letter of another script: KeyC is where others have the c
      return buttons.find(({ dataset }) => dataset.keys.split(",").includes(name.toLowerCase()))?.dataset.act;
    };
    on(document, "keydown", (event) => {
      const name = actOf(event);
      if (!name || !["play", "pause"].includes(this.phase) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      if (!event.repeat) this.press(name);
    });
    on(document, "keyup", (event) => this.held.delete(actOf(event)));
    for (const button of buttons) {
      on(button, "pointerdown", () => this.press(button.dataset.act));
      for (const end of ["pointerup", "pointerleave", "pointercancel"]) on(button, end, () => this.held.delete(button.dataset.act));
    }
    for (const dialog of document.querySelectorAll("dialog")) on(dialog, "close", () => this.play(dialog));
    on(find("#open"), "click", () => showDialog("#start", "#play"));
    on(find("#train"), "click", () => this.train());
    on(find("#share"), "click", () => {
      const text = `Tetris, ${this.score} on the same pieces. Yours: ${location.href}`;
      Promise.resolve().then(() => navigator.clipboard.writeText(text)) // a page from http has no clipboard
        .then(() => write(find("#share"), "Copied"), () => find("#link").select());
    });
    on(find("#save"), "click", () => {
      const link = Object.assign(document.createElement("a"), { href: find("#card").toDataURL(), download: "tetris.png" });
      link.click();
    });
    on(find("#agent"), "change", ({ target }) => this.choose(target.value));
    on(find("#file"), "change", ({ target }) => {
      this.read(target.files[0]);
      target.value = ""; // or the same file, written again, is no change
    });
    for (const element of document.querySelectorAll("[data-kept]")) on(element, "change", () => this.keep(element));
    on(find("#pieces"), "change", () => this.restart());
    on(find("#speed"), "change", ({ target }) => target.blur()); // the keys are the game's again
    for (const kind of ["dragover", "drop"]) on(document, kind, (event) => event.preventDefault());
    on(document, "drop", ({ dataTransfer }) => this.read(dataTransfer.files[0] ?? new Blob()));
    on(document, "visibilitychange", () => { if (this.phase === "play" && document.hidden) this.phase = "pause"; });
    on(window, "blur", () => this.held.clear());
    on(window, "hashchange", () => location.reload());
    this.swipe(find(".you .board"), on);
  }

  /** On the board a finger moves the piece sideways; a tap turns it, a flick down drops it, one up keeps it. */
  swipe(board, on) {
    const fingers = new Map(); // by pointer: where it was when the piece followed it last
    const isFlick = ({ clientX, clientY }, from) => Math.abs(clientY - from.clientY) > STRAIGHT * Math.abs(clientX - from.clientX);
    on(board, "pointerdown", ({ pointerId, clientX, clientY }) => {
      board.setPointerCapture(pointerId);
      fingers.set(pointerId, { clientX, clientY, moved: false });
    });
    on(board, "pointermove", (event) => {
      const from = fingers.get(event.pointerId), cell = board.clientWidth / this.rules.width;
      if (!from || (!from.moved && isFlick(event, from))) return;
      const by = Math.round((event.clientX - from.clientX) / cell);
      if (!by) return;
      from.moved = true;
      from.clientX += by * cell;
      if (this.phase === "play") this.you.moveTo(this.you.now.column + by);
    });
    on(board, "pointerup", ({ pointerId, clientY }) => {
      const from = fingers.get(pointerId), down = clientY - from?.clientY;
      if (from && !from.moved) this.act(Math.abs(down) < TAP ? "rotate" : down > 0 ? "drop" : "hold");
    });
    for (const end of ["pointerup", "pointercancel"]) on(board, end, ({ pointerId }) => fingers.delete(pointerId));
  }
}

const parts = JSON.parse(find("#parts").textContent);
const load = (wasm) => Promise.all([wasm, wasm].map((bytes) => WebAssembly.instantiate(bytes)));
unpack(parts.wasm).then(load).then((loaded) => {
  const [engine, learner] = loaded.map(({ instance }) => new Engine(parts, instance));
  globalThis.race = new Race(engine, learner, parts); // for the console, and for tests
}).catch((error) => write(find("#score"), `The game does not start: ${error.message}`));
