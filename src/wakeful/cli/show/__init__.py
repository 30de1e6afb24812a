"""How things look on a terminal. Nothing here asks anybody anything."""
