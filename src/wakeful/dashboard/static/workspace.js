// Save a workspace, or create one.

import { toastLater } from "./actions.js";
import { request } from "./api.js";

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
        location.assign(`/workspaces/${encodeURIComponent(name)}/workspace`);
        return;
      }
      await request("PUT", form.dataset.save, read(form.elements));
      toastLater("Saved");
      location.reload();
    } catch (error) {
      problem.textContent = error.message;
    }
  });
}

const CAPS = ["costPerDay", "tokensPerDay", "costPerRun", "tokensPerRun"];

function read(elements) {
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
