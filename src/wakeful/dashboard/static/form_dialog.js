// Buttons that ask for values before they call the API ([data-form]), and that show what is returned only once.

import { finish } from "./actions.js";
import { request } from "./api.js";
import { element, field, focusAgain, showOnce, toastLater } from "./dialogs.js";
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
  const fields = JSON.parse(button.dataset.form).map((each) => ({ ...each, control: control(each) }));
  const problem = element("p", { className: "error", role: "alert" });
  const send = element("button", { type: "submit", className: `button ${button.classList.contains("danger") ? "danger" : "primary"}`, textContent: submit });
  const cancel = element("button", { type: "button", className: "button", textContent: "Cancel", onclick: () => dialog.close() });
  const form = element("form", { noValidate: false }, element("h2", { textContent: title }));
  if (intro) form.append(element("p", { className: "muted", textContent: intro }));
  form.append(...fields.map(({ label, control, hint }) => field(label, control, hint)), problem, element("div", { className: "actions" }, cancel, send));
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
      if (show && result[show]) {
        await showOnce({ [show]: result[show] }, { title: "Shown only once", about: "Copy it now. It cannot be read again.", close: "Close" });
        toastLater("Done");
      }
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

function control(given) {
  const id = `form-${++count}`;
  const common = { id, name: given.name, required: Boolean(given.required), value: given.value ?? "" };
  if (given.type === "select") {
    const select = element("select", { id, name: given.name });
    select.append(...given.options.map(([value, textContent]) => element("option", { value, textContent, selected: value === given.value })));
    return select;
  }
  if (given.type === "checkbox") return element("input", { id, name: given.name, type: "checkbox", checked: Boolean(given.value) });
  if (given.type === "textarea" || given.type === "json") return element("textarea", { ...common, rows: given.rows ?? 4, placeholder: given.placeholder ?? "" });
  return element("input", { ...common, type: given.type ?? "text", placeholder: given.placeholder ?? "", maxLength: given.maxlength ?? 2000, autocomplete: "off" });
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
