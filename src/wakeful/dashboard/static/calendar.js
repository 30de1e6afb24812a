// The calendar: arrow keys move between hours, and the zone of the viewer can be chosen.

import { zone } from "./time.js";

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export default function start(root) {
  const region = root.querySelector("[data-region]");
  offerZone(root.querySelector("[data-zones]"));
  region.addEventListener("keydown", move);
  region.addEventListener("focusin", (event) => {
    const cell = event.target.closest(".chart-heat a");
    if (cell) makeCurrent(region, cell);
  });
  region.addEventListener("pointerover", (event) => addTooltip(event.target.closest(".chart-heat a")));
  region.addEventListener("wakeful:replaced", () => prepare(region));
  prepare(region);
  region.querySelector(".heat-current")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function prepare(region) {
  const cells = region.querySelectorAll(".chart-heat a");
  // One cell takes part in the tab order; the arrow keys reach the others.
  const current = region.querySelector('.chart-heat a[tabindex="0"]')
    ?? region.querySelector(".chart-heat a[aria-current]") ?? cells[0];
  if (current) makeCurrent(region, current);
}

function makeCurrent(region, cell) {
  for (const each of region.querySelectorAll(".chart-heat a")) each.setAttribute("tabindex", each === cell ? "0" : "-1");
}

// Tooltips are elements in SVG: they are made when they are needed, so that the first paint has fewer elements.
function addTooltip(cell) {
  if (!cell || cell.querySelector("title")) return;
  const title = document.createElementNS(cell.namespaceURI, "title");
  title.textContent = cell.getAttribute("aria-label");
  cell.append(title);
}

function move(event) {
  const cell = event.target.closest(".chart-heat a");
  const step = STEPS[event.key];
  if (!cell || !step) return;
  event.preventDefault();
  const chart = cell.closest("svg");
  let column = Number(cell.dataset.column) + step[0];
  let row = Number(cell.dataset.row) + step[1];
  // An hour that the clocks skip has no cell: go on in the same direction.
  for (let tries = 0; tries < 3; tries += 1, column += step[0], row += step[1]) {
    const next = chart.querySelector(`a[data-column="${column}"][data-row="${row}"]`);
    if (next) {
      next.focus();
      return;
    }
  }
}

function offerZone(select) {
  if (!zone || [...select.options].some((option) => option.value === zone || option.text.startsWith(zone))) return;
  select.add(new Option(`${zone} (yours)`, zone));
}
