// The list of jobs: search while typing, filters in the address, selection, and actions on what is selected.

import { bulk } from "./bulk.js";
import { refreshRegion } from "./live.js";

const DELAY_MS = 200;

export default function jobs(root) {
  const region = root.querySelector("#list");
  const refresh = refresher(region);
  const filterChanged = startSelection(root, region, refresh);
  startFilters(root.querySelector("[data-filters]"), () => {
    filterChanged();
    refresh();
  });
}

const address = () => location.pathname + location.search;

// One fetch at a time: a response is never replaced by an older one.
function refresher(region) {
  let busy = false;
  let again = false;
  return async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      await refreshRegion(region).catch(() => {});
    } while (again);
    busy = false;
  };
}

function startFilters(form, refresh) {
  form.querySelector("button:not([type])").hidden = true;
  let timer = 0;
  let typed = false; // whether the current entry of the history comes from typing
  const wanted = () => {
    const given = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) given.set(name, value.trim());
    const query = given.toString();
    return location.pathname + (query ? `?${query}` : "");
  };
  const apply = (typing = false) => {
    clearTimeout(timer);
    const to = wanted();
    if (to === address()) return;
    if (typing && typed) history.replaceState(null, "", to);
    else history.pushState(null, "", to);
    typed = typing;
    refresh();
  };
  form.addEventListener("input", (event) => {
    if (event.target.matches("select")) return;
    clearTimeout(timer);
    timer = setTimeout(() => apply(true), DELAY_MS);
  });
  form.addEventListener("change", (event) => apply(event.target.matches("[type=search]")));
  form.addEventListener("focusout", () => (typed = false));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  form.querySelector("[data-clear]").addEventListener("click", (event) => {
    event.preventDefault();
    for (const control of form.elements) if (control.name) control.value = "";
    apply();
    form.elements.q.focus();
  });
  addEventListener("popstate", () => {
    const query = new URLSearchParams(location.search);
    for (const control of form.elements) if (control.name) control.value = query.get(control.name) ?? "";
    typed = false;
    refresh();
  });
}

// Returns what to call when the filter has changed.
function startSelection(root, region, refresh) {
  const bar = root.querySelector("[data-selection-bar]");
  if (!bar) return () => {};
  const selected = new Map(); // id: name
  let everything = false; // all that match the filter, also on other pages
  let last = null; // the last box that was changed, for ranges
  let listed = address(); // of the filter that the list shows: the chosen one, once it is loaded
  const boxes = () => [...region.querySelectorAll("input[data-id]")];
  const found = () => region.querySelector("[data-found]");

  const show = () => {
    const all = boxes();
    for (const box of all) {
      box.checked = everything || selected.has(box.dataset.id);
      box.closest("tr").setAttribute("aria-selected", String(box.checked));
    }
    const page = region.querySelector("[data-select-page]");
    if (page) {
      page.checked = all.length > 0 && all.every((box) => box.checked);
      page.indeterminate = !page.checked && all.some((box) => box.checked);
    }
    const { number, exact } = found().dataset;
    const total = exact ? Number(number).toLocaleString("en-US") : "1,000+";
    bar.hidden = !everything && !selected.size;
    bar.querySelector("[data-selected]").textContent = everything
      ? `All ${total} jobs that match are selected`
      : `${selected.size.toLocaleString("en-US")} selected`;
    const more = bar.querySelector("[data-select-all]");
    more.textContent = `Select all ${total} that match`;
    more.hidden = everything || !page?.checked || Number(number) <= all.length || listed !== address();
  };
  const clear = () => {
    selected.clear();
    everything = false;
    show();
  };
  const set = (box, on) => {
    if (on) selected.set(box.dataset.id, box.dataset.name);
    else selected.delete(box.dataset.id);
  };

  region.addEventListener("click", (event) => {
    const box = event.target.closest("input[data-id]");
    if (box) {
      if (everything) for (const each of boxes()) set(each, true);
      everything = false;
      const all = boxes();
      const from = all.findIndex((each) => each.dataset.id === last);
      const to = all.indexOf(box);
      const range = event.shiftKey && from >= 0 ? all.slice(Math.min(from, to), Math.max(from, to) + 1) : [box];
      for (const each of range) set(each, box.checked);
      last = box.dataset.id;
      show();
    } else if (event.target.matches("[data-select-page]")) {
      const on = event.target.checked;
      everything = false;
      for (const each of boxes()) set(each, on);
      show();
    }
    const row = event.target.closest("[data-row]");
    if (row) act(row.dataset.row, { jobs: [row.dataset.id] });
  });
  bar.addEventListener("click", (event) => {
    if (event.target.closest("[data-select-all]")) {
      everything = true;
      show();
    } else if (event.target.closest("[data-select-none]")) {
      clear();
    }
    const button = event.target.closest("[data-bulk]");
    if (button) {
      const select = everything ? JSON.parse(found().dataset.selection) : { jobs: [...selected.keys()] };
      act(button.dataset.bulk, select);
    }
  });

  async function act(action, select) {
    const several = !select.jobs || select.jobs.length > 1 || selected.size > 1;
    if (await bulk(action, select, refresh)) {
      if (several || select.jobs?.every((id) => selected.has(id))) clear();
      await refresh();
    }
  }

  // Another filter is another list.
  const deselectAll = () => {
    everything = false;
    show();
  };
  region.addEventListener("wakeful:replaced", (event) => {
    const isOther = event.detail.address !== listed;
    listed = event.detail.address;
    if (isOther) deselectAll();
    else show();
  });
  show();
  return deselectAll;
}
