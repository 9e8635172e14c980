"""Tests that need an NVIDIA GPU. `make gpu-test` runs them; `make test` leaves them alone."""
