"""Kernel tests; see conftest.py for where they run."""
