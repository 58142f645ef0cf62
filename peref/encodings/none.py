"""NoPE: no position anywhere. A causal model still learns order from its mask; a two-sided one is blind to
it.

Kazemnejad et al. 2023, arXiv:2305.19466; earlier Haviv et al. 2022, arXiv:2203.16634.
"""

from peref.encodings import EVERY_LAW_OF_DISTANCE, Encoding

ENCODING = Encoding("arXiv:2305.19466", "nothing is added", claims=EVERY_LAW_OF_DISTANCE, axes=None)
