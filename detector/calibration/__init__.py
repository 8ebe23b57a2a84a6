"""Thresholds from a budget of false alarms: tails of healthy history, and the file that keeps them."""
