// Send a test message to a channel and show the result beside the button.

import { request } from "./api.js";

const WORDS = { accepted: "Accepted", not_sent: "Not sent", unknown: "Unknown" };

export default function channels(root) {
  root.addEventListener("submit", async (event) => {
    const form = event.target.closest("[data-test]");
    if (!form) return;
    event.preventDefault();
    const result = form.querySelector(".result");
    const button = form.querySelector("button");
    const to = form.elements.to?.value.trim();
    result.className = "result";
    result.textContent = "Sending…";
    button.disabled = true;
    try {
      const found = await request("POST", form.dataset.test, to ? { to } : {});
      result.classList.add(found.outcome === "accepted" ? "success" : "failure");
      result.textContent = `${WORDS[found.outcome]} in ${found.durationMs} ms${found.error ? `: ${found.error}` : ""}`;
    } catch (error) {
      result.classList.add("failure");
      result.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  });
}
