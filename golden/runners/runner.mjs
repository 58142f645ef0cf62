// A runner in JavaScript: RoPE in both layouts, YaRN, ALiBi and T5, tables and operations with their gradients, and refusals. Node, nothing installed.
//
//     peref check --cmd 'node runner.mjs' --dtype f32
//
// It is asked in lines of JSON on stdin, reads its inputs from a safetensors file, computes in double, writes another such file and answers.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const ARRAYS = { F64: Float64Array, F32: Float32Array, I64: BigInt64Array }

// ---------------------------------------------------------------- safetensors: length of the header, header, bytes

function readTensors (path) {
  const file = readFileSync(path)
  const start = 8 + Number(file.readBigUInt64LE(0))
  const found = {}
  for (const [name, { dtype, shape, data_offsets: [first, stop] }] of Object.entries(JSON.parse(file.toString('utf8', 8, start)))) {
    const bytes = file.buffer.slice(file.byteOffset + start + first, file.byteOffset + start + stop) // a copy, which is aligned
    found[name] = { shape, dtype, x: Float64Array.from(new ARRAYS[dtype](bytes), Number) }
  }
  return found
}

function writeTensors (path, tensors, dtype) {
  const header = {}
  const parts = []
  let at = 0
  for (const [name, { shape, x }] of Object.entries(tensors)) {
    const bytes = Buffer.from(ARRAYS[dtype].from(x).buffer)
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] }
    at += bytes.length
    parts.push(bytes)
  }
  const text = Buffer.from(JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(text.length))
  writeFileSync(path, Buffer.concat([length, text, ...parts]))
}

// ---------------------------------------------------------------- calls without meaning

const yarn = options => 'factor' in options
const real = tensor => tensor.dtype[0] === 'F'
const hasShape = (tensor, ...shape) => tensor.shape.length === shape.length && tensor.shape.every((n, k) => n === shape[k])

// What a call must have: whether it has, the kind of what is wrong, and words.
function * needs ({ encoding, facts, options }, a) {
  const { B, H, G, T, D, R, causal, layout } = facts
  yield [a.positions.x.every(Number.isFinite), 'position', 'a position is no number']
  yield [a.positions.shape.at(-1) === T, 'shape', 'positions are not one for each token']
  yield [H > 0, 'heads', 'there are no heads']
  for (const [name, heads] of [['q', H], ['k', G]].filter(([name]) => name in a)) {
    yield [real(a[name]), 'dtype', `${name} is of whole numbers`]
    yield [hasShape(a[name], B, heads, T, D), 'shape', `${name} is not [${B},${heads},${T},${D}]`]
  }
  if ('base' in options) {
    yield [R >= 2 && R % 2 === 0 && R <= D, 'width', `the rotary width is ${R}, which is odd, less than 2 or more than the head has`]
    yield [['half', 'interleaved'].includes(layout), 'setting', `there is no layout ${layout}`]
    yield [options.base > (yarn(options) ? 1 : 0), 'setting', `${options.base} is no base`]
  }
  if (yarn(options)) {
    yield [options.factor > 0 && (options.original ?? facts.L) > 0, 'setting', 'the factor and the length trained for are above 0']
    yield [options.beta_fast > options.beta_slow && options.beta_slow > 0, 'setting', 'beta_fast is above beta_slow, and that above 0']
  }
  if (encoding === 't5') {
    const parts = causal ? 2 : 4
    yield [!real(a.positions), 'position', 'positions are whole numbers']
    yield [options.buckets > 0 && options.buckets % parts === 0, 'setting', `${options.buckets} buckets are no multiple of ${parts}`]
    yield [options.max_distance > options.buckets / parts, 'setting', 'max_distance is within the exact buckets']
    yield [hasShape(a['param.table'], options.buckets, H), 'shape', 'the table is not [buckets,H]']
  }
}

// ---------------------------------------------------------------- rotation: RoPE and YaRN

function frequencies ({ R, L }, options) {
  const { base, factor, original, beta_fast: fast, beta_slow: slow, truncate } = options
  const w = Array.from({ length: R / 2 }, (_, n) => base ** (-2 * n / R))
  if (!yarn(options)) return { w, gain: 1 }
  // the pair that turns so many times within the length trained for
  const pair = times => R * Math.log((original ?? L) / (times * 2 * Math.PI)) / (2 * Math.log(base))
  const low = Math.max(truncate ? Math.floor(pair(fast)) : pair(fast), 0)
  const high = Math.min(truncate ? Math.ceil(pair(slow)) : pair(slow), R - 1)
  const share = n => Math.min(Math.max((n - low) / (high - low || 0.001), 0), 1)
  return { w: w.map((f, n) => share(n) * f / factor + (1 - share(n)) * f), gain: factor > 1 ? 0.1 * Math.log(factor) + 1 : 1 }
}

// Turn the first R channels of x [B,H,T,D], or back with sign -1. The others pass as they are, without the gain.
function turn ({ shape, x }, positions, { R, layout }, { w, gain }, sign) {
  const [, H, T, D] = shape
  const y = x.slice()
  for (let row = 0; row < x.length / D; row++) {
    const sequence = positions.shape.length === 2 ? Math.floor(row / (H * T)) : 0
    for (let n = 0; n < R / 2; n++) {
      const angle = positions.x[sequence * T + row % T] * w[n]
      const [c, s] = [Math.cos(angle), sign * Math.sin(angle)]
      const i = row * D + (layout === 'half' ? n : 2 * n)
      const j = row * D + (layout === 'half' ? n + R / 2 : 2 * n + 1)
      y[i] = gain * (x[i] * c - x[j] * s)
      y[j] = gain * (x[i] * s + x[j] * c)
    }
  }
  return { shape, x: y }
}

function rotation ({ level, facts, options }, a) {
  if (options.learned) return 'learned frequencies'
  const plain = options.ramp === 'code' && options.form === 'static' && options.extrapolation_factor === 1
  if (yarn(options) && (!plain || [options.attention_factor, options.mscale, options.mscale_all_dim].some(x => x !== null))) {
    return 'YaRN with other options than ramp=code'
  }
  const f = frequencies(facts, options)
  if (level === 'table') {
    const pairs = facts.R / 2
    const shape = [...a.positions.shape, pairs]
    const angle = Float64Array.from({ length: a.positions.x.length * pairs }, (_, n) => a.positions.x[Math.floor(n / pairs)] * f.w[n % pairs])
    const table = change => ({ shape, x: angle.map(change) })
    return { angle: table(x => x), cos: table(Math.cos), sin: table(Math.sin), gain_q: table(() => f.gain), gain_k: table(() => f.gain) }
  }
  const found = {}
  for (const name of ['q', 'k']) {
    found[`${name}_rotated`] = turn(a[name], a.positions, facts, f, 1)
    const dy = a[`cotangent.${name}_rotated`]
    if (dy) found[`vjp.${name}`] = turn(dy, a.positions, facts, f, -1)
  }
  return found
}

// ---------------------------------------------------------------- bias by distance: ALiBi and T5

// One slope a head: a power of two below H, then every second of twice as many.
function slopes (H, maxBias) {
  const most = 2 ** Math.floor(Math.log2(H))
  const of = n => Array.from({ length: n }, (_, h) => 2 ** (-maxBias * (h + 1) / n))
  return [...of(most), ...of(2 * most).filter((_, h) => h % 2 === 0).slice(0, H - most)]
}

// The hair keeps a distance that lies on a border, where the logarithm is whole, from falling below it.
function bucket (d, causal, { buckets, max_distance: most }) {
  const m = causal ? buckets : buckets / 2
  const e = m / 2
  const n = causal ? Math.max(d, 0) : Math.abs(d)
  const far = Math.min(e + Math.floor(Math.log(n / e) / Math.log(most / e) * (m - e) + 1e-9), m - 1)
  return (n < e ? n : far) + (!causal && d < 0 ? m : 0)
}

function bias ({ encoding, level, facts, options }, a) {
  if (encoding === 'alibi' && (options.slopes !== 'fixed' || options.directions !== 'both')) return 'ALiBi with other slopes'
  if (a.positions.shape.length !== 1 || a.seg || facts.window !== null) return 'masks other than causal'
  const { H, causal } = facts
  const i = a.positions.x
  const T = i.length
  const op = level === 'op'
  const N = op ? T * T : a.distances.x.length
  const y = new Float64Array(H * N)
  const table = a['param.table']
  const dy = a['cotangent.bias']
  const back = table && new Float64Array(table.x.length)
  const slope = table ? [] : slopes(H, options.max_bias)
  for (let n = 0; n < N; n++) {
    const [t, s] = [Math.floor(n / T), n % T]
    if (op && causal && s > t) continue // a key that is not there yet: by its slot, not by its position
    const d = op ? i[t] - i[s] : a.distances.x[n]
    const row = table && bucket(d, causal, options) * H
    for (let h = 0; h < H; h++) {
      y[h * N + n] = table ? table.x[row + h] : -slope[h] * Math.abs(d)
      if (dy) back[row + h] += dy.x[h * N + n]
    }
  }
  const found = { bias: { shape: op ? [H, T, T] : [H, N], x: y } }
  return table ? { ...found, 'vjp.param.table': { shape: table.shape, x: back } } : found
}

// ---------------------------------------------------------------- questions and answers

const COMPUTED = { rope: rotation, yarn: rotation, alibi: bias, t5: bias }
const SUPPORTS = { ops: Object.keys(COMPUTED).flatMap(name => [`${name}.table`, `${name}.op`]), dtypes: ['f64', 'f32'], vjp: true, refusals: true }
let folder = ''

function answered (request) {
  if (request.cmd === 'hello') {
    folder = request.dir
    return { ok: true, implementation: { name: 'example in JavaScript', language: 'javascript' }, supports: SUPPORTS }
  }
  const a = readTensors(join(folder, request.in))
  for (const [good, kind, message] of needs(request, a)) {
    if (!good) return { seq: request.seq, status: 'refused', kind, message }
  }
  const found = COMPUTED[request.encoding](request, a)
  if (typeof found === 'string') return { seq: request.seq, status: 'skip', reason: found }
  const wanted = Object.fromEntries(request.want.map(name => [name, found[name]]))
  writeTensors(join(folder, request.out), wanted, request.dtype.toUpperCase())
  return { seq: request.seq, status: 'ok' }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  if (request.cmd === 'bye') break
  console.log(JSON.stringify(answered(request)))
}
