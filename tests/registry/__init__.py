"""Tests generated from the registry: every row against what it promises."""
