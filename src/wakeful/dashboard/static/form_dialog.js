// Buttons that ask for values before they call the API ([data-form]), and that show what is returned only once.

import { finish } from "./actions.js";
import { request } from "./api.js";
import { element, focusAgain, openDialog, toastLater } from "./dialogs.js";
import { forgetDraft, restoreDraft } from "./drafts.js";
import { write } from "./form_fields.js";

export default function formDialogs(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-form]");
    if (button && root.contains(button)) ask(button);
  });
}

let count = 0;

function ask(button) {
  const { method, path, done, title, submit, intro, show, body = "{}" } = button.dataset;
  const fields = JSON.parse(button.dataset.form).map((field) => ({ ...field, control: control(field) }));
  const problem = element("p", { className: "error", role: "alert" });
  const send = element("button", { type: "submit", className: `button ${button.classList.contains("danger") ? "danger" : "primary"}`, textContent: submit });
  const cancel = element("button", { type: "button", className: "button", textContent: "Cancel", onclick: () => dialog.close() });
  const form = element("form", { noValidate: false }, element("h2", { textContent: title }));
  if (intro) form.append(element("p", { className: "muted", textContent: intro }));
  form.append(...fields.map(row), problem, element("div", { className: "actions" }, cancel, send));
  const dialog = element("dialog", { className: "form-dialog", ariaLabel: title }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (send.ariaBusy === "true") return;
    problem.textContent = "";
    send.setAttribute("aria-busy", "true");
    try {
      const fixed = Object.entries(JSON.parse(body)).map(([name, value]) => [name, JSON.stringify(value)]);
      const raw = write(new Map([...fixed, ...values(fields)]));
      const result = await request(method, path, undefined, { raw });
      forgetDraft(form);
      dialog.close();
      if (show) await showOnce(result, show.split(","));
      finish(done, result);
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      send.removeAttribute("aria-busy");
    }
  });
  document.body.append(dialog);
  form.dataset.draft = `${method ?? "POST"} ${path} ${title}`;
  restoreDraft(form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    focusAgain(button);
  });
  dialog.showModal();
}

function control(field) {
  const id = `form-${++count}`;
  const common = { id, name: field.name, required: Boolean(field.required), value: field.value ?? "" };
  if (field.type === "select") {
    const select = element("select", { id, name: field.name });
    select.append(...field.options.map(([value, textContent]) => element("option", { value, textContent, selected: value === field.value })));
    return select;
  }
  if (field.type === "checkbox") return element("input", { id, name: field.name, type: "checkbox", checked: Boolean(field.value) });
  if (field.type === "textarea" || field.type === "json") return element("textarea", { ...common, rows: field.rows ?? 4, placeholder: field.placeholder ?? "" });
  return element("input", { ...common, type: field.type ?? "text", placeholder: field.placeholder ?? "", maxLength: field.maxlength ?? 2000, autocomplete: "off" });
}

function row({ label, hint, control }) {
  const parts = [element("label", { htmlFor: control.id, textContent: label }), control];
  if (hint) {
    control.setAttribute("aria-describedby", `${control.id}-hint`);
    parts.push(element("p", { className: "hint", id: `${control.id}-hint`, textContent: hint }));
  }
  return element("div", { className: "field" }, ...parts);
}

// The values as JSON texts. JSON is sent as it was written: JavaScript changes large numbers.
function values(fields) {
  const given = new Map();
  for (const { name, type, control } of fields) {
    if (type === "checkbox") given.set(name, JSON.stringify(control.checked));
    else if (control.value.trim() === "") continue;
    else if (type === "json") {
      try {
        JSON.parse(control.value);
      } catch {
        throw new Error(`${name}: this is not JSON; text needs quotation marks`);
      }
      given.set(name, control.value);
    } else if (type === "datetime-local") given.set(name, JSON.stringify(new Date(control.value).toISOString()));
    else given.set(name, JSON.stringify(control.value));
  }
  return given;
}

// Show values that the server returns only once; the page goes on when the dialog is closed.
async function showOnce(result, names) {
  const parts = [element("h2", { textContent: "Shown only once" }), element("p", { textContent: "Copy it now. It cannot be read again." })];
  for (const name of names) {
    if (!result[name]) continue;
    const text = element("pre", { textContent: result[name], tabIndex: 0 });
    const copy = element("button", { type: "button", className: "button quiet small", textContent: "Copy", "data-copy": "" });
    parts.push(element("p", { className: "label", textContent: name }), element("div", { className: "code" }, text, copy));
  }
  await openDialog(parts, [], { label: "Shown only once", cancel: "Close" });
  toastLater("Done");
}
