"""Authentication and access control: keys, tokens, permissions, limits."""
