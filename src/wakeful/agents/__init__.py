"""Agents: sessions, in which messages wait and become turns."""
