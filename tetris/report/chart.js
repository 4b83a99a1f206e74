// A line chart by uPlot: bands, boundaries of stages, a finger as a mouse, and a cursor for the keyboard.

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 4], [6, 2, 1, 2, 1, 2]];
const COLORS = 6;
const LEAST_DRAG = 12; // pixels; a shorter one is a tap
const BAND = "38"; // opacity, in hexadecimal
const NOTHING = { left: 0, top: 0, width: 0, height: 0 };
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** The value of a colour of page.css. */
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** How the series of a number is drawn: no two alike in grey, for the dashes change before they repeat. */
function look(number) {
  return { color: `--series-${number % COLORS}`, dash: DASHES[(number + Math.floor(number / COLORS)) % DASHES.length] };
}

/** The dashes of a line as a background. */
function dashes({ color: name, dash = [] }) {
  let at = 0;
  const stops = (dash.length ? dash : [1]).map((length, place) =>
    `${place % 2 ? "transparent" : `var(${name})`} ${at}px ${at += length}px`);
  return `repeating-linear-gradient(90deg, ${stops})`;
}

/** Ticks of a logarithmic axis: zero, and 1, 2, 5 of each decade, or 1 alone where there are many. */
function decades(low, high, least) {
  const first = Math.floor(Math.log10(Math.max(low, least)));
  const count = Math.log10(high) - first;
  const every = Math.max(1, Math.ceil(count / 7));
  const ticks = low <= 0 ? [0] : [];
  for (let power = first; 10 ** power <= high; power += every) {
    ticks.push(...(count < 2 ? [1, 2, 5] : [1]).map((factor) => factor * 10 ** power));
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** The y-axis: linear; or logarithmic from `least` on, below which it is linear, so that zero has a place. */
function scaleY({ least, zero }) {
  if (least === undefined) return { range: (_, low, high) => uPlot.rangeNum(zero ? 0 : low, high, 0.05, true) };
  const bottom = (low) => (low >= least ? 10 ** Math.floor(Math.log10(low)) : 0);
  return { distr: 4, asinh: least, range: (_, low, high) => [bottom(low ?? 0), Math.max(high ?? 0, least) * 1.05] };
}

/** The boundaries of the stages, and above them their boards where there is room. */
function drawStages({ ctx, bbox, valToPos }, stages) {
  const { left, top, width, height } = bbox;
  const right = left + width;
  ctx.save();
  const font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  Object.assign(ctx, { fillStyle: color("--faint"), strokeStyle: color("--axis"), textAlign: "center", font });
  ctx.setLineDash([devicePixelRatio, 3 * devicePixelRatio]);
  stages.forEach(({ at, board }, number) => {
    const from = Math.max(valToPos(at, "x", true), left);
    const to = number + 1 < stages.length ? Math.min(valToPos(stages[number + 1].at, "x", true), right) : right;
    if (from > to) return; // not in the part that is shown
    if (from > left) ctx.stroke(new Path2D(`M${from} ${top}v${height}`));
    if (to - from < ctx.measureText(board).width) return;
    ctx.fillText(board, (from + to) / 2, top - 6 * devicePixelRatio);
  });
  ctx.restore();
}

/** uPlot listens to the mouse: a finger is one, but for what becomes a scroll of the page. */
function listenToTouch(u) {
  const mouse = {
    pointerdown: ["mousemove", "mousedown"], pointermove: ["mousemove"], pointerup: ["mouseup"], pointercancel: ["mouseup"],
  };
  for (const name of Object.keys(mouse)) {
    u.over.addEventListener(name, ({ type, pointerType, clientX, clientY }) => {
      if (pointerType === "mouse") return;
      if (type === "pointercancel") u.setSelect(NOTHING, false);
      const values = { clientX, clientY, movementX: 1, bubbles: true };
      for (const kind of mouse[type]) u.over.dispatchEvent(new MouseEvent(kind, values));
    });
  }
}

/** The lines and bands of a spec for uPlot, and how its legend shows them: a band lies between two bare series. */
function seriesOptions(spec) {
  const [series, bands, swatches] = [[{ value: (_, x) => (x == null ? "" : spec.describeX(x)) }], [], [""]];
  for (const { label, y, style, describe } of spec.series) {
    const stroke = () => color(style.color);
    const value = (u) => (u.legend.idx == null ? "" : describe(u.data[0][u.legend.idx]));
    if (y) {
      const points = { show: y.length === 1 };
      series.push({ label, value, stroke, points, dash: style.dash, width: style.width ?? 2 });
      swatches.push(dashes(style));
    } else {
      bands.push({ series: [series.length + 1, series.length], fill: () => stroke() + BAND });
      const bare = { points: { show: false }, class: "unnamed" };
      series.push(label ? { ...bare, label, value, class: "band" } : bare, bare);
      swatches.push(`color-mix(in srgb, var(${style.color}) 22%, transparent)`, "");
    }
  }
  return { series, bands, legend: { markers: { width: 0, fill: (_, place) => swatches[place] } } };
}

/** The axes: what counts something has whole numbers, a logarithmic axis its decades. */
function axes({ xTitle, whole, least }) {
  const line = (name) => ({ show: true, stroke: () => color(name), width: 1 });
  const font = "12px system-ui, sans-serif";
  const values = (_, ticks) => ticks.map((tick) => compact.format(tick));
  const both = { stroke: () => color("--faint"), font, labelFont: font, values, border: line("--axis") };
  const incrs = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
  const log = { splits: (_, __, low, high) => decades(low, high, least), filter: (_, ticks) => ticks };
  const ticks = { ...line("--axis"), size: 4 };
  const room = (_, labels) => 16 + 7 * Math.max(2, ...(labels ?? []).map((label) => label.length));
  return [
    { ...both, label: xTitle, labelSize: 18, size: 24, space: 70, grid: { show: false }, ticks,
      ...(whole ? { incrs } : {}) },
    { ...both, size: room, space: 50, grid: line("--line"), ticks: { show: false },
      ...(least === undefined ? {} : log) },
  ];
}

/**
 * A chart in an element, as wide as it is, drawn by what `makeSpec` returns.
 *
 * spec: { name, xTitle, yTitle, whole, least, zero, stages: [{ at, board }], describeX(x), zoom(range),
 *   series: [{ label, x, y, style, describe(x) }] }; whole says that x counts something; a band has low and high in place
 *   of y, and may have no label; least and zero are of the y-axis, see scaleY; zoom is called with the part of
 *   the x-axis to show, null for all.
 */
class Chart {
  constructor(host, makeSpec) {
    Object.assign(this, { host, makeSpec });
    this.draw();
    Object.assign(host, { tabIndex: 0, role: "slider", ariaLabel: this.spec.name });
    host.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.u.setSize(this.size())).observe(host);
  }

  size() {
    const width = Math.max(this.host.clientWidth, 50);
    return { width, height: Math.round(Math.min(Math.max(width * 0.5, 250), 380)) };
  }

  draw() {
    const spec = this.spec = this.makeSpec();
    this.u?.destroy();
    const data = uPlot.join(spec.series.map(({ x, y, low, high }) => (y ? [x, y] : [x, low, high])));
    this.u = new uPlot({
      ...this.size(),
      ...seriesOptions(spec),
      title: spec.yTitle,
      padding: [20, 12, 0, 0],
      scales: { x: { time: false }, y: scaleY(spec) },
      axes: axes(spec),
      cursor: {
        y: false,
        drag: { setScale: false, dist: LEAST_DRAG },
        bind: { mouseleave: () => null, dblclick: () => () => spec.zoom(null) },
      },
      hooks: {
        drawAxes: [(u) => drawStages(u, spec.stages)],
        ready: [listenToTouch],
        setLegend: [(u) => this.say(u)],
        setScale: [(u, key) => { if (key === "x") this.moveTo(u.series[0].idxs[1], u); }],
        setSize: [(u) => this.moveTo(u.cursor.idx ?? u.series[0].idxs[1], u)],
        setSelect: [(u) => {
          const { left, width } = u.select;
          u.setSelect(NOTHING, false);
          this.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
        }],
      },
    }, data, this.host);
  }

  /** Shows a part of the x-axis, null for all of it. */
  show(range) {
    const x = this.u.data[0];
    const [min, max] = range ?? [x[0], x.at(-1)];
    this.u.setScale("x", { min, max });
  }

  /** Zooms to what lies between two values, if that is two places at least. */
  zoom(range) {
    if (this.u.data[0].filter((x) => x >= range[0] && x <= range[1]).length > 1) this.spec.zoom(range);
  }

  moveTo(place, u = this.u) {
    u.setCursor({ left: u.valToPos(u.data[0][place], "x"), top: 0 });
  }

  /** Gives the values under the cursor to a screen reader, too. */
  say(u) {
    if (u.legend.idx == null) return;
    const x = u.data[0][u.legend.idx];
    const named = this.spec.series.filter(({ label }) => label);
    const text = [this.spec.describeX(x), ...named.map(({ label, describe }) => `${label}: ${describe(x)}`)].join("\n");
    const [first, last] = u.series[0].idxs;
    Object.assign(this.host, { ariaValueMin: first, ariaValueMax: last, ariaValueNow: u.legend.idx, ariaValueText: text });
  }

  press(event) {
    const [first, last] = this.u.series[0].idxs;
    const place = this.u.cursor.idx ?? last;
    const x = this.u.data[0];
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
    const ends = { Home: first, End: last };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "+") {
      const quarter = (x[last] - x[first]) / 4;
      this.zoom([x[place] - quarter, x[place] + quarter]);
    } else if (event.key === "-") this.spec.zoom(null);
    else if (event.key in steps) this.moveTo(Math.min(Math.max(place + steps[event.key], first), last));
    else if (event.key in ends) this.moveTo(ends[event.key]);
    else return;
    event.preventDefault();
  }
}
