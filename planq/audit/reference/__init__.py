"""What references are made of: number formats, seeded inputs, Philox."""
