"""The laws that an encoding keeps, asked in small models: those of all, those that it claims, its scalar
loop.

Each checker takes a Subject (small.py) and raises Differs with what broke: everywhere.py, claimed.py,
loops.py; verdicts.py asks all of them.
"""
