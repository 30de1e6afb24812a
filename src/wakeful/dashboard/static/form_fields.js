// The fields of the job form: their values as JSON text, and their errors.
//
// Values are JSON text and not JavaScript values, so that numbers in a payload stay as they were written.

export class FieldError extends Error {}

// The JSON text of a control; undefined: it has its default.
export function read(holder) {
  const input = holder.querySelector("input, select, textarea");
  const text = input?.value ?? "";
  switch (holder.dataset.control) {
    case "flag":
      return input.checked ? "true" : "explicit" in holder.dataset ? "false" : undefined;
    case "number":
      return !text.trim() ? undefined : /^-?\d+(\.\d+)?$/.test(text.trim()) ? text.trim() : JSON.stringify(text.trim());
    case "choice":
      return !text ? undefined : text === "true" || text === "false" ? text : JSON.stringify(text);
    case "json":
      return readJson(text);
    case "lines":
      return list(lines(text).map((line) => JSON.stringify(line)));
    case "pairs":
    case "headers":
      return object(lines(text).map((line) => pair(line, holder.dataset.separator)));
    case "text":
      return text.trim() ? JSON.stringify(text) : undefined;
    case "object":
      return object(parts(holder));
    case "target":
      return target(holder);
    default:
      return text.trim() ? JSON.stringify(text.trim()) : undefined;
  }
}

function readJson(text) {
  if (!text.trim()) return undefined;
  try {
    JSON.parse(text);
  } catch (error) {
    throw new FieldError(`this is not JSON: ${error.message}`);
  }
  return text.trim();
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const list = (items) => (items.length ? `[${items.join(",")}]` : undefined);
const object = (pairs) => (pairs.length ? `{${pairs.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}` : undefined);

function pair(line, separator) {
  const at = line.indexOf(separator);
  if (at < 1) throw new FieldError(`write a name and a value on each line, as in name${separator}value`);
  return [line.slice(0, at).trim(), JSON.stringify(line.slice(at + 1).trim())];
}

function parts(holder) {
  const found = [];
  for (const part of holder.querySelectorAll(":scope [data-part]")) {
    const value = read(part);
    if (value !== undefined) found.push([part.dataset.part, value]);
  }
  return found;
}

function target(holder) {
  const kind = holder.querySelector("select").value;
  if (!kind) return undefined;
  const own = holder.querySelector(`[data-kind="${kind}"]`);
  if (kind === "json") return read(own.querySelector("[data-part]"));
  return object([["kind", JSON.stringify(kind)], ...parts(own)]);
}

// The fields of a form, by name.
export function fieldsOf(form) {
  return new Map([...form.querySelectorAll("[data-field]")].map((holder) => [holder.dataset.field, holder]));
}

// The JSON text of an object with these values; undefined values are left out, null is written.
export function write(values) {
  const given = [...values].filter(([, value]) => value !== undefined);
  return `{${given.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}

// Show an error beside a field, or remove it.
export function showError(holder, message = "") {
  const place = holder.querySelector(":scope > .error");
  if (!place) return;
  place.textContent = message;
  for (const input of holder.querySelectorAll("input, select, textarea")) {
    if (message) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
}

// Place the lines of an error of the API ("field: sentence") beside their fields; return the others.
export function placeErrors(fields, detail) {
  const rest = [];
  let first = null;
  for (const line of detail.split("\n")) {
    const found = /^([A-Za-z][\w.]*): (.+)$/s.exec(line);
    const holder = found && (fields.get(found[1]) ?? fields.get(ALIASES[found[1]]) ?? fields.get(found[1].replace(/Ms$/, "")));
    if (!holder) rest.push(line);
    else {
      showError(holder, found[2]);
      first ??= holder;
    }
  }
  if (first) reveal(first);
  return rest;
}

const ALIASES = { cron: "schedule", scheduleText: "schedule", webhookUrl: "target", workflowId: "target", version: "target", userId: "target", agent: "agentId" };

// Open the groups around a field and focus its control.
export function reveal(holder) {
  for (let at = holder.closest("details"); at; at = at.parentElement.closest("details")) at.open = true;
  holder.querySelector("input, select, textarea")?.focus();
}
