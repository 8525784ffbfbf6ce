"""Benchmarks: scripts to run by hand, each alone."""
