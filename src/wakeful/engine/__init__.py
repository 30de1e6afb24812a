"""What runs when: one loop a file, none of them with rules of its own, and `engine.py` that starts them."""
