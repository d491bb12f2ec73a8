//! Soon.
use crate::decode::form::Form;
/// Rows.
pub const FORMS: &[Form] = &[];
