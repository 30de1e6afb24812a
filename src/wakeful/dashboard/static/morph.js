// Change a part of the page to what the server rendered now, and keep the elements that stay the same: so focus,
// selection, scroll positions and what a person typed or opened are not lost.

// Rows with data-key, and elements with an id, are matched by it; others by their position.
const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id || null : null);

// What the server rendered for an element with a module.
const rendered = new WeakMap();
export const remember = (element) => rendered.set(element, element.outerHTML);

// What people or modules change; the server does not know it.
const OWN = new Set(["open", "data-loaded", "aria-busy"]);

export function morphChildren(target, source) {
  const keyed = new Map();
  for (const node of target.childNodes) if (keyOf(node)) keyed.set(keyOf(node), node);
  let current = target.firstChild;
  for (const wanted of [...source.childNodes]) {
    // A page has white space before a region that the region alone does not have: it must not shift the elements.
    while (current && wanted.nodeType === Node.ELEMENT_NODE && isBlank(current)) {
      const next = current.nextSibling;
      current.remove();
      current = next;
    }
    const key = keyOf(wanted);
    const found = key ? keyed.get(key) : current && !keyOf(current) ? current : null;
    if (found && isSame(found, wanted)) {
      keyed.delete(key);
      if (found === current) current = current.nextSibling;
      else target.insertBefore(found, current);
      morph(found, wanted);
    } else {
      target.insertBefore(document.importNode(wanted, true), current);
    }
  }
  while (current) {
    const next = current.nextSibling;
    current.remove();
    current = next;
  }
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

function isBlank(node) {
  return node.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();
}

function isSame(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function morph(target, source) {
  if (target.nodeType !== Node.ELEMENT_NODE) {
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
  for (const { name, value } of source.attributes) {
    if (!OWN.has(name) && target.getAttribute(name) !== value) target.setAttribute(name, value);
  }
  for (const { name } of [...target.attributes]) {
    if (!OWN.has(name) && !source.hasAttribute(name)) target.removeAttribute(name);
  }
  morphChildren(target, source);
}
