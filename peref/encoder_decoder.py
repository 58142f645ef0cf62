"""An encoder and a decoder over one flat dict of parameters: the memory that the first makes of a source, and
the logits of the second for what stands before each token of an answer.

    memory = encode(pair, params, source, seg)
    logits = answered(pair, params, source, seg, tokens)         whole answers, for training
    decode(pair.decoder, half_of(params, "decoder"), tokens, cache, memory=memory)

Vaswani et al. 2017, arXiv:1706.03762, section 3.1, with the norm of layers.py. One embedding serves both, and
the head where the decoder is tied (section 3.4). The memory is normed once, at its end. The last call is
model.decode: keys and values of the memory are made in the first call and kept in the cache.
"""

from typing import Any

import numpy as np

from peref.backends import Backend
from peref.config import Config
from peref.layers import last_norm
from peref.model import PLAIN, check_tokens, forward
from peref.ops.place import At
from peref.parameters import half_of
from peref.passes import Memory
from peref.xp import Arrays


def encode(pair: Config, params: Arrays, source: Any, seg: Any = None, *, be: Backend = PLAIN) -> Memory:
    """The memory of sources [B,S]; seg [B,S] says what is padding, 0, and which tokens are one document."""
    assert pair.encoder
    seg = np.ones(check_tokens(pair.encoder, source).shape, int) if seg is None else np.asarray(seg)
    p = half_of(params, "encoder")
    return Memory(forward(pair.encoder, p, source, be=be, seg=seg, end=last_norm), seg)


def answered(
    pair: Config,
    params: Arrays,
    source: Any,
    source_seg: Any,
    tokens: Any,
    *,
    be: Backend = PLAIN,
    **place: Any,
) -> Any:
    """Logits [B,T,V] of the tokens that follow each of `tokens` [B,T], the answers to sources [B,S]. `place`
    is that of the answers (model.logits); their segments are the numbers of their sources.
    """
    check_tokens(pair.decoder, tokens)
    memory = encode(pair, params, source, source_seg, be=be)
    return forward(pair.decoder, half_of(params, "decoder"), tokens, be=be, memory=memory, **place)


def predicted(cfg: Config, params: Arrays, inputs: Any, at: At | None = None, *, be: Backend = PLAIN) -> Any:
    """Logits [B,T,V] of a model's tokens [B,T], at their place unless they are counted, or of a pair's
    (source, seg, tokens).
    """
    if cfg.encoder:
        return answered(cfg, params, *inputs, be=be)
    return forward(cfg, params, inputs, be=be, at=at)
