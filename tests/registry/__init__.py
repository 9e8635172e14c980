"""Tests generated from the registry: every kernel against what it promises."""
