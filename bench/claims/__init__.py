"""What the five papers claim, and which rows of our results answer it."""
