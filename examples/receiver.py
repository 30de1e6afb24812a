"""What receives a webhook of Wakeful's: it checks the signature before it believes a word.

    python examples/receiver.py whsec_…      the secret that creating the job returned

Needs nothing but Python. `webhook-id` is the run's key: it stays the same through retries and replays, so a
receiver that remembers it does each thing once.
"""

import base64
import hashlib
import hmac
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        expected = hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        genuine = hmac.compare_digest(expected, self.headers["x-wakeful-signature"])
        if genuine:
            print(self.headers["webhook-id"][:12], body.decode(), flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *arguments):
        pass


HTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
