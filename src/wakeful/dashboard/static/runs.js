// The list of runs: select some, and cancel, stop or replay those of them that can be.

import { path } from "./addresses.js";
import { request } from "./api.js";
import { confirmDialog, toast } from "./dialogs.js";
import { refreshRegion } from "./live.js";

const WORDS = { cancel: ["Cancel", "cancelled"], stop: ["Stop", "stopped"], replay: ["Replay", "replayed"] };
const AT_ONCE = 4;

export default function runs(root) {
  const region = root.querySelector("#list");
  const bar = root.querySelector("[data-selection-bar]");
  const selected = new Set(); // ids of runs
  const boxes = () => [...region.querySelectorAll("td.select input")];
  const idOf = (box) => box.closest("tr").dataset.key;
  const chosen = (action) => boxes().filter((box) => box.checked && box.dataset.can === action).map(idOf);

  const show = () => {
    const all = boxes();
    for (const box of all) box.checked = selected.has(idOf(box));
    const count = all.filter((box) => box.checked).length;
    const page = region.querySelector("[data-select-page]");
    if (page) {
      page.disabled = !all.length;
      page.checked = all.length > 0 && count === all.length;
      page.indeterminate = count > 0 && count < all.length;
    }
    bar.hidden = !count;
    bar.querySelector("[data-selected]").textContent = `${count} selected`;
    for (const button of bar.querySelectorAll("[data-runs]")) button.hidden = !chosen(button.dataset.runs).length;
  };
  const set = (box, on) => (on ? selected.add(idOf(box)) : selected.delete(idOf(box)));

  region.addEventListener("change", ({ target }) => {
    if (target.matches("td.select input")) set(target, target.checked);
    else if (target.matches("[data-select-page]")) for (const box of boxes()) set(box, target.checked);
    else return;
    show();
  });
  region.addEventListener("wakeful:replaced", show);
  bar.addEventListener("click", async ({ target }) => {
    if (target.closest("[data-select-none]")) selected.clear();
    const button = target.closest("[data-runs]");
    if (button) await act(button.dataset.runs);
    show();
  });

  async function act(action) {
    const ids = chosen(action);
    const [verb, done] = WORDS[action];
    const what = ids.length === 1 ? "1 run" : `${ids.length} runs`;
    if (!(await confirmDialog(`${verb} ${what}?`, { confirm: `${verb} ${what}`, danger: action !== "replay" }))) return;
    const errors = [];
    let count = 0;
    if (action === "replay") {
      try {
        count = (await request("POST", path("dead-letters", "replay"), { ids })).replayed.length;
      } catch (error) {
        errors.push(error.message);
      }
    }
    const each = async (id) => {
      try {
        await request("POST", path("runs", id, action));
        count += 1;
      } catch (error) {
        errors.push(error.message); // it has started, or is over
      }
    };
    for (let start = 0; action !== "replay" && start < ids.length; start += AT_ONCE) {
      await Promise.all(ids.slice(start, start + AT_ONCE).map(each));
    }
    for (const id of ids) selected.delete(id);
    const failed = errors.length ? `. Not ${done}: ${errors.length} (${errors[0]})` : "";
    toast(`${count} ${done}${failed}`, { kind: errors.length ? "error" : "" });
    await refreshRegion(region).catch(() => {});
  }
  show();
}
