// Save a workspace, or create one.

import { root } from "./addresses.js";
import { request } from "./api.js";
import { mergeConflict } from "./conflict.js";
import { forgetDraft } from "./drafts.js";
import { toastLater } from "./dialogs.js";

export default function workspace(form) {
  const problem = form.querySelector("[data-problem]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      if ("create" in form.dataset) {
        const name = form.elements.name.value.trim();
        if (!name) throw new Error("Write a name, such as acme.");
        await request("PUT", form.dataset.create + encodeURIComponent(name), {}, { headers: { "if-none-match": "*" } }).catch((error) => {
          throw error.status === 412 ? new Error(`There is a workspace '${name}' already.`) : error;
        });
        toastLater(`The workspace '${name}' is created`);
        location.assign(`${root}/workspaces/${encodeURIComponent(name)}/workspace`);
        return;
      }
      if (!(await save(form))) return;
      forgetDraft(form);
      toastLater("Saved");
      location.reload();
    } catch (error) {
      problem.textContent = error.message;
    }
  });
}

// Whether it is saved. A PUT resets what it does not have; others may have changed it since the page was rendered.
async function save(form) {
  const { save: url, version } = form.dataset;
  const body = { ...(await request("GET", url)), ...changes(form) };
  try {
    await request("PUT", url, body, { headers: { "if-match": `"${version}"` } });
    return true;
  } catch (error) {
    if (error.status !== 412) throw error;
    return (await mergeConflict(form)) && save(form);
  }
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
