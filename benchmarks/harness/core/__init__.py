"""Cases made ready, timed, checked and reported, on a GPU or on the host."""
