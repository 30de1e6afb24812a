// What a person does before the script for it has loaded: it is kept, and repeated when the script is there.
//
// The page can be used before its modules have loaded. Without this, a click in that time does nothing, and a form
// is sent as a plain form, so that what was typed is lost. app.js dispatches "wakeful:ready" on the document when the
// behaviour of all pages has started, and on each element with data-module when its module has started.

(() => {
  const CONTROLS = "button[type=button], summary, input[type=checkbox], input[type=radio]";
  const SCRIPTED = "button[type=button], form[data-auto] *"; // of no module, but nothing without a script
  let kept = []; // {type, target, submitter}
  let started = false;

  const moduleOf = (target) => target.closest("[data-module]:not([data-loaded])");
  const waits = (target) => !started || Boolean(moduleOf(target));

  function keep(event) {
    if (!(event.target instanceof Element) || !waits(event.target)) return;
    const { type, submitter } = event;
    const target = type === "click" ? event.target.closest(CONTROLS) : event.target;
    // Links, and most controls outside of modules, work without a script.
    if (!target || !(moduleOf(target) || target.matches(SCRIPTED))) return;
    if (type === "click" || type === "submit") {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    // A second click on a button is impatience; on a box or a menu it takes the first one back.
    const isSame = (other) => other.type === type && other.target === target;
    if (target.matches("summary, input[type=checkbox]") && type === "click" || !kept.some(isSame)) {
      kept.push({ type, target, submitter });
    }
  }

  function repeat({ type, target, submitter }) {
    if (!target.isConnected) return;
    if (type === "click") target.click();
    else if (type === "submit") target.requestSubmit(submitter);
    else target.dispatchEvent(new Event(type, { bubbles: true }));
  }

  for (const type of ["click", "submit", "input", "change"]) document.addEventListener(type, keep, true);
  document.addEventListener("wakeful:ready", (event) => {
    if (event.target === document) started = true;
    const due = kept.filter(({ target }) => !waits(target));
    kept = kept.filter(({ target }) => waits(target));
    due.forEach(repeat);
  });
})();
