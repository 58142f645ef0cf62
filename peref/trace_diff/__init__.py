"""Somebody's trace of a model held against ours: what each tensor must be by theirs before it (steps), what
else an engine may have computed (readings), and where it begins to differ (first).
"""
