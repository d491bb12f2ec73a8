//! tegula
