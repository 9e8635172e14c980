"""Programs that run plans one after another, as engines do."""
