"""What a user's Python function does, as far as its code proves it."""
