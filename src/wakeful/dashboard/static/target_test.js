// The result of a test of a target: the request that was sent, and the response.

import { element } from "./dialogs.js";

export function testResult({ ok, message, request, response, secret }) {
  const parts = [element("p", { className: `state state-${ok ? "succeeded" : "failed"}`, textContent: `${ok ? "✓" : "✗"} ${message[0].toUpperCase()}${message.slice(1)}.` })];
  if (response) parts.push(element("h3", { textContent: "Response" }), block(`HTTP ${response.status}`, response.headers, response.body));
  if (request) parts.push(element("h3", { textContent: "Request" }), block(`${request.method} ${request.url}`, Object.entries(request.headers), request.body));
  if (secret) {
    parts.push(
      element("p", { className: "hint", textContent: `A temporary secret signed this request: ${secret}. The job gets its own when it is created.` }),
    );
  }
  return element("div", { className: "test-result" }, ...parts);
}

// A credential is not shown, to no one: pictures of pages are shared.
const SECRET = /authorization|cookie|token|secret|api-?key|passw|credential/i;

function block(first, headers, body) {
  const text = [first, ...headers.map(([name, value]) => `${name}: ${SECRET.test(name) ? "***" : value}`), "", body].join("\n");
  return element("pre", { tabIndex: 0, textContent: text });
}
