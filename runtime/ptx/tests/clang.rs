//! What clang makes of CUDA C++ (`clang/snippets.cu`, compiled by `clang/compile.sh`), for sm_80 and sm_90a, in strict mode
//! with early and late completion, against plain loops.

mod common;
use common::{Plain, Random};
use std::sync::OnceLock;
use tegula_ptx::{Completion, Emulator, Grid, Module, Options, Param, Report};

/// Both modules.
fn modules() -> &'static [(&'static str, Module); 2] {
    static MODULES: OnceLock<[(&str, Module); 2]> = OnceLock::new();
    MODULES.get_or_init(|| {
        let parse = |text, arch| (arch, Module::parse(text, arch).unwrap_or_else(|e| panic!("{arch}: {e}")));
        [
            parse(include_str!("clang/snippets.sm_80.ptx"), "sm_80"),
            parse(include_str!("clang/snippets.sm_90a.ptx"), "sm_90a"),
        ]
    })
}

/// A device with one of the modules.
struct Device {
    emulator: Emulator,
    module: &'static Module,
    what: String,
}

impl Device {
    fn put<T: Plain>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        self.emulator.memory.alloc_with("data", &bytes)
    }

    fn room(&mut self, bytes: usize) -> u64 {
        self.emulator.memory.alloc("room", bytes)
    }

    fn get<T: Plain>(&self, at: u64, n: usize) -> Vec<T> {
        let bytes = self.emulator.memory.read_vec(at, n * size_of::<T>()).unwrap();
        bytes.chunks_exact(size_of::<T>()).map(T::of).collect()
    }

    fn run(&mut self, kernel: &str, grid: Grid, params: &[Param]) -> Report {
        let what = &self.what;
        self.emulator.launch(self.module, kernel, grid, params).unwrap_or_else(|e| panic!("{what}: {e}"))
    }
}

/// On both targets, early and late, best and portable loops.
fn everywhere(test: impl Fn(&mut Device)) {
    for (arch, module) in modules() {
        for (completion, portable) in [(Completion::Early, false), (Completion::Late, true)] {
            let options = Options { completion, portable, threads: 2, ..Options::default() };
            let what = format!("{arch} {completion:?}");
            test(&mut Device { emulator: Emulator::new(options), module, what });
        }
    }
}

fn floats(seed: u64, n: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..n).map(|_| ((random.next() >> 40) as i64 - (1 << 23)) as f32 / (1 << 21) as f32).collect()
}

fn words(seed: u64, n: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..n).map(|i| random.next() as u32 >> (i % 29)).collect()
}

fn p(address: u64) -> Param {
    Param::U64(address)
}

fn near(got: f32, want: f64, bound: f64, what: &str) {
    assert!((got as f64 - want).abs() <= bound, "{what}: {got}, not {want}");
}

// ---- reductions ---------------------------------------------------------------------------------------------------

#[test]
fn block_sums() {
    everywhere(|d| {
        let x = floats(1, 1003);
        let (at, sums) = (d.put(&x), d.room(12));
        d.run("block_sums", Grid::new(3, 96), &[p(at), p(sums), Param::U32(1003)]);
        for (b, got) in d.get::<f32>(sums, 3).into_iter().enumerate() {
            let mine = |i: &usize| i / 96 % 3 == b;
            near(got, (0..1003).filter(mine).map(|i| x[i] as f64).sum(), 1e-3, "sum");
        }
    });
}

#[test]
fn warp_scan() {
    everywhere(|d| {
        let x = words(2, 128);
        let (at, out) = (d.put(&x), d.room(512));
        d.run("warp_scan", Grid::new(2, 64), &[p(at), p(out)]);
        let want: Vec<u32> = x
            .chunks(32)
            .flat_map(|w| {
                w.iter().scan(0u32, |s, v| {
                    *s = s.wrapping_add(*v);
                    Some(*s)
                })
            })
            .collect();
        assert_eq!(d.get::<u32>(out, 128), want);
    });
}

#[test]
fn argmax() {
    everywhere(|d| {
        let x: Vec<i32> = words(3, 512).iter().map(|v| *v as i32 % 50).collect();
        let (at, out) = (d.put(&x), d.room(16));
        d.run("argmax", Grid::new(2, 256), &[p(at), p(out)]);
        let want: Vec<i32> = x
            .chunks(256)
            .flat_map(|c| {
                let most = *c.iter().max().unwrap();
                [most, c.iter().position(|v| *v == most).unwrap() as i32]
            })
            .collect();
        assert_eq!(d.get::<i32>(out, 4), want);
    });
}

// ---- shared memory ------------------------------------------------------------------------------------------------

#[test]
fn transpose() {
    everywhere(|d| {
        let (rows, columns) = (45, 70);
        let x = floats(4, rows * columns);
        let (at, y) = (d.put(&x), d.room(4 * rows * columns));
        d.run("transpose", Grid::new(6, 256), &[p(at), p(y), Param::U32(45), Param::U32(70)]);
        let got = d.get::<f32>(y, rows * columns);
        for r in 0..rows {
            for c in 0..columns {
                assert_eq!(got[c * rows + r], x[r * columns + c]);
            }
        }
    });
}

#[test]
fn matmul() {
    everywhere(|d| {
        let n = 48;
        let (a, b) = (floats(5, n * n), floats(6, n * n));
        let (pa, pb, pc) = (d.put(&a), d.put(&b), d.room(4 * n * n));
        d.run("matmul", Grid::new(9, 256), &[p(pa), p(pb), p(pc), Param::U32(48)]);
        let got = d.get::<f32>(pc, n * n);
        for r in 0..n {
            for c in 0..n {
                // The same chain of fused products.
                let want = (0..n).fold(0f32, |s, k| a[r * n + k].mul_add(b[k * n + c], s));
                assert_eq!(got[r * n + c], want);
            }
        }
    });
}

#[test]
fn sort_block() {
    everywhere(|d| {
        let x: Vec<i32> = words(7, 192).iter().map(|v| *v as i32).collect();
        let at = d.put(&x);
        d.run("sort_block", Grid::new(2, 96).shared(384), &[p(at)]);
        let mut want = x.clone();
        want.chunks_mut(96).for_each(<[i32]>::sort);
        assert_eq!(d.get::<i32>(at, 192), want);
    });
}

// ---- atomics ------------------------------------------------------------------------------------------------------

#[test]
fn histogram() {
    everywhere(|d| {
        let x: Vec<u8> = words(8, 3001).iter().map(|v| *v as u8).collect();
        let (at, counts) = (d.put(&x), d.put(&[0u32; 256]));
        d.run("histogram", Grid::new(3, 128), &[p(at), p(counts), Param::U32(3001)]);
        let mut want = vec![0u32; 256];
        x.iter().for_each(|v| want[*v as usize] += 1);
        assert_eq!(d.get::<u32>(counts, 256), want);
    });
}

#[test]
fn atomics() {
    everywhere(|d| {
        let x: Vec<f32> = floats(9, 192).iter().map(|v| v.abs()).collect();
        let (at, most, sum) = (d.put(&x), d.put(&[0u32]), d.put(&[0f64]));
        let (least, last) = (d.put(&[i64::MAX]), d.put(&[999u32; 4]));
        d.run("atomics", Grid::new(3, 64), &[p(at), p(most), p(sum), p(least), p(last)]);
        assert_eq!(f32::from_bits(d.get::<u32>(most, 1)[0]), x.iter().copied().fold(0.0, f32::max));
        // Multiples of 2^-21: any order is exact.
        assert_eq!(d.get::<f64>(sum, 1)[0], x.iter().map(|v| *v as f64).sum::<f64>());
        assert_eq!(d.get::<i64>(least, 1)[0], x.iter().map(|v| (v * 1e12) as i64).min().unwrap());
        for (i, last) in d.get::<u32>(last, 4).into_iter().enumerate() {
            assert!(last < 192 && last % 4 == i as u32, "{last}");
        }
    });
}

// ---- local memory and indices -------------------------------------------------------------------------------------

#[test]
fn local_array() {
    everywhere(|d| {
        let x = words(10, 64);
        let (at, out) = (d.put(&x), d.room(256));
        d.run("local_array", Grid::new(1, 64), &[p(at), p(out)]);
        let want: Vec<u32> = x
            .iter()
            .map(|seed| {
                let mut seed = *seed;
                let mut table: Vec<u32> = (0..17u32).map(|i| seed.wrapping_mul(i + 1) ^ i).collect();
                for _ in 0..40 {
                    let (a, b) = (seed % 17, (seed >> 8) % 17);
                    table[a as usize] = table[a as usize].wrapping_add(table[b as usize]);
                    seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                }
                table.iter().fold(0u32, |s, v| s.wrapping_mul(31).wrapping_add(*v))
            })
            .collect();
        assert_eq!(d.get::<u32>(out, 64), want);
    });
}

#[test]
fn sort_eight() {
    everywhere(|d| {
        let x: Vec<i32> = words(11, 40 * 8).iter().map(|v| *v as i32).collect();
        let at = d.put(&x);
        d.run("sort_eight", Grid::new(1, 40), &[p(at)]);
        let mut want = x.clone();
        want.chunks_mut(8).for_each(<[i32]>::sort);
        assert_eq!(d.get::<i32>(at, 320), want);
    });
}

#[test]
fn by_value() {
    everywhere(|d| {
        let out = d.room(8 * 40);
        // u8, short at 2, double at 8, five ints at 16: 40 bytes.
        let mut bytes = vec![200u8, 0];
        bytes.extend((-300i16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(1.5f64.to_le_bytes());
        (0..5i32).for_each(|i| bytes.extend((i * 1000 - 7).to_le_bytes()));
        bytes.resize(40, 0);
        d.run("by_value", Grid::new(1, 40), &[Param::Bytes(bytes), p(out)]);
        for (t, got) in d.get::<f64>(out, 40).into_iter().enumerate() {
            let item = (t % 5) as i32 * 1000 - 7 + if t % 5 == 2 { t as i32 } else { 0 };
            assert_eq!(got, 200.0 + -300.0 * 1.5 + item as f64);
        }
    });
}

#[test]
fn blur() {
    everywhere(|d| {
        let (w, h) = (13i32, 9i32);
        let x = floats(12, (w * h) as usize);
        let (at, y) = (d.put(&x), d.room(4 * x.len()));
        d.run("blur", Grid::new(4, 32), &[p(at), p(y), Param::I32(w), Param::I32(h)]);
        let got = d.get::<f32>(y, x.len());
        let weights = [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0];
        for i in 0..w * h {
            let (cx, cy) = (i % w, i / w);
            let (mut sum, mut weight) = (0f64, 0f64);
            for k in 0..9 {
                let (nx, ny) = (cx + k % 3 - 1, cy + k / 3 - 1);
                if (0..w).contains(&nx) && (0..h).contains(&ny) {
                    sum += weights[k as usize] * x[(ny * w + nx) as usize] as f64;
                    weight += weights[k as usize];
                }
            }
            near(got[i as usize], sum / weight, 1e-5, "blur");
        }
    });
}

#[test]
fn lengths() {
    everywhere(|d| {
        let out = d.room(4 * 50);
        d.run("lengths", Grid::new(1, 50), &[p(out)]);
        assert_eq!(d.get::<u32>(out, 50), (0..50).map(|t| [4, 3, 6][t % 3]).collect::<Vec<u32>>());
    });
}

// ---- calls --------------------------------------------------------------------------------------------------------

#[test]
fn indirect_calls_through_a_table() {
    everywhere(|d| {
        let (which, a, b) = (words(13, 96), words(14, 96), words(15, 96));
        let (pw, pa, pb, out) = (d.put(&which), d.put(&a), d.put(&b), d.room(384));
        d.run("indirect", Grid::new(1, 96), &[p(pw), p(pa), p(pb), p(out)]);
        let gcd = |mut a: u32, mut b: u32| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        for (i, got) in d.get::<u32>(out, 96).into_iter().enumerate() {
            let want = match which[i] % 4 {
                0 => a[i].wrapping_add(b[i]),
                1 => a[i].wrapping_mul(b[i]),
                2 => a[i].wrapping_pow(b[i] % 9),
                _ => gcd(a[i], b[i]),
            };
            assert_eq!(got, want, "{i}: {}", which[i] % 4);
        }
    });
}

#[test]
fn objects_hold_their_functions() {
    everywhere(|d| {
        let (a, b) = (floats(16, 64), floats(17, 64));
        let (pa, pb, out) = (d.put(&a), d.put(&b), d.room(256));
        d.run("shapes", Grid::new(1, 64), &[p(pa), p(pb), p(out)]);
        let want: Vec<f32> = (0..64).map(|i| if i % 3 != 0 { a[i] * b[i] } else { 0.5 * a[i] * b[i] }).collect();
        assert_eq!(d.get::<f32>(out, 64), want);
    });
}

// ---- control flow -------------------------------------------------------------------------------------------------

#[test]
fn switches() {
    everywhere(|d| {
        let x = words(18, 256);
        let (at, out) = (d.put(&x), d.room(1024));
        d.run("switches", Grid::new(2, 128), &[p(at), p(out)]);
        for (v, got) in x.into_iter().zip(d.get::<u32>(out, 256)) {
            let want = match v % 12 {
                0 => v.wrapping_add(1),
                1 => v.wrapping_mul(3),
                2 => v ^ 0x55,
                3 => v >> 3,
                4 => !v,
                5 | 6 => v.wrapping_sub(17),
                7 => v / 7,
                8 => v % 13,
                9 => v & 0xf0f0,
                10 => v | 0x0f0f,
                _ => 0xdead,
            };
            assert_eq!(got, want, "{v}");
        }
    });
}

#[test]
fn collatz() {
    everywhere(|d| {
        let x = words(19, 128);
        let (at, out) = (d.put(&x), d.room(512));
        d.run("collatz", Grid::new(2, 64), &[p(at), p(out)]);
        for (v, got) in x.into_iter().zip(d.get::<u32>(out, 128)) {
            let (mut n, mut count) = (v as u64, 0);
            while n > 1 && count < 200 {
                n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
                count += 1;
            }
            assert_eq!(got, count, "{v}");
        }
    });
}

#[test]
fn nested_loops_meet_at_a_barrier() {
    everywhere(|d| {
        let x = words(20, 128);
        let (at, out) = (d.put(&x), d.room(512));
        d.run("nested", Grid::new(2, 64), &[p(at), p(out)]);
        let sum = |v: u32| {
            let rows = (0..v % 7 + 1).filter(|i| i % 3 != 2);
            rows.flat_map(|i| (0..5.min(v % 4 + 1)).map(move |j| i * 10 + j)).sum::<u32>()
        };
        for (i, got) in d.get::<u32>(out, 128).into_iter().enumerate() {
            let other = i / 64 * 64 + ((i as u32 % 64).wrapping_add(x[i]) % 64) as usize;
            assert_eq!(got, sum(x[other]));
        }
    });
}

// ---- warps --------------------------------------------------------------------------------------------------------

#[test]
fn compact() {
    everywhere(|d| {
        let x: Vec<i32> = words(21, 160).iter().map(|v| *v as i32 % 9 - 4).collect();
        let (at, out, count) = (d.put(&x), d.room(640), d.put(&[0u32]));
        d.run("compact", Grid::new(5, 32), &[p(at), p(out), p(count)]);
        let mut want: Vec<i32> = x.into_iter().filter(|v| *v > 0).collect();
        let n = d.get::<u32>(count, 1)[0] as usize;
        assert_eq!(n, want.len());
        let mut got = d.get::<i32>(out, n);
        // Warps come in any order.
        got.sort();
        want.sort();
        assert_eq!(got, want);
    });
}

#[test]
fn votes() {
    everywhere(|d| {
        let x: Vec<u32> = words(22, 96).iter().enumerate().map(|(i, v)| v % [9, 2000, 3][i / 32]).collect();
        let (at, out) = (d.put(&x), d.room(768));
        d.run("votes", Grid::new(1, 96), &[p(at), p(out)]);
        let got = d.get::<u32>(out, 192);
        for (i, v) in x.iter().enumerate() {
            let warp = &x[i / 32 * 32..][..32];
            let same = warp.iter().filter(|w| *w == v).count() as u32;
            let all = warp.iter().all(|w| *w < 1000) as u32;
            let any = warp.contains(&5) as u32;
            let uniform = (warp.iter().all(|w| *w > 3) || warp.iter().all(|w| *w <= 3)) as u32;
            assert_eq!(got[2 * i], all | any << 1 | uniform << 2 | same << 8);
            let eight: u32 = x[i / 8 * 8..][..8].iter().sum();
            assert_eq!(got[2 * i + 1], eight + warp.iter().max().unwrap());
        }
    });
}

#[test]
fn half_warps() {
    everywhere(|d| {
        let out = d.room(256);
        d.run("half_warps", Grid::new(1, 64), &[p(out)]);
        let ballot = (16..32u32).filter(|l| l % 3 == 0).fold(0, |m, l| m | 1 << l);
        let want: Vec<u32> = (0..64).map(|t| if t % 32 < 16 { 120 } else { ballot }).collect();
        assert_eq!(d.get::<u32>(out, 64), want);
    });
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------

#[test]
fn wide_integers() {
    everywhere(|d| {
        let mut random = Random(23);
        let mut column = || (0..128).map(|i| random.next() >> (i % 60)).collect::<Vec<u64>>();
        let (a, b) = (column(), column());
        let (pa, pb, out) = (d.put(&a), d.put(&b), d.room(1024));
        d.run("wide", Grid::new(1, 128), &[p(pa), p(pb), p(out)]);
        for (i, got) in d.get::<u64>(out, 128).into_iter().enumerate() {
            let (x, y) = (a[i], b[i] | 1);
            let (sx, sy) = (x as i64, y as i64);
            let mut r = (x / y).wrapping_add(x % y);
            r ^= (sx.wrapping_div(sy) as u64).wrapping_mul(3);
            r = r.wrapping_add(sx.wrapping_rem(sy) as u64);
            r ^= ((x as u128 * y as u128) >> 64) as u64;
            r = r.wrapping_add(x << (y & 63) | x >> (63 - (y & 63)));
            r ^= (sx >> (y & 31)) as u64;
            r = r
                .wrapping_add(x.count_ones() as u64)
                .wrapping_add(y.leading_zeros() as u64 * 64)
                .wrapping_add(x.reverse_bits());
            assert_eq!(got, r, "{x:#x} {y:#x}");
        }
    });
}

#[test]
fn doubles() {
    everywhere(|d| {
        let x: Vec<f64> = floats(24, 96).iter().map(|v| *v as f64 * 1.7).collect();
        let (at, out) = (d.put(&x), d.room(768));
        d.run("doubles", Grid::new(1, 96), &[p(at), p(out)]);
        for (v, got) in x.into_iter().zip(d.get::<f64>(out, 96)) {
            let r = ((2.0 * v - 3.0) * v + 0.5) * v - 7.0;
            let want = if r > 0.0 {
                r.sqrt()
            } else if r < -10.0 {
                -r / 3.0
            } else {
                r.abs()
            };
            // The compiler may fuse products.
            assert!((got - want).abs() <= 1e-12 * want.abs().max(1.0), "{v}: {got}, not {want}");
        }
    });
}

/// An f16's value, by its definition.
fn half(bits: u16) -> f64 {
    let (e, f) = (bits >> 10 & 31, f64::from(bits & 0x3ff) / 1024.0);
    let v = if e == 0 { f * 2f64.powi(-14) } else { (1.0 + f) * 2f64.powi(e as i32 - 15) };
    if bits >> 15 == 1 { -v } else { v }
}

#[test]
fn halves() {
    everywhere(|d| {
        // Magnitudes from 1/4 to 32.
        let column =
            |seed| words(seed, 96).iter().map(|v| (v & 0x83ff | (13 + v % 7) << 10) as u16).collect::<Vec<_>>();
        let (a, b) = (column(25), column(26));
        let (pa, pb, out, sums) = (d.put(&a), d.put(&b), d.room(192), d.room(384));
        d.run("halves", Grid::new(1, 96), &[p(pa), p(pb), p(out), p(sums)]);
        let (out, sums) = (d.get::<u16>(out, 96), d.get::<f32>(sums, 96));
        for i in 0..96 {
            let (x, y) = (half(a[i]), half(b[i]));
            let want = x * y + x - y;
            // Roundings of the parts: two units in the last place of the greatest.
            let unit = (x * y).abs().max(x.abs()).max(y.abs()) / 512.0;
            assert!((half(out[i]) - want).abs() <= 2.0 * unit, "{x} {y}: {}, not {want}", half(out[i]));
            near(sums[i], x + y * x.trunc(), 1e-3, "sum");
        }
    });
}

#[test]
fn brains() {
    everywhere(|d| {
        let column = |seed| floats(seed, 96).iter().map(|v| (v.to_bits() >> 16) as u16).collect::<Vec<_>>();
        let (a, b) = (column(27), column(28));
        let (pa, pb, out) = (d.put(&a), d.put(&b), d.room(192));
        d.run("brains", Grid::new(1, 96), &[p(pa), p(pb), p(out)]);
        let wide = |v: u16| f32::from_bits((v as u32) << 16);
        for (i, got) in d.get::<u16>(out, 96).into_iter().enumerate() {
            let want = wide(a[i]) as f64 * wide(b[i]) as f64 + 1.0;
            // Nearest of the neighbours.
            let error = |v: u16| (wide(v) as f64 - want).abs();
            let slack = 1e-6 * want.abs().max(1.0);
            assert!(error(got) <= error(got + 1) + slack && error(got) <= error(got.wrapping_sub(1)) + slack, "{want}");
        }
    });
}

#[test]
fn bytes() {
    everywhere(|d| {
        let x = words(29, 96);
        let (at, out) = (d.put(&x), d.room(384));
        d.run("bytes", Grid::new(1, 96), &[p(at), p(out)]);
        let want: Vec<u32> = x
            .iter()
            .map(|v| {
                let fields = (v >> 5 & 0x7f) << 20 | v >> 17 & 0x3ff;
                let product = (*v as i8 as i32 * (*v >> 16) as i16 as i32) as u32;
                v.swap_bytes() ^ v.rotate_left(v & 31) ^ fields ^ product
            })
            .collect();
        assert_eq!(d.get::<u32>(out, 96), want);
    });
}

// ---- inline assembly ----------------------------------------------------------------------------------------------

#[test]
fn assembly() {
    everywhere(|d| {
        let (a, b) = (words(30, 96), words(31, 96));
        let (pa, pb, out) = (d.put(&a), d.put(&b), d.room(96 * 16));
        d.run("assembly", Grid::new(1, 96), &[p(pa), p(pb), p(out)]);
        let got = d.get::<u32>(out, 384);
        for i in 0..96 {
            let (low, carry) = a[i].overflowing_add(b[i]);
            let pool = (b[i] as u64) << 32 | a[i] as u64;
            let mixed = [0, 4, 2, 6].iter().rev().fold(0, |w, k| w << 8 | (pool >> (8 * k)) as u32 & 255);
            let logic = if a[i] < b[i] { 1 } else { 2 } ^ a[i] ^ b[i];
            assert_eq!(got[4 * i..4 * i + 4], [low, carry as u32, mixed, logic]);
        }
    });
}

#[test]
fn copies() {
    everywhere(|d| {
        let x = floats(32, 256 * 5);
        let (at, sums) = (d.put(&x), d.room(256));
        d.run("copies", Grid::new(1, 64), &[p(at), p(sums), Param::U32(5)]);
        for (t, got) in d.get::<f32>(sums, 64).into_iter().enumerate() {
            let want: f64 =
                (0..5).flat_map(|c| (0..4).map(move |i| 256 * c + (t * 7 + i * 64) % 256)).map(|i| x[i] as f64).sum();
            near(got, want, 1e-4, "sum");
        }
    });
}

#[test]
fn tensor_core() {
    everywhere(|d| {
        let column = |seed, n| words(seed, n).iter().map(|v| v & 0x83ff_83ff | 0x3400_3c00).collect::<Vec<u32>>();
        let (a, b) = (column(33, 128), column(34, 64));
        let (pa, pb, out) = (d.put(&a), d.put(&b), d.room(512));
        d.run("tensor_core", Grid::new(1, 32), &[p(pa), p(pb), p(out)]);
        let part = |w: u32, i: usize| half((w >> (16 * i)) as u16);
        // Element (row, k) of A and (k, column) of B by the manual's pictures.
        let element_a = |r: usize, k: usize| {
            let register = (r / 8) + 2 * (k / 8);
            part(a[4 * (r % 8 * 4 + k % 8 / 2) + register], k % 2)
        };
        let element_b = |k: usize, c: usize| part(b[2 * (c * 4 + k % 8 / 2) + k / 8], k % 2);
        for (i, got) in d.get::<f32>(out, 128).into_iter().enumerate() {
            let (lane, j) = (i / 4, i % 4);
            let (r, c) = (lane / 4 + 8 * (j / 2), lane % 4 * 2 + j % 2);
            near(got, (0..16).map(|k| element_a(r, k) * element_b(k, c)).sum(), 1e-3, "product");
        }
    });
}

// ---- printing, barriers, clusters ---------------------------------------------------------------------------------

#[test]
fn prints() {
    everywhere(|d| {
        let at = d.put(&(0..40).map(|i| i * 7 - 100).collect::<Vec<i32>>());
        let report = d.run("prints", Grid::new(1, 40), &[p(at)]);
        let mut lines: Vec<&str> = report.output.lines().collect();
        let mut want: Vec<String> = (0..40)
            .map(|t| {
                let v = t * 7 - 100;
                format!("thread {t}: {v}, half {:.2}, {}", v as f64 * 0.5, ["zero", "one", "twelve"][t as usize % 3])
            })
            .collect();
        lines.sort();
        want.sort();
        assert_eq!(lines, want);
    });
}

#[test]
fn mbarriers_and_clusters() {
    everywhere(|d| {
        if d.what.starts_with("sm_80") {
            return;
        }
        let out = d.room(768);
        d.run("mbarriers", Grid::new(1, 64), &[p(out)]);
        let want: Vec<u32> = (0..3).flat_map(|r| (0..64).map(move |t| (63 - t) * (r + 2))).collect();
        assert_eq!(d.get::<u32>(out, 192), want);
        let out = d.room(512);
        d.run("cluster_exchange", Grid::new(4, 32).cluster([2, 1, 1]), &[p(out)]);
        let want: Vec<u32> = (0..128).map(|i| ((i / 32) ^ 1) * 100 + 31 - i % 32).collect();
        assert_eq!(d.get::<u32>(out, 128), want);
    });
}

/// Every kernel has its test here.
#[test]
fn all_kernels_are_run() {
    let text = include_str!("clang.rs");
    for (arch, module) in modules() {
        assert!(module.entries().count() >= 30, "{arch}");
        assert!(module.unknown().is_empty(), "{arch}: {:?}", module.unknown());
        for entry in module.entries() {
            assert!(text.contains(&format!("d.run(\"{entry}\"")), "{entry} is never run");
        }
    }
}
