// The form of a job: preview while typing, test, save with field errors, and the job as texts.

import { page, path } from "./addresses.js";
import { get, request } from "./api.js";
import { element, showOnce, toast, toastLater } from "./dialogs.js";
import { mergeConflict } from "./conflict.js";
import { forgetDraft } from "./drafts.js";
import { FieldError, fieldsOf, placeErrors, read, reveal, showError, write } from "./form_fields.js";
import { SchedulePreview } from "./schedule_preview.js";
import { startTabs } from "./tabs.js";
import { testResult } from "./target_test.js";

const TIMING = ["schedule", "tz", "startAt", "endAt", "exclude", "dstGap", "dstOverlap", "after", "jitter"];
const SECRET = { title: "The secret of the webhook", about: "It signs the requests of this job. Copy it now: it is not shown again.", close: "I have copied it" };
const TESTED = ["name", "target", "payload", "message", "timeout", "lane"];

export default function jobForm(form) {
  const fields = fieldsOf(form);
  // By its id: another job may have its name when it is saved.
  const { job = null } = form.dataset;
  const failure = form.querySelector("[data-form-error]");
  const preview = new SchedulePreview(form.querySelector("[data-preview]"), take);
  let saved = false;
  let initial = values({ quiet: true, from: fieldsOf(asRendered(form)) });

  let known = null;
  const agents = async () => (known ??= (await get(path("agents"))).agents);
  const agent = () => fields.get("agentId").querySelector("input").value.trim() || "default";

  // The JSON texts of all fields. A field that cannot be read gets its error, and the result is null.
  function values({ quiet = false, names = [...fields.keys()], from = fields } = {}) {
    const found = new Map();
    let broken = null;
    for (const name of names) {
      const holder = from.get(name);
      if (name === "agentId" || !holder) continue;
      try {
        found.set(name, read(holder));
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        broken ??= holder;
        if (!quiet) showError(holder, error.message);
      }
    }
    if (broken && !quiet) {
      reveal(broken);
      return null;
    }
    return found;
  }

  const changes = () => [...values({ quiet: true })].filter(([name, value]) => value !== initial.get(name));

  // The document to save: all values of a new job, or the changed ones with null for a default.
  function documentOf(all) {
    if (!job) {
      return [...all].filter(([name, value]) => value !== undefined && !(name === "enabled" && value === "true"));
    }
    return [...all].filter(([name, value]) => value !== initial.get(name)).map(([name, value]) => [name, value ?? "null"]);
  }

  function take(name, text) {
    const input = fields.get(name)?.querySelector("input, select, textarea");
    if (!input) return;
    if (input.type === "checkbox") input.checked = text === true;
    else input.value = typeof text === "string" ? text : JSON.stringify(text);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    reveal(fields.get(name));
  }

  // --- while typing ---------------------------------------------------------------------------------

  async function refreshPreview() {
    const timing = values({ quiet: true, names: TIMING });
    for (const name of TIMING) if (fields.get(name)) showError(fields.get(name));
    if (timing.get("schedule") === undefined && timing.get("after") === undefined) {
      preview.clear();
      return;
    }
    const given = [...timing, ["agentId", JSON.stringify(agent())], ["count", "8"]];
    if (job) given.push(["job", JSON.stringify(job)]);
    try {
      await preview.update(write(given));
    } catch (error) {
      const at = document.activeElement;
      placeErrors(fields, error.message);
      at?.focus?.();
    }
  }

  async function refreshTexts() {
    const holder = form.querySelector("[data-snippets]");
    if (!holder.open) return;
    const all = values({ quiet: true });
    const raw = write([...all, ["name", all.get("name") ?? '"my-job"']]);
    try {
      const texts = await request("POST", path("agents", agent(), "jobs", "snippets"), undefined, { raw });
      for (const [id, text] of Object.entries(texts)) document.querySelector(`#snippet-${id} pre`).textContent = text;
    } catch (error) {
      for (const pre of holder.querySelectorAll("pre")) pre.textContent = error.message;
    }
  }

  function refreshState() {
    const number = changes().length;
    const state = form.querySelector("[data-state]");
    if (state) state.textContent = number ? `${number} unsaved ${number === 1 ? "change" : "changes"}` : "";
    for (const group of form.querySelectorAll("[data-group]")) {
      const set = [...group.querySelectorAll("[data-field]")].filter((holder) => quietly(() => read(holder)) !== undefined).length;
      group.querySelector("[data-count]").textContent = set ? `(${set} set)` : "";
    }
  }

  const later = debounced(refreshPreview, 250);
  const laterTexts = debounced(refreshTexts, 400);

  form.addEventListener("input", (event) => {
    const holder = event.target.closest("[data-field]");
    if (!holder) return;
    showError(holder);
    if (holder.dataset.control === "json") {
      try {
        read(holder);
      } catch (error) {
        showError(holder, error.message);
      }
    }
    if (TIMING.includes(holder.dataset.field) || holder.dataset.field === "agentId") later();
    refreshState();
    laterTexts();
  });
  form.querySelector("[data-snippets]").addEventListener("toggle", refreshTexts);
  startTabs(form.querySelector("[role=tablist]"));

  // --- target ---------------------------------------------------------------------------------------

  const kind = fields.get("target").querySelector("select");
  const testButton = form.querySelector("[data-test]");
  function showKind() {
    for (const part of fields.get("target").querySelectorAll("[data-kind]")) part.hidden = part.dataset.kind !== kind.value;
    const sendsTest = "sendsTest" in kind.selectedOptions[0].dataset;
    testButton.textContent = sendsTest ? "Send a test request" : "Check the target";
    form.querySelector("[data-test-about]").hidden = !sendsTest;
    form.querySelector("[data-test-result]").replaceChildren();
  }
  kind.addEventListener("change", showKind);
  fields.get("agentId").addEventListener("change", async () => {
    const target = (await agents().catch(() => [])).find((each) => each.name === agent())?.target;
    const about = target ? `: ${target.kind} ${target.url ?? target.name ?? ""}` : " (none: an executor claims the runs)";
    kind.options[0].text = `That of the agent${about}`;
    const same = [...kind.options].find((each) => each.value && each.value === target?.kind);
    kind.options[0].toggleAttribute("data-sends-test", Boolean(same && "sendsTest" in same.dataset));
    showKind();
  });
  showKind();

  testButton.addEventListener("click", async () => {
    const given = values({ names: TESTED });
    if (!given) return;
    const place = form.querySelector("[data-test-result]");
    const body = [...given].map(([name, value]) => [name, value ?? (job ? "null" : undefined)]);
    if (job) body.push(["job", JSON.stringify(job)]);
    testButton.setAttribute("aria-busy", "true");
    place.textContent = "Testing …";
    try {
      place.replaceChildren(testResult(await request("POST", path("agents", agent(), "jobs", "test-target"), undefined, { raw: write(body) })));
    } catch (error) {
      place.replaceChildren();
      const rest = placeErrors(fields, error.message);
      if (rest.length) place.replaceChildren(element("p", { className: "notice error", textContent: rest.join("\n") }));
    } finally {
      testButton.removeAttribute("aria-busy");
    }
  });

  // --- save -----------------------------------------------------------------------------------------

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await save();
  });

  async function save() {
    for (const holder of fields.values()) showError(holder);
    failure.hidden = true;
    const all = values();
    const button = form.querySelector("[data-save]");
    if (!all || !button || button.getAttribute("aria-busy")) return;
    const given = documentOf(all);
    if (job && !given.length) {
      toast("Nothing has changed");
      return;
    }
    button.setAttribute("aria-busy", "true");
    try {
      const url = job ? path("agents", agent(), "jobs", job) : path("agents", agent(), "jobs");
      const headers = job ? { "if-match": `"${form.dataset.version}"` } : {};
      done(await request(job ? "PATCH" : "POST", url, undefined, { raw: write(given), headers }));
    } catch (error) {
      if (error.status === 412) await conflict();
      else fail(placeErrors(fields, error.message));
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  function fail(lines) {
    if (!lines.length) return;
    failure.replaceChildren(...lines.map((line) => element("p", { textContent: line })));
    failure.hidden = false;
    failure.focus();
  }

  async function done(result) {
    saved = true;
    forgetDraft(form);
    const target = page("agents", result.agentId, "jobs", result.name);
    if (result.warnings?.length) toastLater(`Saved. Warning: ${result.warnings.join(" ")}`);
    else toastLater(job ? "Saved" : "Created");
    if (result.secret) await showOnce({ "": result.secret }, SECRET);
    location.assign(target);
  }

  // The job was changed since the form was opened: show both values, and save again as the person decides.
  async function conflict() {
    try {
      if (!(await mergeConflict(form))) return;
    } catch (error) {
      fail([error.message]);
      return;
    }
    initial = values({ quiet: true, from: fieldsOf(asRendered(form)) });
    form.querySelector("[data-save]").removeAttribute("aria-busy");
    await save();
  }

  addEventListener("beforeunload", (event) => {
    if (!saved && form.querySelector("[data-save]") && changes().length) event.preventDefault();
  });

  // --- start ----------------------------------------------------------------------------------------

  if (!fields.get("agentId").querySelector("input").readOnly) {
    offer(fields.get("agentId"), "agents", async () => (await agents()).map((each) => each.name));
  }
  offer(fields.get("tz"), "zones", async () => ["UTC", ...Intl.supportedValuesOf("timeZone")]);
  const after = fields.get("after")?.querySelector("[data-part=job]");
  if (after) {
    offer(after, "jobs", async () => {
      const found = await get(`${path("agents", agent(), "jobs")}?limit=200&include_disabled=true`);
      return found.jobs.map((each) => each.name).filter((name) => name !== form.dataset.name);
    });
  }
  for (const [name, value] of Object.entries(JSON.parse(form.dataset.suggested || "{}"))) take(name, value);
  refreshPreview();
  refreshState();
}

// The form without what was typed before this module was loaded.
function asRendered(form) {
  const made = form.cloneNode(true);
  made.reset();
  return made;
}

// Offer values in a list when a control gets the focus for the first time.
function offer(holder, id, load) {
  const input = holder.querySelector("input");
  if (!input) return;
  input.setAttribute("list", id);
  input.addEventListener(
    "focus",
    async () => {
      const values = await load().catch(() => []);
      document.getElementById(id).replaceChildren(...values.map((value) => element("option", { value })));
    },
    { once: true },
  );
}

function quietly(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

function debounced(work, ms) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}
