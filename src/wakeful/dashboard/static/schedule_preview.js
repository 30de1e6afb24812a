// The schedule in words, its next ticks in two zones with clock changes, and a quieter minute.

import { path } from "./addresses.js";
import { request } from "./api.js";
import { element } from "./dialogs.js";
import { relative, zone } from "./time.js";

const weekday = new Intl.DateTimeFormat("en", { weekday: "short", timeZone: "UTC" });
const date = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });
const own = new Intl.DateTimeFormat("en", { weekday: "short" });

export class SchedulePreview {
  // `onTake` is called with (field, text) when a suggestion is taken.
  constructor(root, onTake) {
    this.root = root;
    this.onTake = onTake;
    this.table = root.querySelector("table");
    this.controller = null;
  }

  // Ask for the preview of these fields (JSON text); throws the ApiError of the answer.
  async update(raw) {
    this.controller?.abort();
    this.controller = new AbortController();
    this.root.setAttribute("aria-busy", "true");
    try {
      this.show(await request("POST", path("schedules", "preview"), undefined, { raw, signal: this.controller.signal }));
    } catch (error) {
      if (error.name !== "AbortError") {
        this.clear();
        throw error;
      }
    } finally {
      this.root.removeAttribute("aria-busy");
    }
  }

  clear(text = "") {
    this.controller?.abort();
    this.root.querySelector("[data-explain]").textContent = text;
    this.root.querySelector("[data-peak]").replaceChildren();
    this.table.hidden = true;
    this.root.querySelector("[data-preview-empty]").hidden = Boolean(text);
  }

  show({ explain, ticks, clockChanges, tz, peak }) {
    this.clear(explain);
    const two = zone && zone !== tz;
    this.table.hidden = !ticks.length;
    const heads = [tz, ...(two ? [`${zone} (yours)`] : []), "From now"];
    this.table.tHead.replaceChildren(element("tr", {}, ...heads.map((text) => element("th", { scope: "col", textContent: text }))));
    const rows = [];
    const changes = [...clockChanges];
    let before = null;
    for (const tick of ticks) {
      while (changes.length && changes[0].atMs <= tick.atMs) rows.push(changeRow(changes.shift().note, heads.length));
      if (two && before !== null && offset(before) !== offset(tick.atMs)) rows.push(changeRow(`Your clocks change (${zone}).`, heads.length));
      rows.push(tickRow(tick, two));
      if (tick.note) rows.push(changeRow(tick.note, heads.length, "note"));
      before = tick.atMs;
    }
    this.table.tBodies[0].replaceChildren(...rows);
    if (peak) this.root.querySelector("[data-peak]").append(this.peak(peak));
  }

  peak({ message, schedule, jitter }) {
    const take = (field, text, label) => element("button", { type: "button", className: "button small", textContent: label, onclick: () => this.onTake(field, text) });
    const buttons = element("div", { className: "row" }, take("jitter", jitter, `Add a jitter of ${jitter}`));
    if (schedule) buttons.prepend(take("schedule", schedule, `Use ${schedule}`));
    return element("div", { className: "notice warning" }, element("p", { textContent: capital(message) + "." }), buttons);
  }
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);
const offset = (ms) => new Date(ms).getTimezoneOffset();

function tickRow(tick, two) {
  const day = tick.at.slice(0, 10);
  const seconds = tick.at.slice(17, 19) === "00" ? 16 : 19;
  const local = element("td", { textContent: `${weekday.format(new Date(`${day}T00:00Z`))} ${day} ${tick.at.slice(11, seconds)} ${tick.offset}` });
  const cells = [local];
  if (two) cells.push(element("td", { textContent: `${own.format(tick.atMs)} ${date.format(tick.atMs).slice(0, seconds)}` }));
  cells.push(element("td", {}, element("time", { dateTime: new Date(tick.atMs).toISOString(), textContent: relative(tick.atMs), "data-ms": tick.atMs })));
  const row = element("tr", {}, ...cells);
  if (tick.dst) row.dataset.dst = tick.dst;
  return row;
}

function changeRow(note, columns, kind = "change") {
  const sign = kind === "note" ? "⚠" : "⇄";
  return element("tr", { className: kind }, element("td", { colSpan: columns, textContent: `${sign} ${capital(note)}` }));
}
