//! Extents and strides.

use super::TensorError;
use std::ops::Range;
use tegula_lang::{Elem, launch::MAX_RANK};

/// Extents and strides (in elements) of up to [`MAX_RANK`] axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strided {
    rank: usize,
    extents: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl Strided {
    /// Elements one after the other, the last axis fastest. Fails when there are more than `isize::MAX`.
    pub fn row_major(shape: &[usize]) -> Result<Strided, TensorError> {
        if shape.len() > MAX_RANK {
            return Err(TensorError::Rank(shape.len()));
        }
        // An extent of 0 must not hide an overflow in the strides.
        let size = shape.iter().try_fold(1usize, |n, e| n.checked_mul((*e).max(1)));
        if size.is_none_or(|n| n > isize::MAX as usize) {
            return Err(TensorError::TooLarge(shape.to_vec()));
        }
        let (mut extents, mut strides) = ([1; MAX_RANK], [1; MAX_RANK]);
        extents[..shape.len()].copy_from_slice(shape);
        for i in (0..shape.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * extents[i + 1].max(1) as isize;
        }
        Ok(Strided { rank: shape.len(), extents, strides })
    }

    /// Row-major, of so many elements.
    pub fn of_len(shape: &[usize], found: usize) -> Result<Strided, TensorError> {
        let strided = Strided::row_major(shape)?;
        match strided.len() {
            n if n == found => Ok(strided),
            expected => Err(TensorError::Length { shape: shape.to_vec(), expected, found }),
        }
    }

    /// One axis of `n` elements.
    pub fn line(n: usize) -> Strided {
        let mut extents = [1; MAX_RANK];
        extents[0] = n;
        Strided { rank: 1, extents, strides: [1; MAX_RANK] }
    }

    pub fn rank(&self) -> usize {
        self.rank
    }
    pub fn extents(&self) -> &[usize] {
        &self.extents[..self.rank]
    }
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }
    pub fn len(&self) -> usize {
        self.extents().iter().product()
    }

    /// Bytes of as many elements of `T`.
    pub fn bytes<T: Elem>(&self) -> Result<usize, TensorError> {
        let bytes = self.len().checked_mul(size_of::<T>()).filter(|n| *n <= isize::MAX as usize);
        bytes.ok_or_else(|| TensorError::TooLarge(self.extents().to_vec()))
    }

    /// As arrays for a launch. An axis of one element is never stepped along: it gets the stride that asks for least.
    pub fn to_arg(self) -> ([i64; MAX_RANK], [i64; MAX_RANK]) {
        let mut strides = self.strides.map(|n| n as i64);
        for i in (0..self.rank).filter(|i| self.extents[*i] <= 1) {
            strides[i] = (i + 1 == self.rank) as i64;
        }
        (self.extents.map(|n| n as i64), strides)
    }

    /// The part `range` of an axis, and how many elements its start lies further.
    pub fn slice(mut self, axis: usize, range: Range<usize>) -> Result<(Strided, isize), TensorError> {
        if axis >= self.rank || range.start > range.end || range.end > self.extents[axis] {
            return Err(TensorError::Range { axis, range, shape: self.extents().to_vec() });
        }
        self.extents[axis] = range.len();
        // Nothing is moved for an empty part, whose start may lie past the end.
        Ok((self, if range.is_empty() { 0 } else { range.start as isize * self.strides[axis] }))
    }

    /// Without an axis of which one element is taken.
    pub fn index(self, axis: usize, at: usize) -> Result<(Strided, isize), TensorError> {
        let (sliced, offset) = self.slice(axis, at..at.saturating_add(1))?;
        let mut out = Strided { rank: self.rank - 1, extents: [1; MAX_RANK], strides: [1; MAX_RANK] };
        for (to, from) in (0..self.rank).filter(|i| *i != axis).enumerate() {
            (out.extents[to], out.strides[to]) = (sliced.extents[from], sliced.strides[from]);
        }
        Ok((out, offset))
    }

    /// The axes in another order.
    pub fn permute(self, axes: &[usize]) -> Result<Strided, TensorError> {
        let mut seen = [false; MAX_RANK];
        let valid =
            axes.len() == self.rank && axes.iter().all(|a| *a < self.rank && !std::mem::replace(&mut seen[*a], true));
        if !valid {
            return Err(TensorError::Axes { shape: self.extents().to_vec(), found: axes.to_vec() });
        }
        let mut out = self;
        for (to, from) in axes.iter().enumerate() {
            (out.extents[to], out.strides[to]) = (self.extents[*from], self.strides[*from]);
        }
        Ok(out)
    }

    /// The axes in reverse order.
    pub fn transposed(self) -> Strided {
        let mut out = self;
        out.extents[..self.rank].reverse();
        out.strides[..self.rank].reverse();
        out
    }

    /// All indices in row-major order.
    pub fn indices(self) -> impl Iterator<Item = [usize; MAX_RANK]> {
        (0..self.len()).map(move |mut i| {
            let mut index = [0; MAX_RANK];
            for axis in (0..self.rank).rev() {
                index[axis] = i % self.extents[axis];
                i /= self.extents[axis];
            }
            index
        })
    }

    /// How many elements from the start an index lies.
    pub fn offset(&self, index: &[usize; MAX_RANK]) -> isize {
        (0..self.rank).map(|i| index[i] as isize * self.strides[i]).sum()
    }

    /// How many elements from the start the first and the last of them lie; nothing without elements.
    pub fn reach(&self) -> Option<(isize, isize)> {
        let ends = self.extents().iter().zip(self.strides()).map(|(n, s)| (*n as isize - 1) * s);
        (self.len() > 0).then(|| ends.fold((0, 0), |(low, high), end| (low + end.min(0), high + end.max(0))))
    }

    /// So many elements, in row-major order, lie one after the other.
    pub fn run(&self) -> usize {
        match (self.extents().last(), self.strides().last()) {
            (Some(n), Some(1)) => (*n).max(1),
            _ => 1,
        }
    }

    /// Whether the elements lie one after the other in row-major order.
    pub fn is_row_major(&self) -> bool {
        let mut expected = 1;
        for i in (0..self.rank).rev() {
            if self.extents[i] > 1 && self.strides[i] != expected {
                return false;
            }
            expected *= self.extents[i] as isize;
        }
        true
    }
}
