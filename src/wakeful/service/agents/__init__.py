"""Use cases for agents and workspaces: settings, messages, heartbeats, wake."""
