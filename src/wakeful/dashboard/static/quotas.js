// Set the limit of a workspace or agent.

import { path } from "./addresses.js";
import { request } from "./api.js";
import { element, field, toastLater } from "./dialogs.js";

export default function quotas(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-set-limit]");
    if (button) ask(button);
  });
}

// The limit that the page shows, if it is set.
function shown({ agent, bucket }) {
  const rows = [...document.querySelectorAll("[data-set-limit][data-bucket]")];
  return rows.find(({ dataset }) => dataset.agent === (agent ?? "") && dataset.bucket === bucket)?.dataset.limit || null;
}

function ask(button) {
  const { agent = "", bucket = "", limit = "" } = button.dataset;
  const buckets = JSON.parse(document.querySelector("[data-buckets]").dataset.buckets);
  const owner = element("input", { id: "quota-agent", value: agent, maxLength: 64, autocomplete: "off" });
  const which = element("select", { id: "quota-bucket" });
  which.append(...buckets.map(([value, textContent]) => element("option", { value, textContent, selected: value === bucket })));
  const most = element("input", { id: "quota-limit", type: "number", min: 0, max: 2147483647, value: limit });
  const problem = element("p", { className: "error", role: "alert" });
  const send = element("button", { type: "submit", className: "button primary", textContent: "Save" });
  const cancel = element("button", { type: "button", className: "button", textContent: "Cancel", onclick: () => dialog.close() });
  const form = element(
    "form",
    {},
    element("h2", { textContent: "Set a limit" }),
    field("Agent", owner, "Empty: the whole workspace."),
    field("Bucket", which),
    field("Limit", most, "Empty: the default of the installation."),
    problem,
    element("div", { className: "actions" }, cancel, send),
  );
  const dialog = element("dialog", { ariaLabel: "Set a limit" }, form);
  let known; // the limit that was found instead of the one that the page shows
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = { agent: owner.value.trim() || null, bucket: which.value, limit: most.value === "" ? null : Number(most.value) };
    try {
      await request("PUT", path("quotas"), body, { headers: { "if-match": `"${known ?? shown(body) ?? "none"}"` } });
      toastLater("The limit is set");
      location.reload();
    } catch (error) {
      problem.textContent = error.status === 412 ? `${error.message}. Save again to replace it.` : error.message;
      if (error.status !== 412) return;
      const { quotas } = await request("GET", path("quotas"));
      known = quotas.find((each) => each.agent === body.agent && each.bucket === body.bucket)?.limit ?? "none";
    }
  });
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    dialog.remove();
    button.focus();
  });
  dialog.showModal();
}
