"""A webhook receiver that verifies requests by Standard Webhooks. It needs only Python.

    python examples/receiver.py whsec_…      the secret from the creation of the job

While a secret rotates, a request has two signatures, so the receiver may have the old secret or the new one.
`webhook-id` is the run's key: it is the same through retries and replays, so a receiver that stores it can
drop duplicates.
"""

import base64
import contextlib
import hmac
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

if len(sys.argv) != 2 or not sys.argv[1].startswith("whsec_"):
    sys.exit("usage: python examples/receiver.py whsec_…    (the secret that `wakeful add … --url` prints)")
SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))
TOLERANCE_S = 300


def is_genuine(headers, body):
    """Return whether one of the signatures is made with the secret, within the last five minutes."""
    key, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not re.fullmatch("[0-9]{1,12}", sent) or abs(time.time() - int(sent)) > TOLERANCE_S:
        return False  # an old request that someone sends again
    signature = hmac.digest(SECRET, f"{key}.{sent}.".encode() + body, "sha256")
    expected = b"v1," + base64.b64encode(signature)
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(expected, each) for each in given)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        genuine = is_genuine(self.headers, body)
        if genuine:
            print(self.headers["webhook-id"][:12], body.decode(), flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


with contextlib.suppress(KeyboardInterrupt):
    HTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
