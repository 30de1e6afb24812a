// The menu with other workspaces, for keys of all workspaces: loaded when it opens, searched while typing.

import { root, workspace } from "./addresses.js";
import { get } from "./api.js";
import { element } from "./dialogs.js";

const SHOWN = 20;

export default function switcher(menu) {
  const search = menu.querySelector("input");
  const names = menu.querySelector("[data-names]");
  let timer = 0;
  let asked = 0;
  const load = async () => {
    const mine = ++asked;
    const query = new URLSearchParams({ prefix: search.value.trim(), limit: SHOWN });
    let content;
    try {
      const found = await get(`${root}/api/workspaces?${query}`);
      content = found.workspaces.map(({ name }) => {
        const link = element("a", { className: "button", href: `${root}/workspaces/${encodeURIComponent(name)}/`, textContent: name });
        if (name === workspace) link.setAttribute("aria-current", "true");
        return link;
      });
      if (!content.length) content = [element("p", { className: "muted", textContent: "No workspace begins with this." })];
      else if (content.length === SHOWN) content.push(element("p", { className: "muted", textContent: "Type to find others." }));
    } catch (error) {
      content = [element("p", { className: "muted", textContent: error.message })];
    }
    if (mine === asked) names.replaceChildren(...content);
  };
  menu.addEventListener("toggle", () => {
    if (!menu.open) return;
    load();
    search.focus();
  });
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, 150);
  });
}
