// The list of jobs: search while typing, filters in the address, selection, and actions on what is selected.

import { path } from "./addresses.js";
import { request } from "./api.js";
import { bulk } from "./bulk.js";
import { confirmDialog, element, toast } from "./dialogs.js";
import { refreshRegion } from "./live.js";

const DELAY_MS = 200;

export default function jobs(root) {
  const region = root.querySelector("#list");
  const refresh = refresher(region);
  startMenus(root, region);
  const filterChanged = startSelection(root, region, refresh);
  startFilters(root.querySelector("[data-filters]"), () => {
    filterChanged();
    refresh();
  });
}

const rowOf = (item) => {
  const row = item.closest("tr");
  return { row, key: row.dataset.key, link: row.querySelector(".name a") };
};

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

// The menu of a row is filled when it opens: the menus of all rows would be half of the page.
function startMenus(root, region) {
  const all = root.querySelector("[data-row-actions]");
  const fill = (menu) => {
    const { row, link } = rowOf(menu);
    const actions = row.dataset.actions ?? all.dataset.rowActions;
    let holder = menu.querySelector(".menu-items");
    if (holder?.dataset.actions === actions) return;
    if (!holder) menu.append((holder = element("div", { className: "menu-items" })));
    holder.dataset.actions = actions;
    holder.replaceChildren(...actions.split(" ").map((name) => all.content.querySelector(`[data-row="${name}"]`).cloneNode(true)));
    for (const edit of holder.querySelectorAll("a")) edit.href = `${link.pathname}/edit`;
  };
  region.addEventListener("click", ({ target }) => {
    const menu = target.closest(".menu > summary")?.parentElement;
    if (menu) fill(menu);
  });
  region.addEventListener("toggle", ({ target }) => {
    if (target.open) fill(target);
  }, true);
  region.addEventListener("wakeful:replaced", () => region.querySelectorAll("details.menu[open]").forEach(fill));
}

// Returns what to call when the filter has changed.
function startSelection(root, region, refresh) {
  const bar = root.querySelector("[data-selection-bar]");
  if (!bar) return () => {};
  const selected = new Map(); // id: whether it waits for approval
  let everything = false; // all that match the filter, also on other pages
  let last = null; // the last box that was changed, for ranges
  let listed = address(); // of the filter that the list shows: the chosen one, once it is loaded
  const boxes = () => [...region.querySelectorAll("td.select input")];
  const found = () => region.querySelector("[data-found]");

  const show = () => {
    const all = boxes();
    for (const box of all) {
      box.checked = everything || selected.has(rowOf(box).key);
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
    if (on) selected.set(rowOf(box).key, "version" in rowOf(box).row.dataset);
    else selected.delete(rowOf(box).key);
  };

  region.addEventListener("click", (event) => {
    const box = event.target.closest("td.select input");
    if (box) {
      if (everything) for (const each of boxes()) set(each, true);
      everything = false;
      const all = boxes();
      const from = all.findIndex((each) => rowOf(each).key === last);
      const to = all.indexOf(box);
      const range = event.shiftKey && from >= 0 ? all.slice(Math.min(from, to), Math.max(from, to) + 1) : [box];
      for (const each of range) set(each, box.checked);
      last = rowOf(box).key;
      show();
    } else if (event.target.matches("[data-select-page]")) {
      const on = event.target.checked;
      everything = false;
      for (const each of boxes()) set(each, on);
      show();
    }
    const item = event.target.closest("button[data-row]");
    if (item?.dataset.row === "approve") approve(item);
    else if (item) act(item.dataset.row, { jobs: [rowOf(item).key] });
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
      const action = button.dataset.bulk;
      // What waits for approval is approved one by one, by who has looked at it.
      const ids = [...selected.keys()].filter((id) => action !== "resume" || !selected.get(id));
      if (everything) act(action, JSON.parse(found().dataset.selection));
      else if (ids.length) act(action, { jobs: ids });
      if (!everything && ids.length < selected.size) toast("Jobs that wait for approval are not resumed: approve each in its menu.");
    }
  });

  // Only as it is listed: it may have changed since.
  async function approve(item) {
    const { row, key, link } = rowOf(item);
    const version = Number(row.dataset.version);
    if (!(await confirmDialog(`Approve ${link.textContent}?`, { confirm: "Approve" }))) return;
    try {
      await request("POST", path("inbox", `approval:${key}`, "approve"), { version });
      toast(`${link.textContent} is approved`);
    } catch (error) {
      toast(error.message, { kind: "error" });
    }
    await refresh();
  }

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
