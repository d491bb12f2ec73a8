//! Calls through registers: prototypes, lists of targets, tables in memory; and what can be wrong with them.

mod common;
use common::{HEAD, entry, machine, modes};
use tegula_ptx::{FaultKind, Grid, Options, Param};

const FUNCTIONS: &str = "
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) square(.param .b32 x) { .reg .b32 %r<3>; ld.param.b32 %r1, [x]; mul.lo.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) through(.param .b32 x) {
  .reg .b32 %r<3>; .reg .b64 %f; ld.param.b32 %r1, [x]; mov.u64 %f, square; add.s32 %r1, %r1, 1;
  { .param .b32 a; st.param.b32 [a], %r1; .param .b32 b; p : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %f, (a), p; ld.param.b32 %r2, [b]; }
  st.param.b32 [r], %r2; ret; }
.global .align 8 .u64 table[3] = {twice, square, through};
";

fn text(body: &str) -> String {
    let start = ".reg .b32 %t, %d, %r<9>; .reg .b64 %x<9>; .reg .pred %p<4>; mov.u32 %t, %tid.x; mov.u32 %d, 0;";
    let end = "ld.param.u64 %x1, [out]; mul.wide.u32 %x2, %t, 4; add.s64 %x1, %x1, %x2; st.global.u32 [%x1], %d; ret;";
    format!("{HEAD}{FUNCTIONS}{}", entry("k", ".param .u64 out", &format!("{start} {body} {end}")))
}

fn run(body: &str, options: Options) -> Result<Vec<u32>, Box<tegula_ptx::Fault>> {
    let mut m = machine(&text(body), options);
    let out = m.room(4 * 70);
    m.run("k", Grid::new(1, 70), &[Param::U64(out)])?;
    Ok(m.get(out, 70))
}

const TABLE: &str = "rem.u32 %r1, %t, 3; mul.wide.u32 %x3, %r1, 8; mov.u64 %x4, table; add.s64 %x4, %x4, %x3; ld.global.u64 %x5, [%x4];";

#[test]
fn lanes_call_different_functions_through_a_table() {
    let call = "{ .param .b32 a; st.param.b32 [a], %t; .param .b32 b;
         proto : .callprototype (.param .b32 _) _ (.param .b32 _); call (b), %x5, (a), proto; ld.param.b32 %d, [b]; }";
    let listed = call.replace(
        "proto : .callprototype (.param .b32 _) _ (.param .b32 _)",
        "proto : .calltargets twice, square, through",
    );
    for call in [call, &listed] {
        for options in modes() {
            let got = run(&format!("{TABLE} {call} add.s32 %d, %d, 1;"), options).unwrap();
            for (t, got) in got.into_iter().enumerate() {
                let t = t as u32;
                assert_eq!(got, [2 * t, t * t, (t + 1) * (t + 1)][t as usize % 3] + 1, "thread {t}");
            }
        }
    }
}

#[test]
fn wrong_calls_are_told() {
    let options = Options { threads: 1, ..Options::default() };
    let proto = ".callprototype (.param .b32 _) _ (.param .b32 _)";
    let call = |set: &str, proto: &str| {
        format!(
            "{TABLE} {set} {{ .param .b32 a; st.param.b32 [a], %t; .param .b32 b; p : {proto}; call (b), %x5, (a), p;
             ld.param.b32 %d, [b]; }}"
        )
    };
    let f = run(&call("mov.u64 %x5, 77;", proto), options.clone()).unwrap_err();
    assert!(f.kind == FaultKind::Operand && f.to_string().contains("0x4d, which is no function's address"), "{f}");
    let wide = "{ .param .b64 a; st.param.b64 [a], %x3; .param .b32 b; p : .callprototype (.param .b32 _) _ (.param .b64 _); call (b), %x5, (a), p; }";
    let f = run(&format!("{TABLE} {wide}"), options.clone()).unwrap_err();
    assert!(f.to_string().contains("prototype has parameters of [8] bytes"), "{f}");
    let error = common::machine_error(&text(&call("", ".callprototype _ ()")), "k");
    assert!(error.contains("takes 0 parameters and gives 0 results, found 1 and 1"), "{error}");
    // A function that calls itself through its address.
    let own = format!(
        "{HEAD}.func again(.param .b32 x) {{ .reg .b64 %f; .reg .b32 %r1; ld.param.b32 %r1, [x]; mov.u64 %f, again;
         {{ .param .b32 a; st.param.b32 [a], %r1; p : .callprototype _ (.param .b32 _); call %f, (a), p; }} ret; }}
         {}",
        entry("k", "", "{ .param .b32 a; st.param.b32 [a], 1; call again, (a); } ret;")
    );
    let f = machine(&own, options).run("k", Grid::new(1, 32), &[]).unwrap_err();
    assert!(f.to_string().contains("recursive call of `again`"), "{f}");
}
