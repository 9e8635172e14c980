"""A folder for each operator in the one of its family: its reference, cases, adapter and tests."""
