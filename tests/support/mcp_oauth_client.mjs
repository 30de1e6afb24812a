// An assistant with @modelcontextprotocol/sdk: it connects to the address in its arguments and signs in by OAuth.
// It prints the address that the person opens, reads where the browser was sent then, and prints what it got.
import { createInterface } from "node:readline/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, packages] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${packages}/`));
const load = (name) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${name}`)));
const { Client } = await load("client/index.js");
const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
const { UnauthorizedError } = await load("client/auth.js");

const kept = {};
const provider = {
  redirectUrl: "http://localhost:3030/callback",
  clientMetadata: { client_name: "Node assistant", redirect_uris: ["http://localhost:3030/callback"] },
  state: () => "s7",
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; kept.times = (kept.times ?? 0) + 1; },
  redirectToAuthorization: (address) => { console.log(address.href); },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
};
const connect = async (transport) => {
  const client = new Client({ name: "node-assistant", version: "1" });
  await client.connect(transport);
  return client;
};

const lines = createInterface({ input: process.stdin });
const first = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
try {
  await connect(first);
  throw new Error("it is connected without signing in");
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const { value: location } = await lines[Symbol.asyncIterator]().next();
const answer = new URL(location).searchParams;
if (answer.get("state") !== "s7") throw new Error("another state");
await first.finishAuth(answer.get("code"));
const client = await connect(new StreamableHTTPClientTransport(new URL(url), { authProvider: provider }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
kept.tokens.access_token = "wa_expired"; // as if an hour had passed: it uses the refresh token
const listed = await client.callTool({ name: "cron", arguments: { action: "list" } });
console.log(JSON.stringify({ tools, listed: listed.structuredContent.jobs, savedTokens: kept.times }));
process.exit(0);
