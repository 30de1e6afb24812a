// A conversation: send messages, follow the answers, and stay at the newest one unless the reader scrolled up.

import { path } from "./addresses.js";
import { request } from "./api.js";
import { element, toast } from "./dialogs.js";
import { keepDraft } from "./drafts.js";
import { refreshRegion } from "./live.js";

// While a turn is open, changes are fetched at least this often.
const POLL_MS = 3000;
const SOON_MS = 400;

export default function start(chat) {
  const { agent, session } = chat.dataset;
  const scroll = chat.querySelector(".chat-scroll");
  const region = chat.querySelector("#chat");
  if (chat.dataset.first !== "true") return;
  let atEnd = true;
  let timer = 0;

  const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };
  scroll.addEventListener("scroll", () => {
    atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  });
  new MutationObserver(() => { if (atEnd) toEnd(); }).observe(region, { childList: true, subtree: true, characterData: true });
  toEnd();

  const isBusy = () => region.querySelector("[data-busy]")?.dataset.busy === "true";
  const later = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(refresh, ms);
  };
  async function refresh() {
    if (!document.hidden) await refreshRegion(region).catch(() => {});
    if (isBusy()) later(POLL_MS);
  }
  document.addEventListener("wakeful:changes", (event) => {
    const { changed, many } = event.detail;
    if (changed.agents?.includes(agent) || many.includes("agents")) later(SOON_MS);
  });
  document.addEventListener("wakeful:done", () => later(SOON_MS));
  if (isBusy()) later(POLL_MS);

  const form = chat.querySelector(".composer");
  if (!form) return;
  const field = form.elements.message;
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  field.addEventListener("input", () => {
    field.rows = Math.min(8, Math.max(2, field.value.split("\n").length));
  });
  const unsent = []; // {message, bubble}: sent one after the other, so that they arrive in their order
  let sending = false;
  async function sendAll() {
    if (sending) return;
    sending = true;
    try {
      while (unsent.length) {
        const receipt = await request("POST", path("agents", agent, "messages"), { message: unsent[0].message, session });
        unsent.shift();
        if (receipt.state === "dropped") toast("The queue of the conversation is full: the message was dropped.", { kind: "error" });
        keepDraft(form);
        later(SOON_MS);
      }
    } catch (error) {
      // What was not sent goes back into the field, before what was typed since.
      const messages = unsent.splice(0).map(({ message, bubble }) => { bubble.remove(); return message; });
      field.value = [...messages, field.value].filter((text) => text.trim()).join("\n");
      field.dispatchEvent(new Event("input", { bubbles: true }));
      toast(error.message, { kind: "error" });
    } finally {
      sending = false;
    }
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const message = field.value;
    if (!message.trim()) return;
    field.value = "";
    field.rows = 2;
    unsent.push({ message, bubble: makeBubble(message) });
    region.querySelector(".empty")?.remove();
    region.append(unsent.at(-1).bubble);
    atEnd = true;
    toEnd();
    sendAll();
  });
  field.focus({ preventScroll: true });
}

// What is shown until the server has the message.
function makeBubble(message) {
  return element(
    "div",
    { className: "bubble user waiting" },
    element("p", { className: "bubble-head", textContent: "Person · is sent" }),
    element("p", { className: "bubble-text", textContent: message }),
  );
}
