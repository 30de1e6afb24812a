"""The network interfaces: HTTP, WebSocket RPC and MCP."""
