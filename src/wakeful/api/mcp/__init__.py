"""The MCP tool `cron` for agents, at `/mcp` and over stdin and stdout.

The protocol is the official library's (`wakeful[mcp]`), which only `server`, `http` and `stdio` need.
"""
