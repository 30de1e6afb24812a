"""Agent sessions: messages are queued and processed as turns."""
