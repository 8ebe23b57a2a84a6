"""Labelled synthetic incidents, and Oddnode against its rivals on them."""
