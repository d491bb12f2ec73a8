//! From one layout to another: piece by piece, as [`Plan`] says.

use super::{
    super::{
        build::{Cmp, V},
        machine::{from_memory, memory_type, to_memory},
    },
    Error,
    cx::{Cx, Regs},
    warp::Exchange,
};
use tegula_ir::{
    Elem, Op,
    linear::{Linear, Plan, Swizzle, plan::Shuffle},
};

impl<'a, 'c> Cx<'a, 'c> {
    /// `convert_layout`.
    pub fn convert_layout(&mut self, op: &'a Op) -> Result<(), Error> {
        let regs = self.convert_to(op, op.operands[0], op.results[0]);
        self.set_regs(op.results[0], regs)
    }

    /// The registers of a tile in the layout of another of the same shape.
    pub fn convert_to(&mut self, op: &Op, v: tegula_ir::Value, like: tegula_ir::Value) -> Regs<'c> {
        let (source, target, e) = (self.layout(v), self.layout(like), self.elem(v));
        let regs = self.regs(v);
        let mut out = vec![];
        for ((a, t), x) in source.0.iter().zip(&target.0).zip(&regs) {
            out.push(self.convert_piece(op, x, a, t, e));
        }
        out
    }

    /// The registers of a piece in another layout.
    pub fn convert_piece(&mut self, op: &Op, x: &[V<'c>], from: &Linear, to: &Linear, e: Elem) -> Vec<V<'c>> {
        match Plan::new(from, to, e.bytes()) {
            Plan::Registers(regs) => regs.into_iter().map(|r| x[r]).collect(),
            Plan::Shuffles(shuffles) => shuffles.iter().map(|s| self.by_shuffle(s, x)).collect(),
            Plan::Shared(swizzle) => self.through_shared(op, x, from, to, &swizzle, e),
        }
    }

    fn by_shuffle(&mut self, s: &Shuffle, x: &[V<'c>]) -> V<'c> {
        let b = self.b;
        // From which lane a lane reads is linear in its number, but for a constant.
        let first = u64::from(s.source[0]);
        let images: Vec<u64> = (0..5).map(|i| u64::from(s.source[1 << i]) ^ first).collect();
        let lane = b.xor(self.of_thread(&images), b.c32(first as i32));
        let mut all: Option<V> = None;
        for (reg, keep) in &s.rounds {
            let got = self.shuffle(x[*reg], Exchange::From(lane));
            all = Some(match all {
                None => got,
                Some(rest) => {
                    let bit = b.and_c(b.shru(b.c32(*keep as i32), self.lane()), 1);
                    b.select(b.cmp(Cmp::Ne, bit, b.c32(0)), got, rest)
                }
            });
        }
        all.unwrap_or(x[0])
    }

    fn through_shared(
        &mut self,
        op: &Op,
        x: &[V<'c>],
        from: &Linear,
        to: &Linear,
        swizzle: &Swizzle,
        e: Elem,
    ) -> Vec<V<'c>> {
        let (b, bytes) = (self.b, e.bytes());
        let memory = memory_type(b, e);
        self.begin_shared(bytes << from.bits(), op);
        self.by_owners(from, |cx| {
            for access in swizzle.accesses(from, 0) {
                let p = cx.swizzled(swizzle, from, access[0], bytes);
                let values: Vec<V> = access.iter().map(|r| to_memory(b, x[*r], e)).collect();
                let v = if values.len() == 1 { values[0] } else { b.gather_lanes(&values) };
                b.store(v, p, bytes * access.len());
            }
        });
        self.shared_written();
        let mut out = vec![None; to.regs()];
        for access in swizzle.accesses(to, 1) {
            let p = self.swizzled(swizzle, to, access[0], bytes);
            if access.len() == 1 {
                out[access[0]] = Some(from_memory(b, b.load(p, memory, 0, bytes), e));
                continue;
            }
            let v = b.load(p, memory, access.len(), bytes * access.len());
            for (i, r) in access.iter().enumerate() {
                out[*r] = Some(from_memory(b, b.extract(v, i), e));
            }
        }
        // Every register is in one access.
        out.into_iter().flatten().collect()
    }

    /// Address in shared memory of a register's element.
    fn swizzled(&mut self, s: &Swizzle, l: &Linear, reg: usize, bytes: usize) -> V<'c> {
        let b = self.b;
        let scale = bytes.trailing_zeros();
        let images: Vec<u64> = l.threads().iter().map(|v| s.address(*v) << scale).collect();
        let touched = images.iter().fold(0, |a, v| a | v);
        let own = (s.address(l.of_reg(reg)) << scale) as i32;
        let thread = self.of_thread(&images);
        // Bits that the thread does not touch are added to the address, which instructions do for nothing.
        let (mixed, apart) = (own & touched as i32, own & !(touched as i32));
        let offset = if mixed == 0 { thread } else { b.xor(thread, b.c32(mixed)) };
        let p = b.gep(self.shared, b.i8(), offset);
        b.offset_c(p, apart.into())
    }
}
