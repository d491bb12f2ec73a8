//! Mistakes in MLIR's text: what a wrong lowering would have made.

use tegula_ir::OpKind;

/// What programs that look for mistakes are made of: no functions such as `exp`, which are most of a program's code, round
/// where that hardly matters, and are compared within bounds.
pub fn plain(kind: OpKind) -> bool {
    kind != OpKind::Exp
}

/// One op of a function in MLIR's text: `%result = name operands : type`.
pub struct Line<'t> {
    pub result: &'t str,
    pub name: &'t str,
    pub operands: Vec<&'t str>,
    pub ty: &'t str,
}

impl<'t> Line<'t> {
    pub fn parse(line: &'t str) -> Option<Line<'t>> {
        let (result, op) = line.trim().split_once(" = ")?;
        let (op, ty) = op.rsplit_once(" : ")?;
        let (name, operands) = op.split_once(' ')?;
        Some(Line { result, name, operands: operands.split(", ").collect(), ty })
    }
    /// The name of a new value.
    pub fn fresh(&self, name: &str) -> String {
        format!("%{name}_{}", self.result.trim_start_matches('%'))
    }
}

/// A mistake: what a line becomes, if it is one that the mistake is about.
pub type Mistake = fn(&Line) -> Option<String>;

/// The op by another name.
pub fn renamed(l: &Line, name: &str) -> Option<String> {
    Some(format!("{} = {name} {} : {}", l.result, l.operands.join(", "), l.ty))
}

/// MLIR with a mistake in it; `None` if it has nothing that the mistake is about.
pub fn with_mistake(mlir: &str, mistake: Mistake) -> Option<String> {
    let mut changed = false;
    let lines = mlir.lines().map(|line| {
        let wrong = Line::parse(line).and_then(|l| mistake(&l));
        changed |= wrong.is_some();
        wrong.unwrap_or_else(|| line.to_owned())
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    changed.then_some(text)
}

/// Wrong arithmetic: of vectors on CPUs, of single numbers on GPUs.
pub const ARITHMETIC: &[(&str, Mistake)] = &[
    ("fma rounds twice", |l| {
        let (Line { result, operands, ty, .. }, "math.fma") = (l, l.name) else { return None };
        let ([x, y, z], product) = (&operands[..], l.fresh("product")) else { return None };
        Some(format!("{product} = arith.mulf {x}, {y} : {ty}\n{result} = arith.addf {product}, {z} : {ty}"))
    }),
    ("max keeps a NaN", |l| renamed(l, "arith.maximumf").filter(|_| l.name == "arith.maxnumf")),
    ("min is max", |l| renamed(l, "arith.maxnumf").filter(|_| l.name == "arith.minnumf")),
    ("round takes halves away from zero", |l| renamed(l, "math.round").filter(|_| l.name == "math.roundeven")),
    ("shift right of i32 brings in no signs", |l| {
        renamed(l, "arith.shrui").filter(|_| l.name == "arith.shrsi" && l.ty.trim_end_matches('>').ends_with("i32"))
    }),
    ("floats: < is ≤", |l| {
        let operands = l.operands.join(", ");
        let strict = operands.strip_prefix("olt, ").filter(|_| l.name == "arith.cmpf")?;
        Some(format!("{} = arith.cmpf ole, {strict} : {}", l.result, l.ty))
    }),
];
