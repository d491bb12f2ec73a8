//! The rewrite of control flow: the same text as plain Rust over `i32`, and as run-time code over `Scalar<i32>` on the
//! oracle, must give the same numbers.
#![allow(
    clippy::assign_op_pattern,
    clippy::never_loop,
    clippy::nonminimal_bool,
    clippy::possible_missing_else,
    clippy::single_match,
    clippy::unnecessary_operation
)]
extern crate tegula_lang as tegula;
#[macro_use]
#[path = "support/both.rs"]
mod both;
mod support;
use both::*;
use support::*;
use tegula::prelude::*;
use tegula_ir::{Kernel, OpKind};

both! {
    nested |a, b| { let mut s = scalar(0); let mut t = a; for i in 0..b { for j in 0..i { s += j; if s % 2 == 0 { t = t + i; } else { let s = 3; t -= s; } } if t > 5 && i > 1 { (s, t) = (t, s); } } s * 31 + t }
    if_value |a, b| { let mut c = scalar(1); let v = if a > b { c = c + 1; a * 2 } else if a == b || b > 4 { c += 10; b } else { -a }; let w = if !(a < 2) { v } else { v + 1 }; v + w * c }
    whiles |a, b| { let mut x = a; let mut n = scalar(0); while x < 20 && n < 7 { x += b; let mut i = scalar::<i32>(0); while i < 2 { n += 1; i += 1; } } x * 100 + n }
    array |a, b| { let mut v = [a, b, a + b]; for i in 0..b { v[0] = v[1] + i; let t = v[2]; v[2] = v[0]; v[1] = t; } v[0] + 3 * v[1] + 7 * v[2] }
    vector |a, b| { let mut v = vec![a, b]; for i in 0..3 { if i == 1 { continue; } v.push(a + i); if i == 2 { break; } } let mut s = a; for k in 0..b { for x in v.iter_mut() { *x = *x + k; } s += v[2]; } for x in v { s = s * 3 + x; } s }
    shadow |a, b| { let mut x = a; for i in 0..b { x = x + 1; let mut x = x * 2; x += i; let _ = x; { let x = 7; let _ = x; } } x }
    field |a, b| { let mut s = St { m: a, l: b }; for i in 0..b { s.m = s.m + i; s.l = s.l + s.m; } s.m + 5 * s.l }
    method |a, b| { let mut s = St { m: a, l: b }; for i in 0..b { s.step(i); } s.m + 5 * s.l }
    nested_field |a, b| { let mut s = (St { m: a, l: b }, [St { m: b, l: a }, St { m: a, l: a }]); for i in 0..b { s.0.m = s.0.l + i; s.0.l += s.1[0].m; s.1[1].l += i; if s.0.l > 9 { s.1[0].step(i); s.0 = s.1[1]; } } s.0.m + 5 * s.0.l + 7 * s.1[0].l + 11 * s.1[1].l }
    mut_ref |a, b| { let mut s = a; for i in 0..b { bump(&mut s, i); if s > 4 { bump(&mut s, a); } } s }
    forced |a, b| { let mut s = a; for i in range(0, 4) { s += i * b; } s }
    inclusive |a, b| { let mut s = a; for i in 0..=b { s += i * 3; } for _ in 0..=2 { s += b; } s }
    swap |a, b| { let (mut x, mut y) = (a, b); for i in 0..b { std::mem::swap(&mut x, &mut y); x += i; } x * 7 + y }
    tuple |a, b| { let mut p = (a, (b, a)); while p.0 < 10 { p.1.0 += 1; p.0 += p.1.0 + 1; p.1 = (p.1.1, p.1.0); } p.0 + 3 * p.1.0 + 5 * p.1.1 }
    labelled |a, b| { let mut s = a; 'o: for i in 0..4 { for j in 0..4 { if i * j > 3 { break 'o; } if j == 2 { continue 'o; } s += i + j; } } for k in 0..b { s = s + k; } s }
    host_match |a, b| { let mut s = a; for k in [2, 3, 5] { match k { 2 => { if s > 1 { s += b; } } 3 if k < 4 => { for i in 0..b { s += i; } } _ => { s = s * 2; } } } s }
    branch_only |a, b| { let mut s = a; if a < b { for i in 0..b { s += i; if s > 10 { s = s - 4; } } } else if b > 2 { while s > 0 { s -= b; } } s }
    dead_variable |a, b| { let mut s = a; let mut unused = b; for i in 0..b { unused = i; s += 1; } s }
    loop_host |a, b| { let mut s = a; let mut i = 0; loop { if i == 3 { break; } i += 1; for k in 0..b { s += k; } } while i < 6 { i += 1; s += i; } s }
    if_let |a, b| { let mut s = a; let o = Some(3); if let Some(k) = o && k > 2 { for i in 0..b { s += k * i; } } let Some(q) = o else { return s; }; s + q }
    nested_value |a, b| { let v = { let t = if a > 0 { if b > 2 { a } else { b } } else { a - b }; t * 2 }; let (x, y) = if v > 3 { (v, a) } else { (b, v) }; x * 10 + y }
    both_moved |a, b| { let mut v = [a, b]; if a > b { let [p, q] = v; v = [q, p]; } v[0] * 5 + v[1] }
    borrowed_elements |a, b| { let mut v = vec![a, b]; for x in v.iter_mut() { for k in 0..b { bump(x, k); } } let mut t = [St { m: a, l: b }, St { m: b, l: a }]; for s in &mut t { for k in 0..b { s.step(k); if s.l > 9 { s.step(a); } } } for (i, s) in t.iter_mut().enumerate() { let at = i; for k in 0..b { s.m = s.m + k; bump(&mut *v.get_mut(at).unwrap(), k); } } v[0] + 3 * v[1] + 5 * t[0].m + 7 * t[0].l + 11 * t[1].l }
    borrowed_parts |a, b| { let mut o = Some(St { m: a, l: b }); if let Some(s) = &mut o { for k in 0..b { s.step(k); } } match o.as_mut() { Some(s) => { for k in 0..b { bump(&mut s.m, k); s.step(a); } } None => {} } let mut v = [a, b]; if let Some(x) = v.last_mut() { for k in 0..b { bump(x, k); } } let s = o.unwrap(); s.m + 3 * s.l + 5 * v[1] }
    long_chain |a, b| { let mut s = scalar(0); for i in 0..b { let t = if i == 0 { a } else if i == 1 { a * a } else if i == 2 { -a } else { b - i }; s = s * 3 + t; } s }
}

#[test]
fn the_index_after_the_loop_is_not_visible() {
    #[func]
    fn leak(n: Scalar<i32>) -> Scalar<i32> {
        let kept = std::cell::Cell::new(n);
        for i in 0..n {
            kept.set(i + 1);
        }
        kept.get() + 1
    }
    let e = tegula::build("leak", || {
        leak(scalar(3));
    })
    .unwrap_err();
    assert_eq!(e.faults.len(), 1);
    assert!(e.faults[0].message.contains("made inside a run-time loop or branch and is used outside it"), "{e}");
    assert!(e.faults[0].loc.file.ends_with("flow.rs"));
}

fn built(f: impl FnOnce()) -> Kernel {
    tegula::build("test", f).unwrap()
}

#[test]
fn build_time_control_flow_leaves_no_trace() {
    #[func]
    fn pick(x: Scalar<i32>, n: usize) -> Scalar<i32> {
        if n == 0 {
            return x;
        }
        let mut s = x;
        let early = if n > 7 { return s } else { n };
        'o: for i in 0..10 {
            for j in 0..early {
                if i * j > 3 {
                    break 'o;
                }
                s += i + j;
            }
        }
        s
    }
    let k = built(|| {
        pick(scalar(1), 0);
        pick(scalar(1), 3);
        pick(scalar(1), 9);
    });
    assert_eq!(count(&k, OpKind::For) + count(&k, OpKind::If) + count(&k, OpKind::While), 0);
    // (0,0) (0,1) (0,2) (1,0) (1,1) (1,2) (2,0) (2,1); then 2·2 > 3.
    assert_eq!(count(&k, OpKind::Add), 8);
}

#[test]
fn methods_with_run_time_loops_change_their_state() {
    #[derive(Carry)]
    struct Rng {
        s: Scalar<u32>,
        #[carry(skip)]
        modulus: u32,
    }
    impl Rng {
        #[func]
        fn next(&mut self, k: Scalar<i32>) -> Scalar<u32> {
            for _ in 0..k {
                self.s = self.s * 5 + 1;
            }
            if self.s > 100 {
                self.s %= self.modulus;
            }
            self.s
        }
    }
    #[func]
    fn uses(n: Scalar<i32>, _unused: Scalar<i32>) -> Scalar<i32> {
        let mut r = Rng { s: scalar(1), modulus: 100 };
        let mut t = scalar(0);
        for _ in 0..n {
            t += r.next(n);
        }
        t.cast()
    }
    fn plain(n: i32) -> i32 {
        let (mut s, mut t) = (1u32, 0u32);
        for _ in 0..n {
            for _ in 0..n {
                s = s.wrapping_mul(5).wrapping_add(1);
            }
            if s > 100 {
                s %= 100;
            }
            t += s;
        }
        t as i32
    }
    for n in 0..5 {
        assert_eq!(run(uses, n, 0), plain(n));
    }
}

#[test]
fn a_mut_reference_parameter_is_carried() {
    #[func]
    fn update(x: &mut Scalar<i32>, n: Scalar<i32>) {
        for i in 0..n {
            *x = *x + i;
        }
        if *x > 3 {
            *x -= 1;
        }
    }
    #[func]
    fn f(a: Scalar<i32>, b: Scalar<i32>) -> Scalar<i32> {
        let mut x = a;
        for _ in 0..b {
            update(&mut x, b);
        }
        x
    }
    fn plain(a: i32, b: i32) -> i32 {
        let mut x = a;
        for _ in 0..b {
            x += (0..b).sum::<i32>();
            if x > 3 {
                x -= 1;
            }
        }
        x
    }
    for (a, b) in [(2, 4), (-9, 3), (0, 0), (5, 1)] {
        assert_eq!(run(f, a, b), plain(a, b));
    }
}

#[test]
fn a_panic_in_a_build_leaves_the_outer_one_intact() {
    let k = built(|| {
        let x = scalar::<i32>(1);
        let inner = std::panic::catch_unwind(|| {
            tegula::build("inner", || {
                #[func]
                fn f(n: Scalar<i32>) {
                    for _ in 0..n {
                        panic!("in the loop");
                    }
                }
                f(scalar(3));
            })
        });
        assert!(inner.is_err());
        let other = built(|| {
            let _ = scalar::<i32>(7);
        });
        assert_eq!(count(&other, OpKind::Const), 1);
        let _ = x + 1;
    });
    assert_eq!((count(&k, OpKind::Const), count(&k, OpKind::Add)), (2, 1));
}

#[test]
fn a_value_of_another_build_is_named() {
    let mut kept = None;
    built(|| kept = Some(scalar::<i32>(1)));
    let e = tegula::build("second", || {
        let _ = scalar::<i32>(2) + kept.unwrap();
    })
    .unwrap_err();
    assert!(e.faults[0].message.contains("belongs to another kernel"), "{e}");
}

#[test]
fn kernels_call_kernels() {
    #[kernel]
    fn inner<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>, s: Scalar<f32>) {
        let t = x.load::<(N,)>(0);
        let m = t.reduce::<0>(|a, b| if a > b { a } else { b });
        y.store(0, t * s + m);
    }
    #[kernel]
    fn outer<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>) {
        inner::inline::<N>(x, y, scalar(2.0));
    }
    let x = Tensor::new(&[8], random_f32(3));
    let mut y = Tensor::<f32>::poisoned(&[8]);
    outer::launch(&x, &mut y).dims(8).run(&Oracle::default()).unwrap();
    let m = x.data.iter().cloned().fold(f32::MIN, f32::max);
    assert_eq!(y.data, x.data.iter().map(|v| v * 2.0 + m).collect::<Vec<_>>());
}

#[test]
fn host_code_in_kernels_is_plain_rust() {
    #[derive(Clone, Copy, PartialEq, PartialOrd)]
    enum Act {
        Relu,
        Silu,
        Double,
    }
    #[func]
    fn act<T: Float, S: Shape>(x: Tile<T, S>, a: Act) -> Tile<T, S> {
        let names = String::from("host, not Copy");
        let table = [0.0, 1.0, 2.0, 3.0, 4.0];
        let k = 2;
        let two = table[2 * k - 2];
        let long = names.len() > 3 && !names.is_empty();
        if &a == &Act::Relu && long {
            x.maximum(0.0).broadcast()
        } else if matches!(a, Act::Silu) {
            x / (1.0 + (-x).exp())
        } else {
            x * two
        }
    }
    #[kernel]
    fn k(x: View<f32, 1>, y: ViewMut<f32, 2>) {
        for (i, a) in [Act::Relu, Act::Silu, Act::Double].into_iter().enumerate() {
            let v = act(x.load::<(C<8>,)>(0), a);
            y.store((i, 0), v.expand::<0>());
        }
    }
    let x = Tensor::new(&[8], random_f32(9));
    let mut y = Tensor::<f32>::poisoned(&[3, 8]);
    k::launch(&x, &mut y).grid(1).run(&Oracle::default()).unwrap();
    let fs: [fn(f64) -> f64; 3] = [|x| x.max(0.0), |x| x / (1.0 + (-x).exp()), |x| 2.0 * x];
    close(y.data.iter().map(|v| *v as f64), fs.iter().flat_map(|f| x.data.iter().map(move |v| f(*v as f64))), 1e-6);
}
