//! The instructions, by family. Each family's file holds its rows of the table of forms and their meaning.

use crate::decode::form::Form;

pub mod async_copy;
pub mod atomic;
pub mod barrier;
pub mod bits;
pub mod bulk;
pub mod call;
pub mod cluster;
pub mod compare;
pub mod control;
pub mod convert;
mod convert_micro;
pub mod data;
pub mod float;
pub mod groups;
pub mod half;
pub mod integer;
pub mod matrix_memory;
pub mod matrix_operand;
pub mod mbarrier;
pub mod memory;
pub mod packed;
pub mod remote;
pub mod special;
pub mod tensor;
pub mod tensor_copy;
pub mod warp;
pub mod wgmma;

/// Every family's rows: the table of instructions.
const FAMILIES: &[&[Form]] = &[
    async_copy::FORMS,
    atomic::FORMS,
    barrier::FORMS,
    bits::FORMS,
    bulk::FORMS,
    call::FORMS,
    cluster::FORMS,
    compare::FORMS,
    control::FORMS,
    convert::FORMS,
    data::FORMS,
    float::FORMS,
    groups::FORMS,
    half::FORMS,
    integer::FORMS,
    matrix_memory::FORMS,
    mbarrier::FORMS,
    memory::FORMS,
    packed::FORMS,
    remote::FORMS,
    special::FORMS,
    tensor::FORMS,
    tensor_copy::FORMS,
    warp::FORMS,
    wgmma::FORMS,
];

/// All rows.
pub fn forms() -> impl Iterator<Item = &'static Form> {
    FAMILIES.iter().copied().flatten()
}
