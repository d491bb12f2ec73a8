//! What a kernel tells its host at run time: failed assertions, indices outside in checked kernels, prints.

use super::{Error, at::At, build::V, cx::Cx, machine::to_memory};
use tegula_ir::{Key, Op, abi::Ctx, protocol::SiteKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// Calls the host's report function about a site.
    pub fn report(&mut self, site: i32, value: V<'c>) {
        let b = self.b;
        let function = b.load(b.offset_c(self.ctx, Ctx::REPORT as i64), b.ptr(), 0, 8);
        b.call_pointer(function, &[self.ctx, b.c32(site), self.program, value]);
    }

    /// `assert`: in checked kernels only.
    pub fn assert(&mut self, op: &'a Op) -> Result<(), Error> {
        if !self.checked {
            return Ok(());
        }
        let (b, condition) = (self.b, op.operands[0]);
        let site = self.site(SiteKind::Assert, op.attrs.str(Key::Message).unwrap_or_default(), op);
        let shape = self.tile(condition).shape.clone();
        self.nest(&shape, &[condition], None, &mut |cx, at| {
            let bad = b.not(cx.eval(condition, at));
            let any = b.any(bad);
            b.when(any, || cx.report(site, b.c64(0)));
            Ok(())
        })
    }

    /// `print`: each element's bits, in order.
    pub fn print(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let message = op.attrs.str(Key::Message).unwrap_or_default();
        if op.operands.is_empty() {
            let site = self.site(SiteKind::Print { elem: String::new(), shape: vec![] }, message, op);
            self.report(site, b.c64(0));
        }
        for (i, v) in op.operands.iter().enumerate() {
            let ty = self.tile(*v).clone();
            let kind = SiteKind::Print { elem: ty.elem.name().into(), shape: ty.shape.clone() };
            let site = self.site(kind, if i == 0 { message } else { "" }, op);
            self.versioned(&[*v], None, &[], &mut |cx| {
                cx.loops(&ty.shape, None, 1, &mut At::origin(ty.rank()), 0, &mut |cx, at| {
                    let x = to_memory(b, cx.eval(*v, at), ty.elem);
                    let bits = b.bitcast(x, b.int(b.bits(x)));
                    cx.report(site, b.zext(bits, b.i64()));
                    Ok(())
                })?;
                Ok(vec![])
            })?;
        }
        Ok(())
    }
}
