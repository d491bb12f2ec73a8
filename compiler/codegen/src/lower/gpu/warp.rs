//! Exchanges within a warp.

use super::{super::build::V, cx::Cx};
use melior::ir::Type;

/// How lanes are paired.
#[derive(Clone, Copy, Debug)]
pub enum Exchange<'c> {
    /// With the lane whose number differs by this mask.
    Xor(u64),
    /// Each lane reads the lane of this number (i32).
    From(V<'c>),
}

impl<'a, 'c> Cx<'a, 'c> {
    /// What another lane has in `x`, of any register type.
    pub fn shuffle(&self, x: V<'c>, how: Exchange<'c>) -> V<'c> {
        let b = self.b;
        let words = self.words(x);
        let moved: Vec<V> = words
            .into_iter()
            .map(|w| {
                let (name, lane) = match how {
                    Exchange::Xor(mask) => ("bfly", b.c32(mask as i32)),
                    Exchange::From(lane) => ("idx", lane),
                };
                let name = format!("llvm.nvvm.shfl.sync.{name}.i32");
                b.intrinsic(&name, &[b.c32(-1), w, lane, b.c32(31)], b.i32())
            })
            .collect();
        self.joined(&moved, b.elem(x))
    }

    /// A register as 32-bit words.
    fn words(&self, x: V<'c>) -> Vec<V<'c>> {
        let b = self.b;
        let bits = b.bits(x);
        let raw = b.bitcast(x, b.int(bits));
        match bits {
            64 => vec![b.trunci(raw, b.i32()), b.trunci(b.shru_c(raw, 32), b.i32())],
            _ => vec![b.zext(raw, b.i32())],
        }
    }
    /// Such words as a register of a type.
    fn joined(&self, w: &[V<'c>], ty: Type<'c>) -> V<'c> {
        let b = self.b;
        let raw = match w {
            [low, high] => b.or(b.zext(*low, b.i64()), b.shl_c(b.zext(*high, b.i64()), 32)),
            _ => w[0],
        };
        let bits = b.bits(b.constant_bits(ty, 0, 0));
        b.bitcast(b.trunci(raw, b.int(bits)), ty)
    }

    /// Whether bit `bit` of the thread's number is set: i1.
    pub fn thread_bit(&self, bit: usize) -> V<'c> {
        let b = self.b;
        let masked = b.and_c(self.tid, 1 << bit);
        b.cmp(super::super::build::Cmp::Ne, masked, b.c32(0))
    }
    /// The lane's number in its warp.
    pub fn lane(&self) -> V<'c> {
        self.b.and_c(self.tid, 31)
    }
}
