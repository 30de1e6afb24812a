// Requests to the HTTP API, with the session cookie and the CSRF token.

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

// The path of the host below which the dashboard is: this file is at ROOT/assets/VERSION/api.js.
export const root = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");
export const workspace = meta("workspace");
export const role = meta("role");

// The path of the API in this workspace: api("runs", id, "stop").
export function path(...parts) {
  return `${root}/api/workspaces/${[workspace, ...parts].map(encodeURIComponent).join("/")}`;
}

// The path of a page in this workspace.
export function page(...parts) {
  return `${root}/workspaces/${[workspace, ...parts].map(encodeURIComponent).join("/")}${parts.length ? "" : "/"}`;
}

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code;
    this.problem = problem;
  }
}

// Send a request; return the JSON of the response, or throw ApiError. `raw` is a body that is JSON text already.
export async function request(method, url, body, { headers = {}, signal, raw } = {}) {
  const options = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin", signal };
  if (method !== "GET") options.headers["x-wakeful-csrf"] = meta("csrf");
  if (body !== undefined || raw !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = raw ?? JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unavailable", detail: "The server cannot be reached. Try again." });
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
  if (response.status === 401) {
    location.assign(`${root}/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  if (!response.ok) throw new ApiError(response.status, value ?? {});
  const result = value ?? {};
  Object.defineProperty(result, "etag", { value: response.headers.get("etag"), enumerable: false });
  return result;
}

export const get = (url, options) => request("GET", url, undefined, options);
export const post = (url, body, options) => request("POST", url, body, options);
