"""The agents' own tool, over MCP: `cron`, at `/mcp` and on stdin and stdout.

The protocol is the official library's (`wakeful[mcp]`), which only `server`, `http` and `stdio` need.
"""
