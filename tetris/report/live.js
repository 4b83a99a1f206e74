// Follows a run: asks its server for the page now and then, and takes over what has changed.

let version = document.documentElement.dataset.version;

/** Shows what another version of this page holds; what the reader has opened, and a game at play, stay. */
function take(page) {
  const places = document.querySelectorAll("[data-live]"), news = page.querySelectorAll("[data-live]");
  places.forEach((place, number) => {
    const open = [...place.querySelectorAll("details")].map((each) => each.open);
    place.replaceChildren(...news[number].childNodes);
    place.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? false; });
  });
  document.title = page.title;
  ({ runs } = JSON.parse(page.getElementById("report-data").textContent));
  document.querySelectorAll("tetris-player").forEach((player, number) => {
    if (!player.playing) player.replaceWith(page.querySelectorAll("tetris-player")[number]);
  });
  begin();
  redraw();
  watchWidths();
}

/** Starts the game of a run, unless the reader wants no motion. */
function begin() {
  const player = document.querySelector("tetris-player");
  if (!player.board) setTimeout(begin, 100);
  else if (!player.still.matches && !several) player.setPlaying(true);
}

async function follow() {
  const now = (await fetch(location.href, { method: "HEAD" })).headers.get("ETag");
  if (now === null || now === version) return;
  const page = new DOMParser().parseFromString(await (await fetch(location.href)).text(), "text/html");
  if (!page.documentElement.dataset.version) return; // a run that is waited for
  version = page.documentElement.dataset.version;
  take(page);
}

begin();
setInterval(() => { if (!document.hidden) follow().catch(() => null); }, 2000);
