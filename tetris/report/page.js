// The charts of a report: what the figures of the page show of the runs in report-data.

let { runs, across } = JSON.parse(document.getElementById("report-data").textContent);
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const several = runs.length > 1;
const state = { across, curve: "elite_mean", zoom: null };
const charts = [];

/** The unit in which wall time is shown, by the longest run. */
function unitOfTime() {
  const longest = Math.max(...runs.map((run) => run.seconds.at(-1)));
  return longest > 4 * 3600 ? ["h", 3600] : longest > 600 ? ["min", 60] : ["s", 1];
}

const xTitle = () => (state.across === "seconds" ? `wall time [${unitOfTime()[0]}]` : state.across);

const amount = (value) => (value === null || value === undefined ? "unknown" : exact.format(value));

function xOf(run) {
  return state.across === "seconds" ? run.seconds.map((value) => value / unitOfTime()[1]) : run[state.across];
}

/** The last place at or before a value; the first where there is none. */
function placeIn(x, value) {
  return Math.max(x.findLastIndex((each) => each <= value), 0);
}

/** Where the stages of a run begin on the x-axis: half-way from the generation before. */
function stagesOf(run) {
  const x = xOf(run);
  return run.stages.map(({ board, place, dt20 }) => ({ board, place, dt20, at: place ? (x[place - 1] + x[place]) / 2 : x[0] }));
}

/** The stages of all runs, where all have the same ones at the same places. */
function commonStages() {
  const [first, ...others] = runs.map(stagesOf);
  return others.every((stages) => JSON.stringify(stages) === JSON.stringify(first)) ? first : [];
}

/** Where on the x-axis the cursor is; of one run with all that is known of the generation there. */
function describeX(x) {
  if (several) return `${xTitle()} ${amount(x)}`;
  const [run] = runs, place = placeIn(xOf(run), x);
  return `generation ${amount(run.generation[place])} (${run.board[place]}), ` +
    `${amount(run.decisions[place])} decisions, ${amount(run.seconds[place])} s`;
}

/** Values of a run with a gap where the board changes: scores on two boards are no line. */
function withGaps(run, values) {
  const found = { x: [...xOf(run)], ...Object.fromEntries(Object.entries(values).map(([key, list]) => [key, [...list]])) };
  for (const { at, place } of stagesOf(run).toReversed()) {
    if (place) for (const key in found) found[key].splice(place, 0, key === "x" ? at : null);
  }
  return found;
}

/** A line, or a band with low and high; `text` describes a place, and `describe` what is under the cursor. */
function seriesOf(label, x, values, style, text) {
  const describe = (at) => {
    if (several && at < x[0]) return `first value at ${amount(x[0])}`;
    if (several && at > x.at(-1)) return `last value at ${amount(x.at(-1))}`;
    return text(placeIn(x, at));
  };
  return { label, x, ...values, style, describe };
}

/** Adds a chart; `make` returns what is its own of the spec, again when a choice changes. */
function add(plot, make) {
  charts.push(new Chart(plot, () => ({
    xTitle: xTitle(), whole: state.across !== "seconds", stages: commonStages(), describeX, zoom, ...make(),
  })));
}

function redraw() {
  for (const chart of charts) chart.draw();
  document.querySelector("a[download]").href = csvOfRuns();
  zoom(state.zoom);
}

/** Shows a part of the x-axis in all charts; null for all of it. */
function zoom(range) {
  state.zoom = range;
  for (const chart of charts) chart.show(range);
  for (const button of document.querySelectorAll("button.whole")) button.hidden = !range;
}

/** The values of the runs as a CSV file, which the page itself holds. */
function csvOfRuns() {
  const columns = ["board", "generation", "decisions", "seconds", "generation_best", "elite_mean", "elite_threshold",
    "learned_mean_fitness", "std_mean"];
  const rows = runs.flatMap(({ name, ...run }) => run.generation.map((_, place) =>
    [`"${name.replaceAll('"', '""')}"`, ...columns.map((column) => run[column][place] ?? "")]));
  const csv = [["run", ...columns], ...rows].map((row) => `${row.join(",")}\r\n`).join("");
  return `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`;
}

const LINES = { yTitle: "lines per game, in training (log scale)", least: 1 };

function learning([plot]) {
  add(plot, () => {
    const [run] = runs;
    const line = (label, y, style, text = (place) => amount(y[place])) =>
      ({ ...seriesOf(label, xOf(run), {}, style, text), ...withGaps(run, { y }) });
    const [low, high] = [run.elite_threshold, run.generation_best];
    const elites = { color: "--series-1", dash: [7, 4] };
    const range = (place) => `${amount(low[place])} – ${amount(high[place])}`;
    const best = run.generation.map((_, place) => run.stages.findLast((stage) => stage.place <= place).dt20);
    return {
      name: "Learning curve",
      ...LINES,
      series: [
        line("best candidate", high, { color: "--faint", dash: [2, 3], width: 1.5 }),
        line("mean of the elites", run.elite_mean, elites),
        line("learned mean", run.learned_mean_fitness, { color: "--series-0", width: 2.5 }),
        ...(best.some((value) => value) ? [line("dt20, the best published linear controller", best, { color: "--series-2", dash: [14, 4] })] : []),
        { ...seriesOf("elites, from worst to best", xOf(run), {}, elites, range), ...withGaps(run, { low, high }) },
      ],
    };
  });
}

/** Runs that differ in the seed alone, as lists. */
const groups = () => [...new Set(runs.map(({ group }) => group))].map((each) => runs.filter(({ group }) => group === each));
state.bands ??= groups().some((group) => group.length > 2);

/** The median of a group and its range, where all its runs have got to. */
function medians(group, key, style) {
  const xs = group.map(xOf);
  const [from, to] = [Math.max(...xs.map((x) => x[0])), Math.min(...xs.map((x) => x.at(-1)))];
  const x = xs[0].filter((value) => value >= from && value <= to);
  const sorted = x.map((at) => group.map((run, number) => run[key][placeIn(xs[number], at)])
    .filter((value) => value !== null).sort((a, b) => a - b));
  const pick = (share) => sorted.map((values) => {
    const place = share * (values.length - 1);
    return values.length ? (values[Math.floor(place)] + values[Math.ceil(place)]) / 2 : null;
  });
  const [low, y, high] = [0, 0.5, 1].map(pick);
  const text = (place) => `${amount(y[place])} (${amount(low[place])} – ${amount(high[place])})`;
  const name = `${group[0].name} and ${group.length - 1} more`;
  return [seriesOf(name, x, { y }, style, text), { x, low, high, style }];
}

/** A chart with a curve a run, or with the median and the range of each group of runs. */
function perRun([plot], key, what, spec) {
  const curve = ([run, ...others], number) => {
    if (others.length) return medians([run, ...others], key(), look(number));
    const text = (place) => amount(run[key()][place]) + (several ? ` on ${run.board[place]}` : "");
    return seriesOf(several ? run.name : what, xOf(run), { y: run[key()] }, look(number), text);
  };
  add(plot, () => ({ series: (state.bands ? groups() : runs.map((run) => [run])).flatMap(curve), ...spec }));
}

function curves(plots) {
  perRun(plots, () => state.curve, "", { name: "Learning curves", ...LINES });
}

function spread(plots) {
  const values = runs.flatMap((run) => run.std_mean.filter((value) => value > 0));
  const least = 10 ** Math.floor(Math.log10(values.length ? Math.min(...values) : 1));
  const yTitle = "standard deviation, mean over the weights (log scale)";
  perRun(plots, () => "std_mean", "standard deviation", { name: "Spread", yTitle, least });
}

function speed(plots) {
  const yTitle = "decisions per second";
  perRun(plots, () => "speed", yTitle, { name: "Throughput", yTitle, zero: true });
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
const FIGURES = { learning, curves, spread, speed };
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  figure.querySelector(".whole").addEventListener("click", () => zoom(null));
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
