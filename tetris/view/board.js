// Boards on pages, in programs that hold this one: cells, and the pieces on them. A board has the piece of each cell plus one, 0
// where it is empty, the bottom row first, and HEADROOM rows above its height. A shape is as tetris/view/replay_page.py writes it.

const UNKNOWN = 8; // a full cell whose piece is not known
const HEADROOM = 4; // a piece that ends the game comes to rest there
const FALL = 0.6, FASTEST_FALL = 12; // share of a piece's time in which it falls; pieces a second, beyond which it does not

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Writes a text into an element; the browser lays out nothing where it is there already. */
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };

/** Fills an element with cells and returns them, the bottom row first; what a cell shows is its class. */
function fill(element, count) {
  const cells = Array.from({ length: count }, () => document.createElement("i"));
  element.replaceChildren(...cells);
  return cells;
}

function show(cells, looks) {
  cells.forEach((cell, index) => {
    const look = looks[index] ?? "";
    if (cell.className !== look) cell.className = look;
  });
}

/** Shows a piece in the middle of 4 x 4 cells; undefined: none. */
function showPiece(cells, shape) {
  const looks = [], bottom = Math.floor((4 - shape?.height) / 2);
  for (const [x, y] of shape?.cells ?? []) looks[(bottom + y) * 4 + x] = `piece-${shape.piece}`;
  show(cells, looks);
}

/** Calls visit(index) for every cell of a piece on a board. */
function eachCell(width, shape, column, row, visit) {
  for (const [x, y] of shape.cells) visit((row + y) * width + column + x);
}

/** Shows a stack with pieces on it, [look, {shape, column}, row] each, and with rows lit up. */
function showBoard(cells, board, { width, height }, pieces, lit) {
  const looks = Array.from(board, (value, index) =>
    value ? `stack piece-${value - 1}` : index < width * height ? "empty" : "");
  for (const [look, { shape, column }, row] of pieces) {
    eachCell(width, shape, column, row, (index) => { looks[index] += ` ${look}`; });
  }
  for (const y of lit) looks.fill("full", y * width, (y + 1) * width);
  show(cells, looks);
}

/** Lets a piece come to rest on a board, and removes the rows that are full then. */
function settle(board, width, shape, column, row, full) {
  eachCell(width, shape, column, row, (index) => { board[index] = shape.piece + 1; });
  for (const y of [...full].reverse()) {
    board.copyWithin(y * width, (y + 1) * width);
    board.fill(0, -width);
  }
}

/** Lets a piece rest in a row of a board of columns, which changes: what `land` of the engine returns, for a piece that slid there. */
function rest(columns, { width, height, rule }, { shape, column }, row) {
  const clears = rule === "clear-on-overflow" || row + shape.height <= height;
  for (const [x, y] of shape.cells) columns[column + x] |= 1 << row + y;
  const isFull = (y) => clears && columns.subarray(0, width).every((bits) => bits >> y & 1);
  const full = [0, 1, 2, 3].map((y) => row + y).filter(isFull);
  for (const y of [...full].reverse()) columns.forEach((bits, c) => { columns[c] = bits & (1 << y) - 1 | bits >>> y + 1 << y; });
  const over = !clears || columns.some((bits) => bits >> height);
  if (over) columns.fill(0);
  return { row, full, over };
}
