// Follows a run: every two seconds it asks the server of the page for a new version, and shows what has changed.

let version = document.documentElement.dataset.version;

/** Shows the contents of a new version of this page. Details that the reader has opened stay open, a game goes on, or waits where it was stopped. */
function showVersion(page) {
  const oldParts = document.querySelectorAll("[data-live]");
  const newParts = page.querySelectorAll("[data-live]");
  oldParts.forEach((part, number) => {
    const wereOpen = [...part.querySelectorAll("details")].map((details) => details.open);
    part.replaceChildren(...newParts[number].childNodes);
    part.querySelectorAll("details").forEach((details, i) => { details.open = wereOpen[i] ?? false; });
  });
  document.title = page.title;
  const unit = xTitle();
  ({ runs } = JSON.parse(page.getElementById("report-data").textContent));
  if (xTitle() !== unit) state.zoom = null; // after ten minutes the numbers of a part in seconds would be minutes
  const newPlayers = page.querySelectorAll("tetris-player");
  document.querySelectorAll("tetris-player").forEach((player, number) => {
    const index = player.games?.state.index;
    if (player.playing || (index > 0 && index < player.count - 1)) return; // the reader has stopped it there
    player.replaceWith(newPlayers[number]);
    startGame();
  });
  redraw();
  watchWidths();
}

/** Starts the game of a run, unless the reader wants no motion. */
function startGame() {
  const player = document.querySelector("tetris-player");
  if (!player.board) setTimeout(startGame, 100);
  else if (!player.still.matches && !isComparison) player.setPlaying(true);
}

async function fetchVersion() {
  const now = (await fetch(location.href, { method: "HEAD" })).headers.get("ETag");
  if (now === null || now === version) return;
  const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
  if (!page.documentElement.dataset.version) return; // the run has not begun
  version = page.documentElement.dataset.version;
  showVersion(page);
}

/** Says that what is shown may be old, until the server answers again. */
function miss() {
  version = null;
  for (const badge of document.querySelectorAll(".badge")) badge.textContent = "the server does not answer: the run may be further";
}

startGame();
setInterval(() => { if (!document.hidden) fetchVersion().catch(miss); }, 2000);
