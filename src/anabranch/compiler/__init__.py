"""What a program turns out to be."""
