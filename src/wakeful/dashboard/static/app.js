// The entry of every page: shared behaviour, then the modules that the page names with data-module.

import { startActions } from "./actions.js";
import { startLive } from "./live.js";
import { remember } from "./morph.js";
import { startPalette } from "./palette.js";
import { startShell } from "./shell.js";
import { startTimes } from "./time.js";

startShell();
startTimes();
startActions();
startLive();
startPalette();
loadModules(document);
document.addEventListener("wakeful:replaced", (event) => loadModules(event.target));

// An element with data-module="name" is given to the default export of name.js.
export async function loadModules(root) {
  for (const element of root.querySelectorAll("[data-module]:not([data-loaded])")) {
    remember(element);
    element.dataset.loaded = "";
    const module = await import(`./${element.dataset.module}.js`);
    module.default(element);
  }
}
