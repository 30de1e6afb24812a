// Dialogs and toasts, built from text only.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Show a message for a while. `action` is {label, run}, such as an undo.
export function toast(text, { kind = "", action = null, seconds = kind === "error" ? 12 : 6 } = {}) {
  const holder = document.querySelector(".toasts");
  const item = element("div", { className: `toast ${kind}` }, element("p", { textContent: text }));
  if (action) {
    item.append(
      element("button", {
        type: "button",
        textContent: action.label,
        onclick: () => {
          item.remove();
          action.run();
        },
      }),
    );
  }
  item.append(element("button", { type: "button", textContent: "×", ariaLabel: "Close", onclick: () => item.remove() }));
  holder.append(item);
  setTimeout(() => item.remove(), seconds * 1000);
  return item;
}

// Show a message after the next page has loaded.
export function toastLater(text) {
  sessionStorage.setItem("toast", text);
}

export function showWaitingToast() {
  const text = sessionStorage.getItem("toast");
  sessionStorage.removeItem("toast");
  if (text) toast(text);
}

// Ask a question; resolves to whether it was confirmed. `typed`: text that must be entered first.
export function confirmDialog(question, { danger = false, confirm = "Continue", typed = null } = {}) {
  const input = typed === null ? null : element("input", { id: "confirm-typed", autocomplete: "off" });
  const ok = element("button", { type: "submit", value: "ok", className: `button ${danger ? "danger" : "primary"}`, textContent: confirm });
  const parts = [element("p", { textContent: question })];
  if (input) {
    ok.disabled = true;
    input.addEventListener("input", () => (ok.disabled = input.value.trim() !== typed));
    parts.push(field(`Type ${typed} to confirm`, input));
  }
  return openDialog(parts, [ok], { cancel: confirm.startsWith("Cancel") ? "Keep it" : "Cancel" }).then((value) => value === "ok");
}

// A control, which has an id, with its label.
export function field(label, control, hint = "") {
  const made = element("div", { className: "field" }, element("label", { htmlFor: control.id, textContent: label }), control);
  if (hint) {
    control.setAttribute("aria-describedby", `${control.id}-hint`);
    made.append(element("p", { className: "hint", id: `${control.id}-hint`, textContent: hint }));
  }
  return made;
}

// Show values that the server returns only once: an object of names and texts. Resolves when it is closed.
export function showOnce(values, { title, about, close }) {
  const parts = [element("h2", { textContent: title }), element("p", { textContent: about })];
  for (const [name, textContent] of Object.entries(values)) {
    const copy = element("button", { type: "button", className: "button quiet small", textContent: "Copy", "data-copy": "" });
    if (name) parts.push(element("p", { className: "label", textContent: name }));
    parts.push(element("div", { className: "code" }, element("pre", { textContent, tabIndex: 0 }), copy));
  }
  return openDialog(parts, [], { label: title, cancel: close });
}

// Open a dialog that shows how far the work is, with a button to stop it.
export function openProgress(label, max, stopLabel) {
  const bar = element("progress", { max: Math.max(1, max), value: 0, ariaLabel: "Progress" });
  const text = element("p", {});
  const stop = element("button", { type: "button", className: "button", textContent: stopLabel });
  const dialog = element("dialog", { ariaLabel: label }, text, bar, element("div", { className: "actions" }, stop));
  const progress = {
    stopped: false,
    show(value) {
      bar.value = value;
      text.textContent = `${value.toLocaleString("en-US")} of ${max.toLocaleString("en-US")}`;
    },
    close() {
      dialog.close();
      dialog.remove();
    },
  };
  stop.addEventListener("click", () => { progress.stopped = true; });
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    progress.stopped = true;
  });
  progress.show(0);
  document.body.append(dialog);
  dialog.showModal();
  return progress;
}

// Open a dialog with a form; resolves to the value of the button that closed it ("" if cancelled).
export function openDialog(parts, buttons, { label = "Confirm", cancel: word = "Cancel" } = {}) {
  const cancel = element("button", { type: "button", className: "button", textContent: word, onclick: () => dialog.close("") });
  const form = element("form", { method: "dialog" }, ...parts, element("div", { className: "actions" }, cancel, ...buttons));
  const dialog = element("dialog", { ariaLabel: label }, form);
  document.body.append(dialog);
  const before = document.activeElement;
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      focusAgain(before);
      resolve(dialog.returnValue);
    });
  });
}

// Give the focus back. An item of a menu that is closed now cannot have it: its menu gets it.
export function focusAgain(item) {
  const menu = item?.closest?.("details.menu:not([open])");
  (menu?.querySelector("summary") ?? item)?.focus?.();
}
