//! tegula-kernels
