// Change a part of the page to what the server rendered now, and keep the elements that stay the same: so focus,
// selection, scroll positions and what a person typed or opened are not lost.

// Rows with data-key, and elements with an id, are matched by it; others by their name, first class and order.
const keyOf = (node) => (isElement(node) ? node.dataset.key || node.id || null : null);

// What the server rendered for an element with a module.
const rendered = new WeakMap();
export const remember = (element) => rendered.set(element, element.outerHTML);

// What people or modules change; the server does not know it.
const OWN = new Set(["open", "data-loaded", "aria-busy"]);

export function morphChildren(target, source) {
  const all = [...source.childNodes];
  const keys = new Set(all.map(keyOf));
  const keyed = new Map();
  for (const node of [...target.childNodes]) {
    const key = keyOf(node);
    // What is gone is removed first: the others need not move, and an element that moves loses the focus.
    if (key && keys.has(key)) keyed.set(key, node);
    else if (key) node.remove();
  }
  let current = target.firstChild;
  for (const [index, wanted] of all.entries()) {
    // Text has nothing to keep, and a page has white space that a region alone does not have: it must not shift
    // the elements.
    if (isElement(wanted)) current = removeUntil(current, isElement);
    const key = keyOf(wanted);
    if (!key && isGone(current, all, index)) current = removeUntil(current, (node) => isSame(node, wanted));
    const found = key ? keyed.get(key) : current;
    if (found && isSame(found, wanted)) {
      keyed.delete(key);
      if (found === current) current = current.nextSibling;
      else target.insertBefore(found, current);
      morph(found, wanted);
    } else {
      target.insertBefore(document.importNode(wanted, true), current);
    }
  }
  removeUntil(current, () => false);
}

// Remove a node and those after it, until one is wanted; return that one.
function removeUntil(node, isWanted) {
  while (node && !isWanted(node)) {
    const next = node.nextSibling;
    node.remove();
    node = next;
  }
  return node;
}

// Whether an element is not wanted any more, but one after it is wanted now.
function isGone(current, all, index) {
  if (!current || !isElement(current) || keyOf(current)) return false;
  if (all.slice(index).some((wanted) => isSame(current, wanted))) return false;
  for (let node = current.nextSibling; node && !keyOf(node); node = node.nextSibling) {
    if (isSame(node, all[index])) return true;
  }
  return false;
}

// Change the elements with a key in both; do not add, remove or move any.
export function morphKeyed(target, source) {
  const keyed = new Map([...target.querySelectorAll("[data-key]")].map((node) => [node.dataset.key, node]));
  for (const wanted of source.querySelectorAll("[data-key]")) {
    const found = keyed.get(wanted.dataset.key);
    if (found && isSame(found, wanted)) morph(found, wanted);
  }
}

// The keys that are in the new content and not on the page.
export function newKeys(target, source) {
  const known = new Set([...target.querySelectorAll("[data-key]")].map((node) => node.dataset.key));
  return [...source.querySelectorAll("[data-key]")].filter((node) => !known.has(node.dataset.key)).length;
}

function isElement(node) {
  return node.nodeType === Node.ELEMENT_NODE;
}

// The first class says what an element is, the others how it looks now.
function isSame(a, b) {
  if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || keyOf(a) !== keyOf(b)) return false;
  return Boolean(keyOf(a)) || !isElement(a) || a.classList.item(0) === b.classList.item(0);
}

function morph(target, source) {
  if (!isElement(target)) {
    if (target.nodeValue !== source.nodeValue) target.nodeValue = source.nodeValue;
    return;
  }
  // time.js shows the relative time: the same instant needs no change.
  if (target.dataset.ms !== undefined && target.dataset.ms === source.dataset.ms) return;
  // A module has its own idea of its element: it gets a new one, if the server renders another.
  if (source.dataset.module) {
    if (rendered.get(target) !== source.outerHTML) target.replaceWith(document.importNode(source, true));
    return;
  }
  // A module fills it.
  if ("own" in target.dataset && "own" in source.dataset) return;
  for (const { name, value } of source.attributes) {
    if (!OWN.has(name) && target.getAttribute(name) !== value) target.setAttribute(name, value);
  }
  for (const { name } of [...target.attributes]) {
    if (!OWN.has(name) && !source.hasAttribute(name)) target.removeAttribute(name);
  }
  morphChildren(target, source);
}
