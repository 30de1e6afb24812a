// Run, pause, resume or delete jobs: says beforehand how many, shows the progress and what failed, and offers to undo.

import { path } from "./addresses.js";
import { post, request } from "./api.js";
import { element, field, openDialog, openProgress, toast } from "./dialogs.js";

// How many jobs one request changes: the progress is shown between two.
const PART = 100;
// From so many on, a deletion is confirmed by typing.
const TYPED = 10;
const SHOWN = 10;

const WORDS = {
  run: { verb: "Run", done: "started" },
  pause: { verb: "Pause", done: "paused" },
  resume: { verb: "Resume", done: "resumed" },
  delete: { verb: "Delete", done: "deleted" },
};

const number = (count) => count.toLocaleString("en-US");
const jobs = (count) => `${number(count)} ${count === 1 ? "job" : "jobs"}`;
const nameOf = (job) => `${job.agentId}/${job.name}`;

// Ask, then do it; resolves to whether anything was done. `refresh` is called after an undo.
export async function bulk(action, select, refresh = () => {}) {
  let found;
  try {
    found = select.jobs ? await findSelected(action, select.jobs) : await post(path("jobs", action), { ...select, dryRun: true });
  } catch (error) {
    toast(error.message, { kind: "error" });
    return false;
  }
  if (!found.count) {
    if (found.errors.length) showErrors(WORDS[action], found.errors);
    else toast(`No job to ${action}: ${found.unchanged ? "all are in that state already" : "none is enabled"}.`);
    return false;
  }
  const fields = await ask(action, found);
  if (fields === null) return false;
  const done = await carryOut(action, found.jobs.map((job) => job.id), fields);
  report(action, done, refresh);
  return true;
}

async function findSelected(action, ids) {
  const found = { count: 0, unchanged: 0, jobs: [], errors: [] };
  for await (const part of send(action, ids, { dryRun: true })) {
    found.count += part.count;
    found.unchanged += part.unchanged ?? 0;
    found.jobs.push(...part.jobs);
    found.errors.push(...part.errors);
  }
  return found;
}

// Yields the results. If a job was deleted meanwhile, the server refuses all of a request: then each half has its own.
async function* send(action, ids, fields) {
  let result;
  try {
    result = await post(path("jobs", action), { jobs: ids, ...fields });
  } catch (error) {
    if (error.status !== 404) throw error;
    if (ids.length === 1) {
      result = { count: 0, jobs: [], errors: [{ agentId: "", name: "", message: "It was deleted meanwhile." }] };
    } else {
      const half = ids.length >> 1;
      yield* send(action, ids.slice(0, half), fields);
      yield* send(action, ids.slice(half), fields);
      return;
    }
  }
  yield result;
}

// --- the question ---

async function ask(action, found) {
  const { verb } = WORDS[action];
  const parts = [element("h2", { textContent: `${verb} ${jobs(found.count)}?` }), nameList(found.jobs)];
  const notes = [];
  if (found.unchanged) notes.push(`${jobs(found.unchanged)} of the selection need no change.`);
  if (found.errors.length) notes.push(`${jobs(found.errors.length)} cannot be changed: ${found.errors[0].message}`);
  if (action === "delete") notes.push("Runs that have not started are cancelled. Other runs stay. This cannot be undone.");
  for (const text of notes) parts.push(element("p", { className: "muted", textContent: text }));
  const submit = element("button", {
    type: "submit",
    value: "ok",
    className: `button ${action === "delete" ? "danger" : "primary"}`,
    textContent: `${verb} ${jobs(found.count)}`,
  });
  const note = element("input", { id: "bulk-note", maxLength: 500, autocomplete: "off" });
  const until = element("input", { id: "bulk-until", placeholder: "in 2h", autocomplete: "off" });
  if (action === "pause") {
    parts.push(
      field("Note", note, "Why, shown with the jobs."),
      field("Resume automatically (optional)", until, "A time such as in 2h, or 2027-03-01T09:00."),
    );
  }
  if (action === "delete" && found.count > TYPED) {
    const wanted = `delete ${found.count}`;
    const typed = element("input", { id: "bulk-typed", autocomplete: "off", spellcheck: false });
    submit.disabled = true;
    typed.addEventListener("input", () => (submit.disabled = typed.value.trim() !== wanted));
    parts.push(field(`Type "${wanted}" to confirm`, typed));
  }
  if ((await openDialog(parts, [submit], { label: `${verb} ${jobs(found.count)}` })) !== "ok") return null;
  const given = { note: note.value.trim(), until: until.value.trim() };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}

function nameList(all) {
  const items = all.slice(0, SHOWN).map((job) => element("li", { textContent: nameOf(job) }));
  if (all.length > SHOWN) items.push(element("li", { textContent: `and ${number(all.length - SHOWN)} more` }));
  return element("ul", { className: "bulk-names" }, ...items);
}

// --- the work ---

async function carryOut(action, ids, fields) {
  const label = `${WORDS[action].verb} ${jobs(ids.length)}`;
  const progress = ids.length > PART ? openProgress(label, ids.length, "Stop after this part") : null;
  const done = { jobs: [], runs: [], errors: [], left: 0 };
  for (let start = 0; start < ids.length; start += PART) {
    const part = ids.slice(start, start + PART);
    if (progress?.stopped) {
      done.left = ids.length - start;
      break;
    }
    try {
      for await (const result of send(action, part, fields)) {
        done.jobs.push(...result.jobs);
        done.runs.push(...(result.runs ?? []));
        done.errors.push(...result.errors);
      }
    } catch (error) {
      done.errors.push({ agentId: "", name: "", message: error.message });
      done.left = ids.length - start;
      break;
    }
    progress?.show(start + part.length);
  }
  progress?.close();
  return done;
}

function report(action, done, refresh) {
  const { done: word } = WORDS[action];
  const what = action === "run" ? `${number(done.runs.length)} ${done.runs.length === 1 ? "run" : "runs"}` : jobs(done.jobs.length);
  const left = done.left ? `, ${number(done.left)} left` : "";
  const failed = done.errors.length ? `, ${number(done.errors.length)} failed` : "";
  const undo = undoOf(action, done, refresh);
  toast(`${what} ${word}${failed}${left}`, { action: undo, seconds: undo ? 20 : 12 });
  if (done.errors.length) showErrors(WORDS[action], done.errors);
}

function showErrors({ done }, errors) {
  const items = errors.slice(0, 100).map((error) =>
    element("li", { textContent: error.name ? `${nameOf(error)}: ${error.message}` : error.message }),
  );
  if (errors.length > items.length) items.push(element("li", { textContent: `and ${number(errors.length - items.length)} more` }));
  const parts = [
    element("h2", { textContent: `${jobs(errors.length)} not ${done}` }),
    element("ul", { className: "bulk-errors" }, ...items),
  ];
  openDialog(parts, [], { label: "What failed", cancel: "Close" });
}

// --- undo ---

// A job that is paused again has no note and no end any more: that is not an undo.
const REVERSE = { pause: ["resume", "Undo"], resume: ["pause", "Pause again"] };

function undoOf(action, done, refresh) {
  if (action in REVERSE && done.jobs.length) {
    const [reverse, label] = REVERSE[action];
    return {
      label,
      run: async () => {
        const undone = await carryOut(reverse, done.jobs.map((job) => job.id), {});
        toast(`${jobs(undone.jobs.length)} ${WORDS[reverse].done}`);
        if (undone.errors.length) showErrors(WORDS[reverse], undone.errors);
        refresh();
      },
    };
  }
  const waiting = done.runs.filter((run) => run.state === "pending");
  if (action === "run" && waiting.length) return { label: "Cancel those not started", run: () => cancel(waiting, refresh) };
  return null;
}

async function cancel(runs, refresh) {
  let cancelled = 0;
  for (const run of runs) {
    try {
      await request("POST", path("runs", run.id, "cancel"));
      cancelled += 1;
    } catch { /* it has started, or is over */ }
  }
  const started = runs.length - cancelled;
  toast(`${number(cancelled)} cancelled${started ? `, ${number(started)} had started` : ""}`);
  refresh();
}
