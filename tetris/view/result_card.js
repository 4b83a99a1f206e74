// The card of a race that is over: both boards, the lines, a sentence and the link, as a picture to share.

const CARD_WIDTH = 1200, CARD_HEIGHT = 630, MARGIN = 40; // pixels, the proportions of pictures on social pages
const MOST_WIDTH = 240; // pixels of a board: what is said has the rest

/** Draws a board below its name and lines; returns where it ends. */
function drawSide(context, color, side, name, left) {
  const { width, height } = side.rules, top = 2 * MARGIN;
  const cell = Math.floor(Math.min((CARD_HEIGHT - 4 * MARGIN) / height, MOST_WIDTH / width));
  for (let at = 0; at < width * height; at += 1) {
    const row = Math.floor(at / width), kind = side.board[at];
    context.fillStyle = color(kind ? `--piece-${kind - 1}` : "--empty");
    context.fillRect(left + (at % width) * cell, top + (height - 1 - row) * cell, cell - 1, cell - 1);
  }
  context.fillStyle = color("--text");
  context.font = "600 24px system-ui, sans-serif";
  context.fillText(`${name}: ${counted(side.lines, "line")}`, left, top - 14, width * cell);
  return left + width * cell;
}

/** Draws the result of a race on a canvas: the first of the sentences in large letters. */
function drawCard(canvas, { you, other, agent }, [verdict, ...facts], link) {
  const style = getComputedStyle(document.body), color = (name) => style.getPropertyValue(name);
  const context = Object.assign(canvas, { width: CARD_WIDTH, height: CARD_HEIGHT }).getContext("2d");
  context.fillStyle = color("--page");
  context.fillRect(0, 0, CARD_WIDTH, CARD_HEIGHT);
  const middle = drawSide(context, color, you, "You", MARGIN);
  const left = drawSide(context, color, other, agent.name, middle + MARGIN) + 1.5 * MARGIN;
  const lines = [["400 26px", "Tetris against the agent"], ["700 64px", verdict], ...facts.map((fact) => ["400 26px", fact])];
  let y = 3 * MARGIN;
  for (const [font, text] of lines) {
    context.font = `${font} system-ui, sans-serif`;
    context.fillText(text, left, y, CARD_WIDTH - left - MARGIN);
    y += 2 * MARGIN;
  }
  context.font = "400 20px system-ui, sans-serif";
  context.fillText(link, MARGIN, CARD_HEIGHT - MARGIN / 2, CARD_WIDTH - 2 * MARGIN);
}
