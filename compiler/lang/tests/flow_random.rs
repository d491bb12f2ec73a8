//! Random programs of control flow, as plain Rust and as run-time code: the committed programs are those that the
//! generator below makes (`UPDATE_EXPECT=1` writes them anew).
#![allow(clippy::all)]
extern crate tegula_lang as tegula;
#[macro_use]
#[path = "support/both.rs"]
mod both;
mod support;

include!("flow_random/programs.rs");

const PROGRAMS: usize = 60;

#[test]
fn the_programs_are_those_of_the_generator() {
    let mut text = String::from("// Made by flow_random.rs.\nboth! {\n");
    for seed in 0..PROGRAMS {
        let mut g = Generator { state: seed as u64 * 7919 + 1, names: 0, vars: vec![] };
        text += &format!("    p{seed} |a, b| {{ {} }}\n", g.program());
    }
    expect_test::expect_file!["flow_random/programs.rs"].assert_eq(&(text + "}\n"));
}

struct Generator {
    state: u64,
    names: usize,
    /// Run-time variables in scope that may be assigned. All hold numbers in −96..=96.
    vars: Vec<String>,
}

/// Where a statement stands: indices of loops around it, and whether the innermost construct is an unrolled loop.
#[derive(Clone)]
struct Place {
    depth: usize,
    indices: Vec<String>,
    in_unrolled: Option<String>,
}

impl Generator {
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as usize % n
    }
    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }
    fn var(&mut self) -> String {
        let i = self.below(self.vars.len());
        self.vars[i].clone()
    }
    /// Anything that can be read: variables, indices, numbers. Not on the left of an operator.
    fn atom(&mut self, p: &Place) -> String {
        match self.below(4) {
            0 if !p.indices.is_empty() => p.indices[self.below(p.indices.len())].clone(),
            1 => self.below(9).to_string(),
            _ => self.var(),
        }
    }
    /// At most 96 + 2·(96·8 + 96) away from 0.
    fn expr(&mut self, p: &Place) -> String {
        let mut e = self.var();
        for _ in 0..self.below(3) {
            let right = self.atom(p);
            e = match self.below(4) {
                0 => format!("{e} + {right}"),
                1 => format!("{e} - {right}"),
                2 => format!("{e} + {} * {}", self.var(), self.below(9)),
                _ => format!("(-({e}) + {right})"),
            };
        }
        e
    }
    fn small(&mut self, p: &Place) -> String {
        format!("({}) % 97", self.expr(p))
    }
    fn cond(&mut self, p: &Place) -> String {
        let op = ["<", "<=", ">", ">=", "==", "!="][self.below(6)];
        let c = format!("{} {op} {}", self.expr(p), self.atom(p));
        match self.below(5) {
            0 => format!("{c} && {} > {}", self.var(), self.below(20)),
            1 => format!("{c} || {} < {}", self.var(), self.below(20)),
            2 => format!("!({c})"),
            _ => c,
        }
    }
    fn block(&mut self, p: &Place, n: usize) -> String {
        let scope = self.vars.len();
        let mut s = String::new();
        for _ in 0..1 + self.below(n) {
            s += &self.statement(p);
            s.push(' ');
        }
        self.vars.truncate(scope);
        s
    }
    fn inside(&self, p: &Place, index: Option<&String>, unrolled: bool) -> Place {
        let mut q = Place { depth: p.depth + 1, ..p.clone() };
        q.indices.extend(index.cloned());
        q.in_unrolled = if unrolled { index.cloned() } else { None };
        q
    }
    fn statement(&mut self, p: &Place) -> String {
        let choice = if p.depth >= 3 { self.below(7) } else { self.below(15) };
        match choice {
            0 | 1 => format!("{} = {};", self.var(), self.small(p)),
            2 => {
                let v = self.var();
                format!("{v} += {}; {v} = {v} % 97;", self.expr(p))
            }
            3 => {
                let (x, y) = (self.var(), self.var());
                if x == y {
                    format!("{x} = {};", self.small(p))
                } else {
                    format!("({x}, {y}) = ({y}, {});", self.small(p))
                }
            }
            4 => {
                let v = self.var();
                format!("let t = {}; bump(&mut {v}, t); {v} = {v} % 97;", self.small(p))
            }
            5 => {
                let e = self.small(p);
                let last = self.vars[self.vars.len() - 1].clone();
                let name = if last.starts_with('x') && self.below(2) == 0 { last } else { self.name("x") };
                self.vars.push(name.clone());
                format!("let mut {name} = {e};")
            }
            6 => match &p.in_unrolled {
                Some(i) if self.below(2) == 0 => {
                    format!("if {i} == 1 {{ {} }}", ["continue;", "break;"][self.below(2)])
                }
                _ => format!("s.step({}); s.m = s.m % 97; s.l = s.l % 97;", self.small(p)),
            },
            7 | 8 => {
                let q = self.inside(p, None, false);
                let (c, a) = (self.cond(p), self.block(&q, 3));
                match self.below(3) {
                    0 => format!("if {c} {{ {a}}}"),
                    1 => format!("if {c} {{ {a}}} else {{ {}}}", self.block(&q, 3)),
                    _ => {
                        let d = self.cond(p);
                        format!(
                            "if {c} {{ {a}}} else if {d} {{ {}}} else {{ {}}}",
                            self.block(&q, 2),
                            self.block(&q, 2)
                        )
                    }
                }
            }
            9 => {
                let c = self.cond(p);
                let q = self.inside(p, None, false);
                let (a, b) = (self.block(&q, 2), self.block(&q, 2));
                let (x, y) = (self.small(p), self.small(p));
                let v = self.var();
                format!("{v} = if {c} {{ {a}{x} }} else {{ {b}{y} }};")
            }
            10 => {
                let i = self.name("i");
                let q = self.inside(p, Some(&i), true);
                format!("for {i} in 0..{} {{ {}}}", 1 + self.below(3), self.block(&q, 3))
            }
            11 | 12 => {
                let i = self.name("i");
                let end = self.expr(p);
                let q = self.inside(p, Some(&i), false);
                format!("for {i} in 0..({end}) % {} {{ {}}}", 2 + self.below(4), self.block(&q, 3))
            }
            13 => {
                let i = self.name("i");
                let q = self.inside(p, Some(&i), false);
                format!("for {i} in range({}, {}) {{ {}}}", self.below(2), 1 + self.below(4), self.block(&q, 3))
            }
            _ => {
                let (c, w) = (self.cond(p), self.name("w"));
                let q = self.inside(p, None, false);
                format!(
                    "let mut {w} = scalar::<i32>(0); while {w} < {} && ({c}) {{ {w} += 1; {}}}",
                    1 + self.below(4),
                    self.block(&q, 3)
                )
            }
        }
    }
    fn program(&mut self) -> String {
        self.vars = ["x", "y", "v[0]", "v[1]", "s.m", "s.l"].map(String::from).to_vec();
        let p = Place { depth: 0, indices: vec![], in_unrolled: None };
        let mut body = String::from("let (mut x, mut y) = (a, b); let mut v = [b, a]; let mut s = St { m: a, l: b }; ");
        for _ in 0..4 {
            body += &self.statement(&p);
            body.push(' ');
        }
        // A shadowing `let` may have hidden any of these: all end in one number.
        body + "x + y * 3 + v[0] * 5 + v[1] * 7 + s.m * 11 + s.l * 13"
    }
}
