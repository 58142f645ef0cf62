"""What benchmarks/gpu.py is made of: one file for each phase, and session.py, which all of them are given."""
