"""Review suspects in the browser: the local server, the file of decisions, and the corrected table."""
