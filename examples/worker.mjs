// A worker in JavaScript, without dependencies: it claims runs, executes them and reports their outcomes.
//
//     eval "$(wakeful keys env)"             sets WAKEFUL_URL and WAKEFUL_KEY for this machine's server
//     node examples/worker.mjs
//
// Put your own code into `work`. docs/reference/worker-protocol.md describes the requests.

import { hostname } from "node:os";

const url = `${process.env.WAKEFUL_URL ?? "http://127.0.0.1:9253"}/api/workspaces/default/runs`;
const key = process.env.WAKEFUL_KEY;
const worker = `${hostname()}-${process.pid}`;
const slots = 10;

// Do the work. The return value is the run's output, an exception its error. `signal` is aborted when the
// run is no longer ours: it was stopped, timed out, or given to another worker.
async function work(run, signal) {
  if (run.payload?.permanent) throw Object.assign(new Error("it never works"), { permanent: true });
  return `did ${JSON.stringify(run.payload)} for the tick of ${run.scheduledAt}`;
}

const running = new Map(); // id -> { attempt, abort }
const outcomes = new Map(); // id -> a report that the server does not have yet
const stop = new AbortController();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function post(path, body, signal = AbortSignal.timeout(10_000)) {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  const reply = await response.json();
  if (!response.ok) throw Object.assign(new Error(reply.detail), { status: response.status });
  return reply;
}

async function execute(run) {
  const abort = new AbortController();
  running.set(run.id, { attempt: run.attempt, abort });
  const report = { id: run.id, attempt: run.attempt, status: "succeeded" };
  try {
    report.output = String(await work(run, abort.signal)).slice(0, 16_384);
  } catch (error) {
    Object.assign(report, { status: "failed", error: String(error), permanent: error.permanent === true });
  }
  running.delete(run.id);
  if (!abort.signal.aborted) outcomes.set(run.id, report);
  console.log(run.job, report.status, report.output ?? report.error);
}

// Report outcomes until the server has them. It refuses those of runs that another worker has.
async function reportOutcomes() {
  const batch = [...outcomes.values()].slice(0, 10); // a request has at most 256 KB
  if (batch.length === 0) return;
  for (const result of (await post("/complete", { runs: batch })).runs) {
    outcomes.delete(result.id);
    if (result.code) console.error("refused:", result.message);
  }
}

// Renew the leases of all runs with one request, and cancel those that are lost.
async function heartbeat() {
  const held = [...running].map(([id, { attempt }]) => ({ id, attempt }));
  held.push(...[...outcomes.values()].map(({ id, attempt }) => ({ id, attempt })));
  if (held.length === 0) return;
  for (const id of (await post("/heartbeat", { runs: held })).lost) {
    running.get(id)?.abort.abort();
    outcomes.delete(id);
  }
}

async function claim() {
  const limit = slots - running.size;
  if (limit === 0) return pause(50);
  const patience = AbortSignal.any([stop.signal, AbortSignal.timeout(30_000)]);
  const { runs } = await post("/claim", { worker, limit, waitMs: 20_000 }, patience);
  runs.forEach(execute);
}

// Repeat an action until the worker ends. After a failure, wait longer each time.
async function repeat(action, everyMs, until) {
  for (let failures = 0; !until(); ) {
    try {
      await action();
      failures = 0;
      await pause(everyMs);
    } catch (error) {
      if ([401, 403].includes(error.status)) {
        console.error(error.message);
        process.exit(1);
      }
      if (!stop.signal.aborted) console.error("no server:", error.message);
      await pause(Math.min(15_000, 500 * 2 ** failures++));
    }
  }
}

process.on("SIGTERM", () => stop.abort());
process.on("SIGINT", () => stop.abort());
const idle = () => stop.signal.aborted && running.size === 0 && outcomes.size === 0;
const beats = setInterval(() => heartbeat().catch(() => {}), 10_000);
await Promise.all([repeat(claim, 0, () => stop.signal.aborted), repeat(reportOutcomes, 20, idle)]);
clearInterval(beats);
