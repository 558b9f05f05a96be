"""The public shell: what users call, over all the rest."""
