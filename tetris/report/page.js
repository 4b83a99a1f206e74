// The charts of a report: what the figures of the page show of the runs in report-data.

const { runs, across } = JSON.parse(document.getElementById("report-data").textContent);
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const several = runs.length > 1;
const state = { across, curve: "elite_mean", zoom: null, ...history.state?.choices };
const charts = [];

/** The unit in which wall time is shown, by the longest run. */
const [unit, unitSeconds] = (() => {
  const longest = Math.max(...runs.map((run) => run.seconds.at(-1)));
  return longest > 4 * 3600 ? ["h", 3600] : longest > 600 ? ["min", 60] : ["s", 1];
})();
const X_TITLES = { generation: "generation", decisions: "decisions", seconds: `wall time [${unit}]` };

const horizontal = () => ({
  xTitle: X_TITLES[state.across], whole: state.across !== "seconds", range: state.zoom, zoom,
});
const amount = (value) => (value === null || value === undefined ? "unknown" : exact.format(value));

function xOf(run) {
  return state.across === "seconds" ? run.seconds.map((value) => value / unitSeconds) : run[state.across];
}

/** The last place of a run at or before x; the first where there is none. */
function placeAt(run, x) {
  return Math.max(xOf(run).findLastIndex((value) => value <= x), 0);
}

function boardAt(run, place) {
  return run.stages.findLast((stage) => stage.first <= run.generation[place])?.board ?? "";
}

/** Where the stages of a run begin on the x-axis: half-way from the generation before. */
function stagesOf(run) {
  const x = xOf(run);
  return run.stages.map(({ board, first }) => {
    const place = Math.max(run.generation.findIndex((generation) => generation >= first), 0);
    return { board, at: place ? (x[place - 1] + x[place]) / 2 : x[0] };
  });
}

/** The stages of all runs, where all have the same ones at the same places. */
function commonStages() {
  const [first, ...others] = runs.map(stagesOf);
  return others.every((stages) => JSON.stringify(stages) === JSON.stringify(first)) ? first : [];
}

function legend(figure, entries) {
  const list = document.createElement("ul");
  list.className = "legend";
  for (const { text, style, band } of entries) {
    const swatch = svg("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" });
    if (band) swatch.append(svg("rect", { class: "band", width: 34, height: 12, fill: style.stroke }));
    else swatch.append(svg("path", { class: "curve", d: "M0 6H34", ...style }));
    const item = document.createElement("li");
    item.append(swatch, text);
    list.append(item);
  }
  figure.append(list);
}

function caption(figure, text) {
  figure.append(Object.assign(document.createElement("figcaption"), { textContent: text }));
}

/** Adds a chart that is drawn again when a choice changes; `make` returns its spec. */
function add(host, make) {
  const plot = document.createElement("div");
  host.append(plot);
  charts.push({ chart: new Chart(plot, make()), make });
}

/** Shows a part of the x-axis in all charts; null for all of it. */
function zoom(range) {
  state.zoom = range;
  redraw();
}

/** Adds a link to the values of the runs as a CSV file, which the page itself holds. */
function download(figure) {
  const columns = ["generation", "decisions", "seconds", "generation_best", "elite_mean", "elite_threshold",
    "learned_mean_fitness", "std_mean"];
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const rows = runs.flatMap((run) => run.generation.map((_, place) =>
    [quoted(run.name), boardAt(run, place), ...columns.map((column) => run[column][place] ?? "")]));
  const csv = [["run", "board", ...columns], ...rows].map((row) => `${row.join(",")}\r\n`).join("");
  const link = Object.assign(document.createElement("a"), {
    download: "learning_curve.csv",
    href: `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`,
    textContent: "Download the values as CSV",
  });
  const line = Object.assign(document.createElement("p"), { className: "hint" });
  line.append(link);
  figure.append(line);
}

function where(run, place) {
  return `generation ${amount(run.generation[place])} (${boardAt(run, place)}), ` +
    `${amount(run.decisions[place])} decisions, ${amount(run.seconds[place])} s`;
}

/** Says where the values of a curve begin or end, for an x that lies before or beyond them; null for others. */
function outside(values, x) {
  if (x < values[0]) return `first value at ${amount(values[0])}`;
  return x > values.at(-1) ? `last value at ${amount(values.at(-1))}` : null;
}

/** Returns what tells the values at x: of one run with where it is, of several run by run. */
function teller(values) {
  const told = (run, place) => `${values(run, place)} on ${boardAt(run, place)}`;
  return (x) => several
    ? [
      `${X_TITLES[state.across]} ${amount(x)}`,
      ...runs.map((run) => `${run.name}: ${outside(xOf(run), x) ?? told(run, placeAt(run, x))}`),
    ].join("\n")
    : `${where(runs[0], placeAt(runs[0], x))}: ${values(runs[0], placeAt(runs[0], x))}`;
}

const STYLES = {
  generation_best: { stroke: "var(--faint)", "stroke-dasharray": "2 3", "stroke-width": 1.5 },
  elite_mean: { stroke: "var(--series-1)", "stroke-dasharray": "7 4" },
  learned_mean_fitness: { stroke: "var(--series-0)", "stroke-width": 2.5 },
};
const NAMES = {
  generation_best: "best candidate",
  elite_mean: "mean of the elites",
  learned_mean_fitness: "learned mean",
};

function learning(figure) {
  const [run] = runs;
  const banded = run.elite_threshold.some((value) => value !== null);
  const band = { style: STYLES.elite_mean, text: "elites, from worst to best", band: true };
  legend(figure, [
    ...Object.keys(NAMES).map((key) => ({ text: NAMES[key], style: STYLES[key] })),
    ...(banded ? [band] : []),
  ]);
  const elites = banded ? { low: run.elite_threshold, high: run.generation_best } : {};
  add(figure, () => ({
    name: "Learning curve",
    ...horizontal(),
    yTitle: "lines per game, in training (log scale)",
    log: 1,
    stages: stagesOf(run),
    series: Object.keys(NAMES).map((key) => ({
      x: xOf(run), y: run[key], style: STYLES[key], ...(key === "elite_mean" ? elites : {}),
    })),
    tell: teller((_, place) => `best ${amount(run.generation_best[place])}, elites ` +
      `${amount(run.elite_mean[place])}${banded ? ` (worst ${amount(run.elite_threshold[place])})` : ""}, ` +
      `learned mean ${amount(run.learned_mean_fitness[place])} lines per game`),
  }));
  caption(figure, "Each generation plays a fixed number of decisions on new pieces, so values scatter; but for " +
    "importance splitting no candidate can score more than it has decisions for. Boards stand above; on a higher " +
    "one games are longer.");
  download(figure);
}

/** Runs that differ in the seed alone, as lists. */
const groups = [...new Set(runs.map((run) => run.group))].map((group) => runs.filter((run) => run.group === group));
state.bands ??= groups.some((group) => group.length > 2);

/** The median of a group and its range, where all its runs have got to. */
function medians(group, key) {
  const xs = group.map(xOf);
  const [from, to] = [Math.max(...xs.map((x) => x[0])), Math.min(...xs.map((x) => x.at(-1)))];
  const x = xs[0].filter((value) => value >= from && value <= to);
  const sorted = x.map((at) => group
    .map((run, number) => run[key][Math.max(xs[number].findLastIndex((value) => value <= at), 0)])
    .filter((value) => value !== null).sort((a, b) => a - b));
  const pick = (share) => sorted.map((values) => {
    const place = share * (values.length - 1);
    return values.length ? (values[Math.floor(place)] + values[Math.ceil(place)]) / 2 : null;
  });
  const band = group.length > 1 ? { low: pick(0), high: pick(1) } : {};
  const name = group.length > 1 ? `${group[0].name} and ${group.length - 1} more` : group[0].name;
  return { name, x, y: pick(0.5), ...band };
}

/** A chart with a curve a run, or with the median and the range of each group of runs. */
function perRun(figure, key, spec, told) {
  const place = document.createElement("div");
  figure.append(place);
  add(figure, () => {
    const curves = state.bands
      ? groups.map((group) => medians(group, key()))
      : runs.map((run) => ({ name: run.name, x: xOf(run), y: run[key()] }));
    const series = curves.map((curve, number) => ({ ...curve, style: look(number) }));
    place.replaceChildren();
    if (several) legend(place, series.map(({ name, style }) => ({ text: name, style })));
    const tellGroup = ({ name, x, y, low, high }, at) => {
      const unknown = outside(x, at);
      if (unknown) return `${name}: ${unknown}`;
      const nearest = Math.max(x.findLastIndex((value) => value <= at), 0);
      return `${name}: ${told(amount(y[nearest]))}` + (low ? ` (${amount(low[nearest])} – ${amount(high[nearest])})` : "");
    };
    return {
      ...horizontal(),
      stages: commonStages(),
      series,
      tell: state.bands
        ? (x) => [`${X_TITLES[state.across]} ${amount(x)}`, ...series.map((each) => tellGroup(each, x))].join("\n")
        : teller((run, at) => told(amount(run[key()][at]))),
      ...spec,
    };
  });
}

function curves(figure) {
  const spec = { name: "Learning curves", yTitle: "lines per game, in training (log scale)", log: 1 };
  perRun(figure, () => state.curve, spec, (value) => `${value} lines per game`);
  caption(figure, "Runs are comparable where they play on the same board; scores are measured alike for all.");
  download(figure);
}

function spread(figure) {
  const [least] = extent(runs.flatMap((run) => run.std_mean.filter((value) => value > 0)));
  const log = 10 ** Math.floor(Math.log10(least || 1));
  const spec = { name: "Spread", yTitle: "standard deviation, mean over the weights (log scale)", log };
  perRun(figure, () => "std_mean", spec, (value) => `standard deviation ${value}`);
  caption(figure, "How far the candidates of the next generation differ; weight vectors have length 1.");
}

function speed(figure) {
  const spec = { name: "Throughput", yTitle: "decisions per second", zero: true };
  perRun(figure, () => "speed", spec, (value) => `${value} decisions per second`);
}

/** A small chart for each weight, all on one scale: mean and one standard deviation to both sides. */
function weights(figure) {
  const [run] = runs;
  const edges = (sign) => run.mean.map((values, feature) =>
    values.map((value, place) => (value === null ? null : value + sign * run.std[feature][place])));
  const [low, high] = [edges(-1), edges(1)];
  const greatest = Math.max(...extent([...low, ...high].flat()).map(Math.abs));
  caption(figure, "Weights of vectors of length 1, on the same scale in all. Line: mean of the generation's " +
    "distribution, before any averaging. Band: one standard deviation to both sides.");
  const panels = Object.assign(document.createElement("div"), { className: "panels" });
  figure.append(panels);
  run.features.forEach((name, feature) => {
    const panel = document.createElement("div");
    panel.append(Object.assign(document.createElement("h3"), { textContent: name }));
    panels.append(panel);
    add(panel, () => {
      return {
        name: `Weight of ${name}`,
        ...horizontal(),
        yTitle: "weight",
        small: true,
        height: 150,
        ends: [-greatest, greatest],
        stages: stagesOf(run),
        series: [{ x: xOf(run), y: run.mean[feature], low: low[feature], high: high[feature], style: look(0) }],
        tell: (x) => {
          const place = placeAt(run, x);
          return `${X_TITLES[state.across]} ${amount(xOf(run)[place])}: ` +
            [run.mean, run.std].map((values) => compact.format(values[feature][place])).join(" ± ");
        },
      };
    });
  });
}

function redraw() {
  for (const { chart, make } of charts) chart.set(make());
  for (const button of document.querySelectorAll("button.whole")) button.hidden = !state.zoom;
}

const FIGURES = { learning, curves, spread, speed, weights };
for (const figure of document.querySelectorAll("figure[data-chart]")) FIGURES[figure.dataset.chart](figure);
for (const input of document.querySelectorAll("input[name=across]")) {
  input.checked = input.value === state.across;
  input.addEventListener("change", () => { state.across = input.value; zoom(null); });
}
for (const figure of document.querySelectorAll("figure[data-chart]")) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "whole", textContent: "Show the whole run", hidden: !state.zoom });
  button.addEventListener("click", () => zoom(null));
  figure.prepend(button);
}
if (history.state?.choices) { // after a reload: as the reader left it
  const { open, section, top } = history.state;
  document.querySelectorAll("details").forEach((each, place) => { each.open = open.includes(place); });
  const at = document.getElementById(section);
  if (at) scrollBy(0, at.getBoundingClientRect().top - top);
}
for (const wide of document.querySelectorAll(".wide")) {
  new ResizeObserver(() => wide.classList.toggle("scrolls", wide.scrollWidth > wide.clientWidth)).observe(wide);
}
for (const [name, property] of [["curve", "value"], ["bands", "checked"]]) {
  const control = document.querySelector(`[name=${name}]`);
  if (!control) continue;
  control[property] = state[name];
  control.addEventListener("change", () => { state[name] = control[property]; redraw(); });
}
