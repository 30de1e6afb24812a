// Drafts: what was typed into a form with data-draft survives a reload and a sign-in. They are kept in this tab, per
// user, address and form, until the form was sent or the user signs out. Secrets are not kept.

const PREFIX = "draft:";
const DELAY_MS = 300;
const SECRET = /secret|token|passw|authori[sz]ation|api[-_ ]?key|credential|bearer|wk_|:\/\/[^/\s]*@/i;
const user = document.querySelector('meta[name="user"]')?.content ?? "";
const waiting = new Set(); // forms that changed
let timer = 0;

export function startDrafts() {
  // Another person may have signed in since.
  forgetDrafts((key) => !key.startsWith(`${PREFIX}${user}:`));
  for (const type of ["input", "change"]) {
    document.addEventListener(type, ({ target }) => {
      const form = target.closest?.("form[data-draft]");
      if (!form) return;
      waiting.add(form);
      clearTimeout(timer);
      timer = setTimeout(flush, DELAY_MS);
    });
  }
  document.addEventListener("click", ({ target }) => {
    if (target.matches?.("[data-cancel]")) forgetDraft(target.closest("form"));
  });
  addEventListener("pagehide", flush);
  forgetOnSignOut();
}

// Who signs out leaves no drafts, in any tab.
export function forgetOnSignOut() {
  const channel = new BroadcastChannel("wakeful-sign-out");
  channel.addEventListener("message", () => forgetDrafts());
  document.addEventListener("submit", ({ target }) => {
    if (!target.matches("[data-sign-out]")) return;
    waiting.clear();
    forgetDrafts();
    channel.postMessage("");
  });
}

function flush() {
  clearTimeout(timer);
  for (const form of waiting) keepDraft(form);
  waiting.clear();
}

export function forgetDrafts(isMeant = () => true) {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX) && isMeant(key)) sessionStorage.removeItem(key);
}

// A form on a page has its place there; a dialog, what it sends to.
const keyOf = (form) => `${PREFIX}${user}:${location.pathname}${location.search}:${form.dataset.draft}`;

export const nameOf = (control) => control.name || control.id;

export function valueOf(control) {
  return control.type === "checkbox" ? String(control.checked) : control.value;
}

// What a control has without a person.
export function defaultOf(control) {
  if (control.type === "checkbox") return String(control.defaultChecked);
  if (control.options) return ([...control.options].find((option) => option.defaultSelected) ?? control.options[0])?.value ?? "";
  return control.defaultValue;
}

// What it had when the person began to type.
export const beforeOf = (control) => control.dataset.before ?? defaultOf(control);

export function setValue(control, value) {
  if (valueOf(control) === value) return;
  if (control.type === "checkbox") control.checked = value === "true";
  else control.value = value;
  for (const type of ["input", "change"]) control.dispatchEvent(new Event(type, { bubbles: true }));
}

// The controls of a form that have a value of their own.
export function controlsOf(form) {
  return [...form.elements].filter((control) => control.matches("input, select, textarea") && nameOf(control)
    && !["hidden", "submit", "file"].includes(control.type));
}

function isSecret(control) {
  return control.type === "password" || Boolean(control.closest('[data-control="headers"]')) || SECRET.test(valueOf(control));
}

// Keep what differs from the page as it was rendered. Call it after a form was sent and emptied, too.
export function keepDraft(form) {
  waiting.delete(form);
  if (!form.isConnected) return;
  const changed = controlsOf(form).filter((control) => valueOf(control) !== defaultOf(control) && !isSecret(control));
  const values = Object.fromEntries(changed.map((control) => [nameOf(control), [valueOf(control), beforeOf(control)]]));
  try {
    if (changed.length) sessionStorage.setItem(keyOf(form), JSON.stringify({ version: form.dataset.version, values }));
    else sessionStorage.removeItem(keyOf(form));
  } catch { /* the storage is full, or not allowed */ }
}

// The form was sent.
export function forgetDraft(form) {
  waiting.delete(form);
  sessionStorage.removeItem(keyOf(form));
}

// Fill a form with its draft, where nothing else was typed yet. It keeps the version that the draft was made for, so
// that a change by others in between is found when it is saved.
export function restoreDraft(form) {
  const text = sessionStorage.getItem(keyOf(form));
  if (!text) return;
  const { version, values } = JSON.parse(text);
  if (version !== undefined) form.dataset.version = version;
  for (const control of controlsOf(form)) {
    const [value, before] = values[nameOf(control)] ?? [];
    if (value === undefined || valueOf(control) !== defaultOf(control)) continue;
    control.dataset.before = before;
    setValue(control, value);
  }
  if (form.dataset.draft !== "quiet") form.prepend(notice(form));
}

function notice(form) {
  const made = document.createElement("div");
  made.className = "notice info split draft-notice";
  made.setAttribute("role", "status");
  const discard = document.createElement("button");
  Object.assign(discard, { type: "button", className: "button small", textContent: "Discard what I typed" });
  discard.addEventListener("click", () => {
    forgetDraft(form);
    form.reset();
    location.reload();
  });
  made.append("What you typed before is here again. It is not saved yet.", discard);
  return made;
}

// Whether a person has typed something that is not sent yet.
export function hasInput() {
  return [...document.querySelectorAll("form[data-draft]")]
    .some((form) => controlsOf(form).some((control) => valueOf(control) !== defaultOf(control)));
}
