"""Exit with 0 if the Wakeful process of this container responds to /healthz."""

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

port = int(os.environ.get("WAKEFUL_WORKER_PORT") or os.environ.get("WAKEFUL_PORT") or 9253)
connection: HTTPConnection
if os.environ.get("WAKEFUL_TLS_CERT"):
    # The certificate is for the name that clients use, not for this address.
    connection = HTTPSConnection("127.0.0.1", port, timeout=4, context=ssl._create_unverified_context())
else:
    connection = HTTPConnection("127.0.0.1", port, timeout=4)
try:
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
except (OSError, HTTPException) as error:
    sys.exit(f"port {port}: {error}")
sys.exit(0 if status == 200 else f"port {port}: status {status}")
