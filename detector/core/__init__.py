"""Scoring, evidence, continuity and verdicts: array functions and one state machine, no clock and no I/O."""
