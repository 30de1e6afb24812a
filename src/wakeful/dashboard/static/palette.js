// The command palette (Ctrl-K, or / where no search field is) and the list of shortcuts (?).
//
// A combobox in a dialog: the focus stays in the field, the arrow keys move through the options.

import { page, path, role, workspace } from "./addresses.js";
import { get, post } from "./api.js";
import { bulk } from "./bulk.js";
import { element, toast } from "./dialogs.js";
import { signOut, toggleTheme } from "./shell.js";

const DELAY_MS = 150;
const VERBS = { run: "Run", pause: "Pause", resume: "Resume" };
const mayWrite = role === "admin" || role === "agent";

export function startPalette() {
  if (!workspace) return;
  document.querySelector("[data-palette]")?.addEventListener("click", () => openPalette());
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (!document.querySelector("dialog[open]")) openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      event.preventDefault();
      const search = [...document.querySelectorAll("main input[type=search]")].find((each) => each.checkVisibility());
      if (search) search.select();
      else openPalette();
      search?.focus();
    } else if (event.key === "?") {
      event.preventDefault();
      openHelp();
    }
  });
}

const isTyping = (target) => target.isContentEditable || Boolean(target.closest("textarea, select, input:not([type=checkbox], [type=radio], [type=button])"));

// --- what can be chosen: {label, hint, run}; `sure` is false for one of several actions that the text may mean ---

const go = (url) => () => location.assign(url);

function pages() {
  return [...document.querySelectorAll("#navigation li a")].map((link) => ({
    label: link.querySelector("span").textContent,
    hint: "Page",
    run: go(link.href),
  }));
}

function commands() {
  const all = [
    { label: "Toggle theme", hint: "Light or dark", run: toggleTheme },
    { label: "Keyboard shortcuts", hint: "?", run: openHelp },
    { label: "Sign out", hint: "", run: signOut },
  ];
  if (mayWrite) all.unshift({ label: "New job", hint: "Create a job", run: go(page("jobs", "new")) });
  return all;
}

// The options for a text that need no request.
function localOptions(text) {
  const wanted = text.trim().toLowerCase();
  return [...pages(), ...commands()].filter((each) => each.label.toLowerCase().includes(wanted));
}

// "run digest": the verb and the rest.
function verbOf(text) {
  const [, verb, rest] = /^\s*(run|pause|resume)(?:\s+(.*))?$/i.exec(text) ?? [];
  if (!verb || (verb.toLowerCase() !== "run" && !mayWrite)) return null;
  return { verb: verb.toLowerCase(), rest: (rest ?? "").trim() };
}

async function remoteOptions(text, signal) {
  const action = verbOf(text);
  const q = (action ? action.rest : text).trim();
  if (!q && !action) return [];
  const found = await get(`${path("search")}?q=${encodeURIComponent(q)}`, { signal });
  if (action) {
    const fits = { run: () => true, pause: (job) => job.enabled, resume: (job) => !job.enabled };
    found.jobs = found.jobs.filter((job) => job.may.includes(action.verb));
    const named = found.jobs.filter((job) => [job.name, `${job.agentId}/${job.name}`].includes(q.toLowerCase()));
    return found.jobs.filter(fits[action.verb]).map((job, _, all) => ({
      label: `${VERBS[action.verb]} ${job.agentId}/${job.name}`,
      hint: "Action",
      run: () => act(action.verb, job),
      sure: Boolean(q) && (all.length === 1 || (named.length === 1 && named[0] === job)),
    }));
  }
  return [
    ...found.jobs.map((job) => ({
      label: `${job.agentId}/${job.name}`,
      hint: job.enabled ? "Job" : "Job, disabled",
      run: go(page("agents", job.agentId, "jobs", job.name)),
    })),
    ...found.agents.map((agent) => ({ label: agent, hint: "Agent", run: go(page("agents", agent)) })),
    ...found.runs.map((run) => ({
      label: run.id,
      hint: `Run of ${run.job ?? run.agentId}, ${run.state}`,
      run: go(page("runs", run.id)),
    })),
  ];
}

async function act(verb, job) {
  try {
    if (verb === "resume" && (await get(path("agents", job.agentId, "jobs", job.id))).disabledReason === "approval") {
      location.assign(page("agents", job.agentId, "jobs", job.name)); // it is approved by who has looked at it
      return;
    }
    if (verb !== "run") {
      await bulk(verb, { jobs: [job.id] });
      return;
    }
    const run = await post(path("agents", job.agentId, "jobs", job.name, "run"), {});
    toast(`${job.agentId}/${job.name} started`, { action: { label: "Show the run", run: go(page("runs", run.id)) }, seconds: 12 });
  } catch (error) {
    toast(error.message, { kind: "error" });
  }
}

// --- the dialog ---

export function openPalette(given = "") {
  const input = element("input", {
    type: "text", role: "combobox", id: "palette-input", autocomplete: "off", spellcheck: false,
    placeholder: "Go to a job, agent, run or page; or: run NAME, pause NAME", ariaLabel: "Search and commands",
    ariaExpanded: "true", ariaAutoComplete: "list", value: given,
  });
  input.setAttribute("aria-controls", "palette-options");
  const list = element("ul", { role: "listbox", id: "palette-options", ariaLabel: "Results" });
  const status = element("p", { className: "visually-hidden", role: "status" });
  const hint = element("p", { className: "palette-hint muted" },
    element("kbd", { textContent: "↑↓" }), " choose  ", element("kbd", { textContent: "Enter" }), " open  ", element("kbd", { textContent: "Esc" }), " close");
  const dialog = element("dialog", { className: "palette", ariaLabel: "Search and commands" }, input, list, status, hint);
  const before = document.activeElement;
  let options = [];
  let active = 0;
  let timer = 0;
  let pending = null;
  let searching = null; // the search of what was typed last; null: its results are shown
  let moved = false; // whether an option was chosen with the arrow keys since then

  const mark = (index, scroll = true) => {
    active = options.length ? (index + options.length) % options.length : 0;
    for (const [number, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(number === active));
    const item = list.children[active];
    if (item?.id) input.setAttribute("aria-activedescendant", item.id);
    else input.removeAttribute("aria-activedescendant");
    if (scroll) item?.scrollIntoView({ block: "nearest" });
  };
  const show = (found) => {
    const chosen = moved ? options[active]?.label : null;
    options = found.slice(0, 20);
    list.replaceChildren(...options.map((option, index) => {
      const item = element("li", { role: "option", id: `palette-option-${index}` },
        element("span", { className: "palette-label", textContent: option.label }),
        element("span", { className: "muted", textContent: option.hint }));
      item.addEventListener("click", () => choose(index));
      item.addEventListener("pointermove", () => { if (active !== index) mark(index, false); });
      return item;
    }));
    if (!options.length) list.append(element("li", { className: "muted palette-none", role: "presentation", textContent: "Nothing found" }));
    status.textContent = options.length === 1 ? "1 result" : `${options.length} results`;
    mark(Math.max(0, options.findIndex((option) => option.label === chosen)));
  };
  const choose = (index) => {
    const option = options[index];
    if (!option) return;
    dialog.close();
    option.run();
  };
  const search = async () => {
    timer = 0;
    pending?.abort();
    pending = new AbortController();
    const { signal } = pending;
    const text = input.value;
    try {
      const remote = await remoteOptions(text, signal);
      if (signal.aborted) return;
      // A verb means jobs; else names come before pages only if the text has no page.
      const local = verbOf(text) ? [] : localOptions(text);
      show(text.trim() ? [...remote, ...local] : local);
    } catch (error) {
      if (error.name === "AbortError") return;
      show([]); // Enter must not choose what was found for another text
      toast(error.message, { kind: "error" });
    }
  };

  input.addEventListener("input", () => {
    if (!verbOf(input.value)) show(localOptions(input.value));
    clearTimeout(timer);
    moved = false;
    const own = new Promise((resolve) => {
      timer = setTimeout(() => search().then(resolve), DELAY_MS);
    });
    searching = own;
    own.then(() => { if (searching === own) searching = null; });
  });
  input.addEventListener("keydown", async (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      mark(active + (event.key === "ArrowDown" ? 1 : -1));
      moved = true;
    } else if (event.key === "Enter") {
      event.preventDefault();
      const typed = input.value;
      // What was typed last is searched before something is chosen.
      const unseen = !moved && searching !== null;
      if (unseen) await searching;
      if (typed !== input.value || !dialog.open) return;
      // Nobody has seen yet which of several jobs is the first one.
      if (!unseen || options[active]?.sure !== false) choose(active);
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    clearTimeout(timer);
    pending?.abort();
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
  show(localOptions(given));
  if (given) search();
}

// --- the shortcuts ---

const SHORTCUTS = [
  ["Ctrl K", "Search and commands"],
  ["/", "Search on this page, or search and commands"],
  ["?", "These shortcuts"],
  ["Esc", "Close a dialog or a menu"],
  ["Tab", "Next control; with Shift, the previous one"],
  ["Space", "Select a row"],
  ["Shift Click", "Select all rows from the last one to this one"],
];

export function openHelp() {
  const rows = SHORTCUTS.flatMap(([keys, text]) => [
    element("dt", {}, ...keys.split(" ").map((key) => element("kbd", { textContent: key }))),
    element("dd", { textContent: text }),
  ]);
  const close = element("button", { type: "button", className: "button primary", textContent: "Close", onclick: () => dialog.close() });
  const examples = element("p", { className: "muted", textContent: "In search and commands, write run NAME, pause NAME or resume NAME, or the beginning of the id of a run." });
  const dialog = element("dialog", { className: "shortcuts", ariaLabel: "Keyboard shortcuts" },
    element("h2", { textContent: "Keyboard shortcuts" }), element("dl", {}, ...rows), examples, element("div", { className: "actions" }, close));
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}
