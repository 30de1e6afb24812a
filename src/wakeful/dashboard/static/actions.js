// Buttons that call the API ([data-action]), buttons that copy ([data-copy]), and menus.

import { page } from "./addresses.js";
import { request } from "./api.js";
import { confirmDialog, showWaitingToast, toast } from "./dialogs.js";

export function startActions() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action], [data-copy]");
    if (button && !button.disabled) {
      event.preventDefault();
      if ("copy" in button.dataset) copy(button);
      else run(button);
    }
    // A click that early_events.js repeats may be older than the menu.
    if (!event.isTrusted) return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (menu.contains(event.target) && !event.target.closest(".menu-items .button")) continue;
      // What is hidden loses the focus.
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  // A page that the browser kept and shows again is used again.
  addEventListener("pageshow", ({ persisted }) => {
    if (persisted) for (const button of document.querySelectorAll("[aria-busy=true]")) button.removeAttribute("aria-busy");
  });
  showWaitingToast();
}

// Call the API as a button says, and do what it names afterwards.
export async function run(button) {
  if (button.ariaBusy === "true") return null;
  const { method = "POST", path, body, confirm, done = "reload", version } = button.dataset;
  if (confirm && !(await confirmDialog(confirm, { danger: button.classList.contains("danger"), confirm: button.dataset.verb ?? button.textContent.trim() }))) return null;
  button.setAttribute("aria-busy", "true");
  let leaves = false;
  try {
    const result = await request(method, path, body === undefined ? undefined : JSON.parse(body), version ? { headers: { "if-match": `"${version}"` } } : {});
    button.dispatchEvent(new CustomEvent("wakeful:done", { bubbles: true, detail: result }));
    leaves = finish(done, result);
    return result;
  } catch (error) {
    toast(error.message, { kind: "error" });
    return null;
  } finally {
    // Until the next page is there, a second click must not do it again.
    if (!leaves) button.removeAttribute("aria-busy");
  }
}

// reload, goto:URL, result:PAGE (the page of what was created), or nothing. Returns whether the page is left.
export function finish(done, result = {}) {
  const [what, ...rest] = done.split(":");
  const text = rest.join(":");
  if (what === "reload") location.reload();
  else if (what === "goto") location.assign(text);
  else if (what === "result") location.assign(result.id ? page(text, result.id) : location.href);
  return ["reload", "goto", "result"].includes(what);
}

async function copy(button) {
  const source = button.closest(".code")?.querySelector("pre") ?? document.getElementById(button.dataset.copy);
  const text = source.value ?? source.textContent;
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    // Without HTTPS the clipboard is not available: select the text instead.
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    toast("Selected: press Ctrl-C to copy");
  }
}
