"""What bench.py is made of: cases, workloads, the two machines, peers, checks and reports."""
