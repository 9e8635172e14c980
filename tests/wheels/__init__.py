"""The wheels of a release, and what is made of them."""
