// Forms and buttons of the pages about agents, instances and incidents: data-form names what an element does.

import { finish } from "./actions.js";
import { request } from "./api.js";
import { confirmDialog, element, field, openDialog, showOnce, toast, toastLater } from "./dialogs.js";
import { mergeConflict } from "./conflict.js";
import { forgetDraft } from "./drafts.js";
import { write } from "./form_fields.js";

const SECRET = { title: "New secret", about: "The secret is shown only once. Save it where the receiver finds it.", close: "I have saved it" };

export default function start(item) {
  const run = FORMS[item.dataset.form];
  item.addEventListener(item.matches("form") ? "submit" : "click", async (event) => {
    event.preventDefault();
    const button = item.matches("form") ? item.querySelector("button:not([type=button])") : item;
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    clearErrors(item);
    let leaves = false;
    try {
      leaves = await run(item, item.matches("form") ? new FormData(item) : null);
      if (leaves && item.matches("form")) forgetDraft(item);
    } catch (error) {
      if (!showErrors(item, error)) toast(error.message, { kind: "error" });
    } finally {
      // Until the next page is there, a second click must not do it again.
      if (!leaves) button.removeAttribute("aria-busy");
    }
  });
}

// Each returns whether the page is left: not if it was cancelled.
const FORMS = {
  async conversation(form, data) {
    const name = String(data.get("session")).trim() || "main";
    return finish(`goto:${form.dataset.url}/${encodeURIComponent(name)}`);
  },

  async active(button) {
    const { api, name } = button.dataset;
    const active = button.dataset.active !== "true";
    if (!active && !(await confirmDialog(`Deactivate ${name}? Its jobs are paused, and it takes no messages.`, { confirm: "Deactivate" }))) return false;
    await request("PATCH", api, { active });
    return finish("reload");
  },

  async secret(button) {
    if (!(await confirmDialog("Create a new secret? Webhooks are signed with both secrets for a day.", { confirm: "Create a secret" }))) return false;
    const saved = await request("POST", `${button.dataset.api}/rotate-secret`);
    await showOnce({ "": saved.secret }, SECRET);
    return finish("reload");
  },

  async delete(button) {
    const { name, api, url } = button.dataset;
    if (!(await confirmDialog(`Delete the agent ${name} with its conversations? Its runs stay.`, { danger: true, confirm: "Delete", typed: name }))) return false;
    await request("DELETE", api);
    toastLater(`${name} is deleted`);
    return finish(`goto:${url}`);
  },

  async wake(form, data) {
    const message = String(data.get("message")).trim();
    const run = await request("POST", form.dataset.api, message ? { payload: { message } } : {});
    return finish("result:runs", run);
  },

  async signal(form, data) {
    // Sent again after its response was lost, it is the same signal.
    const asked = JSON.stringify([...data]);
    if (form.dataset.asked !== asked) Object.assign(form.dataset, { asked, event: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` });
    const event = { specversion: "1.0", id: form.dataset.event, source: "/dashboard", type: String(data.get("type")).trim() };
    const raw = write([...texts(event), ["data", json(data, "data") ?? "null"]]);
    const instance = encodeURIComponent(String(data.get("instance")));
    const run = await request("POST", `${form.dataset.api}?instance=${instance}`, undefined, { raw });
    delete form.dataset.asked;
    return finish("result:runs", run);
  },

  async pause(button) {
    const note = element("textarea", { id: "pause-note", rows: 2, maxLength: 500 });
    const ok = element("button", { type: "submit", value: "ok", className: "button primary", textContent: "Pause" });
    const said = await openDialog([element("p", { textContent: "Its signals wait until it is resumed." }), field("Note", note)], [ok], { label: "Pause" });
    if (said !== "ok") return false;
    await request("POST", `${button.dataset.api}/pause`, note.value.trim() ? { note: note.value.trim() } : {});
    return finish("reload");
  },

  async acknowledge(form, data) {
    const note = String(data.get("note")).trim();
    await request("POST", form.dataset.api, note ? { note } : {});
    return finish("reload");
  },

  async edit(form, data) {
    const { api, url, version } = form.dataset;
    const name = form.dataset.name ?? String(data.get("name")).trim();
    const headers = version === undefined ? { "if-none-match": "*" } : { "if-match": `"${version}"` };
    let saved;
    try {
      saved = await request("PUT", `${api}/${encodeURIComponent(name)}`, undefined, { raw: documentOf(data), headers });
    } catch (error) {
      if (error.status !== 412) throw error;
      if (version === undefined) throw new FieldError("name", `There is an agent ${name} already. Choose another name, or edit that one.`);
      return (await mergeConflict(form)) ? FORMS.edit(form, new FormData(form)) : false;
    }
    if (saved.secret) await showOnce({ "": saved.secret }, SECRET);
    toastLater(saved.warnings?.length ? saved.warnings.join(" ") : "Saved");
    return finish(`goto:${url}/${encodeURIComponent(name)}`);
  },
};

class FieldError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

// The text of the whole document: a PUT resets what it does not have.
function documentOf(data) {
  const made = { ...JSON.parse(json(data, "rest") ?? "{}") };
  for (const name of ["description", "tz", "channel", "to", "approval"]) {
    const value = String(data.get(name)).trim();
    if (value) made[name] = value;
  }
  made.active = data.get("active") !== null;
  made.evolution = data.get("evolution");
  const budget = {};
  for (const name of ["tokensPerDay", "costPerDay", "tokensPerRun", "costPerRun"]) {
    const value = String(data.get(name)).trim();
    if (value) budget[name] = Number(value);
  }
  if (Object.keys(budget).length) made.budget = budget;
  const whole = new Map(texts(made));
  for (const name of ["target", "heartbeat"]) {
    const text = json(data, name);
    if (text !== null) whole.set(name, text);
  }
  return write(whole);
}

// The JSON texts of the values of an object.
const texts = (values) => Object.entries(values).map(([name, value]) => [name, JSON.stringify(value)]);

// The JSON text of a control, as it was written: JavaScript changes large numbers. Null: it is empty.
function json(data, name) {
  const text = String(data.get(name) ?? "").trim();
  if (!text) return null;
  try {
    JSON.parse(text);
  } catch (error) {
    throw new FieldError(name, `This is not JSON: ${error.message}`);
  }
  return text;
}

function clearErrors(item) {
  for (const place of item.querySelectorAll(".error")) place.textContent = "";
  for (const control of item.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
}

// Show each line of an error at the control of its field; return whether the form has a place for it.
function showErrors(item, error) {
  if (!item.matches("form")) return false;
  const general = item.querySelector("[data-form-error]");
  let shown = false;
  for (const line of error.message.split("\n")) {
    const field = error.field ?? line.match(/^([A-Za-z]+)\b/)?.[1] ?? "";
    const control = field ? item.elements.namedItem(field) : null;
    const place = (control && item.querySelector(`#${CSS.escape(control.id)}-error`)) || general;
    if (!place) continue;
    place.textContent = place.textContent ? `${place.textContent} ${line}` : line;
    if (control && place !== general) {
      control.setAttribute("aria-invalid", "true");
      if (!shown) control.focus();
    }
    shown = true;
  }
  return shown;
}
