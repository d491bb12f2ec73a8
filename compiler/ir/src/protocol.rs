//! What the runtime and `tegulac`, the compiler program, say to each other over a pair of pipes.
//!
//! Each message is a frame: the magic `TGLC`, [`VERSION`], the payload's length (both u32, little-endian), and the
//! payload, postcard's encoding of a [`Request`] or a [`Response`]. The compiler answers requests one by one, in order,
//! until its input ends. Its standard output carries frames only; what it or LLVM prints goes to standard error.

use crate::loc::Loc;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// Version of the messages and of [`crate::abi`]. Both sides must have the same.
pub const VERSION: u32 = 3;

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"TGLC";

/// Longest payload in bytes that is read: guards against garbage taken for a length.
pub const MAX_LEN: u32 = 1 << 30;

/// A kernel to compile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The kernel's IR as text, with locations.
    pub kernel: String,
    /// For what: `cpu:` and a microarchitecture level, with extensions (`cpu:x86-64-v3`, `cpu:x86-64-v4`,
    /// `cpu:x86-64-v4+vnni`), or a GPU architecture (`sm_80`, `sm_90a`).
    pub target: String,
    /// What is wanted.
    pub emit: Emit,
    /// Compile in the checks of indices and assertions.
    pub checked: bool,
}

/// The form in which a kernel is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Emit {
    /// What runs: for CPUs a shared object, for GPUs PTX.
    Artifact,
    /// Tile IR after the passes, as text.
    Tile,
    /// The same with layouts assigned, for GPUs.
    Layouts,
    /// MLIR as the lowering makes it, as text.
    Mlir,
    /// Optimised LLVM IR, as text.
    Llvm,
    /// Assembly, as text: for GPUs PTX.
    Asm,
    /// GPU machine code, an ELF file that the driver loads as it is. Needs NVIDIA's assembler, ptxas.
    Cubin,
    /// The same, disassembled, as text. Needs ptxas and nvdisasm.
    Sass,
}

/// How the message of a [`Response::Err`] begins when one of NVIDIA's tools is not there (stages `ptxas`, `nvdisasm`).
pub const NO_TOOL: &str = "NVIDIA's tools are not installed";

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Success.
    Ok {
        /// The artifact, or text in UTF-8.
        bytes: Vec<u8>,
        /// What goes with it.
        meta: Meta,
    },
    /// The kernel could not be compiled.
    Err {
        /// Where it failed: `parse`, `verify`, `passes`, `layouts`, `lower`, `mlir`, `llvm`, `link`, `ptxas`, `nvdisasm`.
        stage: String,
        /// What was wrong.
        message: String,
        /// The user's line, when one op is to blame.
        loc: Option<Loc>,
    },
}

/// What the runtime must know about an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Scratch memory that each thread must give to the kernel, in bytes.
    pub scratch_bytes: u64,
    /// For GPUs: dynamic shared memory that a launch must give each program, in bytes.
    pub shared_bytes: u64,
    /// For GPUs: warps that run a program; its block has 32 times as many threads.
    pub warps: u32,
    /// For GPUs, once ptxas has assembled the kernel ([`Emit::Cubin`], [`Emit::Sass`]): registers of a thread; else 0.
    pub registers: u32,
    /// With `registers`: bytes of registers that a thread stores to local memory, because it has not enough of them.
    pub spill_bytes: u32,
    /// With `registers`: local memory of a thread in bytes, for spilled registers and for arrays.
    pub stack_bytes: u32,
    /// What the site numbers in reports mean.
    pub sites: Vec<Site>,
    /// Remarks for the author: what was not vectorised, which fallback was taken.
    pub remarks: Vec<String>,
}

/// A place in the kernel that may report something at run time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// What a report from here means.
    pub kind: SiteKind,
    /// The assertion's or the print's text; for an index, what was indexed (view and axis).
    pub message: String,
    /// The user's line.
    pub loc: Loc,
}

/// What a report from a [`Site`] means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    /// An assertion failed.
    Assert,
    /// An index lay outside its view; the report's value is the index.
    Index,
    /// One element of a printed tile: one report for each element in row-major order, whose value holds its bits. A print
    /// of several operands has a site for each, one after the other, the first with the message and the others without;
    /// one of no operands has a site without element type that reports once.
    Print {
        /// Name of the element type; empty without operands.
        elem: String,
        /// Extents of the tile.
        shape: Vec<usize>,
    },
    /// An integer division by zero or MIN/−1 in a checked kernel.
    Division,
}

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The pipe failed or ended inside a frame.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a frame.
    #[error("expected a frame starting with \"TGLC\", found bytes {0:02x?}")]
    Magic([u8; 4]),
    /// The other side speaks another version.
    #[error("expected protocol version {VERSION}, found {0}: the program and tegulac come from different builds")]
    Version(u32),
    /// An absurd length.
    #[error("a frame of {0} bytes is longer than the limit of {MAX_LEN}")]
    TooLong(u64),
    /// The payload is not the message that was expected.
    #[error("malformed message: {0}")]
    Payload(#[from] postcard::Error),
}

/// Writes one message and flushes.
pub fn write_frame<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), ProtocolError> {
    let payload = postcard::to_stdvec(message)?;
    let len = u32::try_from(payload.len()).ok().filter(|n| *n <= MAX_LEN);
    let len = len.ok_or(ProtocolError::TooLong(payload.len() as u64))?;
    let mut head = [0; 12];
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&VERSION.to_le_bytes());
    head[8..].copy_from_slice(&len.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(&payload)?;
    Ok(to.flush()?)
}

/// Reads one message; `None` when the input ends before a frame begins.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, ProtocolError> {
    let mut head = [0; 12];
    let mut got = 0;
    while got < head.len() {
        match from.read(&mut head[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
        // Refuse garbage as soon as it shows: the other side may be waiting after having said less than a header.
        if let Some(magic) = head.first_chunk::<4>().filter(|m| got >= 4 && **m != MAGIC) {
            return Err(ProtocolError::Magic(*magic));
        }
    }
    let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    if word(4) != VERSION {
        return Err(ProtocolError::Version(word(4)));
    }
    let len = word(8);
    if len > MAX_LEN {
        return Err(ProtocolError::TooLong(len.into()));
    }
    // Memory grows with what arrives, not with what the header promises.
    let mut payload = Vec::new();
    from.take(len.into()).read_to_end(&mut payload)?;
    if payload.len() != len as usize {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(postcard::from_bytes(&payload)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response() -> Response {
        let site = Site {
            kind: SiteKind::Print { elem: "f32".into(), shape: vec![2, 4] },
            message: "x =".into(),
            loc: Loc::new("a.rs", 3, 9),
        };
        let meta = Meta {
            scratch_bytes: 4096,
            shared_bytes: 512,
            warps: 4,
            registers: 40,
            spill_bytes: 8,
            stack_bytes: 16,
            sites: vec![site],
            remarks: vec!["scalar loop".into()],
        };
        Response::Ok { bytes: vec![1, 2, 3], meta }
    }

    fn framed<T: Serialize>(m: &T) -> Vec<u8> {
        let mut out = vec![];
        write_frame(&mut out, m).unwrap();
        out
    }

    #[test]
    fn messages_come_back() {
        let request = Request {
            kernel: "kernel @k() {\n}\n".into(),
            target: "cpu:x86-64-v3".into(),
            emit: Emit::Asm,
            checked: true,
        };
        let error = Response::Err { stage: "lower".into(), message: "no".into(), loc: Some(Loc::unknown()) };
        let stream = [framed(&request), framed(&response()), framed(&error)].concat();
        let mut from = &stream[..];
        assert_eq!(read_frame::<Request>(&mut from).unwrap(), Some(request));
        assert_eq!(read_frame::<Response>(&mut from).unwrap(), Some(response()));
        assert_eq!(read_frame::<Response>(&mut from).unwrap(), Some(error));
        assert_eq!(read_frame::<Response>(&mut from).unwrap(), None);
    }

    #[test]
    fn a_cut_frame_is_an_error_wherever_it_is_cut() {
        let whole = framed(&response());
        for n in 1..whole.len() {
            assert!(read_frame::<Response>(&mut &whole[..n]).is_err(), "cut after {n} bytes");
        }
    }

    #[test]
    fn wrong_magic_version_and_length_are_named() {
        assert!(matches!(read_frame::<Response>(&mut &b"Segm"[..]), Err(ProtocolError::Magic(_))));
        let mut bytes = framed(&response());
        bytes[4] = 99;
        assert!(matches!(read_frame::<Response>(&mut &bytes[..]), Err(ProtocolError::Version(99))));
        bytes[4] = VERSION as u8;
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read_frame::<Response>(&mut &bytes[..]), Err(ProtocolError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), valid in any::<bool>()) {
            if valid && bytes.len() >= 12 {
                let len = bytes.len() as u32 - 12;
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
                bytes[8..12].copy_from_slice(&len.to_le_bytes());
            }
            let _ = read_frame::<Response>(&mut &bytes[..]);
            let _ = read_frame::<Request>(&mut &bytes[..]);
        }
    }
}
