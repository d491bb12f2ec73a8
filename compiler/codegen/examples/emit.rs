//! Compiles a kernel given as text: `cargo run -p tegula-codegen --example emit FILE TARGET tile|mlir|llvm|asm`.

use tegula_codegen::service::answer;
use tegula_ir::protocol::{Emit, Request, Response};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let emit = match args[3].as_str() {
        "tile" => Emit::Tile,
        "layouts" => Emit::Layouts,
        "mlir" => Emit::Mlir,
        "llvm" => Emit::Llvm,
        _ => Emit::Asm,
    };
    let kernel = std::fs::read_to_string(&args[1]).expect("reading the kernel");
    match answer(&Request { kernel, target: args[2].clone(), emit, checked: false }) {
        Response::Ok { bytes, meta } => println!("{}\n# {meta:?}", String::from_utf8_lossy(&bytes)),
        Response::Err { stage, message, loc } => eprintln!("{stage}: {message} at {loc:?}"),
    }
}
