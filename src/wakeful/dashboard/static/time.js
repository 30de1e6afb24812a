// Relative times that stay correct, and absolute times in the zone of the viewer.

import { root } from "./addresses.js";

// Each unit with the distance from which the next one is used, as in formats.py.
const DISTANCES = [["s", 1000, 60000], ["min", 60000, 3600000], ["h", 3600000, 172800000], ["d", 86400000, Infinity]];
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

const timeOfDay = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const withDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
const DAY_MS = 86_400_000;

// The time of day in the zone of the viewer, with the date unless it is near. Touch devices show no titles.
function clock(ms, now = Date.now()) {
  const away = Math.abs(ms - now);
  return away < DAY_MS / 2 ? timeOfDay.format(ms) : away < 300 * DAY_MS ? withDay.format(ms) : "";
}

export function relative(ms, now = Date.now()) {
  const away = Math.abs(ms - now);
  if (away < 1000) return "now";
  const [unit, size] = DISTANCES.find(([, size, end]) => Math.round(away / size) * size < end);
  const text = `${Math.round(away / size)} ${unit}`;
  return ms > now ? `in ${text}` : `${text} ago`;
}

// The server counts "today" in this zone.
export function nameZone() {
  document.cookie = `wakeful_tz=${zone}; path=${root}/; max-age=31536000; samesite=strict`;
}

export function startTimes() {
  nameZone();
  update(document);
  setInterval(() => update(document), 1000);
  document.addEventListener("wakeful:replaced", (event) => update(event.target));
}

function update(root) {
  if (document.hidden) return;
  for (const item of root.querySelectorAll("time[data-ms]")) {
    const ms = Number(item.dataset.ms);
    const text = relative(ms);
    if (item.textContent !== text) item.textContent = text;
    if (!item.dataset.zoned) {
      item.dataset.zoned = "1";
      const text = item.matches("[data-plain], [data-figure]") || item.closest("h1, h2, svg") ? "" : clock(ms);
      if (text) item.dataset.clock = text;
      const given = item.title;
      item.title = `${absolute.format(ms)} (${zone})${given ? `\n${given}` : ""}`;
    }
  }
}
