// A form whose object was changed by others since it was opened: show both values, and merge them.

import { element, openDialog } from "./dialogs.js";
import { beforeOf, controlsOf, defaultOf, keepDraft, nameOf, setValue, valueOf } from "./drafts.js";

// Resolves to whether the form has the current version now, with what was typed into it: send it again.
export async function mergeConflict(form) {
  const response = await fetch(form.dataset.current ?? location.href, { credentials: "same-origin" });
  if (response.status === 404) throw new Error("It was deleted since you opened this form. Nothing was saved; what you typed is still here.");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const now = page.querySelector(`form[data-draft="${CSS.escape(form.dataset.draft)}"]`);
  if (!now) throw new Error("It was changed by others, and cannot be read now. Nothing was saved; what you typed is still here.");
  const current = new Map(controlsOf(now).map((control) => [nameOf(control), defaultOf(control)]));
  const fields = controlsOf(form).filter((control) => current.has(nameOf(control))).map((control) => {
    const [before, mine, theirs] = [beforeOf(control), valueOf(control), current.get(nameOf(control))];
    return { control, mine, theirs, isMine: mine !== before, isTheirs: theirs !== before && theirs !== mine };
  });
  const both = fields.filter(({ isMine, isTheirs }) => isMine && isTheirs);
  const said = await ask(fields.filter(({ isMine, isTheirs }) => isMine || isTheirs), both.length);
  if (!said) return false;
  for (const { control, mine, theirs, isMine, isTheirs } of fields) {
    setDefault(control, theirs);
    delete control.dataset.before;
    setValue(control, isMine && !(isTheirs && said === "theirs") ? mine : theirs);
  }
  form.dataset.version = now.dataset.version;
  keepDraft(form);
  return true;
}

function ask(changed, both) {
  const rows = changed.map(({ control, mine, theirs, isMine, isTheirs }) =>
    element("tr", {}, element("th", { scope: "row", textContent: labelOf(control) }), cell(mine, isMine), cell(theirs, isTheirs)));
  const head = element("thead", {}, element("tr", {}, ...["Field", "Yours", "Now"].map((textContent) => element("th", { scope: "col", textContent }))));
  const table = element("table", { className: "table conflict" }, head, element("tbody", {}, ...rows));
  const button = (value, textContent, kind = "") => element("button", { type: "submit", value, className: `button ${kind}`, textContent });
  const buttons = both
    ? [button("theirs", "Keep theirs where both changed"), button("mine", "Save mine over it", "danger")]
    : [button("mine", "Save both changes", "primary")];
  const parts = [
    element("h2", { textContent: "Changed by others meanwhile" }),
    element("p", { textContent: "It was changed since you opened this form. Nothing was saved, and what you typed is still here. Marked values differ from what you opened." }),
    table,
  ];
  return openDialog(parts, buttons, { label: "Changed by others meanwhile", cancel: "Edit further" });
}

function cell(value, isChanged) {
  const text = element("pre", { textContent: value === "true" ? "yes" : value === "false" ? "no" : value || "–" });
  return element("td", { className: isChanged ? "changed" : "" }, text);
}

function labelOf(control) {
  return control.labels?.[0]?.textContent.trim() || control.ariaLabel || nameOf(control);
}

function setDefault(control, value) {
  const mine = valueOf(control);
  if (control.type === "checkbox") control.defaultChecked = value === "true";
  else if (control.options) for (const option of control.options) option.defaultSelected = option.value === value;
  else control.defaultValue = value;
  if (control.type === "checkbox") control.checked = mine === "true";
  else control.value = mine;
}
