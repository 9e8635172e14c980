"""Tests of planq.recipes."""
