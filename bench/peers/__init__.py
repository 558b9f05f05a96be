"""Other systems beside Anabranch: the same input, the same query, each in a process of its own."""
