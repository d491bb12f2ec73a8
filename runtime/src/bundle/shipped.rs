//! Which bundle a device uses.

use super::{Bundle, BundleError};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// Which bundle a device uses.
#[derive(Clone, Debug, Default)]
pub enum Shipped {
    /// The program's own, if it has one: [`Bundle::of_program`].
    #[default]
    OfProgram,
    /// This one.
    Bundle(Bundle),
    /// None.
    None,
}

impl From<Bundle> for Shipped {
    fn from(bundle: Bundle) -> Shipped {
        Shipped::Bundle(bundle)
    }
}

impl Shipped {
    /// The bundle itself.
    ///
    /// # Errors
    /// The program's own cannot be used.
    pub fn bundle(self) -> Result<Option<Bundle>, BundleError> {
        match self {
            Shipped::OfProgram => Bundle::of_program(),
            Shipped::Bundle(bundle) => Ok(Some(bundle)),
            Shipped::None => Ok(None),
        }
    }
}

impl Bundle {
    /// The bundle of this program, opened once: the file that `TEGULA_BUNDLE` names (`off` for none), or `PROGRAM.bundle`
    /// beside the program, if there is one.
    ///
    /// # Errors
    /// The file that `TEGULA_BUNDLE` names is not there; what is there cannot be used.
    pub fn of_program() -> Result<Option<Bundle>, BundleError> {
        static OF_PROGRAM: OnceLock<Result<Option<Bundle>, BundleError>> = OnceLock::new();
        let open = || {
            let path = match env::var_os("TEGULA_BUNDLE").filter(|v| !v.is_empty()) {
                Some(v) if v == "off" => None,
                Some(path) => Some(PathBuf::from(path)),
                None => program().map(|p| beside(&p)).filter(|p| p.is_file()),
            };
            path.map(Bundle::open).transpose()
        };
        OF_PROGRAM.get_or_init(open).clone()
    }
}

/// The running program's file. Systems without /proc know it only as it was called.
fn program() -> Option<PathBuf> {
    let called = || env::args_os().next().map(PathBuf::from).filter(|p| p.components().count() > 1);
    env::current_exe().ok().or_else(called)
}

/// Where the bundle of a program is.
fn beside(program: &Path) -> PathBuf {
    let mut name = program.file_name().map(OsString::from).unwrap_or_default();
    if let Some(stem) = name.to_str().and_then(|n| n.strip_suffix(env::consts::EXE_SUFFIX)) {
        name = stem.into();
    }
    name.push(".bundle");
    program.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_bundle_lies_beside_it() {
        assert_eq!(beside(Path::new("/opt/my.app")), Path::new("/opt/my.app.bundle"));
        assert_eq!(beside(Path::new("./tegula")), Path::new("./tegula.bundle"));
    }
}
