//! `dot` by plain loops: one chain per output in ascending k, lanes along the outputs' columns. What the register-blocked
//! kernels of `micro` do not take comes here.

use super::{
    Error,
    at::{At, Coord},
    convert::cast,
    cx::{Buf, Cx},
};
use tegula_ir::{Elem, Op, TileType, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// `dot`.
    pub fn dot(&mut self, op: &'a Op) -> Result<(), Error> {
        let (lhs, rhs, acc, result) = (op.operands[0], op.operands[1], op.operands[2], op.results[0]);
        let buf = self.result_buffer(result);
        self.fill(&buf, acc)?;
        let e = buf.ty.elem;
        let (a, c) = (self.staged(lhs, e)?, self.staged(rhs, e)?);
        self.dot_plain(&a, &c, &buf);
        self.release(&a);
        self.release(&c);
        self.finish_buffer(result, buf);
        Ok(())
    }

    /// An operand in memory, in the accumulator's type.
    fn staged(&mut self, v: Value, e: Elem) -> Result<Buf<'c>, Error> {
        let b = self.b;
        let ty = self.tile(v).clone();
        let buf = self.buffer(&TileType::new(e, ty.shape.clone()));
        self.nest(&ty.shape, &[v], None, &mut |cx, at| {
            let x = cx.eval(v, at);
            cx.write(&buf, at, cast(b, x, ty.elem, e));
            Ok(())
        })?;
        Ok(buf)
    }

    fn dot_plain(&mut self, a: &Buf<'c>, c: &Buf<'c>, out: &Buf<'c>) {
        let (b, k) = (self.b, a.ty.shape[1]);
        let shape = out.ty.shape.clone();
        let lanes = self.target.lanes;
        let float = out.ty.elem.is_float();
        let done = self.loops(&shape, (shape[1] > 1).then_some(1), lanes, &mut At::origin(2), 0, &mut |cx, at| {
            let first = cx.read(out, at);
            let sum = b.for_(b.c64(0), b.c64(k as i64), b.c64(1), &[first], |i, acc| {
                let i = Coord { var: Some((i, b.top())), plus: 0 };
                let x = cx.read(a, &At { coords: vec![at.coords[0], i], lane: None });
                let x = b.splat(x, at.lanes());
                let y = cx.read(c, &at.with(0, i));
                vec![if float { b.fma(x, y, acc[0]) } else { b.add(acc[0], b.mul(x, y)) }]
            });
            cx.write(out, at, sum[0]);
            Ok(())
        });
        debug_assert!(done.is_ok(), "the loops' body never fails");
    }
}
