"""One file per operator: its table, its edges, its peers."""
