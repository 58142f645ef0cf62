"""The ops that the numba backend fills: each is called like its plain twin and computes every call in
float32, or refuses in words.
"""
