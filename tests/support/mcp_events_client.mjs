// An assistant with @ai-sdk/mcp: it subscribes to every second, takes three ticks, refreshes and unsubscribes.
// Its arguments are the address of /mcp, a key and the folder of its packages. It prints what it got.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, key, packages] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${packages}/`));
const mcp = await import(pathToFileURL(require.resolve("@ai-sdk/mcp")));
const createClient = mcp.createMCPClient ?? mcp.experimental_createMCPClient;
const createWebhook = mcp.createMCPEventWebhook ?? mcp.experimental_createMCPEventWebhook;

const kept = new Map();
const store = {
  get: async (name) => kept.get(name),
  getById: async (id) => [...kept.values()].find((each) => each.id === id),
  set: async (subscription) => { kept.set(subscription.key, subscription); },
  update: async (name, patch) => { kept.set(name, { ...kept.get(name), ...patch }); },
  delete: async (name) => { kept.delete(name); },
};
const events = [];
const errors = [];
let enough;
const received = new Promise((resolve) => { enough = resolve; });
const handle = createWebhook({
  store,
  onEvent: async ({ event }) => { events.push(event); if (events.length === 3) enough(); },
  onError: (error) => { errors.push(String(error)); },
});
const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const address = `http://127.0.0.1:${server.address().port}${request.url}`;
  const answer = await handle(new Request(address, { method: request.method, headers: request.headers, body: Buffer.concat(chunks) }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });

const client = await createClient({
  transport: { type: "http", url, headers: { Authorization: `Bearer ${key}` } },
  experimental_events: { store },
});
const api = client.experimental_events;
const names = (await api.list()).events.map((event) => event.name);
const subscribed = await api.subscribe({
  name: "schedule.tick",
  arguments: { schedule: "every 1s", message: "Look around." },
  delivery: { mode: "webhook", url: `http://127.0.0.1:${server.address().port}/events`, allowInsecureLocalhost: true },
  ttlMs: 600000,
});
await received;
const refreshed = await api.refresh({ id: subscribed.id });
await api.unsubscribe({ id: subscribed.id });
await client.close();
server.close();
console.log(JSON.stringify({
  names,
  same: refreshed.id === subscribed.id,
  expires: Date.parse(refreshed.refreshBefore) > Date.now(),
  events: events.slice(0, 3),
  left: kept.size,
  errors,
}));
process.exit(0);
