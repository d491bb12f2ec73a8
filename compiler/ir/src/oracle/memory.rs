//! Ops on views: every access is bounds-checked here and, with the sanitizer, recorded in the [`Shadow`].

use super::{
    args::ViewArg,
    elementwise,
    error::{Access, Fault, Trap},
    shadow::Shadow,
    shape::for_each_index,
    value::Tile,
};
use crate::{
    attr::{AtomicKind, MemOrder},
    elem::Elem,
    ops::OpKind,
    types::TileType,
};

/// A view argument that [`args::check`](super::args::check) accepted, or a part of one.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub name: String,
    pub elem: Elem,
    pub extents: Vec<i64>,
    strides: Vec<i64>,
    start: *mut u8,
}

/// How to treat an index outside, and what watches.
pub(super) struct Memory {
    pub checked: bool,
    pub shadow: Option<Shadow>,
}

/// Index tiles of a gather, scatter or atomic, and the lanes that take part.
pub(super) struct Lanes<'t> {
    pub indices: &'t [&'t Tile],
    pub mask: Option<&'t Tile>,
}

impl View {
    pub fn new(name: &str, arg: &ViewArg<'_>) -> View {
        let (extents, strides) = (arg.extents.clone(), arg.strides.clone());
        View { name: name.into(), elem: arg.elem, extents, strides, start: arg.start }
    }
    /// The elements `start..start + len` along `axis`, as far as there are such.
    pub fn narrow(&self, axis: usize, start: i64, len: i64) -> View {
        let (start, mut part) = (start.clamp(0, self.extents[axis]), self.clone());
        let len = len.clamp(0, self.extents[axis] - start);
        part.extents[axis] = len;
        part.name = format!("{}, elements {start}..{} along axis {axis}", self.name, start + len);
        part.start = self.start.wrapping_offset((start * self.strides[axis]) as isize * self.elem.bytes() as isize);
        part
    }
    /// Address of the element at `index`, if it lies inside.
    fn address(&self, index: &[i64]) -> Option<*mut u8> {
        let mut offset = 0;
        for ((&i, &n), &stride) in index.iter().zip(&self.extents).zip(&self.strides) {
            if !(0..n).contains(&i) {
                return None;
            }
            offset += i * stride;
        }
        Some(self.start.wrapping_offset(offset as isize * self.elem.bytes() as isize))
    }
}

impl Memory {
    fn touch(&mut self, view: &View, at: *mut u8, index: &[i64], access: Access) -> Result<(), Trap> {
        match &mut self.shadow {
            Some(s) => s.touch(at as usize, view.elem.bytes(), access).map_err(|e| e.of(&view.name).at(index.to_vec())),
            None => Ok(()),
        }
    }
    /// The element's pattern; any non-zero byte is `true`.
    fn read(&mut self, view: &View, at: *mut u8, index: &[i64]) -> Result<u64, Trap> {
        self.touch(view, at, index, Access::Read)?;
        Ok(peek(view.elem, at))
    }
    fn write(&mut self, view: &View, at: *mut u8, index: &[i64], bits: u64) -> Result<(), Trap> {
        self.touch(view, at, index, Access::Write)?;
        poke(view.elem, at, bits);
        Ok(())
    }

    pub fn load(&mut self, view: &View, position: &[i64], pad: u64, result: &TileType) -> Result<Tile, Trap> {
        let mut t = Tile::splat(result, pad);
        let mut index = vec![0; position.len()];
        for_each_index(&result.shape, |lane, at| -> Result<(), Trap> {
            if moved(position, at, &mut index)
                && let Some(address) = view.address(&index)
            {
                t.bits[lane] = self.read(view, address, &index)?;
            }
            Ok(())
        })?;
        Ok(t)
    }

    pub fn store(&mut self, view: &View, position: &[i64], t: &Tile) -> Result<(), Trap> {
        let mut index = vec![0; position.len()];
        for_each_index(&t.shape, |lane, at| {
            if moved(position, at, &mut index)
                && let Some(address) = view.address(&index)
            {
                self.write(view, address, &index, t.bits[lane])?;
            }
            Ok(())
        })
    }

    /// Calls `f(lane, address, index)` for the lanes that take part and lie inside the view.
    fn each_lane(
        &mut self,
        view: &View,
        lanes: &Lanes<'_>,
        count: usize,
        mut f: impl FnMut(&mut Memory, usize, *mut u8, &[i64]) -> Result<(), Trap>,
    ) -> Result<(), Trap> {
        let mut index = vec![0; lanes.indices.len()];
        for lane in 0..count {
            if lanes.mask.is_some_and(|m| m.bits[lane] == 0) {
                continue;
            }
            index.iter_mut().zip(lanes.indices).for_each(|(i, t)| *i = t.bits[lane] as i64);
            match view.address(&index) {
                Some(address) => f(self, lane, address, &index)?,
                None if self.checked => {
                    return Err(Fault::OutOfRange { name: view.name.clone(), extents: view.extents.clone() }.at(index));
                }
                None => {}
            }
        }
        Ok(())
    }

    pub fn gather(&mut self, view: &View, lanes: &Lanes<'_>, pad: u64, result: &TileType) -> Result<Tile, Trap> {
        let mut t = Tile::splat(result, pad);
        self.each_lane(view, lanes, result.len(), |m, lane, address, index| {
            t.bits[lane] = m.read(view, address, index)?;
            Ok(())
        })?;
        // Lanes that are masked off read nothing: they are `pad` too.
        Ok(t)
    }

    pub fn scatter(&mut self, view: &View, lanes: &Lanes<'_>, values: &Tile) -> Result<(), Trap> {
        self.each_lane(view, lanes, values.bits.len(), |m, lane, address, index| {
            m.write(view, address, index, values.bits[lane])
        })
    }

    /// Replaces each element by `f(lane, old)`, where that is something; gives the old values. What is not replaced was
    /// only read: it releases nothing.
    fn update(
        &mut self,
        view: &View,
        lanes: &Lanes<'_>,
        order: MemOrder,
        result: &TileType,
        f: impl Fn(usize, u64) -> Option<u64>,
    ) -> Result<Tile, Trap> {
        let mut olds = Tile::splat(result, 0);
        self.each_lane(view, lanes, result.len(), |m, lane, address, index| {
            m.touch(view, address, index, Access::Atomic)?;
            let old = peek(view.elem, address);
            olds.bits[lane] = old;
            let new = f(lane, old);
            if let Some(s) = &mut m.shadow {
                let order = match order {
                    MemOrder::AcqRel if new.is_none() => MemOrder::Acquire,
                    MemOrder::Release if new.is_none() => MemOrder::Relaxed,
                    order => order,
                };
                s.synchronise(address as usize, order);
            }
            if let Some(new) = new {
                poke(view.elem, address, new);
            }
            Ok(())
        })?;
        Ok(olds)
    }

    pub fn atomic(
        &mut self,
        view: &View,
        lanes: &Lanes<'_>,
        kind: AtomicKind,
        order: MemOrder,
        values: &Tile,
        result: &TileType,
    ) -> Result<Tile, Trap> {
        let op = match kind {
            AtomicKind::Add => OpKind::Add,
            AtomicKind::Max => OpKind::Max,
            AtomicKind::Min => OpKind::Min,
            AtomicKind::And => OpKind::And,
            AtomicKind::Or => OpKind::Or,
            AtomicKind::Xor => OpKind::Xor,
            AtomicKind::Xchg => return self.update(view, lanes, order, result, |lane, _| Some(values.bits[lane])),
        };
        let f = elementwise::binary(op, view.elem)?;
        self.update(view, lanes, order, result, |lane, old| Some(f(old, values.bits[lane])))
    }

    pub fn compare_and_swap(
        &mut self,
        view: &View,
        lanes: &Lanes<'_>,
        order: MemOrder,
        expected: &Tile,
        new: &Tile,
        result: &TileType,
    ) -> Result<Tile, Trap> {
        self.update(view, lanes, order, result, |lane, old| (old == expected.bits[lane]).then(|| new.bits[lane]))
    }
}

/// `index = position + at`; false if that leaves i64, which is outside of every view.
fn moved(position: &[i64], at: &[usize], index: &mut [i64]) -> bool {
    for d in 0..index.len() {
        match position[d].checked_add(at[d] as i64) {
            Some(i) => index[d] = i,
            None => return false,
        }
    }
    true
}

fn peek(elem: Elem, at: *mut u8) -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: `at` comes from `View::address`, so it is an element inside the argument's memory.
    unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), elem.bytes()) };
    let bits = u64::from_le_bytes(bytes);
    if elem == Elem::Bool { (bits != 0) as u64 } else { bits }
}

fn poke(elem: Elem, at: *mut u8, bits: u64) {
    // SAFETY: as in `peek`; the type rules allow writes to mutable views only, and those arguments are writable.
    unsafe { std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at, elem.bytes()) };
}
