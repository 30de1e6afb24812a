// The entry of every page: shared behaviour, then the modules that the page names with data-module.

import { startActions } from "./actions.js";
import { toast } from "./dialogs.js";
import { restoreDraft, startDrafts } from "./drafts.js";
import { startLive } from "./live.js";
import { remember } from "./morph.js";
import { startPalette } from "./palette.js";
import { startShell } from "./shell.js";
import { startTimes } from "./time.js";

const found = new WeakSet(); // elements whose module is loaded or being loaded

startShell();
startTimes();
startDrafts();
startActions();
startLive();
startPalette();
ready(document);
loadModules(document);
document.addEventListener("wakeful:replaced", (event) => loadModules(event.target));

// An element with data-module="name" is given to the default export of name.js.
export function loadModules(root) {
  for (const element of root.querySelectorAll("[data-module]:not([data-loaded])")) {
    if (found.has(element)) continue;
    found.add(element);
    remember(element);
    load(element);
  }
}

async function load(element) {
  try {
    const module = await import(`./${element.dataset.module}.js`).catch(() => null);
    if (module) {
      module.default(element);
      for (const form of [element, ...element.querySelectorAll("form")]) if (form.matches("form[data-draft]")) restoreDraft(form);
    }
    if (!module) toast("A part of this page could not be loaded. Reload the page.", { kind: "error" });
  } finally {
    element.dataset.loaded = "";
    ready(element);
  }
}

// early_events.js repeats what was done before.
function ready(target) {
  target.dispatchEvent(new Event("wakeful:ready", { bubbles: true }));
}
