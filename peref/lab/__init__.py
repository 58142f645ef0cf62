"""lab: looking at encodings. Numbers first (effects, responses), then pictures of them; only pictures
imports matplotlib.
"""
