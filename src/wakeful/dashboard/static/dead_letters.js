// Select dead letters, by group or one by one, and replay or discard them in steps.

import { request } from "./api.js";
import { confirmDialog, openProgress, toast, toastLater } from "./dialogs.js";

const STEP = 200;

export default function start(root) {
  const all = root.querySelector("[data-select-all]");
  if (!all) return;
  const boxes = () => [...root.querySelectorAll("[data-select]")];
  const buttons = [...root.querySelectorAll("[data-bulk]")];
  const show = () => {
    const found = boxes();
    const chosen = found.filter((box) => box.checked);
    const count = chosen.reduce((sum, box) => sum + Number(box.dataset.count), 0);
    root.querySelector("[data-selected]").textContent = count ? `${count.toLocaleString("en-US")} selected` : "";
    all.checked = found.length > 0 && chosen.length === found.length;
    all.indeterminate = chosen.length > 0 && chosen.length < found.length;
    for (const button of buttons) button.disabled = chosen.length === 0;
  };
  all.addEventListener("change", () => {
    for (const box of boxes()) box.checked = all.checked;
    show();
  });
  root.addEventListener("change", (event) => { if (event.target.matches("[data-select]")) show(); });
  document.addEventListener("wakeful:replaced", show);
  for (const button of buttons) {
    button.addEventListener("click", async () => {
      button.setAttribute("aria-busy", "true");
      try {
        await perform(root.dataset.api, button.dataset.bulk, boxes().filter((box) => box.checked));
      } catch (error) {
        toast(error.message, { kind: "error" });
      } finally {
        button.removeAttribute("aria-busy");
      }
    });
  }
  show();
}

// What each request selects: some ids, or a group.
function parts(chosen) {
  const ids = chosen.filter((box) => box.dataset.id).map((box) => box.dataset.id);
  const found = [];
  for (let first = 0; first < ids.length; first += STEP) found.push({ ids: ids.slice(first, first + STEP) });
  for (const { agent, job, cause, through } of chosen.filter((box) => box.dataset.cause).map((box) => box.dataset)) {
    found.push({ agent, job, cause, through });
  }
  return found;
}

// How many there are, also of groups that are larger than the page knows.
async function count(api, verb, selections) {
  let total = 0;
  let more = false;
  for (const body of selections) {
    if (body.ids) {
      total += body.ids.length;
      continue;
    }
    const counted = await request("POST", `${api}/${verb}`, { ...body, dryRun: true });
    total += counted.selected;
    more ||= counted.cursor !== null;
  }
  return [total, more];
}

async function perform(api, verb, chosen) {
  const selections = parts(chosen);
  const [total, more] = await count(api, verb, selections);
  const many = `${more ? "More than " : ""}${total.toLocaleString("en-US")} dead ${total === 1 ? "letter" : "letters"}`;
  const question = verb === "replay"
    ? `Replay ${many.toLowerCase()}? Each runs again as a new run, with the same idempotency key.`
    : `Discard ${many.toLowerCase()}? They stay failed and cannot be replayed.`;
  if (!(await confirmDialog(question, { danger: verb === "discard", confirm: verb === "replay" ? "Replay" : "Discard" }))) return;

  const progress = openProgress("Progress", total, "Stop");
  const result = { done: 0, left: 0, errors: [] };
  try {
    for (const body of selections) {
      let cursor = null;
      do {
        if (progress.stopped) break;
        const reply = await request("POST", `${api}/${verb}`, cursor ? { ...body, cursor } : body).catch((error) => {
          result.errors.push(error.message);
          return null;
        });
        if (!reply) break;
        const ids = reply.replayed ?? reply.discarded;
        result.done += ids.length;
        result.left += (reply.selected ?? body.ids.length) - ids.length;
        cursor = reply.cursor ?? null;
        progress.show(result.done + result.left);
      } while (cursor);
    }
  } finally {
    progress.close();
  }
  const word = verb === "replay" ? "replayed" : "discarded";
  const told = [`${result.done.toLocaleString("en-US")} ${word}.`];
  if (result.left) told.push(`${result.left.toLocaleString("en-US")} not: ${verb === "replay" ? "handled before, or without budget" : "handled before"}.`);
  if (progress.stopped) told.push("Stopped before the end.");
  told.push(...new Set(result.errors));
  if (result.errors.length && !result.done) {
    toast(told.join(" "), { kind: "error" });
    return;
  }
  toastLater(told.join(" "));
  location.reload();
}
