"""RPC over a WebSocket, at `/ws`: ask and be answered, and hear what happens, over one connection."""
