"""How good is the detection: labelled cases in, numbers with intervals out.

Any detector that turns a case into flags goes through the same scorer, so rivals are
comparable. Scoring is pure; only `runner`, `command` and `builtin` read files.
"""
