//! Where arguments lie.

use super::Device;
use crate::memory::{Buffer, devices_have_memory};
use std::sync::Arc;
use tegula_lang::launch::ArgData;

/// The buffer of an argument that is a tensor's.
pub(super) fn buffer<'a>(arg: &ArgData<'a>) -> Option<&'a Arc<Buffer>> {
    let owner = match arg {
        ArgData::View(v) => v.owner,
        ArgData::Packed(p) => p.owner,
        ArgData::Scalar { .. } => None,
    };
    owner?.downcast_ref()
}

/// For a device whose kernels work in the host's memory: the first argument that lies elsewhere, with what was expected
/// and what was found.
pub(super) fn not_on_the_host(device: &Device, args: &[ArgData<'_>]) -> Option<(usize, String, String)> {
    if device.inner.own_memory || !devices_have_memory() {
        return None;
    }
    let remote = |arg: &ArgData<'_>| Some(buffer(arg)?.remote()?.memory().place());
    let (i, place) = args.iter().enumerate().find_map(|(i, arg)| Some((i, remote(arg)?)))?;
    let expected = format!("a tensor in the host's memory, where {} works", device.name());
    Some((i, expected, format!("one in the memory of {place} (copy it with `Tensor::to`)")))
}
