"""Which flag explains that something an encoding has is otherwise: an option, a parameter, a function it calls, what its heads are multiplied with.

Words of a line: encodings (with | between, * for all), then names, then the flag. The first line that fits counts. A parameter may end in *.
"""

from fnmatch import fnmatch

OPTIONS = """
retnet                 ladder base                                    retnet.ladder
retnet                 layout                                         rope.layout.half
retnet                 norm                                           mix.norm
retnet                 eps rows                                       retnet.scale
retnet                 decays                                         retnet.decay
rwkv6|rwkv7            eps unit_eps                                   rwkv.scale
s4d|mamba              discretisation                                 mix.discretisation
pyramid                local                                          pyramid.window
shaw                   max_distance                                   shaw.clip
sandwich               width base form                                sandwich.formula
sinusoidal             layout                                         sin.order
sinusoidal             ladder                                         sin.denominator
axial                  ladder max_freq                                rope.axial.ladder
axial                  width                                          rope.axial.axes
mrope                  sections order                                 rope.mrope.sections
xpos                   scale_base gamma centre                        rope.xpos.gain
pi                     1/factor                                       rope.pi.factor
p_rope                 fraction                                       rope.p.fraction
ntk                    form mixed_b                                   rope.ntk.form
dynamic_ntk            original form n                                rope.ntk.static_as_dynamic
ntk_by_parts           beta gamma original                            rope.parts.ramp
pi|ntk_by_parts|yarn   form                                           rope.ntk.static_as_dynamic
yarn                   ramp beta_fast beta_slow truncate original     rope.yarn.ramp
yarn|longrope          attention_factor mscale mscale_all_dim reading short_mscale long_mscale rope.yarn.mscale_override
longrope               n original start_tokens short_factor long_factor rope.longrope.switch
llama3                 original low_freq_factor high_freq_factor      rope.llama3.blend
alibi                  max_bias                                       alibi.slopes.exponent
t5|learned_bias        max_distance                                   bias.bucket.clamp
t5                     buckets                                        t5.bidirectional
dynamic_bias           distance norm depth activation output          dynamic_bias.network
cope                   divided                                        cope.scale
fire                   threshold                                      fire.normaliser
fire                   eps                                            fire.formula
*                      base                                           rope.base.ignored
"""
PARAMETERS = """
mamba|s4d              D                                              mix.skip
mamba                  dt.*                                           mamba.step
mamba                  b.weight c.weight x.weight z.weight            mamba.projections
mamba                  down.norm b.norm c.norm                        mix.norm
mamba                  A_log                                          mamba.decay
mamba                  conv conv.bias                                 mix.conv
s4d                    C                                              s4d.conjugates
s4d                    log_dt                                         mix.discretisation
s4d                    g.*                                            mix.gate
rwkv4|rwkv6|rwkv7      bonus                                          rwkv.bonus
rwkv4|rwkv6|rwkv7      decay decay.*                                  rwkv.decay
rwkv4|rwkv6|rwkv7      r.weight k.weight v.weight                     rwkv.projections
rwkv4|rwkv6|rwkv7      mix.*                                          mix.shift
rwkv6|rwkv7            norm.*                                         mix.norm
rwkv7                  xi                                             rwkv7.kappa
rwkv7                  alpha                                          rwkv7.key
rwkv7                  a.*                                            rwkv7.removal
rwkv6|rwkv7|retnet     g.weight gate.*                                mix.gate
forgetting             f.*                                            forgetting.gate
fire                   1.* 2.*                                        fire.network
fire                   c                                              fire.formula
fire                   m                                              fire.normaliser
transformer_xl         u w                                            xl.terms
transformer_xl         r.weight                                       xl.distance
shaw                   key                                            shaw.key
shaw                   value                                          shaw.value
path                   beta.*                                         path.beta
path                   conv down.* up.*                               path.w
pyramid                gate.*                                         pyramid.gate
pyramid                level                                          pyramid.blocks
kerple_log|kerple_power|dape r1 r2 r3                                 kerple.parameters
dape                   1.* 2.*                                        dape.network
dynamic_bias           *                                              dynamic_bias.network
"""
FUNCTIONS = """
yarn                   ramp                                           rope.yarn.ramp
ntk_by_parts           ramp                                           rope.parts.ramp
llama3                 ramp                                           rope.llama3.blend
xpos                   magnitude                                      rope.xpos.gain
longrope               ramp                                           rope.longrope.switch
path                   silu unit                                      path.w
path                   sigmoid twice                                  path.beta
pyramid                sigmoid blend                                  pyramid.gate
pyramid                pool far                                       pyramid.blocks
dynamic_bias           silu                                           dynamic_bias.network
kerple_power           softplus                                       kerple.parameters
forgetting             log_sigmoid                                    forgetting.gate
fire                   relu                                           fire.network
dape                   relu                                           dape.network
cope                   logistic                                       cope.count
mamba                  silu                                           mix.activation
retnet                 layer_norm rms_norm                            mix.norm
rwkv6|rwkv7            group_norm                                     mix.norm
rwkv4|rwkv6|rwkv7      previous lerp                                  mix.shift
rwkv4|rwkv6            minus_exp                                      rwkv.decay
rwkv7                  decay                                          rwkv.decay
rwkv7                  unit                                           rwkv7.kappa
rwkv7                  sigmoid                                        mix.gate
s4d                    gated                                            mix.gate
"""
HEADS = """
alibi                  *                                              alibi.slopes.exponent
kerple_log|kerple_power *                                             kerple.parameters
sandwich               *                                              sandwich.formula
*                      *                                              bias.heads
"""


def flag_of(lines: str, encoding: str, name: str, other: str = "option") -> str:
    """The flag of the first line that fits, `other` where none does."""
    for line in lines.strip().splitlines():
        whose, *names, flag = line.split()
        if any(fnmatch(encoding, one) for one in whose.split("|")) and any(fnmatch(name, one) for one in names):
            return flag
    return other
