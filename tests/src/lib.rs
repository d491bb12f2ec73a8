//! tegula-tests
