//! OpenBLAS, if it is on this machine: Debian's, numpy's, or the library that TEGULA_OPENBLAS names.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::process::Command;

use libloading::Library;

/// A loaded OpenBLAS.
pub struct Blas {
    library: Library,
    /// What its symbols end with after `cblas_sgemm`, and what they begin with.
    affixes: (&'static str, &'static str),
    /// Version, options and the kernels that it chose.
    pub config: String,
}

/// (prefix, suffix) of symbols; those of 64-bit integers end in `64_`.
const AFFIXES: [(&str, &str); 4] = [("", ""), ("scipy_", "64_"), ("scipy_", ""), ("", "64_")];

impl Blas {
    /// Every OpenBLAS that is found, each set to one thread.
    pub fn find() -> Vec<Blas> {
        let named = std::env::var_os("TEGULA_OPENBLAS").map(PathBuf::from);
        let found = named.map_or_else(|| [vec!["libopenblas.so.0".into()], of_numpy()].concat(), |path| vec![path]);
        found.into_iter().filter_map(|path| Blas::load(path.to_str()?)).collect()
    }

    fn load(path: &str) -> Option<Blas> {
        // SAFETY: a shared library of the system, whose initialiser only starts threads.
        let library = unsafe { Library::new(path) }.ok()?;
        for affixes in AFFIXES {
            let symbol = |name: &str| format!("{}{name}{}", affixes.0, affixes.1);
            // SAFETY: the types are those of OpenBLAS's header.
            unsafe {
                let Ok(config) = library.get::<extern "C" fn() -> *const c_char>(symbol("openblas_get_config")) else {
                    continue;
                };
                let config = CStr::from_ptr(config()).to_string_lossy().into_owned();
                let threads = library.get::<extern "C" fn(i32)>(symbol("openblas_set_num_threads")).ok()?;
                threads(1);
                return Some(Blas { library, affixes, config });
            }
        }
        None
    }

    /// C = A·B of n × n matrices by rows.
    pub fn sgemm(&self, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) -> Result<(), libloading::Error> {
        assert!([a.len(), b.len(), c.len()] == [n * n; 3]);
        type Sgemm<I> =
            unsafe extern "C" fn(i32, i32, i32, I, I, I, f32, *const f32, I, *const f32, I, f32, *mut f32, I);
        const ROWS: i32 = 101;
        const PLAIN: i32 = 111;
        let symbol = format!("{}cblas_sgemm{}", self.affixes.0, self.affixes.1);
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: the type of cblas_sgemm with integers of the size that the suffix says; the sizes are checked above.
        unsafe {
            if self.affixes.1 == "64_" {
                let n = n as i64;
                self.library.get::<Sgemm<i64>>(&symbol)?(ROWS, PLAIN, PLAIN, n, n, n, 1.0, a, n, b, n, 0.0, c, n);
            } else {
                let n = n as i32;
                self.library.get::<Sgemm<i32>>(&symbol)?(ROWS, PLAIN, PLAIN, n, n, n, 1.0, a, n, b, n, 0.0, c, n);
            }
        }
        Ok(())
    }
}

/// The libraries inside numpy's wheel.
fn of_numpy() -> Vec<PathBuf> {
    let script = "import glob, numpy, os\n\
                  print(*glob.glob(os.path.join(os.path.dirname(numpy.__file__), '..', 'numpy.libs', '*openblas*')), sep='\\n')";
    let output = Command::new("python3").args(["-c", script]).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect()
}
