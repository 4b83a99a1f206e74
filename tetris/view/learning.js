// The cross-entropy method in the browser: it learns the weights of a controller from nothing. A generation draws candidates from
// a normal distribution, every candidate plays a game, and the distribution moves to the elites, the best of them.

const POPULATION = 100, ELITES = 20, GENERATIONS = 10;
const LEARNED_FEATURES = "dt";
const MOST_PIECES = 2000, LOW_BOARD = 8; // of a game: on a low board bad players lose soon, and good ones differ
const NOISE = 0.01; // additional variance, which falls to 0; weight vectors have length 1. Without it the search narrows too early.
const BUSY = 10; // milliseconds of a frame in which candidates play; the rest is the page's

const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** A random number with the standard normal distribution, by the Box-Muller transform. */
const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());

const unitLength = (weights) => weights.map((weight) => weight / Math.hypot(...weights));

/** Learns, and yields {generation, weights, best, median} after each generation: the mean of the elites, and lines of candidates. */
async function* learn(engine, rules) {
  const low = { ...rules, height: Math.min(rules.height, LOW_BOARD) };
  let mean = engine.names(LEARNED_FEATURES, rules.width).map(() => 0), std = mean.map(() => 1);
  let due = 0;
  for (let generation = 1; generation <= GENERATIONS; generation += 1) {
    const seed = randomSeed(); // the same pieces for all candidates
    const candidates = [];
    while (candidates.length < POPULATION) {
      if (performance.now() > due) due = await new Promise(requestAnimationFrame) + BUSY;
      const weights = unitLength(mean.map((center, index) => center + std[index] * normal()));
      engine.prepare({ ...low, seed }, { features: LEARNED_FEATURES, weights });
      candidates.push({ weights, lines: engine.calls.play(0, MOST_PIECES) });
    }
    candidates.sort((one, other) => other.lines - one.lines);
    const elites = candidates.slice(0, ELITES).map(({ weights }) => weights);
    const columns = mean.map((_, index) => elites.map((weights) => weights[index]));
    mean = columns.map(average);
    const extra = NOISE * (1 - generation / GENERATIONS);
    std = columns.map((values, index) => Math.sqrt(average(values.map((value) => (value - mean[index]) ** 2)) + extra));
    yield { generation, weights: mean, best: candidates[0].lines, median: candidates[POPULATION / 2].lines };
  }
}
