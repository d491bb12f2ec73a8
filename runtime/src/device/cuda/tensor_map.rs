//! Tensor maps: how a GPU's copy engine finds tiles of an array.

use super::{
    CudaError,
    driver::{self, call},
};
use cudarc::driver::sys::{
    self, CUtensorMapDataType as Type, CUtensorMapFloatOOBfill as Outside, CUtensorMapInterleave as Interleave,
    CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Order,
};
use tegula_ptx::tensor_map::{Element, Fill, Swizzle, TensorMap};

/// A map as kernels take it: a parameter `.align 64 .b8 name[128]`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct EncodedMap(pub [u8; 128]);

impl EncodedMap {
    /// The driver's encoding of a map, whose address is one of a GPU.
    ///
    /// # Errors
    /// The map breaks a rule, or the driver refuses it.
    pub fn new(map: &TensorMap) -> Result<EncodedMap, CudaError> {
        driver::load()?;
        // The same rules as the driver's, with reasons.
        map.encode().map_err(|e| CudaError::Usage(e.to_string()))?;
        let element = match map.element {
            Element::U8 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            Element::U16 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            Element::U32 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            Element::S32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
            Element::U64 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
            Element::S64 => Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
            Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Element::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            Element::F64 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            Element::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Element::F32Ftz => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
            Element::Tf32 => Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            Element::Tf32Ftz => Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        };
        let order = match map.swizzle {
            Swizzle::None => Order::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => Order::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => Order::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => Order::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let outside = match map.fill {
            Fill::Zero => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            Fill::Nan => Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
        };
        let mut encoded = EncodedMap([0; 128]);
        // SAFETY: 128 bytes at a multiple of 64; the lists are as long as the rank asks (one stride less), which was
        // checked.
        unsafe {
            call!(cuTensorMapEncodeTiled(
                (&raw mut encoded).cast::<sys::CUtensorMap>(),
                element,
                map.extents.len() as u32,
                std::ptr::with_exposed_provenance_mut(map.address as usize),
                map.extents.as_ptr(),
                map.strides.as_ptr(),
                map.tile.as_ptr(),
                map.steps.as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                order,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                outside
            ))?;
        }
        Ok(encoded)
    }
}
