"""The names of public tensors, as data.

Theirs on the left of a row, ours beside it. N is the layer; {a,b} makes a row of each, as a shell would.
Several of ours beside one of theirs stand one behind the other there, with "grouped" for each key-value head
its queries, its key and its value, with "alternate" row by row, and turned. A row is there where the model
has ours, and one for a bias where that has one; "if:" says of two rows for one of ours which (tensors.facts),
"turned": theirs is [in,out]. The experts are one axis of theirs as of ours; in files that have each of them
apart X is which. A shape is theirs, where that has axes of one number.

Not here: who reads a table (tensors), the shapes of ours (parameters).
"""

from typing import Any

# rows that several families have
AROUND = """
    {model.embed_tokens,model.norm,lm_head}.weight     {embed,norm,head}.weight
    model.layers.N.input_layernorm.weight              N.norm1.weight
    """
Q_K_V_O = """
    model.layers.N.self_attn.{q,k,v,o}_proj.weight     N.{q,k,v,o}.weight
    """
SECOND_NORM = """
    model.layers.N.post_attention_layernorm.weight     N.norm2.weight
    """
GATE_WITH_UP = """
    model.layers.N.mlp.gate_up_proj.weight             N.{gate,up}.weight
    model.layers.N.mlp.down_proj.weight                N.down.weight
    """
HEADS_IN_GROUPS = """
    {transformer.word_embeddings,transformer.ln_f,lm_head}.weight  {embed,norm,head}.weight
    transformer.h.N.self_attention.query_key_value.weight  N.{q,k,v}.weight  grouped
    transformer.h.N.{self_attention.dense,mlp.dense_h_to_4h,mlp.dense_4h_to_h}.weight  N.{o,up,down}.weight
    """
USUAL = AROUND + Q_K_V_O + SECOND_NORM

PUBLIC_NAMES: dict[str, str] = {
    "llama": AROUND
    + Q_K_V_O
    + """
    model.layers.N.self_attn.{q,k}_norm.weight         N.{q,k}norm.weight
    model.layers.N.post_attention_layernorm.weight     N.norm2.weight   if:before
    model.layers.N.pre_feedforward_layernorm.weight    N.norm2.weight   if:both
    model.layers.N.post_{attention,feedforward}_layernorm.weight  N.{after1,after2}.weight
    model.layers.N.mlp.{gate,up,down}_proj.weight      N.{gate,up,down}.weight
    model.layers.N.mlp.gate.weight                     N.router.weight
    model.layers.N.mlp.experts.gate_up_proj            N.experts.{gate,up}.weight
    model.layers.N.mlp.experts.down_proj               N.experts.down.weight
    model.layers.N.mlp.experts.X.{gate,up,down}_proj.weight  N.experts.{gate,up,down}.weight
    """,
    "gpt_oss": USUAL
    + """
    model.layers.N.self_attn.sinks                     N.sinks
    model.layers.N.mlp.router.weight                   N.router.weight
    model.layers.N.mlp.experts.gate_up_proj            N.experts.{gate,up}.weight  alternate
    model.layers.N.mlp.experts.down_proj               N.experts.down.weight       turned
    """,
    "llama4": USUAL
    + """
    model.layers.N.feed_forward.router.weight          N.router.weight
    model.layers.N.feed_forward.experts.gate_up_proj   N.experts.{gate,up}.weight  turned
    model.layers.N.feed_forward.experts.down_proj      N.experts.down.weight       turned
    model.layers.N.feed_forward.shared_expert.{gate,up,down}_proj.weight  N.shared.{gate,up,down}.weight
    model.layers.N.feed_forward.{gate,up,down}_proj.weight  N.{gate,up,down}.weight
    """,
    "glm": USUAL + GATE_WITH_UP,
    "phi3": AROUND
    + SECOND_NORM
    + GATE_WITH_UP
    + """
    model.layers.N.self_attn.qkv_proj.weight           N.{q,k,v}.weight
    model.layers.N.self_attn.o_proj.weight             N.o.weight
    """,
    "phi": """
    {model.embed_tokens,model.final_layernorm,lm_head}.weight  {embed,norm,head}.weight
    model.layers.N.input_layernorm.weight              N.norm1.weight
    model.layers.N.self_attn.{q_proj,k_proj,v_proj,dense}.weight  N.{q,k,v,o}.weight
    model.layers.N.mlp.{fc1,fc2}.weight                N.{up,down}.weight
    """,
    "gpt_neox": """
    {gpt_neox.embed_in,gpt_neox.final_layer_norm,lm_head}.weight  {embed,norm,head}.weight
    gpt_neox.layers.N.{input,post_attention}_layernorm.weight  N.{norm1,norm2}.weight
    gpt_neox.layers.N.attention.query_key_value.weight  N.{q,k,v}.weight  grouped
    gpt_neox.layers.N.{attention.dense,mlp.dense_h_to_4h,mlp.dense_4h_to_h}.weight  N.{o,up,down}.weight
    """,
    "gptj": """
    {transformer.wte,transformer.ln_f,lm_head}.weight  {embed,norm,head}.weight
    transformer.h.N.ln_1.weight                        N.norm1.weight
    transformer.h.N.attn.{q,k,v,out}_proj.weight       N.{q,k,v,o}.weight
    transformer.h.N.mlp.{fc_in,fc_out}.weight          N.{up,down}.weight
    """,
    "gpt2": """
    {transformer.wte,transformer.ln_f,lm_head}.weight  {embed,norm,head}.weight
    transformer.wpe.weight                             pe.0.table
    transformer.h.N.{ln_1,ln_2}.weight                 N.{norm1,norm2}.weight
    transformer.h.N.attn.c_attn.weight                 N.{q,k,v}.weight       turned
    transformer.h.N.{attn.c_proj,mlp.c_fc,mlp.c_proj}.weight  N.{o,up,down}.weight  turned
    """,
    "falcon": HEADS_IN_GROUPS
    + """
    transformer.h.N.{ln_attn,ln_mlp}.weight            N.{norm1,norm2}.weight  if:parallel
    transformer.h.N.{input,post_attention}_layernorm.weight  N.{norm1,norm2}.weight  if:not_parallel
    """,
    "bloom": HEADS_IN_GROUPS
    + """
    transformer.word_embeddings_layernorm.weight       embed_norm.weight
    transformer.h.N.{input,post_attention}_layernorm.weight  N.{norm1,norm2}.weight
    """,
    "mpt": """
    {transformer.wte,transformer.norm_f,lm_head}.weight  {embed,norm,head}.weight
    transformer.blocks.N.{norm_1,norm_2}.weight        N.{norm1,norm2}.weight
    transformer.blocks.N.attn.Wqkv.weight              N.{q,k,v}.weight
    transformer.blocks.N.{attn.out_proj,ffn.up_proj,ffn.down_proj}.weight  N.{o,up,down}.weight
    """,
    "t5": """
    {shared,lm_head}.weight                            {embed,decoder.head}.weight
    {en,de}coder.block.0.layer.0.SelfAttention.relative_attention_bias.weight  {en,de}coder.pe.0.table
    {en,de}coder.block.N.layer.0.layer_norm.weight     {en,de}coder.N.norm1.weight
    {en,de}coder.block.N.layer.0.SelfAttention.{q,k,v,o}.weight  {en,de}coder.N.{q,k,v,o}.weight
    decoder.block.N.layer.1.layer_norm.weight          decoder.N.norm_cross.weight
    decoder.block.N.layer.1.EncDecAttention.{q,k,v,o}.weight  decoder.N.cross.{q,k,v,o}.weight
    {encoder.block.N.layer.1,decoder.block.N.layer.2}.layer_norm.weight  {en,de}coder.N.norm2.weight
    encoder.block.N.layer.1.DenseReluDense.{wi_0,wo}.weight  encoder.N.{gate,down}.weight
    encoder.block.N.layer.1.DenseReluDense.wi_1.weight  encoder.N.up.weight  if:gated
    encoder.block.N.layer.1.DenseReluDense.wi.weight   encoder.N.up.weight  if:not_gated
    decoder.block.N.layer.2.DenseReluDense.{wi_0,wo}.weight  decoder.N.{gate,down}.weight
    decoder.block.N.layer.2.DenseReluDense.wi_1.weight  decoder.N.up.weight  if:gated
    decoder.block.N.layer.2.DenseReluDense.wi.weight   decoder.N.up.weight  if:not_gated
    {en,de}coder.final_layer_norm.weight               {en,de}coder.norm.weight
    """,
    "mamba": """
    {backbone.embeddings,backbone.norm_f,lm_head}.weight  {embed,norm,head}.weight
    backbone.layers.N.norm.weight                      N.norm1.weight
    backbone.layers.N.mixer.in_proj.weight             N.pe.{x,z}.weight
    backbone.layers.N.mixer.conv1d.weight              N.pe.conv  [e,1,k]
    backbone.layers.N.mixer.conv1d.bias                N.pe.conv.bias
    backbone.layers.N.mixer.x_proj.weight              N.pe.{down,b,c}.weight
    backbone.layers.N.mixer.{dt_proj,out_proj}.weight  N.pe.{dt,o}.weight
    backbone.layers.N.mixer.{A_log,D}                  N.pe.{A_log,D}
    """,
    "rwkv": """
    {rwkv.embeddings,rwkv.ln_out,head}.weight          {embed,norm,head}.weight
    rwkv.blocks.0.pre_ln.weight                        embed_norm.weight
    rwkv.blocks.N.{ln1,ln2}.weight                     N.{norm1,norm2}.weight
    rwkv.blocks.N.attention.time_{decay,first}         N.pe.{decay,bonus}
    rwkv.blocks.N.attention.time_mix_{key,value,receptance}  N.pe.mix.{k,v,r}  [1,1,C]
    rwkv.blocks.N.attention.{key,value,receptance,output}.weight  N.pe.{k,v,r,o}.weight
    rwkv.blocks.N.feed_forward.time_mix_{key,receptance}  N.mix.{up,receptance}  [1,1,C]
    rwkv.blocks.N.feed_forward.{key,receptance,value}.weight  N.{up,receptance,down}.weight
    """,
}
# names of an encoder and a decoder, with what may be there beside the embedding and equals it
PAIRS = {"t5": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")}

NEEDS: dict[str, dict[str, Any]] = {  # what names say of the model without saying it
    **{"llama": {"gated": True}, "phi3": {"gated": True, "norm": "rms", "biases": False}},
    **{kind: {"gated": True, "norm": "rms", "qk_norm": False} for kind in ("gpt_oss", "llama4", "glm")},
    **{"phi": {"norm": "layer", "gated": False, "residual": "shared", "head_bias": True}},
    **{"gpt_neox": {"norm": "layer", "gated": False, "norm_place": "before", "qk_norm": False}},
    **{"gptj": {"norm": "layer", "gated": False, "residual": "shared", "head_bias": True}},
    **{"gpt2": {"norm": "layer", "gated": False, "biases": True, "qkv_bias": True, "qk_norm": False}},
    **{"falcon": {"norm": "layer", "gated": False, "embed_norm": False}},
    **{"bloom": {"norm": "layer", "gated": False, "embed_norm": True}},
    **{"mpt": {"norm": "layer", "gated": False, "biases": False}},
    **{"t5": {"norm": "rms", "biases": False}},
    **{"mamba": {"norm": "rms", "activation": "none"}, "rwkv": {"norm": "layer", "residual": "sequential"}},
}
