// The charts of a report: what the figures of the page show of the runs in report-data.

const { runs, across } = JSON.parse(document.getElementById("report-data").textContent);
const exact = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const several = runs.length > 1;
const state = { across, curve: "elite_mean" };
const charts = [];

/** The unit in which wall time is shown, by the longest run. */
const [unit, unitSeconds] = (() => {
  const longest = Math.max(...runs.map((run) => run.seconds.at(-1)));
  return longest > 4 * 3600 ? ["h", 3600] : longest > 600 ? ["min", 60] : ["s", 1];
})();
const X_TITLES = { generation: "generation", decisions: "decisions", seconds: `wall time [${unit}]` };

const horizontal = () => ({ xTitle: X_TITLES[state.across], whole: state.across !== "seconds" });
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

function where(run, place) {
  return `generation ${amount(run.generation[place])} (${boardAt(run, place)}), ` +
    `${amount(run.decisions[place])} decisions, ${amount(run.seconds[place])} s`;
}

/** Returns what tells the values at x: of one run with where it is, of several run by run. */
function teller(values) {
  return (x) => several
    ? [
      `${X_TITLES[state.across]} ${amount(x)}`,
      ...runs.map((run) => `${run.name}: ${values(run, placeAt(run, x))} on ${boardAt(run, placeAt(run, x))}`),
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
}

/** A chart with a curve a run. */
function perRun(figure, key, spec, told) {
  if (several) legend(figure, runs.map((run, number) => ({ text: run.name, style: look(number) })));
  add(figure, () => ({
    ...horizontal(),
    stages: commonStages(),
    series: runs.map((run, number) => ({ x: xOf(run), y: run[key()], style: look(number) })),
    tell: teller((run, place) => told(amount(run[key()][place]))),
    ...spec,
  }));
}

function curves(figure) {
  const spec = { name: "Learning curves", yTitle: "lines per game, in training (log scale)", log: 1 };
  perRun(figure, () => state.curve, spec, (value) => `${value} lines per game`);
  caption(figure, "Runs are comparable where they play on the same board; scores are measured alike for all.");
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
  const told = document.createElement("figcaption");
  const panels = Object.assign(document.createElement("div"), { className: "panels" });
  figure.append(told, panels);
  run.features.forEach((name, feature) => {
    const panel = document.createElement("div");
    panel.append(Object.assign(document.createElement("h3"), { textContent: name }));
    panels.append(panel);
    add(panel, () => {
      told.textContent = `Horizontal: ${X_TITLES[state.across]}. Vertical: weight, of vectors of length 1, ` +
        "the same scale in all. Line: mean of the generation's distribution, before any averaging. Band: one standard deviation to both sides.";
      return {
        small: true,
        height: 120,
        ends: [-greatest, greatest],
        stages: stagesOf(run),
        series: [{ x: xOf(run), y: run.mean[feature], low: low[feature], high: high[feature], style: look(0) }],
      };
    });
  });
}

function redraw() {
  for (const { chart, make } of charts) chart.set(make());
}

const FIGURES = { learning, curves, spread, speed, weights };
for (const figure of document.querySelectorAll("figure[data-chart]")) FIGURES[figure.dataset.chart](figure);
for (const input of document.querySelectorAll("input[name=across]")) {
  input.checked = input.value === across;
  input.addEventListener("change", () => { state.across = input.value; redraw(); });
}
document.querySelector("select[name=curve]")?.addEventListener("change", (event) => {
  state.curve = event.target.value;
  redraw();
});
