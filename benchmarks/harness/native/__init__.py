"""What is compiled for the present machine: ceilings, bare kernels, calls in C, CUTLASS."""
