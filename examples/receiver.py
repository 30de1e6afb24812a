"""A webhook receiver that verifies the signature. It needs only Python.

    python examples/receiver.py whsec_…      the secret from the creation of the job

`webhook-id` is the run's key: it is the same through retries and replays, so a receiver that stores it can
drop duplicates.
"""

import base64
import contextlib
import hashlib
import hmac
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

if len(sys.argv) != 2 or not sys.argv[1].startswith("whsec_"):
    sys.exit("usage: python examples/receiver.py whsec_…    (the secret that `wakeful add … --url` prints)")
SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        expected = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        given = self.headers.get("x-wakeful-signature", "")
        genuine = hmac.compare_digest(expected.encode(), given.encode())
        if genuine:
            print(self.headers["webhook-id"][:12], body.decode(), flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


with contextlib.suppress(KeyboardInterrupt):
    HTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
