//! PTX that another compiler wrote: 43 kernels of Triton, run strictly with early and late completion, against float64.
//!
//! Sizes are multiples of 16, as the kernels were told, and otherwise no multiples of their tiles.

mod common;
use common::{Plain, Random, machine};
use serde_json::Value;
use std::{collections::HashMap, time::Instant};
use tegula_ptx::{
    Completion, Grid, Options, Param,
    tensor_map::{Element, Swizzle, TensorMap},
};

/// A kernel's row of launch.json.
struct Case {
    name: String,
    kernel: String,
    warps: u32,
    shared: usize,
    params: Vec<(String, String)>,
    consts: HashMap<String, i64>,
    descriptors: Vec<(Swizzle, Vec<u32>)>,
}

fn cases() -> Vec<Case> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/triton");
    let text = std::fs::read_to_string(format!("{folder}/launch.json")).unwrap();
    let table: Value = serde_json::from_str(&text).unwrap();
    let number = |v: &Value| v.as_i64().or(v.as_bool().map(i64::from));
    let case = |(name, row): (&String, &Value)| Case {
        name: name.clone(),
        kernel: row["kernel"].as_str().unwrap().into(),
        warps: row["warps"].as_u64().unwrap() as u32,
        shared: row["shared"].as_u64().unwrap() as usize,
        params: row["params"].as_array().unwrap().iter().map(|p| (text_of(&p[0]), text_of(&p[1]))).collect(),
        consts: row["consts"].as_object().unwrap().iter().filter_map(|(k, v)| Some((k.clone(), number(v)?))).collect(),
        descriptors: row["descriptors"].as_array().map_or(Vec::new(), |d| d.iter().map(descriptor).collect()),
    };
    table.as_object().unwrap().iter().map(case).collect()
}

fn text_of(v: &Value) -> String {
    v.as_str().unwrap().to_string()
}

fn descriptor(v: &Value) -> (Swizzle, Vec<u32>) {
    let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    let tile = v["block_size"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32);
    (swizzles[v["swizzle"].as_u64().unwrap() as usize], tile.collect())
}

/// Element types by the names that Triton gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Bf16,
    F16,
    F32,
    I8,
    E4m3,
}

impl Type {
    fn of(name: &str) -> Type {
        match name {
            "bf16" => Type::Bf16,
            "fp16" => Type::F16,
            "fp32" => Type::F32,
            "i8" => Type::I8,
            "fp8e4nv" => Type::E4m3,
            other => panic!("no element type {other}"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Type::Bf16 | Type::F16 => 2,
            Type::F32 => 4,
            Type::I8 | Type::E4m3 => 1,
        }
    }

    /// Random bits: numbers around 1 with few fraction bits, so that every type holds them exactly.
    fn random(self, random: &mut Random) -> (Vec<u8>, f64) {
        let r = random.next();
        let sign = if r & 1 == 1 { -1.0 } else { 1.0 };
        // 1.xxx times 2^-2..2^1.
        let (fraction, exponent) = ((r >> 1 & 7) as u32, (r >> 8 & 3) as i32 - 2);
        let value = sign * (1.0 + fraction as f64 / 8.0) * 2f64.powi(exponent);
        let f32_bits = (value as f32).to_bits();
        match self {
            Type::Bf16 => (((f32_bits >> 16) as u16).bytes(), value),
            Type::F16 => {
                let e = ((exponent + 15) as u16) << 10 | (fraction as u16) << 7;
                ((e | if sign < 0.0 { 0x8000 } else { 0 }).bytes(), value)
            }
            Type::F32 => (f32_bits.bytes(), value),
            Type::I8 => ((r as i8).bytes(), (r as i8) as f64),
            Type::E4m3 => {
                let e = ((exponent + 7) as u8) << 3 | fraction as u8;
                (vec![e | if sign < 0.0 { 0x80 } else { 0 }], value)
            }
        }
    }

    fn element(self) -> Element {
        match self {
            Type::Bf16 => Element::Bf16,
            Type::F16 => Element::F16,
            Type::F32 => Element::F32,
            Type::I8 | Type::E4m3 => Element::U8,
        }
    }
}

/// A matrix on the device whose rows are `stride` elements apart; what lies between is poison.
struct Matrix {
    ty: Type,
    rows: usize,
    cols: usize,
    stride: usize,
    values: Vec<f64>,
    bytes: Vec<u8>,
}

impl Matrix {
    fn random(ty: Type, rows: usize, cols: usize, stride: usize, random: &mut Random) -> Matrix {
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            for c in 0..stride {
                if c < cols {
                    let (b, v) = ty.random(random);
                    bytes.extend(b);
                    values.push(v);
                } else {
                    bytes.extend(vec![0x7f; ty.bytes()]);
                }
            }
        }
        Matrix { ty, rows, cols, stride, values, bytes }
    }

    fn poison(ty: Type, rows: usize, cols: usize, stride: usize) -> Matrix {
        let bytes = vec![0x7f; rows * stride * ty.bytes()];
        Matrix { ty, rows, cols, stride, values: Vec::new(), bytes }
    }

    fn at(&self, r: usize, c: usize) -> f64 {
        self.values[r * self.cols + c]
    }
}

/// Arguments by name; matrices become pointers or descriptors, as the parameter wants.
enum Arg {
    Matrix(Matrix),
    Int(i32),
    Float(f32),
}

/// Runs a case with both completions, in strict mode; gives the bytes of the named outputs, which must be equal.
fn run(case: &Case, args: &HashMap<&str, Arg>, grid: [u32; 3], outputs: &[&str]) -> Vec<Vec<u8>> {
    let path = format!("{}/tests/triton/{}.ptx", env!("CARGO_MANIFEST_DIR"), case.name);
    let text = std::fs::read_to_string(path).unwrap();
    let mut results: Vec<Vec<Vec<u8>>> = Vec::new();
    for completion in [Completion::Early, Completion::Late] {
        let mut m = machine(&text, Options { completion, ..Options::default() });
        let (mut params, mut places) = (Vec::new(), HashMap::new());
        let mut descriptors = case.descriptors.iter();
        for (name, ty) in &case.params {
            match args.get(name.as_str()) {
                Some(Arg::Int(v)) => params.push(Param::I32(*v)),
                Some(Arg::Float(v)) => params.push(Param::F32(*v)),
                Some(Arg::Matrix(matrix)) => {
                    let address = m.emulator.memory.alloc_with(name, &matrix.bytes);
                    places.insert(name.as_str(), (address, matrix.bytes.len()));
                    if ty.starts_with("tensordesc") {
                        let (swizzle, tile) = descriptors.next().unwrap();
                        push_descriptor(&mut params, matrix, address, *swizzle, tile);
                    } else {
                        params.push(Param::U64(address));
                    }
                }
                None => panic!("{}: no argument {name}", case.name),
            }
        }
        // Scratch memory for the whole grid and for profiling: not used by these kernels.
        params.extend([Param::U64(0), Param::U64(0)]);
        let grid = Grid { grid, block: [case.warps * 32, 1, 1], cluster: None, dynamic_shared: case.shared };
        m.run(&case.kernel, grid, &params).unwrap_or_else(|e| panic!("{} {completion:?}: {e}", case.name));
        results.push(outputs.iter().map(|o| m.emulator.memory.read_vec(places[o].0, places[o].1).unwrap()).collect());
    }
    assert_eq!(results[0], results[1], "{}: early and late completion differ", case.name);
    results.swap_remove(0)
}

fn push_descriptor(params: &mut Vec<Param>, m: &Matrix, address: u64, swizzle: Swizzle, tile: &[u32]) {
    let (rows, cols, stride) = (m.rows as u64, m.cols as u64, m.stride as u64);
    let bytes = m.ty.bytes() as u64;
    let map = TensorMap::new(m.ty.element(), address, &[cols, rows], &[stride * bytes], &[tile[1], tile[0]], swizzle);
    params.push(Param::Bytes(map.encode().unwrap().to_vec()));
    params.extend([Param::I32(rows as i32), Param::I32(cols as i32), Param::I64(stride as i64), Param::I64(1)]);
}

fn bf16(bytes: &[u8]) -> f64 {
    f32::from_bits((u16::from_le_bytes([bytes[0], bytes[1]]) as u32) << 16) as f64
}

fn gemm(case: &Case) {
    let mut random = Random(case.name.len() as u64);
    let (m, n, k) = (208usize, 144usize, 80usize);
    let tma = case.kernel == "gemm_tma";
    let transposed = tma || case.consts.get("TB").is_some_and(|t| *t == 1);
    let ty = Type::of(case.name.split('_').nth(2).unwrap());
    // Rows with gaps; for tensor maps the gap is a multiple of 16 bytes.
    let a = Matrix::random(ty, m, k, k + 16, &mut random);
    let b = if transposed {
        Matrix::random(ty, n, k, k + 32, &mut random)
    } else {
        Matrix::random(ty, k, n, n + 16, &mut random)
    };
    let out = if ty == Type::I8 || ty == Type::F32 { Type::F32 } else { Type::Bf16 };
    let c = Matrix::poison(out, m, n, n + 16);
    let (lda, ldb, ldc) = (a.stride, b.stride, c.stride);
    let mut want = vec![(0f64, 0f64); m * n];
    for r in 0..m {
        for col in 0..n {
            for x in 0..k {
                let product = a.at(r, x) * if transposed { b.at(col, x) } else { b.at(x, col) };
                want[r * n + col].0 += product;
                want[r * n + col].1 += product.abs();
            }
        }
    }
    let ints = [("M", m), ("N", n), ("K", k), ("lda", lda), ("ldb", ldb), ("ldc", ldc)];
    let mut args: HashMap<&str, Arg> = ints.into_iter().map(|(name, v)| (name, Arg::Int(v as i32))).collect();
    args.extend([("A", Arg::Matrix(a)), ("B", Arg::Matrix(b)), ("C", Arg::Matrix(c))]);
    let blocks = m.div_ceil(case.consts["BM"] as usize) * n.div_ceil(case.consts["BN"] as usize);
    let got = &run(case, &args, [blocks as u32, 1, 1], &["C"])[0];
    for r in 0..m {
        for col in 0..ldc {
            let bytes = &got[(r * ldc + col) * out.bytes()..][..out.bytes()];
            if col >= n {
                assert!(bytes.iter().all(|b| *b == 0x7f), "{}: wrote past the edge at ({r}, {col})", case.name);
                continue;
            }
            let (want, size) = want[r * n + col];
            let (got, tolerance) = match (ty, out) {
                (Type::I8, _) => (i32::of(bytes) as f64, 0.0),
                (_, Type::F32) => (f32::of(bytes) as f64, size * k as f64 * 2f64.powi(-24)),
                _ => (bf16(bytes), want.abs() * 2f64.powi(-8) + size * k as f64 * 2f64.powi(-24)),
            };
            assert!((got - want).abs() <= tolerance, "{} ({r}, {col}): {got} for {want}", case.name);
        }
    }
}

fn attention(case: &Case) {
    let mut random = Random(7 + case.name.len() as u64);
    let (d, causal) = (case.consts["D"] as usize, case.consts["CAUSAL"] == 1);
    let tma = case.kernel != "attn_fwd";
    let batch = if d == 64 { 2 } else { 1 };
    let (nq, nk) = match (tma, causal) {
        (true, _) => (256, 256),
        (false, true) => (144, 144),
        (false, false) => (144, 176),
    };
    let matrix = |rows: usize, random: &mut Random| Matrix::random(Type::Bf16, batch * rows, d, d, random);
    let (q, k, v) = (matrix(nq, &mut random), matrix(nk, &mut random), matrix(nk, &mut random));
    let scale = 0.3 / (d as f64).sqrt();
    // Output rows: weights of each key, the weighted sum, the sum of magnitudes, the logarithm of the weights' sum.
    let mut want = Vec::new();
    for b in 0..batch {
        for r in 0..nq {
            let keys = if causal { nk.min(r + 1) } else { nk };
            let score = |n: usize| (0..d).map(|x| q.at(b * nq + r, x) * k.at(b * nk + n, x)).sum::<f64>() * scale;
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let top = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
            let mut row = vec![(0f64, 0f64); d];
            for (n, s) in scores.iter().enumerate() {
                let p = (s - top).exp() / sum;
                for (x, out) in row.iter_mut().enumerate() {
                    out.0 += p * v.at(b * nk + n, x);
                    out.1 += (p * v.at(b * nk + n, x)).abs();
                }
            }
            want.push((row, top + sum.ln()));
        }
    }
    let o = Matrix::poison(Type::Bf16, batch * nq, d, d);
    let lse = Matrix::poison(Type::F32, 1, batch * nq, batch * nq);
    let mut args: HashMap<&str, Arg> = HashMap::new();
    let strides = [("sqm", d), ("skn", d), ("svn", d), ("som", d), ("sqb", nq * d), ("sob", nq * d)];
    let sizes = [("skb", nk * d), ("svb", nk * d), ("NQ", nq), ("NK", nk)];
    args.extend(strides.into_iter().chain(sizes).map(|(name, v)| (name, Arg::Int(v as i32))));
    args.insert("scale", Arg::Float((scale * std::f64::consts::LOG2_E) as f32));
    for (name, matrix) in [("Q", q), ("K", k), ("V", v), ("O", o), ("LSE", lse)] {
        args.insert(name, Arg::Matrix(matrix));
    }
    let blocks = nq.div_ceil(case.consts["BM"] as usize) as u32;
    let got = run(case, &args, [blocks, batch as u32, 1], &["O", "LSE"]);
    for (r, (row, lse)) in want.iter().enumerate() {
        for (x, (want, size)) in row.iter().enumerate() {
            let got = bf16(&got[0][(r * d + x) * 2..]);
            // The weights are rounded to bf16 before they meet V, the result after.
            let tolerance = (size + want.abs()) * 2f64.powi(-8) + 1e-4;
            assert!((got - want).abs() <= tolerance, "{} ({r}, {x}): {got} for {want}", case.name);
        }
        let got = f32::of(&got[1][r * 4..r * 4 + 4]) as f64;
        assert!((got - lse).abs() <= 1e-4, "{} row {r}: log-sum-exp {got} for {lse}", case.name);
    }
}

fn rows(case: &Case) {
    let mut random = Random(3);
    let (count, n, stride) = (3usize, 1008usize, 1024usize);
    let x = Matrix::random(Type::Bf16, count, n, stride, &mut random);
    let w = Matrix::random(Type::Bf16, 1, n, n, &mut random);
    let eps = 0.01;
    let mut want = Vec::new();
    for r in 0..count {
        let row: Vec<f64> = (0..n).map(|c| x.at(r, c)).collect();
        if case.kernel == "softmax_rows" {
            let sum: f64 = row.iter().map(|v| v.exp()).sum();
            want.extend(row.iter().map(|v| v.exp() / sum));
        } else {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / n as f64;
            want.extend(row.iter().enumerate().map(|(c, v)| v / (mean + eps).sqrt() * w.at(0, c)));
        }
    }
    let mut args: HashMap<&str, Arg> = HashMap::new();
    for name in ["ldx", "ldy", "ld"] {
        args.insert(name, Arg::Int(stride as i32));
    }
    args.insert("N", Arg::Int(n as i32));
    args.insert("eps", Arg::Float(eps as f32));
    for (name, matrix) in [("X", x), ("W", w), ("Y", Matrix::poison(Type::Bf16, count, n, stride))] {
        args.insert(name, Arg::Matrix(matrix));
    }
    let got = &run(case, &args, [count as u32, 1, 1], &["Y"])[0];
    for r in 0..count {
        for c in 0..n {
            let (got, want) = (bf16(&got[(r * stride + c) * 2..]), want[r * n + c]);
            assert!((got - want).abs() <= want.abs() * 2f64.powi(-7), "{} ({r}, {c}): {got} for {want}", case.name);
        }
    }
}

/// Runs the cases that a filter picks.
fn all(pick: impl Fn(&Case) -> bool) -> usize {
    let cases: Vec<Case> = cases().into_iter().filter(pick).collect();
    for case in &cases {
        let start = Instant::now();
        match case.kernel.as_str() {
            "gemm_ptr" | "gemm_tma" => gemm(case),
            "softmax_rows" | "rmsnorm_rows" => rows(case),
            _ => attention(case),
        }
        println!("{:45} {:6.0} ms", case.name, start.elapsed().as_secs_f64() * 1e3);
    }
    cases.len()
}

#[test]
fn row_kernels() {
    assert_eq!(all(|c| c.kernel.ends_with("_rows")), 4);
}

#[test]
fn products_for_sm_80_and_89() {
    assert_eq!(all(|c| c.kernel == "gemm_ptr" && !c.name.ends_with("90")), 11);
}

#[test]
fn products_for_sm_90() {
    assert_eq!(all(|c| c.kernel == "gemm_ptr" && c.name.ends_with("90")), 10);
}

#[test]
fn products_through_tensor_maps() {
    assert_eq!(all(|c| c.kernel == "gemm_tma"), 5);
}

#[test]
fn attention_through_pointers() {
    assert_eq!(all(|c| c.kernel == "attn_fwd"), 8);
}

#[test]
fn attention_through_tensor_maps() {
    assert_eq!(all(|c| c.kernel.starts_with("attn_fwd_tma")), 5);
}
