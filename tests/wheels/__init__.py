"""The library as C and C++ programs use it."""
