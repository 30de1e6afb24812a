"""The HTTP API of a server, one method per endpoint: documents in, JSON out.

`AsyncClient` builds on it and returns the public model. The command line uses it directly, because its
`--json` prints what the server sends.
"""

from wakeful.client.rest.client import RestClient
from wakeful.client.rest.jobs import RestJobs
from wakeful.client.rest.runs import RestRuns

__all__ = ["RestClient", "RestJobs", "RestRuns"]
