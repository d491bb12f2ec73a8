//! tegula-lang
