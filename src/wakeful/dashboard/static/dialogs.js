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
export function confirmDialog(question, { danger = false, confirm = "Continue", typed = null, content = null } = {}) {
  const input = typed === null ? null : element("input", { id: "confirm-typed", autocomplete: "off" });
  const ok = element("button", { type: "submit", value: "ok", className: `button ${danger ? "danger" : "primary"}`, textContent: confirm });
  const parts = [element("p", { textContent: question })];
  if (content) parts.push(content);
  if (input) {
    ok.disabled = true;
    input.addEventListener("input", () => (ok.disabled = input.value.trim() !== typed));
    parts.push(
      element("div", { className: "field" }, element("label", { htmlFor: "confirm-typed", textContent: `Type ${typed} to confirm` }), input),
    );
  }
  return openDialog(parts, [ok], { cancel: confirm.startsWith("Cancel") ? "Keep it" : "Cancel" }).then((value) => value === "ok");
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
