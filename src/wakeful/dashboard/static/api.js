// Requests to the HTTP API, with the session cookie and the CSRF token.

import { meta } from "./addresses.js";

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code;
    this.problem = problem;
  }
}

// A POST whose response is lost may have been performed. The same one again, soon, has the same key, and is not
// performed twice.
const SAME_MS = 5 * 60_000;
const unanswered = new Map(); // address and body: the key

function keyOf(asked) {
  if (!unanswered.has(asked)) {
    const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    unanswered.set(asked, key);
    setTimeout(() => unanswered.get(asked) === key && unanswered.delete(asked), SAME_MS);
  }
  return unanswered.get(asked);
}

async function send(method, url, body, { headers = {}, signal, raw } = {}) {
  const options = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin", signal };
  if (method !== "GET") options.headers["x-wakeful-csrf"] = meta("csrf");
  if (body !== undefined || raw !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = raw ?? JSON.stringify(body);
  }
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unavailable", detail: "The server cannot be reached. Try again." });
  }
}

// Send a request; return the JSON of the response, or throw ApiError. `raw` is a body that is JSON text already.
// If the session has ended, the page asks for sign-in, and the request is sent again: it was refused before.
export async function request(method, url, body, options = {}) {
  const asked = method === "POST" && !options.signal ? `${url} ${options.raw ?? JSON.stringify(body)}` : null;
  if (asked) options = { ...options, headers: { ...options.headers, "idempotency-key": keyOf(asked) } };
  let response = await send(method, url, body, options);
  if (response.status === 401 || (response.status === 403 && method !== "GET")) {
    const { renewToken, signInAgain } = await import("./sign_in_again.js");
    if (await (response.status === 401 ? signInAgain() : renewToken())) response = await send(method, url, body, options);
  }
  const text = await response.text();
  let value = null;
  if (text) {
    try {
      value = JSON.parse(text);
    } catch {
      value = { detail: text.slice(0, 200) };
    }
  }
  if (response.status < 500) unanswered.delete(asked);
  if (!response.ok) throw new ApiError(response.status, value ?? {});
  const result = value ?? {};
  Object.defineProperty(result, "etag", { value: response.headers.get("etag"), enumerable: false });
  return result;
}

export const get = (url, options) => request("GET", url, undefined, options);
export const post = (url, body, options) => request("POST", url, body, options);
