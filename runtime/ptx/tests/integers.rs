//! Integer, bit and packed instructions against plain formulas, on edge and random values, in the best and the portable
//! tier.

mod common;
use common::*;

/// Edge values and random ones, `n` of `bits` bits.
fn values(seed: u64, bits: u32) -> Vec<u64> {
    let mask = if bits == 64 { !0 } else { (1u64 << bits) - 1 };
    let top = 1u64 << (bits - 1);
    let edges =
        [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 255, 256, mask, mask - 1, top, top - 1, top + 1, 0x1234_5678];
    let mut random = Random(seed);
    let mut out: Vec<u64> = Vec::new();
    // Every pair of edges meets when the second column runs through them in another order.
    for i in 0..edges.len() * edges.len() {
        out.push(match seed % 3 {
            0 => edges[i % edges.len()],
            1 => edges[i / edges.len()],
            _ => edges[(i * 7 + i / edges.len()) % edges.len()],
        });
    }
    out.extend((0..800).map(|i| random.next() >> (i % bits as u64)));
    out.into_iter().map(|v| v & mask).collect()
}

fn width(bits: u32) -> &'static str {
    match bits {
        16 => "b16",
        32 => "b32",
        _ => "b64",
    }
}

/// Runs `op` on columns of `bits[1..]` into `bits[0]` and compares with `want`.
fn check(op: &str, bits: &[u32], want: impl Fn(u64, u64, u64) -> u64) {
    let columns: Vec<Vec<u64>> = bits[1..].iter().enumerate().map(|(i, b)| values(i as u64, *b)).collect();
    let n = columns.iter().map(Vec::len).min().unwrap();
    let inputs: Vec<(&str, &[u64])> = columns.iter().zip(&bits[1..]).map(|(c, b)| (width(*b), &c[..n])).collect();
    let names = ["%a", "%b", "%c"][..columns.len()].join(", ");
    let mask = if bits[0] == 64 { !0 } else { (1u64 << bits[0]) - 1 };
    // `$` stands for the operands.
    let body = if op.contains('$') { op.replace('$', &names) } else { format!("{op} %d, {names};") };
    for options in tiers() {
        let got = map(&body, &inputs, width(bits[0]), options);
        for i in 0..n {
            let at = |c: usize| columns.get(c).map_or(0, |c| c[i]);
            let want = want(at(0), at(1), at(2)) & mask;
            assert_eq!(got[i], want, "{op} {:x} {:x} {:x}: {:x}, not {want:x}", at(0), at(1), at(2), got[i]);
        }
    }
}

/// Sign extension of the low `bits`.
fn s(x: u64, bits: u32) -> i128 {
    ((x as i128) << (128 - bits)) >> (128 - bits)
}

#[test]
fn sums_products_and_quotients() {
    for n in [16, 32, 64] {
        let u = |x: u64| x as i128;
        check(&format!("add.u{n}"), &[n, n, n], |x, y, _| x.wrapping_add(y));
        check(&format!("sub.s{n}"), &[n, n, n], |x, y, _| x.wrapping_sub(y));
        check(&format!("mul.lo.u{n}"), &[n, n, n], |x, y, _| x.wrapping_mul(y));
        check(&format!("mul.hi.u{n}"), &[n, n, n], |x, y, _| ((x as u128 * y as u128) >> n) as u64);
        check(&format!("mul.hi.s{n}"), &[n, n, n], |x, y, _| ((s(x, n) * s(y, n)) >> n) as u64);
        check(&format!("mad.lo.s{n}"), &[n, n, n, n], |x, y, z| x.wrapping_mul(y).wrapping_add(z));
        check(&format!("mad.hi.s{n}"), &[n, n, n, n], |x, y, z| (((s(x, n) * s(y, n)) >> n) as u64).wrapping_add(z));
        check(&format!("div.u{n}"), &[n, n, n], |x, y, _| x.checked_div(y).unwrap_or(!0));
        check(&format!("rem.u{n}"), &[n, n, n], |x, y, _| x.checked_rem(y).unwrap_or(x));
        check(&format!("div.s{n}"), &[n, n, n], |x, y, _| s(x, n).checked_div(s(y, n)).map_or(!0, |v| v as u64));
        check(&format!("rem.s{n}"), &[n, n, n], |x, y, _| s(x, n).checked_rem(s(y, n)).map_or(x, |v| v as u64));
        check(&format!("min.s{n}"), &[n, n, n], |x, y, _| s(x, n).min(s(y, n)) as u64);
        check(&format!("max.u{n}"), &[n, n, n], |x, y, _| u(x).max(u(y)) as u64);
        check(&format!("abs.s{n}"), &[n, n], |x, _, _| s(x, n).unsigned_abs() as u64);
        check(&format!("neg.s{n}"), &[n, n], |x, _, _| x.wrapping_neg());
        check(&format!("sad.s{n}"), &[n, n, n, n], |x, y, z| (s(x, n).abs_diff(s(y, n)) as u64).wrapping_add(z));
        check(&format!("sad.u{n}"), &[n, n, n, n], |x, y, z| x.abs_diff(y).wrapping_add(z));
    }
    for n in [16, 32] {
        check(&format!("mul.wide.u{n}"), &[2 * n, n, n], |x, y, _| x * y);
        check(&format!("mul.wide.s{n}"), &[2 * n, n, n], |x, y, _| (s(x, n) * s(y, n)) as u64);
        check(&format!("mad.wide.s{n}"), &[2 * n, n, n, 2 * n], |x, y, z| ((s(x, n) * s(y, n)) as u64).wrapping_add(z));
    }
    let clamp = |v: i128| v.clamp(i32::MIN as i128, i32::MAX as i128) as u64;
    check("add.sat.s32", &[32, 32, 32], |x, y, _| clamp(s(x, 32) + s(y, 32)));
    check("sub.sat.s32", &[32, 32, 32], |x, y, _| clamp(s(x, 32) - s(y, 32)));
    check("mad.hi.sat.s32", &[32, 32, 32, 32], |x, y, z| clamp(((s(x, 32) * s(y, 32)) >> 32) + s(z, 32)));
    check("mul24.lo.s32", &[32, 32, 32], |x, y, _| (s(x, 24) * s(y, 24)) as u64);
    check("mul24.hi.u32", &[32, 32, 32], |x, y, _| ((x & 0xff_ffff) * (y & 0xff_ffff)) >> 16);
    check("mad24.hi.s32", &[32, 32, 32, 32], |x, y, z| ((s(x, 24) * s(y, 24)) as u64 >> 16).wrapping_add(z));
    check("min.relu.s32", &[32, 32, 32], |x, y, _| s(x, 32).min(s(y, 32)).max(0) as u64);
}

#[test]
fn carries_make_wide_sums() {
    // 128-bit sums and differences from two 64-bit halves.
    let body = |op: &str| format!("{{ .reg .b64 %lo; {op}.cc.u64 %lo, %a, %b; {op}c.u64 %d, %c, %a; }}");
    check(&format!("{} /* $ */", body("add")), &[64, 64, 64, 64], |x, y, z| {
        z.wrapping_add(x).wrapping_add((x.checked_add(y).is_none()) as u64)
    });
    check(&format!("{} /* $ */", body("sub")), &[64, 64, 64, 64], |x, y, z| {
        z.wrapping_sub(x).wrapping_sub((x < y) as u64)
    });
    let mad = "{ .reg .b32 %lo; mad.lo.cc.u32 %lo, %a, %b, %c; madc.hi.u32 %d, %a, %b, 7; } /* $ */";
    check(mad, &[32, 32, 32, 32], |x, y, z| ((x * y + z) >> 32) + 7);
}

#[test]
fn logic_and_shifts() {
    for n in [16, 32, 64] {
        check(&format!("and.b{n}"), &[n, n, n], |x, y, _| x & y);
        check(&format!("or.b{n}"), &[n, n, n], |x, y, _| x | y);
        check(&format!("xor.b{n}"), &[n, n, n], |x, y, _| x ^ y);
        check(&format!("not.b{n}"), &[n, n], |x, _, _| !x);
        check(&format!("cnot.b{n}"), &[n, n], |x, _, _| (x == 0) as u64);
        check(&format!("shl.b{n}"), &[n, n, 32], |x, y, _| if y >= n as u64 { 0 } else { x << y });
        check(&format!("shr.u{n}"), &[n, n, 32], |x, y, _| if y >= n as u64 { 0 } else { x >> y });
        check(&format!("shr.s{n}"), &[n, n, 32], |x, y, _| (s(x, n) >> y.min(n as u64 - 1)) as u64);
    }
    for table in [0u64, 0x80, 0xe8, 0x96, 0x1b, 0xff] {
        check(&format!("lop3.b32 %d, $, {table};"), &[32, 32, 32, 32], |x, y, z| {
            (0..32).fold(0, |out, i| {
                let bit = |v: u64| v >> i & 1;
                out | (table >> (bit(x) << 2 | bit(y) << 1 | bit(z)) & 1) << i
            })
        });
    }
    let wide = |x: u64, y: u64| y << 32 | x;
    check("shf.l.clamp.b32", &[32, 32, 32, 32], |x, y, n| ((wide(x, y) as u128) << n.min(32) >> 32) as u64);
    check("shf.r.clamp.b32", &[32, 32, 32, 32], |x, y, n| wide(x, y) >> n.min(32));
    check("shf.l.wrap.b32", &[32, 32, 32, 32], |x, y, n| ((wide(x, y) as u128) << (n & 31) >> 32) as u64);
    check("shf.r.wrap.b32", &[32, 32, 32, 32], |x, y, n| wide(x, y) >> (n & 31));
}

#[test]
fn bit_fields() {
    for n in [32u32, 64] {
        // Bit by bit, as PTX defines it.
        let field = |x: u64, pos: u64, len: u64, signed: bool| {
            let (pos, len) = ((pos & 255) as u32, (len & 255) as u32);
            let msb = n - 1;
            let sign = if !signed || len == 0 { 0 } else { x >> (pos + len - 1).min(msb) & 1 };
            (0..n).fold(0u64, |d, i| d | (if i < len && pos + i <= msb { x >> (pos + i) & 1 } else { sign }) << i)
        };
        check(&format!("bfe.u{n}"), &[n, n, 32, 32], |x, p, l| field(x, p, l, false));
        check(&format!("bfe.s{n}"), &[n, n, 32, 32], |x, p, l| field(x, p, l, true));
        for (pos, len) in [(0, 0), (0, 8), (5, 11), (31, 4), (20, 40), (0, 64), (200, 3), (3, 255)] {
            check(&format!("bfi.b{n} %d, $, {pos}, {len};"), &[n, n, n], |x, into, _| {
                (0..len).filter(|i| pos + i < n).fold(into, |d, i| d & !(1 << (pos + i)) | (x >> i & 1) << (pos + i))
            });
        }
        let signed = |x: u64| if s(x, n) < 0 { !x & (if n == 64 { !0 } else { 0xffff_ffff }) } else { x };
        let top = |x: u64| if x == 0 { 0xffff_ffff } else { 63 - x.leading_zeros() as u64 };
        check(&format!("bfind.u{n}"), &[32, n], |x, _, _| top(x));
        check(&format!("bfind.s{n}"), &[32, n], |x, _, _| top(signed(x)));
        let amount = |x: u64| if x == 0 { 0xffff_ffff } else { n as u64 - 1 - top(x) };
        check(&format!("bfind.shiftamt.u{n}"), &[32, n], |x, _, _| amount(x));
        check(&format!("clz.b{n}"), &[32, n], |x, _, _| x.leading_zeros() as u64 - (64 - n as u64));
        check(&format!("popc.b{n}"), &[32, n], |x, _, _| x.count_ones() as u64);
        check(&format!("brev.b{n}"), &[n, n], |x, _, _| x.reverse_bits() >> (64 - n));
    }
    check("bmsk.clamp.b32", &[32, 32, 32], |p, l, _| {
        (0..32).filter(|i| *i >= p && *i < p.saturating_add(l)).fold(0, |d, i| d | 1 << i)
    });
    check("szext.clamp.s32", &[32, 32, 32], |x, n, _| match n {
        0 => 0,
        n => s(x, n.min(32) as u32) as u64,
    });
}

#[test]
fn bytes_are_permuted() {
    check("prmt.b32", &[32, 32, 32, 32], |x, y, sel| {
        (0..4).fold(0, |d, i| {
            let c = sel >> (4 * i) & 15;
            let byte = (y << 32 | x) >> (8 * (c & 7)) & 0xff;
            d | (if c & 8 == 0 {
                byte
            } else if byte >> 7 == 1 {
                0xff
            } else {
                0
            }) << (8 * i)
        })
    });
    // The special modes as indices of bytes for each value of the selector's low bits.
    let modes: [(&str, u64, [[u64; 4]; 4]); 6] = [
        ("f4e", 3, [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]),
        ("b4e", 3, [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]]),
        ("rc8", 3, [[0; 4], [1; 4], [2; 4], [3; 4]]),
        ("ecl", 3, [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]]),
        ("ecr", 3, [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]),
        ("rc16", 1, [[0, 1, 0, 1], [2, 3, 2, 3], [0; 4], [0; 4]]),
    ];
    for (mode, mask, table) in modes {
        check(&format!("prmt.b32.{mode}"), &[32, 32, 32, 32], |x, y, sel| {
            let row = table[(sel & mask) as usize];
            (0..4).fold(0, |d, i| d | ((y << 32 | x) >> (8 * row[i]) & 0xff) << (8 * i))
        });
    }
}

#[test]
fn packed_dot_products_and_halves() {
    let byte = |x: u64, i: u32, signed: bool| {
        let b = (x >> (8 * i)) as u8;
        if signed { b as i8 as i64 } else { b as i64 }
    };
    let half = |x: u64, i: u32, signed: bool| {
        let h = (x >> (16 * i)) as u16;
        if signed { h as i16 as i64 } else { h as i64 }
    };
    for (name, a, b) in
        [("u32.u32", false, false), ("u32.s32", false, true), ("s32.u32", true, false), ("s32.s32", true, true)]
    {
        check(&format!("dp4a.{name}"), &[32, 32, 32, 32], |x, y, z| {
            (0..4).map(|i| byte(x, i, a) * byte(y, i, b)).sum::<i64>().wrapping_add(z as i64) as u64
        });
        for (part, at) in [("lo", 0), ("hi", 2)] {
            check(&format!("dp2a.{part}.{name}"), &[32, 32, 32, 32], |x, y, z| {
                (0..2).map(|i| half(x, i, a) * byte(y, i + at, b)).sum::<i64>().wrapping_add(z as i64) as u64
            });
        }
    }
    let halves = |x: u64, y: u64, f: &dyn Fn(i64, i64) -> i64, signed: bool| {
        let part = |i| f(half(x, i, signed), half(y, i, signed)) as u64 & 0xffff;
        part(1) << 16 | part(0)
    };
    check("add.s16x2", &[32, 32, 32], |x, y, _| halves(x, y, &|a, b| a + b, true));
    check("sub.u16x2", &[32, 32, 32], |x, y, _| halves(x, y, &|a, b| a - b, false));
    check("min.s16x2", &[32, 32, 32], |x, y, _| halves(x, y, &i64::min, true));
    check("max.u16x2", &[32, 32, 32], |x, y, _| halves(x, y, &i64::max, false));
    check("max.relu.s16x2", &[32, 32, 32], |x, y, _| halves(x, y, &|a, b| a.max(b).max(0), true));
    check("cvt.pack.sat.s16.s32 %d, $;", &[32, 32, 32], |x, y, _| {
        let c = |v| s(v, 32).clamp(-32768, 32767) as u64 & 0xffff;
        c(x) << 16 | c(y)
    });
    check("cvt.pack.sat.u8.s32.b32", &[32, 32, 32, 32], |x, y, z| {
        let c = |v| s(v, 32).clamp(0, 255) as u64;
        z << 16 | c(x) << 8 | c(y)
    });
}

#[test]
fn comparisons_of_integers_and_floats() {
    let ints: [(&str, fn(i128, i128) -> bool); 6] = [
        ("eq", |x, y| x == y),
        ("ne", |x, y| x != y),
        ("lt", |x, y| x < y),
        ("le", |x, y| x <= y),
        ("gt", |x, y| x > y),
        ("ge", |x, y| x >= y),
    ];
    for (word, f) in ints {
        for n in [16, 32, 64] {
            let body = |ty: &str| format!("setp.{word}.{ty}{n} %p2, $; selp.b32 %d, 5, 9, %p2;");
            check(&body("u"), &[32, n, n], |x, y, _| if f(x as i128, y as i128) { 5 } else { 9 });
            check(&body("s"), &[32, n, n], |x, y, _| if f(s(x, n), s(y, n)) { 5 } else { 9 });
        }
        // The second predicate is the negation, and both meet the third.
        let body = format!(
            "setp.ge.s32 %p1, %c, 0; setp.{word}.and.s32 %p2|%p3, %a, %b, !%p1; selp.b32 %r6, 1, 0, %p2; selp.b32 %d, 2, 0, %p3; or.b32 %d, %d, %r6; /* $ */"
        );
        check(&body, &[32, 32, 32, 32], |x, y, z| {
            let (hit, with) = (f(s(x, 32), s(y, 32)), s(z, 32) < 0);
            (hit && with) as u64 | ((!hit && with) as u64) << 1
        });
    }
    let floats: [(&str, fn(f32, f32) -> bool); 14] = [
        ("eq", |x, y| x == y),
        ("ne", |x, y| x != y && !x.is_nan() && !y.is_nan()),
        ("lt", |x, y| x < y),
        ("le", |x, y| x <= y),
        ("gt", |x, y| x > y),
        ("ge", |x, y| x >= y),
        ("equ", |x, y| x == y || x.is_nan() || y.is_nan()),
        ("neu", |x, y| x != y),
        ("ltu", |x, y| x < y || x.is_nan() || y.is_nan()),
        ("leu", |x, y| x <= y || x.is_nan() || y.is_nan()),
        ("gtu", |x, y| x > y || x.is_nan() || y.is_nan()),
        ("geu", |x, y| x >= y || x.is_nan() || y.is_nan()),
        ("num", |x, y| !x.is_nan() && !y.is_nan()),
        ("nan", |x, y| x.is_nan() || y.is_nan()),
    ];
    let specials = [0f32, -0.0, 1.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, 2.5];
    let a: Vec<u64> = (0..81).map(|i| specials[i % 9].to_bits() as u64).collect();
    let b: Vec<u64> = (0..81).map(|i| specials[i / 9].to_bits() as u64).collect();
    for (word, f) in floats {
        for options in tiers() {
            let got = map(&format!("set.{word}.u32.f32 %d, %a, %b;"), &[("b32", &a), ("b32", &b)], "b32", options);
            for i in 0..81 {
                let (x, y) = (specials[i % 9], specials[i / 9]);
                assert_eq!(got[i], if f(x, y) { 0xffff_ffff } else { 0 }, "{word} {x} {y}");
            }
        }
    }
}
