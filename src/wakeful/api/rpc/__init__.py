"""RPC over a WebSocket at `/ws`: requests, responses and events on one connection."""
