// A conversation: send messages, follow the answers, and stay at the newest one unless the reader scrolled up.

import { path, request } from "./api.js";
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
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const message = field.value;
    if (!message.trim()) return;
    field.value = "";
    field.rows = 2;
    const sent = bubble(message);
    region.querySelector(".empty")?.remove();
    region.append(sent);
    atEnd = true;
    toEnd();
    try {
      const receipt = await request("POST", path("agents", agent, "messages"), { message, session });
      if (receipt.state === "dropped") toast("The queue of the conversation is full: the message was dropped.", { kind: "error" });
      keepDraft(form);
      later(SOON_MS);
    } catch (error) {
      sent.remove();
      if (!field.value) field.value = message;
      toast(error.message, { kind: "error" });
    }
  });
  field.focus({ preventScroll: true });
}

// What is shown until the server has the message.
function bubble(message) {
  return element(
    "div",
    { className: "bubble user waiting" },
    element("p", { className: "bubble-head", textContent: "Person · is sent" }),
    element("p", { className: "bubble-text", textContent: message }),
  );
}
