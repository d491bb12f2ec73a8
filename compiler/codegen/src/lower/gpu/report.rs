//! What a kernel tells its host at run time: failed assertions, indices outside in checked kernels, prints. See
//! [`tegula_ir::abi::gpu`] for the buffer.

use super::{
    super::{
        build::{Cmp, V},
        machine::to_memory,
    },
    Error, asm,
    cx::Cx,
};
use tegula_ir::{Key, Op, abi::gpu, protocol::SiteKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// The linear number of the program, i64.
    fn program(&self) -> V<'c> {
        let b = self.b;
        let read = |what: &str| {
            let x = b.intrinsic(&format!("llvm.nvvm.read.ptx.sreg.{what}"), &[], b.i32());
            b.zext(x, b.i64())
        };
        let upper = b.add(read("ctaid.y"), b.mul(read("nctaid.y"), read("ctaid.z")));
        b.add(read("ctaid.x"), b.mul(read("nctaid.x"), upper))
    }

    /// Appends a report; every thread that comes here does.
    pub fn report(&mut self, site: i32, value: V<'c>) {
        let b = self.b;
        let Some(to) = self.report_to else { return };
        let there = b.cmp(Cmp::Ne, b.ptr_to_int(to), b.c64(0));
        b.when(there, || {
            let old = asm::ptx(b, "atom.global.relaxed.gpu.add.u32 $0, [$1], 1;", "=r,l", &[to], Some(b.i32()))[0];
            let capacity = b.load(b.offset_c(to, gpu::CAPACITY as i64), b.i32(), 0, 4);
            b.when(b.cmp(Cmp::Ult, old, capacity), || {
                let offset = b.add_c(b.mul_c(b.zext(old, b.i64()), gpu::RECORD as i64), gpu::RECORDS as i64);
                let record = b.offset(to, offset);
                b.store(b.zext(b.c32(site), b.i64()), record, 8);
                b.store(self.program(), b.offset_c(record, 8), 8);
                b.store(value, b.offset_c(record, 16), 8);
            });
        });
    }

    /// Tells the host where `bad` holds.
    pub fn report_if(&mut self, op: &Op, kind: SiteKind, message: &str, bad: V<'c>, value: V<'c>) {
        let site = self.site(kind, message, op);
        self.b.when(bad, || self.report(site, value));
    }

    /// `assert`: in checked kernels only.
    pub fn assert(&mut self, op: &'a Op) -> Result<(), Error> {
        if !self.checked {
            return Ok(());
        }
        let (b, condition) = (self.b, op.operands[0]);
        let site = self.site(SiteKind::Assert, op.attrs.str(Key::Message).unwrap_or_default(), op);
        for (piece, regs) in self.pieces(condition).iter().zip(self.regs(condition)) {
            let all = regs.into_iter().reduce(|x, y| b.and(x, y)).unwrap_or_else(|| b.cbool(true));
            let bad = b.not(all);
            let owner = self.is_owner(&piece.layout);
            let bad = owner.map_or(bad, |o| b.and(o, bad));
            b.when(bad, || self.report(site, b.c64(0)));
        }
        Ok(())
    }

    /// `print`: each element's bits in order, by one thread.
    pub fn print(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let message = op.attrs.str(Key::Message).unwrap_or_default();
        let first = b.cmp(Cmp::Eq, self.tid, b.c32(0));
        if op.operands.is_empty() {
            self.report_if(op, SiteKind::Print { elem: String::new(), shape: vec![] }, message, first, b.c64(0));
        }
        for (i, v) in op.operands.iter().enumerate() {
            let t = self.tile(*v).clone();
            let staged = self.staged(op, &[*v])[0].clone();
            let kind = SiteKind::Print { elem: t.elem.name().into(), shape: t.shape.clone() };
            let site = self.site(kind, if i == 0 { message } else { "" }, op);
            b.when(first, || {
                b.for_(b.c64(0), b.c64(t.len() as i64), b.c64(1), &[], |i, _| {
                    let x = to_memory(b, self.staged_at(&staged, b.trunci(i, b.i32())), t.elem);
                    let bits = b.bitcast(x, b.int(b.bits(x)));
                    self.report(site, b.zext(bits, b.i64()));
                    vec![]
                });
            });
        }
        Ok(())
    }
}
