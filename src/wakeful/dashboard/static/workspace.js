// Save a workspace, or create one.

import { toastLater } from "./actions.js";
import { request, root } from "./api.js";

export default function workspace(form) {
  const problem = form.querySelector("[data-problem]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      if ("create" in form.dataset) {
        const name = form.elements.name.value.trim();
        if (!name) throw new Error("Write a name, such as acme.");
        const path = form.dataset.create + encodeURIComponent(name);
        const exists = await request("GET", path).then(() => true, (error) => error.status !== 404);
        if (exists) throw new Error(`There is a workspace '${name}' already.`);
        await request("PUT", path, {});
        toastLater(`The workspace '${name}' is created`);
        location.assign(`${root}/workspaces/${encodeURIComponent(name)}/workspace`);
        return;
      }
      const changed = changes(form);
      // A PUT resets what it does not have, and others may have changed it meanwhile.
      await request("PUT", form.dataset.save, { ...(await request("GET", form.dataset.save)), ...changed });
      toastLater("Saved");
      location.reload();
    } catch (error) {
      problem.textContent = error.message;
    }
  });
}

const CAPS = ["costPerDay", "tokensPerDay", "costPerRun", "tokensPerRun"];

// The fields that differ from the page as it was rendered.
function changes(form) {
  const rendered = form.cloneNode(true);
  rendered.reset();
  const before = read(rendered.elements);
  const now = read(form.elements);
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])));
}

function read(elements) {
  for (const name of [...CAPS, "weight"]) {
    // A browser gives a number that it cannot read as an empty value, which would remove the limit.
    if (elements[name].validity.badInput) throw new Error(`${elements[name].labels[0]?.textContent ?? name}: write a number, such as 2.5, or nothing.`);
  }
  const { tz, description, weight, alerts } = elements;
  const budget = {};
  for (const cap of CAPS) if (elements[cap].value !== "") budget[cap] = Number(elements[cap].value);
  let given = null;
  if (alerts.value.trim()) {
    try {
      given = JSON.parse(alerts.value);
    } catch {
      throw new Error("alerts: this is not JSON; names and text need quotation marks");
    }
  }
  return {
    tz: tz.value.trim() || null,
    description: description.value,
    budget: Object.keys(budget).length ? budget : null,
    alerts: given,
    laneWeight: weight.value === "" ? null : Number(weight.value),
  };
}
