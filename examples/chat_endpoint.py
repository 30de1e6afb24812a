"""A stand-in for a model, to try chat jobs without one. It needs only Python.

    python examples/chat_endpoint.py      listens where Ollama does: http://127.0.0.1:11434/v1

It answers like an OpenAI-compatible endpoint. If a message asks for a follow-up and the tool `cron` is
offered, it schedules one in two hours, as a model would. What is posted to /channel is printed: a place for
deliveries.
"""

import contextlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FOLLOW_UP = {
    "name": "follow-up",
    "schedule": "in 2 hours",
    "message": "Look whether the build is green.",
    "deliver": True,
}


def answer(request):
    """Return the message of the model."""
    messages = request["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return {"content": "The build is red. I look again in two hours."}
    if "follow-up" in last["content"] and request.get("tools"):
        arguments = json.dumps({"action": "add", "job": FOLLOW_UP})
        call = {"id": "call_1", "type": "function", "function": {"name": "cron", "arguments": arguments}}
        return {"content": None, "tool_calls": [call]}
    return {"content": f"You said: {last['content']}"}


def completion(request):
    """Return the response of the endpoint."""
    message = answer(request)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    used = sum(len(str(each.get("content"))) // 4 + 4 for each in request["messages"])
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": used, "completion_tokens": 12, "total_tokens": used + 12},
    }


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/channel":
            print("channel:", body["message"], flush=True)
        response = json.dumps(completion(body) if self.path == "/v1/chat/completions" else {}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *arguments):
        pass


with contextlib.suppress(KeyboardInterrupt):
    ThreadingHTTPServer(("127.0.0.1", 11434), Endpoint).serve_forever()
