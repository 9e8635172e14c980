"""Every operator in NumPy, written from its contract, with the cases that kernels are held to."""
