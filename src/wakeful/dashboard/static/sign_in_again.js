// A session that ended while a page is open: sign in on the page, so that what was typed is not lost.

import { root } from "./addresses.js";
import { element, openDialog, toastLater } from "./dialogs.js";
import { hasInput } from "./drafts.js";

const meta = (name) => document.querySelector(`meta[name="${name}"]`);
let asked = null; // the open question: all requests wait for the same answer

// Resolves to whether the same person is signed in now, and the page has the token of the session.
export function signInAgain() {
  asked ??= ask().finally(() => (asked = null));
  return asked;
}

// The page found out by itself: without input, the sign-in page is simpler.
export async function sessionEnded() {
  if (hasInput()) return signInAgain();
  location.reload();
  return false;
}

// Whether the page had the token of an earlier session, and has the right one now.
export async function renewToken() {
  const before = unmask(meta("csrf").content);
  return (await renew()) && unmask(meta("csrf").content) !== before;
}

async function renew() {
  const response = await fetch(`${root}/sign-in/session`, { credentials: "same-origin" }).catch(() => null);
  if (!response?.ok) return false;
  const { csrf, user } = await response.json();
  if (user !== meta("user").content) {
    toastLater("Another person is signed in now. Nothing was sent.");
    location.reload();
    return false;
  }
  meta("csrf").content = csrf;
  for (const input of document.querySelectorAll("input[type=hidden][name=csrf]")) input.value = csrf;
  return true;
}

// A token is its second half, combined with the first.
function unmask(text) {
  const bytes = text.match(/../g)?.map((pair) => parseInt(pair, 16)) ?? [];
  const half = bytes.length / 2;
  return bytes.slice(half).map((byte, index) => byte ^ bytes[index]).join();
}

async function ask() {
  if (await renew()) return true; // in another tab
  const byKey = Boolean(document.querySelector("[data-sign-out]"));
  const key = element("input", { id: "again-key", type: "password", required: byKey, autocomplete: "off" });
  const problem = element("p", { className: "error", role: "alert" });
  const elsewhere = element("a", { href: `${root}/sign-in?next=${encodeURIComponent(location.pathname)}`, target: "_blank", rel: "noopener", textContent: "Sign in in another tab" });
  const send = element("button", { type: "submit", value: "ok", className: "button primary", textContent: byKey ? "Sign in and continue" : "Continue" });
  const parts = [element("h2", { textContent: "Your session has ended" }), element("p", { textContent: "What you typed is still here. It is sent when you have signed in." })];
  if (byKey) parts.push(element("div", { className: "field" }, element("label", { htmlFor: "again-key", textContent: "API key" }), key));
  parts.push(problem, element("p", {}, elsewhere, " and come back."));
  const answer = openDialog(parts, [send], { label: "Your session has ended", cancel: "Not now" });
  const dialog = problem.closest("dialog");
  const look = async () => { if (!document.hidden && await renew()) dialog.close("ok"); };
  document.addEventListener("visibilitychange", look);
  problem.closest("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = byKey ? await signIn(key.value) : "";
    key.value = "";
    if (problem.textContent) key.focus();
    else if (await renew()) dialog.close("ok");
    else problem.textContent = "You are not signed in yet.";
  });
  const said = await answer;
  document.removeEventListener("visibilitychange", look);
  return said === "ok";
}

// The text of what is wrong; empty: it worked.
async function signIn(key) {
  const response = await fetch(`${root}/sign-in`, {
    method: "POST", redirect: "manual", credentials: "same-origin", body: new URLSearchParams({ key }),
  }).catch(() => null);
  if (!response) return "The server cannot be reached. Try again.";
  if (response.type === "opaqueredirect") return "";
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.querySelector("#key-error")?.textContent.trim() || `The server answered ${response.status}.`;
}
