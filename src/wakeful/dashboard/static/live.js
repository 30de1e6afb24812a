// Live updates: one event stream per tab, open while the tab is visible.
//
// The server sends at most one summary of all changes in two seconds; after a quiet time, the first one comes at once.
// It is dispatched as "wakeful:changes" on the document. Figures ([data-figure]) are updated from it. Regions
// ([data-region]) whose data-on matches are fetched again, all together and at most every few seconds.

import { path, workspace } from "./addresses.js";
import { toast } from "./dialogs.js";
import { morphChildren, morphKeyed, newKeys } from "./morph.js";

const INTERVAL_MS = 2000;
// The time between two fetches; longer if the server only says that anything may have changed, and if the page
// needs one fetch after the other.
const FETCH_MS = 5000;
const INEXACT_MS = 15000;
const BUSY_FACTOR = 1.5;
// Equal pages get the event at the same time: they fetch within the time that the server keeps the response.
const SPREAD_MS = 1000;
const LONGEST_RETRY_MS = 30000;
// A tab that is hidden for a moment keeps its stream.
const HIDDEN_MS = 5000;
// Without an event for so long, the connection is dead: the server sends one every 15 s.
const SILENCE_MS = 40000;
const PENDING_MS = 1000;

const stream = { source: null, after: 0, failures: 0, timer: 0, silence: 0 };
const dirty = new Map(); // the id of a region: how long it may wait
const shown = new WeakMap(); // a region: the number of the request whose response it shows
const addresses = new WeakMap(); // a region: the address that it shows, if that is not the one that was opened
const opened = location.pathname + location.search;
let requests = 0;
let gone = null; // the message that what the page is about was deleted
let fetching = false;
let fetchTimer = 0;
let fetchAt = 0;
let fetchedAt = -Infinity;
let aheadMs = 0; // how far the clock of the server is ahead of performance.now()
let busy = 1; // how much longer than FETCH_MS a page waits that changes all the time
const phase = phaseOf(opened);

export function startLive() {
  if (!workspace) return;
  stream.after = Number(document.querySelector('meta[name="events-after"]')?.content ?? 0);
  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(close, HIDDEN_MS);
    else if (!stream.source) connect();
  });
  addEventListener("online", () => { if (!document.hidden) connect(); });
  // A stream would keep the page out of the back-forward cache.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted && !document.hidden) connect(); });
  if (!document.hidden) connect();
  document.querySelectorAll("[data-region]").forEach(lookAgain);
}

// --- the stream ---

function connect() {
  close();
  const source = new EventSource(`${path("events")}?coalesceMs=${INTERVAL_MS}&after=${stream.after}`);
  stream.source = source;
  source.addEventListener("changes", (event) => {
    stream.failures = 0;
    received(event);
    show("Live", "on");
    applyChanges(JSON.parse(event.data));
  });
  source.addEventListener("reset", (event) => {
    received(event);
    refreshAll();
  });
  source.addEventListener("error", () => { if (source === stream.source) retry(); });
  watchSilence();
}

function received(event) {
  stream.after = Number(event.lastEventId) || stream.after;
  watchSilence();
}

function watchSilence() {
  clearTimeout(stream.silence);
  stream.silence = setTimeout(retry, SILENCE_MS);
}

function close() {
  clearTimeout(stream.timer);
  clearTimeout(stream.silence);
  stream.source?.close();
  stream.source = null;
}

// Connect again later: not all tabs at once, and less often if it fails again.
function retry() {
  close();
  stream.failures += 1;
  if (stream.failures > 1) show(navigator.onLine ? "Reconnecting…" : "Offline", "off");
  if (stream.failures % 4 === 0) checkSession();
  const longest = Math.min(LONGEST_RETRY_MS, 500 * 2 ** stream.failures);
  stream.timer = setTimeout(() => { if (!document.hidden) connect(); }, longest * (0.5 + Math.random() / 2));
}

// An event stream does not report its status: ask whether the session has ended.
async function checkSession() {
  try {
    const response = await fetch(path("status"), { credentials: "same-origin" });
    if (response.status === 401 && (await sessionEnded())) connect();
  } catch { /* the server cannot be reached */ }
}

const sessionEnded = () => import("./sign_in_again.js").then((module) => module.sessionEnded());

function show(text, state) {
  const place = document.querySelector("[data-live-state]");
  if (!place || place.textContent === text) return;
  place.textContent = text;
  place.dataset.state = state;
}

// --- changes ---

function applyChanges(changes) {
  aheadMs = changes.nowMs - performance.now();
  showFigures(changes);
  document.dispatchEvent(new CustomEvent("wakeful:changes", { detail: changes }));
  for (const region of document.querySelectorAll("[data-region]")) {
    const match = matchOf(region.dataset.on ?? "", changes);
    if (match) mark(region.id, match === "exact" ? FETCH_MS : INEXACT_MS);
  }
}

const LISTS = { run: "runs", job: "jobs", agent: "agents", incident: "incidents" };

// Whether a region is concerned: "exact", "maybe" (a list was cut) or null.
export function matchOf(words, changes) {
  let match = null;
  for (const word of words.split(/\s+/).filter(Boolean)) {
    const [kind, ...rest] = word.split(":");
    if (!rest.length) {
      if (changes.kinds.includes(kind) || kind === "figures") return "exact";
      if (kind === "agents" && changes.changed.agents.length) return "exact";
    } else if (changes.changed[LISTS[kind]]?.includes(rest.join(":"))) {
      return "exact";
    } else if (changes.many.includes(LISTS[kind])) {
      match = "maybe";
    }
  }
  return match;
}

function showFigures({ figures, more }) {
  for (const element of document.querySelectorAll("[data-figure]")) {
    const name = NAVIGATION[element.dataset.figure] ?? element.dataset.figure;
    if (!(name in figures)) continue;
    const value = figures[name];
    if (element.matches("time")) {
      showTime(element, value);
      continue;
    }
    const text = value === null ? "–" : value.toLocaleString("en-US") + (more.includes(name) ? "+" : "");
    if (element.dataset.figure === "nav-inbox" && value && element.textContent && element.textContent !== text) announce(`Inbox: ${text}`);
    if (element.textContent !== text) element.textContent = text;
    if (element.dataset.figure in NAVIGATION) element.hidden = !value;
    if (element.dataset.figureTone) {
      (element.closest(".figure") ?? element).classList.toggle(element.dataset.figureTone, value > 0);
    }
  }
}

// The numbers in the navigation are shown only if they are not zero.
const NAVIGATION = { "nav-dead-letters": "deadLetters", "nav-incidents": "openIncidents", "nav-inbox": "inbox" };

function showTime(element, ms) {
  if (ms === null) {
    element.removeAttribute("data-ms");
    element.textContent = "–";
  } else if (element.dataset.ms !== String(ms)) {
    element.dataset.ms = ms;
    element.dateTime = new Date(ms).toISOString();
    element.title = "";
    delete element.dataset.zoned;
  }
}

// --- regions ---

function refreshAll() {
  for (const region of document.querySelectorAll("[data-region]")) mark(region.id, FETCH_MS);
}

function mark(id, wait) {
  if (!dirty.has(id) || dirty.get(id) > wait) dirty.set(id, wait);
  schedule();
}

function schedule() {
  if (!dirty.size || fetching) return;
  const wait = Math.min(Math.min(...dirty.values()) * busy, INEXACT_MS);
  const at = Math.max(together(fetchedAt, wait), performance.now()) + Math.random() * SPREAD_MS;
  if (fetchTimer && fetchAt <= at) return;
  clearTimeout(fetchTimer);
  fetchAt = at;
  fetchTimer = setTimeout(fetchDirty, at - performance.now());
}

// When a page may fetch again. Pages that change all the time fetch at the multiples of their wait on the clock of
// the server, so that equal pages share one response; other pages at another part of it, so that the server does not
// render all pages at once. The spread allows for events that arrive late.
export function together(fetchedAt, wait, ahead = aheadMs, part = phase) {
  const begin = part * wait - ahead;
  const shared = Math.floor((fetchedAt + wait + SPREAD_MS - begin) / wait) * wait + begin;
  return Math.max(shared, fetchedAt + FETCH_MS);
}

// A number from 0 to 1 that is the same for equal addresses, and spread evenly over different ones.
export function phaseOf(address) {
  let hash = 0x811c9dc5;
  for (const character of address) hash = Math.imul(hash ^ character.codePointAt(0), 0x01000193) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b) >>> 0;
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
}

async function fetchDirty() {
  fetchTimer = 0;
  if (document.hidden || isSelecting()) {
    // The next event, or the next look, schedules it again.
    setTimeout(schedule, FETCH_MS);
    return;
  }
  // The page waited for this fetch: the next one may wait longer. After a quiet time it need not.
  busy = performance.now() - fetchedAt < 2 * FETCH_MS * busy ? Math.min(busy * BUSY_FACTOR, INEXACT_MS / FETCH_MS) : 1;
  const regions = [...dirty.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  dirty.clear();
  fetching = true;
  const failed = await refreshRegions(regions).catch(() => true);
  fetching = false;
  fetchedAt = performance.now();
  if (failed) for (const region of regions) mark(region.id, INEXACT_MS);
  schedule();
}

// A person who selects text must not lose it.
function isSelecting() {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed
    && selection.anchorNode?.parentElement?.closest("[data-region]"));
}

// Replace the content of a region by what the server renders now.
export const refreshRegion = (region) => refreshRegions([region], { all: true });

// Fetch regions of this page, all in one request. With `all`, new rows of a list that waits are shown too. Returns
// true if the server failed, so that the regions must be fetched again.
export async function refreshRegions(regions, { all = false } = {}) {
  if (!regions.length) return;
  const names = regions.map((region) => region.id).join(",");
  const request = ++requests;
  // The server may send what it rendered for another page, if that shows the events that this page has received.
  const headers = { "x-wakeful-region": names, "x-wakeful-after": all ? "now" : String(stream.after) };
  const address = location.pathname + location.search;
  const response = await fetch(location.href, { headers, credentials: "same-origin" });
  if (response.status === 401) await sessionEnded();
  // A region that an older server does not have is no page.
  if (response.status === 404 && response.headers.get("content-type")?.startsWith("text/html")) showGone();
  if (!response.ok) return response.status >= 500 || response.status === 429;
  gone?.remove();
  gone = null;
  const text = await response.text();
  // In a template, because a region may consist of table rows.
  const html = regions.length === 1 ? `<template id="region-${names}">${text}</template>` : text;
  const parsed = new DOMParser().parseFromString(html, "text/html");
  for (const region of regions) {
    const part = parsed.getElementById(`region-${region.id}`)?.content;
    // A response never replaces that of a later request.
    if (!part || shown.get(region) > request) continue;
    shown.set(region, request);
    const isOther = (addresses.get(region) ?? opened) !== address; // another filter is another list
    addresses.set(region, address);
    put(region, part, all || isOther, address);
  }
  return false;
}

// What the page is about was deleted: it shows how it was. It is fetched again if it changes: it may be there again,
// or the response was that of a proxy.
function showGone() {
  gone ??= toast("This was deleted meanwhile. The page shows how it was.", { kind: "error", seconds: 3600 });
}

// A list with data-hold does not move while it is read: its rows change, and a button offers the new ones.
function put(region, part, all, address) {
  const focused = document.activeElement;
  const said = saidBy(region);
  if ("hold" in region.dataset && !all && region.querySelector("[data-key]")) {
    morphKeyed(region, part);
    offer(region, newKeys(region, part));
  } else {
    region.querySelector(":scope > .new-items")?.remove();
    morphChildren(region, part);
  }
  // An element that was moved has lost the focus.
  if (region.contains(focused) && focused !== document.activeElement) focused.focus({ preventScroll: true });
  if (saidBy(region) !== said) announce(saidBy(region));
  region.dispatchEvent(new CustomEvent("wakeful:replaced", { bubbles: true, detail: { address } }));
  lookAgain(region);
}

// What a region says when it changes: the texts of data-say in it.
const saidBy = (region) => [...region.querySelectorAll("[data-say]")].map((each) => each.dataset.say).join(". ");

// Let a screen reader say a text when it is silent.
function announce(text) {
  const place = document.querySelector("[data-announce]");
  if (place && text) place.textContent = text;
}

// A region with something that the server is still computing ([data-pending]) is fetched again until it is there.
function lookAgain(region) {
  if (!region.querySelector("[data-pending]")) return;
  setTimeout(() => {
    if (document.hidden) lookAgain(region);
    else refreshRegion(region).catch(() => lookAgain(region));
  }, PENDING_MS);
}

function offer(region, number) {
  let button = region.querySelector(":scope > .new-items");
  if (!number) {
    button?.remove();
    return;
  }
  if (!button) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "button new-items";
    button.addEventListener("click", () => refreshRegion(region));
    region.prepend(button);
  }
  const [one, many] = (region.dataset.hold || "row,rows").split(",");
  const text = number === 1 ? `1 new ${one}` : `${number} new ${many ?? `${one}s`}`;
  if (button.textContent === text) return;
  button.textContent = text;
  announce(text);
}
