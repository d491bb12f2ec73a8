//! The text form is exact: random attributes, locations, names and types come back as they were, verified or not.

#[path = "passes/gen.rs"]
mod generate;

use generate::Rng;
use proptest::prelude::*;
use tegula_ir::*;

const KEYS: &[Key] = &[
    Key::Axis,
    Key::Bins,
    Key::Descending,
    Key::Fast,
    Key::K,
    Key::Kind,
    Key::Masked,
    Key::Message,
    Key::N,
    Key::Order,
    Key::Pad,
    Key::Perm,
    Key::Precision,
    Key::Reverse,
    Key::Size,
    Key::Start,
    Key::Value,
];

fn attr(rng: &mut Rng, text: &str) -> Attr {
    match rng.below(6) {
        0 => Attr::Flag,
        1 => Attr::Int(rng.pick(&[0, -1, 7, i64::MIN, i64::MAX, 1 << 40])),
        2 => Attr::Ints((0..rng.below(4)).map(|_| rng.next() as i64).collect()),
        3 => {
            let e = rng.pick(Elem::ALL);
            Attr::Scalar(rng.scalar(e))
        }
        4 => rng.pick(ReduceKind::ALL).into(),
        _ => Attr::Str(text.into()),
    }
}

fn ty(rng: &mut Rng) -> Type {
    let e = rng.pick(Elem::ALL);
    match rng.below(5) {
        0 => Type::View(ViewType {
            elem: e,
            rank: rng.below(5),
            mutable: rng.chance(50),
            facts: ViewFacts { unit: rng.chance(50), align16: rng.chance(50), small: rng.chance(50) },
        }),
        1 => Type::Packed(PackedType { quant: rng.pick(Quant::ALL), layout: rng.pick(&["gguf", "panel16"]).into() }),
        2 => Type::QTile(QTileType { quant: rng.pick(Quant::ALL), k: rng.below(1000), n: rng.below(1000) }),
        _ => Type::tile(e, (0..rng.below(4)).map(|_| 1 + rng.below(300)).collect::<Vec<_>>()),
    }
}

struct Random<'a> {
    rng: Rng,
    texts: &'a [String],
    kernel: Kernel,
}

impl Random<'_> {
    fn text(&mut self) -> String {
        self.texts[self.rng.below(self.texts.len())].clone()
    }
    fn value(&mut self, visible: &mut Vec<Value>) -> Value {
        let t = ty(&mut self.rng);
        let v = self.kernel.value(t);
        visible.push(v);
        v
    }
    fn region(&mut self, visible: &mut Vec<Value>, depth: usize, args: usize) -> Region {
        let outer = visible.len();
        let args = (0..args).map(|_| self.value(visible)).collect();
        let ops = (0..self.rng.below(6)).map(|_| self.op(visible, depth)).collect();
        let yields = if depth == 0 { vec![] } else { self.uses(visible) };
        visible.truncate(outer);
        Region { args, ops, yields }
    }
    fn uses(&mut self, visible: &[Value]) -> Vec<Value> {
        if visible.is_empty() { vec![] } else { (0..self.rng.below(4)).map(|_| self.rng.pick(visible)).collect() }
    }
    fn op(&mut self, visible: &mut Vec<Value>, depth: usize) -> Op {
        let kind = self.rng.pick(OpKind::ALL);
        let operands = self.uses(visible);
        let mut attrs = Attrs::new();
        for _ in 0..self.rng.below(4) {
            let text = self.text();
            attrs.set(self.rng.pick(KEYS), attr(&mut self.rng, &text));
        }
        // Results are visible after the op only, yet numbered before what its regions define.
        let results: Vec<Value> = (0..self.rng.below(3)).map(|_| self.value(&mut vec![])).collect();
        let loc = if self.rng.chance(50) {
            Loc::unknown()
        } else {
            Loc::new(self.text(), 1 + self.rng.below(99) as u32, self.rng.below(200) as u32)
        };
        let regions = if depth < 3 && self.rng.chance(30) {
            (0..1 + self.rng.below(2))
                .map(|_| {
                    let n = self.rng.below(3);
                    self.region(visible, depth + 1, n)
                })
                .collect()
        } else {
            vec![]
        };
        visible.extend(&results);
        Op { kind, operands, results, attrs, regions, loc }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn round_trip(seed: u64, name in "[A-Za-z_][A-Za-z0-9_]{0,5}(::[a-z]{1,4})?(<f32,[0-9]{1,3}>)?", texts in prop::collection::vec(".{0,12}|[\"\\\\\n\r\t\0'{}@%/]{0,6}|a // b|\u{301}|\u{feff}x", 1..4)) {
        let mut random = Random { rng: Rng(seed), texts: &texts, kernel: Kernel::new(name) };
        let mut visible = vec![];
        for _ in 0..random.rng.below(4) {
            let (name, t) = (random.text(), ty(&mut random.rng));
            visible.push(random.kernel.param(name, t));
        }
        let body = random.region(&mut visible, 0, 0);
        random.kernel.body.ops = body.ops;
        let k = random.kernel.renumbered();
        let text = k.text();
        let back = Kernel::parse(&text);
        prop_assert!(back.is_ok(), "{}\n{text}", back.unwrap_err());
        let back = back.unwrap();
        prop_assert_eq!(&back, &k, "\n{}", text);
        prop_assert_eq!(back.text(), text);
        // Without locations, nothing else is lost.
        let bare = Kernel::parse(&k.text_without_locs()).unwrap();
        prop_assert_eq!(bare.text_without_locs(), k.text_without_locs());
    }

    /// Text that is no kernel is an error with a line, never a panic.
    #[test]
    fn damaged_text(seed: u64, cut in 0.0..1.0f64, with in "\\PC{0,3}") {
        let text = generate::kernel(seed, 12).text();
        let at = (0..=(text.len() as f64 * cut) as usize).rev().find(|&i| text.is_char_boundary(i)).unwrap();
        for damaged in [text[..at].to_string(), format!("{}{with}{}", &text[..at], &text[at..])] {
            match Kernel::parse(&damaged) {
                Ok(k) => drop(k.verify()),
                Err(e) => prop_assert!(e.line >= 1 && e.line <= damaged.matches('\n').count() + 1),
            }
        }
    }
}
