// Where the pages and the API of this workspace are, and who looks at them.

export const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

// The path of the host below which the dashboard is: this file is at ROOT/assets/VERSION/addresses.js.
export const root = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");
export const workspace = meta("workspace");
export const role = meta("role");

// The path of the API in this workspace: path("runs", id, "stop").
export function path(...parts) {
  return `${root}/api/workspaces/${[workspace, ...parts].map(encodeURIComponent).join("/")}`;
}

// The path of a page in this workspace.
export function page(...parts) {
  return `${root}/workspaces/${[workspace, ...parts].map(encodeURIComponent).join("/")}${parts.length ? "" : "/"}`;
}
