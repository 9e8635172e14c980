"""References and cases of coo_to_csr."""
