// A line chart as SVG: linear or logarithmic, with bands, boundaries, and a cursor for pointer, touch and keyboard.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "14 4", "6 2 1 2 1 2"];
const COLORS = 6;
const LEAST_DRAG = 12; // pixels; a shorter one is a tap
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Returns an SVG element with attributes, and children if they are given. */
function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** How the series of a number is drawn: no two alike in grey, for the dashes change before they repeat. */
function look(number) {
  const dash = DASHES[(number + Math.floor(number / COLORS)) % DASHES.length];
  return { stroke: `var(--series-${number % COLORS})`, "stroke-dasharray": dash };
}

/** Multiples of 1, 2 or 5 times a power of ten between two values, about so many; no step below `least`. */
function linearTicks(low, high, most, least) {
  const rough = Math.max((high - low) / most, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(n * step || 0);
  return ticks;
}

function linear(low, high, most, least = 1e-12) {
  const ends = low < high ? [low, high] : [low - 0.5, low + 0.5];
  return { at: (value) => (value - ends[0]) / (ends[1] - ends[0]), ticks: linearTicks(...ends, most, least) };
}

/** Decades; below `least` it is linear, so that zero has a place. */
function logarithmic(low, high, least, most) {
  if (high <= least) return linear(0, high || 1, most);
  const place = (value) => (value <= least ? value / least : 1 + Math.log10(value / least));
  const [bottom, top] = [place(low), place(Math.max(high, low * 1.01, least))];
  const ticks = low < least ? [0] : [];
  const decades = Math.log10(high / Math.max(low, least));
  const factors = decades < 1.5 ? [1, 2, 5] : [1];
  const every = Math.ceil(decades / 7);
  const first = Math.round(Math.log10(least));
  for (let power = first; 10 ** power <= high; power++) {
    if ((power - first) % every === 0) ticks.push(...factors.map((factor) => factor * 10 ** power));
  }
  return {
    at: (value) => (place(value) - bottom) / (top - bottom),
    ticks: ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001),
  };
}

function extent(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

/** The pieces of a curve between values that are missing, as lists of places. */
function pieces(values) {
  const found = [[]];
  values.forEach((value, place) => {
    if (value === null || value === undefined) found.push([]);
    else found.at(-1).push(place);
  });
  return found.filter((piece) => piece.length);
}

/**
 * Draws a chart into an element, again whenever its width changes.
 *
 * spec: { name, xTitle, yTitle, whole, log, zero, ends, height, small, stages: [{ at, board }], tell(x), range,
 *   zoom(range), series: [{ x, y, low, high, style }] }; whole says that x counts something; low and high are the
 *   edges of a band, or missing; log is the value below which a logarithmic scale is linear; ends are those of the
 *   y-axis where they are given; range is the part of the x-axis to show, null for all; zoom is called with another.
 */
class Chart {
  constructor(host, spec) {
    this.host = host;
    this.told = Object.assign(document.createElement("output"), { className: "told", ariaLive: "off" });
    host.after(this.told);
    Object.assign(host, { className: "plot", tabIndex: 0, role: "slider", ariaLabel: spec.name });
    this.set(spec);
    new ResizeObserver(() => this.draw()).observe(host);
    this.listen();
  }

  set(spec) {
    const [from, to] = spec.range ?? [-Infinity, Infinity];
    const shown = (x) => x >= from && x <= to;
    const cut = (series) => Object.fromEntries(Object.entries(series).map(([key, values]) =>
      [key, Array.isArray(values) ? values.filter((_, place) => shown(series.x[place])) : values]));
    this.spec = { ...spec, series: spec.series.map(cut) };
    this.places = [...new Set(this.spec.series.flatMap((series) => series.x))].sort((a, b) => a - b);
    this.cursor = this.places.length - 1;
    this.draw();
    this.moveTo(this.places.length - 1);
  }

  /** The value of the x-axis under a pointer. */
  under(event) {
    const share = (event.clientX - this.host.getBoundingClientRect().left - this.left) / (this.right - this.left);
    const [first, last] = [this.places[0], this.places.at(-1)];
    return first + Math.min(Math.max(share, 0), 1) * (last - first);
  }

  moveToward(x) {
    const distance = (place) => Math.abs(this.places[place] - x);
    let nearest = 0;
    for (let place = 1; place < this.places.length; place++) {
      if (distance(place) < distance(nearest)) nearest = place;
    }
    this.moveTo(nearest);
  }

  /** Zooms to what lies between two values, if that is two places at least. */
  zoom(range) {
    if (this.places.filter((place) => place >= range[0] && place <= range[1]).length > 1) this.spec.zoom(range);
  }

  listen() {
    let begun = null; // where a drag began
    this.host.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      begun = event;
      this.moveToward(this.under(event));
    });
    this.host.addEventListener("pointermove", (event) => {
      this.moveToward(this.under(event));
      if (!begun) return;
      this.host.setPointerCapture(event.pointerId);
      const [from, to] = [begun, event].map((each) => this.toX(this.under(each)));
      this.drag.setAttribute("d", `M${from} ${this.ends[0]}H${to}V${this.ends[1]}H${from}Z`);
    });
    this.host.addEventListener("pointerup", (event) => {
      const from = begun;
      begun = null;
      this.drag.removeAttribute("d");
      if (!from || Math.abs(event.clientX - from.clientX) < LEAST_DRAG) return;
      this.zoom([from, event].map((each) => this.under(each)).sort((a, b) => a - b));
    });
    this.host.addEventListener("pointercancel", () => { // the finger scrolls the page
      begun = null;
      this.drag.removeAttribute("d");
    });
    this.host.addEventListener("dblclick", () => { if (this.spec.range) this.spec.zoom(null); });
    this.host.addEventListener("keydown", (event) => {
      const last = this.places.length - 1;
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
      const ends = { Home: 0, End: last };
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === "+") {
        const [at, quarter] = [this.places[this.cursor], (this.places.at(-1) - this.places[0]) / 4];
        this.zoom([at - quarter, at + quarter]);
      } else if (event.key === "-") this.spec.zoom(null);
      else if (event.key in steps) this.moveTo(Math.min(Math.max(this.cursor + steps[event.key], 0), last));
      else if (event.key in ends) this.moveTo(ends[event.key]);
      else return;
      event.preventDefault();
    });
  }

  moveTo(place) {
    this.cursor = place;
    const text = this.spec.tell(this.places[place]);
    this.told.textContent = text;
    const values = { ariaValueMin: 0, ariaValueMax: this.places.length - 1, ariaValueNow: place };
    Object.assign(this.host, values, { ariaValueText: text });
    this.drawCursor();
  }

  draw() {
    const { spec, host } = this;
    const width = host.clientWidth;
    if (!width) return;
    const height = spec.height ?? Math.round(Math.min(Math.max(width * 0.5, 250), 380));
    const y = this.scaleY(height);
    const labels = y.ticks.map((tick) => compact.format(tick));
    this.left = 10 + 7 * Math.max(...labels.map((label) => label.length), 1);
    this.right = width - 10;
    const top = !spec.small && spec.stages?.length ? 40 : 26;
    const bottom = height - 42;
    const [first, last] = [this.places[0], this.places.at(-1)];
    const x = linear(first, last, Math.max(2, Math.floor((this.right - this.left) / 75)), spec.whole ? 1 : undefined);
    this.toX = (value) => this.left + x.at(value) * (this.right - this.left);
    const toY = (value) => bottom - y.at(value) * (bottom - top);
    this.ends = [top, bottom];

    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    const text = (content, at) => picture.append(svg("text", at, content));
    y.ticks.forEach((tick, place) => {
      const at = toY(tick).toFixed(1);
      picture.append(svg("path", { class: "grid", d: `M${this.left} ${at}H${this.right}` }));
      text(labels[place], { x: this.left - 6, y: Number(at) + 4, "text-anchor": "end" });
    });
    picture.append(svg("path", { class: "axis", d: `M${this.left} ${top}V${bottom}H${this.right}` }));
    const ticks = spec.small ? [first, last] : x.ticks;
    ticks.forEach((tick) => {
      const anchor = tick === last && spec.small ? "end" : tick === first && spec.small ? "start" : "middle";
      text(compact.format(tick), { x: this.toX(tick), y: bottom + 16, "text-anchor": anchor });
      if (!spec.small) picture.append(svg("path", { class: "axis", d: `M${this.toX(tick)} ${bottom}v4` }));
    });
    text(spec.yTitle, { x: 0, y: 14, class: "title" });
    const middle = (this.left + this.right) / 2;
    text(spec.xTitle, { x: middle, y: bottom + (spec.small ? 30 : 36), "text-anchor": "middle", class: "title" });
    this.drawStages(picture, text);
    for (const series of spec.series) this.drawSeries(picture, series, toY);
    this.line = svg("path", { class: "cursor" });
    this.drag = svg("path", { class: "drag" });
    picture.append(this.line, this.drag);
    host.replaceChildren(picture);
    this.drawCursor();
  }

  scaleY(height) {
    const { spec } = this;
    const values = spec.series.flatMap((series) => [...series.y, ...(series.low ?? []), ...(series.high ?? [])]);
    const [low, high] = spec.ends ?? extent(values);
    const most = Math.max(spec.small ? 6 : 4, Math.floor(height / 60));
    if (spec.log === undefined) return linear(spec.zero ? 0 : low, high, most);
    return logarithmic(low >= spec.log ? 10 ** Math.floor(Math.log10(low)) : 0, high, spec.log, most);
  }

  drawStages(picture, text) {
    const { stages = [], small } = this.spec;
    const [top, bottom] = this.ends;
    stages.forEach(({ at, board }, number) => {
      const from = Math.max(this.toX(at), this.left);
      const to = Math.min(this.toX(stages[number + 1]?.at ?? this.places.at(-1)), this.right);
      if (from > to) return; // not in the part that is shown
      if (number && from > this.left) picture.append(svg("path", { class: "stage", d: `M${from} ${small ? top : top - 12}V${bottom}` }));
      if (small || to - from < 7 * board.length) return;
      text(board, { x: (from + to) / 2, y: top - 4, "text-anchor": "middle" });
    });
  }

  drawSeries(picture, { x, y, low, high, style }, toY) {
    const point = (values) => (place) => `${this.toX(x[place]).toFixed(1)} ${toY(values[place]).toFixed(1)}`;
    if (low) {
      for (const piece of pieces(low.map((value, place) => (high[place] === null ? null : value)))) {
        const edge = [...piece.map(point(high)), ...[...piece].reverse().map(point(low))];
        picture.append(svg("path", { class: "band", fill: style.stroke, d: `M${edge.join("L")}Z` }));
      }
    }
    for (const piece of pieces(y)) {
      if (piece.length === 1) {
        const [cx, cy] = point(y)(piece[0]).split(" ");
        picture.append(svg("circle", { cx, cy, r: 3, fill: style.stroke }));
      } else picture.append(svg("path", { class: "curve", ...style, d: `M${piece.map(point(y)).join("L")}` }));
    }
  }

  drawCursor() {
    if (!this.line) return;
    const at = this.toX(this.places[this.cursor]).toFixed(1);
    this.line.setAttribute("d", `M${at} ${this.ends[0]}V${this.ends[1]}`);
  }
}
