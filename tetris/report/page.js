// The charts of a report. The runs are in the JSON of the element report-data.

let { runs, across } = JSON.parse(document.getElementById("report-data").textContent);
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const isComparison = runs.length > 1;
const state = { across, curve: "elite_mean", zoom: null };
const charts = [];

/** Returns the unit of wall time and its seconds, by the longest run. */
function unitOfTime() {
  const longest = Math.max(...runs.map((run) => run.seconds.at(-1)));
  if (longest > 4 * 3600) return ["h", 3600];
  return longest > 600 ? ["min", 60] : ["s", 1];
}

const xTitle = () => (state.across === "seconds" ? `wall time [${unitOfTime()[0]}]` : state.across);

const formatNumber = (value) => (value === null || value === undefined ? "unknown" : exact.format(value));

function xValues(run) {
  return state.across === "seconds" ? run.seconds.map((value) => value / unitOfTime()[1]) : run[state.across];
}

/** Returns the index of the last number that is at most a value, or 0 if there is none. */
function indexAt(x, value) {
  return Math.max(x.findLastIndex((number) => number <= value), 0);
}

/** Returns the stages of a run with `at`, where they begin on the x-axis: half-way from the generation before. */
function stagesOnAxis(run) {
  const x = xValues(run);
  return run.stages.map(({ board, place, dt20 }) => ({ board, place, dt20, at: place ? (x[place - 1] + x[place]) / 2 : x[0] }));
}

/** Returns the stages of all runs if they have the same ones at the same places, else none. */
function commonStages() {
  const [first, ...others] = runs.map(stagesOnAxis);
  return others.every((stages) => JSON.stringify(stages) === JSON.stringify(first)) ? first : [];
}

/** Describes a place on the x-axis; for one run with the figures of the generation there. */
function describeX(x) {
  if (isComparison) return `${xTitle()} ${formatNumber(x)}`;
  const [run] = runs, place = indexAt(xValues(run), x);
  return `generation ${formatNumber(run.generation[place])} (${run.board[place]}), ` +
    `${formatNumber(run.decisions[place])} decisions, ${formatNumber(run.seconds[place])} s`;
}

/** Returns values of a run with gaps where the board changes: scores on two boards are no line. */
function withGapsAtStages(run, values) {
  const copies = Object.entries({ x: xValues(run), ...values }).map(([key, list]) => [key, [...list]]);
  const lists = Object.fromEntries(copies);
  for (const { at, place } of stagesOnAxis(run).toReversed()) {
    if (!place) continue;
    for (const key in lists) lists[key].splice(place, 0, key === "x" ? at : null);
  }
  return lists;
}

/** Returns a line, or a band with low and high. `text` describes the value of an index, `describe` the one under the cursor. */
function makeSeries(label, x, values, style, text) {
  const describe = (at) => {
    if (isComparison && at < x[0]) return `first value at ${formatNumber(x[0])}`;
    if (isComparison && at > x.at(-1)) return `last value at ${formatNumber(x.at(-1))}`;
    return text(indexAt(x, at));
  };
  return { label, x, ...values, style, describe };
}

/** Adds a chart. `make` returns its part of the spec, and is called again when the reader chooses something else. */
function addChart(plot, make) {
  charts.push(new Chart(plot, () => ({
    xTitle: xTitle(), whole: state.across !== "seconds", stages: commonStages(), describeX, zoom, ...make(),
  })));
}

function redraw() {
  for (const chart of charts) chart.draw();
  document.querySelector("[data-csv]").href = makeCsv();
  zoom(state.zoom);
}

/** Shows a range of the x-axis in all charts; null means all of it. */
function zoom(range) {
  state.zoom = range;
  for (const chart of charts) chart.show(range);
  for (const button of document.querySelectorAll("button.whole")) button.hidden = !range;
}

/** Returns the values of the runs as the address of a CSV file, which the address itself contains. */
function makeCsv() {
  const columns = ["board", "generation", "decisions", "seconds", "generation_best", "elite_mean", "elite_threshold",
    "learned_mean_fitness", "std_mean"];
  const rows = runs.flatMap(({ name, ...run }) => run.generation.map((_, place) =>
    [`"${name.replaceAll('"', '""')}"`, ...columns.map((column) => run[column][place] ?? "")]));
  const csv = [["run", ...columns], ...rows].map((row) => `${row.join(",")}\r\n`).join("");
  return `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`;
}

const LINES = { yTitle: "lines per game, in training (log scale)", least: 1 };

function learning([plot]) {
  addChart(plot, () => {
    const [run] = runs;
    const line = (label, y, style, text = (place) => formatNumber(y[place])) =>
      ({ ...makeSeries(label, xValues(run), {}, style, text), ...withGapsAtStages(run, { y }) });
    const [low, high] = [run.elite_threshold, run.generation_best];
    const elites = { color: "--series-1", dash: [7, 4] };
    const range = (place) => `${formatNumber(low[place])} – ${formatNumber(high[place])}`;
    const lastStage = run.stages.at(-1).place;
    const [score, ...interval] = run.score ?? [];
    const overLastStage = (value) => run.generation.map((_, place) => (place < lastStage ? null : value));
    const scored = { color: "--series-3", width: 2.5 };
    const [from, to] = interval.map(overLastStage);
    const best = run.generation.map((_, place) => run.stages.findLast((stage) => stage.place <= place).dt20);
    return {
      name: "Learning curve",
      ...LINES,
      series: [
        line("best candidate", high, { color: "--faint", dash: [2, 3], width: 1.5 }),
        line("mean of the elites", run.elite_mean, elites),
        line("learned mean", run.learned_mean_fitness, { color: "--series-0", width: 2.5 }),
        ...(best.some((value) => value) ? [line("dt20, the best published linear controller", best, { color: "--series-2", dash: [14, 4] })] : []),
        ...(score ? [line("final score", overLastStage(score), scored)] : []),
        ...(score && interval[1] ? [{ ...makeSeries("its 95 % interval", xValues(run), {}, scored,
          () => interval.map(formatNumber).join(" – ")), ...withGapsAtStages(run, { low: from, high: to }) }] : []),
        { ...makeSeries("elites, from worst to best", xValues(run), {}, elites, range), ...withGapsAtStages(run, { low, high }) },
      ],
    };
  });
}

/** Returns lists of runs that differ only in their seeds. */
const groupsOfRuns = () => [...new Set(runs.map(({ group }) => group))].map((name) => runs.filter(({ group }) => group === name));
state.bands ??= groupsOfRuns().some((group) => group.length > 2);

/** Returns two series, the median of a group and its range, over the part of the x-axis that all its runs have reached. */
function medianSeries(group, key, style) {
  const xs = group.map(xValues);
  const [from, to] = [Math.max(...xs.map((x) => x[0])), Math.min(...xs.map((x) => x.at(-1)))];
  const x = xs[0].filter((value) => value >= from && value <= to);
  const sorted = x.map((at) => group.map((run, number) => run[key][indexAt(xs[number], at)])
    .filter((value) => value !== null).sort((a, b) => a - b));
  const pick = (share) => sorted.map((values) => {
    const place = share * (values.length - 1);
    return values.length ? (values[Math.floor(place)] + values[Math.ceil(place)]) / 2 : null;
  });
  const [low, y, high] = [0, 0.5, 1].map(pick);
  const text = (place) => `${formatNumber(y[place])} (${formatNumber(low[place])} – ${formatNumber(high[place])})`;
  const name = `${group[0].name} and ${group.length - 1} more`;
  return [makeSeries(name, x, { y }, style, text), { x, low, high, style }];
}

/** Adds a chart with a curve per run, or with the median and the range of each group of runs. */
function addCurves([plot], key, what, spec) {
  const curve = ([run, ...others], number) => {
    if (others.length) return medianSeries([run, ...others], key(), look(number));
    const text = (place) => formatNumber(run[key()][place]) + (isComparison ? ` on ${run.board[place]}` : "");
    return makeSeries(isComparison ? run.name : what, xValues(run), { y: run[key()] }, look(number), text);
  };
  addChart(plot, () => ({ series: (state.bands ? groupsOfRuns() : runs.map((run) => [run])).flatMap(curve), ...spec }));
}

function curves(plots) {
  addCurves(plots, () => state.curve, "", { name: "Learning curves", ...LINES });
}

function spread(plots) {
  const values = runs.flatMap((run) => run.std_mean.filter((value) => value > 0));
  const least = 10 ** Math.floor(Math.log10(values.length ? Math.min(...values) : 1));
  const yTitle = "standard deviation, mean over the weights (log scale)";
  addCurves(plots, () => "std_mean", "standard deviation", { name: "Spread", yTitle, least });
}

function speed(plots) {
  const yTitle = "decisions per second";
  addCurves(plots, () => "speed", yTitle, { name: "Throughput", yTitle, zero: true });
}

/** Saves what a figure shows as a picture, on the page's colour. */
function savePicture(figure) {
  const canvas = document.createElement("canvas"), drawn = figure.querySelector("canvas");
  Object.assign(canvas, { width: drawn.width, height: drawn.height });
  const context = canvas.getContext("2d");
  context.fillStyle = color("--page");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(drawn, 0, 0);
  Object.assign(document.createElement("a"), { href: canvas.toDataURL(), download: `${figure.dataset.chart}.png` }).click();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
const FIGURES = { learning, curves, spread, speed };
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  figure.querySelector(".whole").addEventListener("click", () => zoom(null));
  figure.querySelector(".picture").addEventListener("click", () => savePicture(figure));
  FIGURES[figure.dataset.chart](figure.querySelectorAll(".plot"));
}
redraw();
for (const input of document.querySelectorAll("input[name=across]")) {
  input.checked = input.value === state.across;
  input.addEventListener("change", () => { Object.assign(state, { across: input.value, zoom: null }); redraw(); });
}
for (const [name, property] of [["curve", "value"], ["bands", "checked"]]) {
  const control = document.querySelector(`[name=${name}]`);
  if (!control) continue;
  control[property] = state[name];
  control.addEventListener("change", () => { state[name] = control[property]; redraw(); });
}
function watchWidths() {
  for (const wide of document.querySelectorAll(".wide")) {
    new ResizeObserver(() => wide.classList.toggle("scrolls", wide.scrollWidth > wide.clientWidth)).observe(wide);
  }
}
watchWidths();
