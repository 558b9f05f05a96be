"""Windows (M9, M10): partials where the rows are, sums of them where the key is."""
