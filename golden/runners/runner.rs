//! A runner in Rust: RoPE in both layouts, YaRN, ALiBi and T5, tables and operations with their gradients, and refusals.
//! The standard library alone.
//!
//!     rustc -O --edition 2021 runner.rs
//!     peref check --cmd ./runner --dtype f32
//!
//! It is asked in lines of JSON on stdin, of which it needs one number each: the same words stand in case-SEQ.txt, a line each, and say where in
//! in-SEQ.safetensors every input begins. It computes in f64, writes out-SEQ.safetensors and answers.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::{fs, iter};

#[derive(Clone)]
struct Tensor {
    shape: Vec<usize>,
    x: Vec<f64>,
    whole: bool,
}

type Outputs = HashMap<String, Tensor>;

/// The words of a case and its inputs. Facts and options are under "fact NAME" and "option NAME".
struct Case {
    words: HashMap<String, String>,
    want: Vec<String>,
    inputs: HashMap<String, Tensor>,
}

impl Case {
    fn word(&self, key: &str) -> &str {
        self.words.get(key).map_or("none", String::as_str)
    }

    fn is(&self, key: &str, value: &str) -> bool {
        self.word(key) == value
    }

    fn number(&self, key: &str) -> f64 {
        self.word(key).parse().unwrap_or(f64::NAN)
    }

    fn whole(&self, key: &str) -> usize {
        self.word(key).parse().unwrap_or(0)
    }

    fn read(folder: &Path, seq: u64) -> Result<Case, Box<dyn std::error::Error>> {
        let text = fs::read_to_string(folder.join(format!("case-{seq}.txt")))?;
        let data = fs::read(folder.join(format!("in-{seq}.safetensors")))?;
        let mut case = Case { words: HashMap::new(), want: vec![], inputs: HashMap::new() };
        for line in text.lines() {
            let part: Vec<&str> = line.split(' ').collect();
            match part[0] {
                "want" => case.want.push(part[1].into()),
                "fact" | "option" => drop(case.words.insert(part[..2].join(" "), part[2..].join(" "))),
                "input" => {
                    let shape = part[6..].iter().map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
                    let (bytes, first): (usize, usize) = (part[3].parse()?, part[4].parse()?);
                    case.inputs.insert(part[1].into(), Tensor { shape, x: numbers(&data[first..first + bytes], part[2])?, whole: part[2] == "I64" });
                }
                "end" => return Ok(case),
                key => drop(case.words.insert(key.into(), part[1..].join(" "))),
            }
        }
        Err("the words of the case have no end".into())
    }
}

fn numbers(bytes: &[u8], dtype: &str) -> Result<Vec<f64>, String> {
    let eight = || bytes.chunks_exact(8).map(|b| b.try_into().unwrap());
    match dtype {
        "F64" => Ok(eight().map(f64::from_le_bytes).collect()),
        "I64" => Ok(eight().map(|b| i64::from_le_bytes(b) as f64).collect()),
        "F32" => Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()),
        _ => Err(format!("dtype {dtype}")),
    }
}

/// A safetensors file: the length of a JSON header, the header, the numbers.
fn write_tensors(path: &Path, case: &Case, found: &HashMap<String, Tensor>) -> io::Result<()> {
    let single = case.is("dtype", "f32");
    let (mut header, mut bytes) = (vec![], vec![]);
    for name in &case.want {
        let t = &found[name];
        let first = bytes.len();
        for &v in &t.x {
            if single { bytes.extend((v as f32).to_le_bytes()) } else { bytes.extend(v.to_le_bytes()) }
        }
        let dtype = if single { "F32" } else { "F64" };
        header.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{:?},"data_offsets":[{first},{}]}}"#, t.shape, bytes.len()));
    }
    let header = format!("{{{}}}", header.join(","));
    fs::write(path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes].concat())
}

// ---------------------------------------------------------------- calls without meaning

/// The kind of what is wrong, and words.
type Wrong = (&'static str, String);

fn need(good: bool, kind: &'static str, words: &str) -> Result<(), Wrong> {
    if good { Ok(()) } else { Err((kind, words.into())) }
}

/// Why a call must be refused.
fn meant(c: &Case) -> Result<(), Wrong> {
    let place = &c.inputs["positions"];
    let [b, h, g, t, d, r] = ["B", "H", "G", "T", "D", "R"].map(|letter| c.whole(&format!("fact {letter}")));
    let yarn = c.is("encoding", "yarn");
    need(place.x.iter().all(|x| x.is_finite()), "position", "a position is no number")?;
    need(place.shape.last() == Some(&t), "shape", "positions are not one for each token")?;
    need(h > 0, "heads", "there are no heads")?;
    for (name, heads) in [("q", h), ("k", g)] {
        if let Some(x) = c.inputs.get(name) {
            need(!x.whole, "dtype", &format!("{name} is of whole numbers"))?;
            need(x.shape == [b, heads, t, d], "shape", &format!("{name} is not [{b},{heads},{t},{d}]"))?;
        }
    }
    if yarn || c.is("encoding", "rope") {
        need(r >= 2 && r % 2 == 0 && r <= d, "width", "the rotary width is even, from 2 to the head's")?;
        need(c.is("fact layout", "half") || c.is("fact layout", "interleaved"), "setting", "layouts are half and interleaved")?;
        need(c.number("option base") > if yarn { 1.0 } else { 0.0 }, "setting", "the base is above 0, of YaRN above 1")?;
    }
    if yarn {
        let trained = c.number(if c.is("option original", "none") { "fact L" } else { "option original" });
        let (fast, slow) = (c.number("option beta_fast"), c.number("option beta_slow"));
        need(c.number("option factor") > 0.0 && trained > 0.0, "setting", "the factor and the length trained for are above 0")?;
        need(fast > slow && slow > 0.0, "setting", "beta_fast is above beta_slow, and that above 0")?;
    }
    if c.is("encoding", "t5") {
        let (buckets, parts) = (c.whole("option buckets"), if c.is("fact causal", "true") { 2 } else { 4 });
        need(place.whole, "position", "positions are whole numbers")?;
        need(buckets > 0 && buckets % parts == 0, "setting", &format!("{buckets} buckets are no multiple of {parts}"))?;
        need(c.whole("option max_distance") > buckets / parts, "setting", "max_distance is beyond the exact buckets")?;
        need(c.inputs["param.table"].shape == [buckets, h], "shape", "the table is [buckets,H]")?;
    }
    Ok(())
}

// ---------------------------------------------------------------- rotation: RoPE and YaRN

/// The angle of each pair at position 1, and the gain of q and k.
fn frequencies(c: &Case) -> (Vec<f64>, f64) {
    let (base, r) = (c.number("option base"), c.number("fact R"));
    let w = (0..r as usize / 2).map(|n| base.powf(-2.0 * n as f64 / r));
    if c.is("encoding", "rope") {
        return (w.collect(), 1.0);
    }
    let factor = c.number("option factor");
    let trained = c.number(if c.is("option original", "none") { "fact L" } else { "option original" });
    // the pair that turns so many times within the length trained for
    let pair = |times: f64| r * (trained / (times * TAU)).ln() / (2.0 * base.ln());
    let (mut low, mut high) = (pair(c.number("option beta_fast")), pair(c.number("option beta_slow")));
    if c.is("option truncate", "true") {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(r - 1.0));
    let width = if high == low { 0.001 } else { high - low };
    let slow = |n: usize| ((n as f64 - low) / width).clamp(0.0, 1.0);
    let gain = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
    (w.enumerate().map(|(n, w)| slow(n) * w / factor + (1.0 - slow(n)) * w).collect(), gain)
}

/// Turn the first R channels of x [B,H,T,D], or back with sign -1. The others pass as they are, without the gain.
fn turn(c: &Case, x: &Tensor, w: &[f64], gain: f64, sign: f64) -> Tensor {
    let place = &c.inputs["positions"];
    let (heads, tokens, width) = (x.shape[1], x.shape[2], x.shape[3]);
    let mut y = x.clone();
    for row in 0..x.x.len() / width {
        let sequence = if place.shape.len() == 2 { row / (heads * tokens) } else { 0 };
        for (n, w) in w.iter().enumerate() {
            let (sin, cos) = (place.x[sequence * tokens + row % tokens] * w).sin_cos();
            let (i, j) = if c.is("fact layout", "half") { (n, n + c.number("fact R") as usize / 2) } else { (2 * n, 2 * n + 1) };
            let (i, j) = (row * width + i, row * width + j);
            y.x[i] = gain * (x.x[i] * cos - sign * x.x[j] * sin);
            y.x[j] = gain * (sign * x.x[i] * sin + x.x[j] * cos);
        }
    }
    y
}

fn rotation(c: &Case) -> Result<Outputs, &'static str> {
    if c.is("option learned", "true") {
        return Err("learned frequencies");
    }
    let plain = ["attention_factor", "mscale", "mscale_all_dim"].iter().all(|name| c.is(&format!("option {name}"), "none"));
    let usual = c.is("option ramp", "code") && c.is("option form", "static") && c.number("option extrapolation_factor") == 1.0;
    if c.is("encoding", "yarn") && !(plain && usual) {
        return Err("YaRN with other options than ramp=code");
    }
    let (w, gain) = frequencies(c);
    let mut found = Outputs::new();
    if c.is("level", "table") {
        let place = &c.inputs["positions"];
        let shape: Vec<usize> = place.shape.iter().copied().chain(iter::once(w.len())).collect();
        let angle: Vec<f64> = place.x.iter().flat_map(|i| w.iter().map(move |w| i * w)).collect();
        let mut keep = |name: &str, x: Vec<f64>| drop(found.insert(name.into(), Tensor { shape: shape.clone(), x, whole: false }));
        keep("cos", angle.iter().map(|x| x.cos()).collect());
        keep("sin", angle.iter().map(|x| x.sin()).collect());
        keep("gain_q", vec![gain; angle.len()]);
        keep("gain_k", vec![gain; angle.len()]);
        keep("angle", angle);
        return Ok(found);
    }
    for name in ["q", "k"] {
        found.insert(format!("{name}_rotated"), turn(c, &c.inputs[name], &w, gain, 1.0));
        if let Some(dy) = c.inputs.get(&format!("cotangent.{name}_rotated")) {
            found.insert(format!("vjp.{name}"), turn(c, dy, &w, gain, -1.0));
        }
    }
    Ok(found)
}

// ---------------------------------------------------------------- bias by distance: ALiBi and T5

/// Slope of head h of H: a power of two below, then every second of twice as many.
fn slope(h: usize, heads: usize, max_bias: f64) -> f64 {
    let most = 1 << heads.ilog2();
    let (n, of) = if h < most { (h + 1, most) } else { (2 * (h - most) + 1, 2 * most) };
    (-max_bias * n as f64 / of as f64).exp2()
}

/// The hair keeps a distance that lies on a border, where the logarithm is whole, from falling below it.
fn bucket(c: &Case, d: f64) -> usize {
    let causal = c.is("fact causal", "true");
    let m = c.number("option buckets") / if causal { 1.0 } else { 2.0 };
    let (e, n) = (m / 2.0, if causal { d.max(0.0) } else { d.abs() });
    let far = e + ((n / e).ln() / (c.number("option max_distance") / e).ln() * (m - e) + 1e-9).floor();
    let found = if n < e { n } else { far.min(m - 1.0) };
    (found + if !causal && d < 0.0 { m } else { 0.0 }) as usize
}

fn bias(c: &Case) -> Result<Outputs, &'static str> {
    if c.is("encoding", "alibi") && !(c.is("option slopes", "fixed") && c.is("option directions", "both")) {
        return Err("ALiBi with other slopes");
    }
    let place = &c.inputs["positions"];
    if place.shape.len() != 1 || c.inputs.contains_key("seg") || !c.is("fact window", "none") {
        return Err("masks other than causal");
    }
    let (op, causal) = (c.is("level", "op"), c.is("fact causal", "true"));
    let (heads, tokens) = (c.number("fact H") as usize, place.x.len());
    let i = &place.x;
    let d: Vec<f64> = if op { i.iter().flat_map(|i| place.x.iter().map(move |j| i - j)).collect() } else { c.inputs["distances"].x.clone() };
    let mut y = vec![0.0; heads * d.len()];
    let (table, dy) = (c.inputs.get("param.table"), c.inputs.get("cotangent.bias"));
    let mut back = table.map(|t| Tensor { shape: t.shape.clone(), x: vec![0.0; t.x.len()], whole: false });
    for (n, &far) in d.iter().enumerate() {
        if op && causal && n % tokens > n / tokens {
            continue; // a key that is not there yet: by its slot, not by its position
        }
        for h in 0..heads {
            let at = h * d.len() + n;
            if let (Some(table), Some(back)) = (table, &mut back) {
                let cell = bucket(c, far) * heads + h;
                y[at] = table.x[cell];
                back.x[cell] += dy.map_or(0.0, |dy| dy.x[at]);
            } else {
                y[at] = -slope(h, heads, c.number("option max_bias")) * far.abs();
            }
        }
    }
    let shape = if op { vec![heads, tokens, tokens] } else { vec![heads, d.len()] };
    let mut found = Outputs::from([("bias".into(), Tensor { shape, x: y, whole: false })]);
    found.extend(back.map(|t| ("vjp.param.table".into(), t)));
    Ok(found)
}

// ---------------------------------------------------------------- questions and answers

const HELLO: &str = r#"{"ok":true,"implementation":{"name":"example in Rust","language":"rust"},"supports":{"ops":["rope.table","rope.op","yarn.table","yarn.op","alibi.table","alibi.op","t5.table","t5.op"],"dtypes":["f64","f32"],"vjp":true,"refusals":true}}"#;

/// The text between `before` and `after`.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    line.split_once(before)?.1.split_once(after).map(|found| found.0)
}

fn answered(folder: &Path, seq: u64) -> Result<String, Box<dyn std::error::Error>> {
    let case = Case::read(folder, seq)?;
    if let Err((kind, words)) = meant(&case) {
        return Ok(format!(r#"{{"seq":{seq},"status":"refused","kind":"{kind}","message":"{words}"}}"#));
    }
    let found = if case.is("encoding", "rope") || case.is("encoding", "yarn") { rotation(&case) } else { bias(&case) };
    Ok(match found {
        Err(reason) => format!(r#"{{"seq":{seq},"status":"skip","reason":"{reason}"}}"#),
        Ok(found) => {
            write_tensors(&folder.join(format!("out-{seq}.safetensors")), &case, &found)?;
            format!(r#"{{"seq":{seq},"status":"ok"}}"#)
        }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut folder = String::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match between(&line, r#"{"cmd":"case","seq":"#, ",") {
            Some(seq) => answered(Path::new(&folder), seq.parse()?)?,
            None if line.starts_with(r#"{"cmd":"bye""#) => break,
            None => {
                folder = between(&line, r#""dir":""#, "\"").ok_or("no folder")?.into();
                HELLO.into()
            }
        };
        println!("{answer}");
        io::stdout().flush()?;
    }
    Ok(())
}
