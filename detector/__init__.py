"""Fault detection by peer comparison: the pure core and the shell around it."""
