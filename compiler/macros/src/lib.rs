//! tegula-macros
