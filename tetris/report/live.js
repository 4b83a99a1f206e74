// Loads the page again while its run goes on: from the disk now and then, from a server when it has changed.

// A page that nothing has written for so long is that of a run that was killed.
const GIVEN_UP = 3600;
const SECONDS = location.protocol === "file:" ? 10 : 2;
let pressed = false;
for (const [event, down] of [["pointerdown", true], ["pointerup", false], ["pointercancel", false]]) {
  addEventListener(event, () => { pressed = down; }, true);
}

/** Whether the reader is in the middle of something that a reload would end. */
function busy() {
  const playing = [...document.querySelectorAll("tetris-player")].some((player) => player.playing);
  return document.hidden || pressed || playing || document.activeElement?.tagName === "SELECT";
}

async function changed() {
  if (location.protocol === "file:") return Date.now() - Date.parse(document.lastModified) < GIVEN_UP * 1000;
  const now = (await fetch(location.href, { method: "HEAD" })).headers.get("ETag");
  return now !== null && now !== document.documentElement.dataset.version;
}

/** Loads the page again; page.js shows what it finds here. */
function reload() {
  const sections = [...document.querySelectorAll("section[id]")];
  const read = sections.findLast((each) => each.getBoundingClientRect().top <= innerHeight / 2);
  const open = [...document.querySelectorAll("details")].flatMap((each, place) => (each.open ? [place] : []));
  history.scrollRestoration = "manual";
  const place = { section: read?.id ?? "", top: read?.getBoundingClientRect().top ?? 0 };
  history.replaceState({ choices: state, open, ...place }, "");
  location.reload();
}

setInterval(async () => {
  if (!busy() && await changed().catch(() => false) && !busy()) reload();
}, SECONDS * 1000);
