//! The text form.
//!
//! ```text
//! kernel @name(%0 "x": view<f32, 2, unit>, %1 "n": i32) {
//!   %2 = program_id {axis = 0} : i32 @ "src/k.rs":12:9
//!   %5, %6 = for %2, %1, %3, %4, %4 : f32, f32 {
//!     (%7: i32, %8: f32, %9: f32)
//!     yield %8, %9
//!   }
//! }
//! ```

use crate::attr::{Attr, Attrs, Key};
use crate::kernel::{Kernel, Op, Region, Value};
use std::fmt::{self, Write};

/// A kernel's text; see [`Kernel::text`].
struct Printer<'k> {
    kernel: &'k Kernel,
    locs: bool,
}

impl Kernel {
    /// The kernel as text that parses back to an equal kernel (after [`Kernel::renumbered`]).
    pub fn text(&self) -> String {
        self.to_string()
    }
    /// The text without source locations: what cache keys and golden tests use.
    pub fn text_without_locs(&self) -> String {
        Printer { kernel: self, locs: false }.text()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Printer { kernel: self, locs: true }.text())
    }
}

fn list(values: &[Value]) -> String {
    values.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ")
}

/// ` {key = value, flag}`, or nothing.
fn attributes(attrs: &Attrs) -> String {
    if attrs.is_empty() {
        return String::new();
    }
    let one = |(k, a): &(Key, Attr)| if *a == Attr::Flag { k.name().into() } else { format!("{} = {a}", k.name()) };
    format!(" {{{}}}", attrs.iter().map(one).collect::<Vec<_>>().join(", "))
}

impl Printer<'_> {
    fn text(&self) -> String {
        let mut s = String::new();
        let k = self.kernel;
        let params: Vec<String> =
            k.body.args.iter().zip(&k.params).map(|(v, n)| format!("%{} {n:?}: {}", v.0, k.ty(*v))).collect();
        let _ = writeln!(s, "kernel @{}({}){} {{", k.name, params.join(", "), attributes(&k.attrs));
        for op in &k.body.ops {
            self.op(op, 1, &mut s);
        }
        s.push_str("}\n");
        s
    }

    fn op(&self, op: &Op, depth: usize, s: &mut String) {
        let pad = "  ".repeat(depth);
        s.push_str(&pad);
        if !op.results.is_empty() {
            let _ = write!(s, "{} = ", list(&op.results));
        }
        s.push_str(op.kind.name());
        if !op.operands.is_empty() {
            let _ = write!(s, " {}", list(&op.operands));
        }
        s.push_str(&attributes(&op.attrs));
        if !op.results.is_empty() {
            let types: Vec<String> = op.results.iter().map(|v| self.kernel.ty(*v).to_string()).collect();
            let _ = write!(s, " : {}", types.join(", "));
        }
        if self.locs && !op.loc.is_unknown() {
            let _ = write!(s, " @ {:?}:{}:{}", &*op.loc.file, op.loc.line, op.loc.col);
        }
        for r in &op.regions {
            s.push_str(" {\n");
            self.region(r, depth + 1, s);
            let _ = write!(s, "{pad}}}");
        }
        s.push('\n');
    }

    fn region(&self, r: &Region, depth: usize, s: &mut String) {
        let pad = "  ".repeat(depth);
        if !r.args.is_empty() {
            let args: Vec<String> = r.args.iter().map(|v| format!("%{}: {}", v.0, self.kernel.ty(*v))).collect();
            let _ = writeln!(s, "{pad}({})", args.join(", "));
        }
        for op in &r.ops {
            self.op(op, depth, s);
        }
        let _ = writeln!(s, "{pad}yield{}{}", if r.yields.is_empty() { "" } else { " " }, list(&r.yields));
    }
}
