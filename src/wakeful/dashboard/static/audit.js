// Verify the hash chain of the audit log, part by part, with progress.

import { request } from "./api.js";

const PART = 20_000;

export default function audit(root) {
  const button = root.querySelector("[data-verify]");
  const progress = root.querySelector("progress");
  const result = root.querySelector(".result");
  button.addEventListener("click", async () => {
    button.disabled = true;
    progress.hidden = false;
    result.className = "result";
    result.textContent = "Verifying…";
    let after = 0;
    let hash = "";
    try {
      for (;;) {
        const query = new URLSearchParams({ after, hash, limit: PART });
        const part = await request("GET", `${button.dataset.verify}?${query}`);
        after = part.count;
        hash = part.hash;
        progress.max = Math.max(progress.max, after);
        progress.value = after;
        if (!part.ok) {
          result.className = "result failure";
          result.textContent = `The chain is broken: ${part.flaw}.`;
          break;
        }
        if (part.complete) {
          result.className = "result success";
          result.textContent = after
            ? `Entries 1 to ${after.toLocaleString("en")} are verified: none was changed, removed or reordered.`
            : "There are no entries to verify.";
          break;
        }
      }
    } catch (error) {
      result.className = "result failure";
      result.textContent = error.message;
    } finally {
      progress.hidden = true;
      button.disabled = false;
    }
  });
}
