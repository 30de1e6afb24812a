// What a person does before the script for it has loaded: it is kept, and repeated when the script is there.
//
// The page can be used before its modules have loaded. Without this, a click in that time does nothing, and a form
// is sent as a plain form, so that what was typed is lost. app.js dispatches "wakeful:ready" on the document when the
// behaviour of all pages has started, and on each element with data-module when its module has started.

(() => {
  const BOX = "input[type=checkbox], input[type=radio]";
  const SCRIPTED = "button[type=button], form[data-auto] *"; // of no module, but nothing without a script
  let kept = []; // {type, target, submitter, checked}
  let started = false;

  const moduleOf = (target) => target.closest("[data-module]:not([data-loaded])");
  const waits = (target) => !started || Boolean(moduleOf(target));

  function keep({ type, target: at, submitter }) {
    // Of clicks, those on buttons and boxes; a box then has its new value. Links and menus work without a script.
    const target = type === "click" ? at.closest?.(`button[type=button], ${BOX}`) : at;
    if (!(target instanceof Element) || !waits(target) || !(moduleOf(target) || target.matches(SCRIPTED))) return;
    const isBox = target.matches(BOX);
    if (isBox && type !== "click") return; // the click is repeated
    kept = kept.filter((other) => other.type !== type || other.target !== target);
    kept.push({ type, target, submitter, checked: target.checked });
    return !isBox && (type === "click" || type === "submit");
  }

  function repeat({ type, target, submitter, checked }) {
    if (!target.isConnected) return;
    if (type === "submit") target.requestSubmit(submitter);
    else if (type !== "click") target.dispatchEvent(new Event(type, { bubbles: type !== "toggle" }));
    else {
      // The module may have set it, or not: the click sets it to what was chosen.
      if (checked !== undefined) target.checked = !checked;
      target.click();
    }
  }

  for (const type of ["click", "submit", "input", "change", "toggle"]) {
    const listen = (event) => {
      if (!keep(event)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    };
    document.addEventListener(type, listen, true);
  }
  document.addEventListener("wakeful:ready", (event) => {
    if (event.target === document) started = true;
    const due = kept.filter(({ target }) => !waits(target));
    kept = kept.filter(({ target }) => waits(target));
    due.forEach(repeat);
  });
})();
