//! What a kernel author needs: `use tegula::prelude::*`.

pub use crate::dim::{C, Dim, Half, One, Prod, Sum};
pub use crate::dot::{DotInto, Precision, dot, dot_grouped, dot_with_precision};
pub use crate::elem::{AtomicNum, Bitwise, Elem, Float, Int, Num};
pub use crate::float8::{f8e4m3, f8e5m2};
pub use crate::flow::{Carry, range};
pub use crate::launch::{Arg, Executor, LaunchError};
pub use crate::packed::{AnyQuant, Format, Packed, QTile};
pub use crate::program::{assume, cdiv, device_assert, grouped, max, min, num_programs, print, program_id};
pub use crate::random::{philox, philox_words, rand, rand_int};
pub use crate::shape::{Fit, FitsWith, Order3, Order4, Shape};
pub use crate::tile::{
    Operand, Pair, Scalar, Tile, constant, full, highest, iota, iota_of, lowest, scalar, select, zeros,
};
pub use crate::view::{AnyView, MemOrder, View, ViewMut};
pub use half::{bf16, f16};
pub use tegula_macros::{Carry, func, kernel};
