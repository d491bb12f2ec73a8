//! `tegula-ptx check FILE...` says whether the emulator knows everything that PTX files hold; `tegula-ptx bench` times
//! warp instructions; `tegula-ptx coverage` lists the supported instructions; `tegula-ptx cases FOLDER` writes the instruction tests as PTX files.

use std::{process::ExitCode, time::Instant};
use tegula_ptx::{Emulator, Grid, Module, Options, Param, exec::lanes::Tier};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("check") if args.len() > 1 => {
            let mut good = true;
            for file in &args[1..] {
                good &= check(file);
            }
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some("bench") => bench(),
        Some("coverage") => {
            print!("{}", tegula_ptx::coverage::table());
            ExitCode::SUCCESS
        }
        Some("cases") if args.len() == 2 => write_cases(&args[1]),
        _ => {
            eprintln!(
                "usage: tegula-ptx check FILE...\n       tegula-ptx bench\n       tegula-ptx coverage\n       tegula-ptx cases FOLDER"
            );
            ExitCode::FAILURE
        }
    }
}

/// Writes the instruction cases as PTX files, for ptxas to look at.
fn write_cases(folder: &str) -> ExitCode {
    for (i, case) in tegula_ptx::cases::all().iter().enumerate() {
        let target = case.need.target();
        let path = format!("{folder}/{i:03}.{target}.ptx");
        if let Err(error) = std::fs::write(&path, format!("// {}\n{}", case.name, case.text(&target))) {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Parses a file, lists unknown instructions and decodes every kernel.
fn check(file: &str) -> bool {
    let module = std::fs::read_to_string(file).map_err(|e| e.to_string()).and_then(|text| {
        let target = text.split("sm_").nth(1).unwrap_or("80");
        let end = target.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(target.len());
        Module::parse(&text, &format!("sm_{}", &target[..end])).map_err(|e| e.to_string())
    });
    let module = match module {
        Ok(module) => module,
        Err(error) => {
            println!("{file}: {error}");
            return false;
        }
    };
    let unknown = module.unknown();
    for error in &unknown {
        println!("{file}: {error}");
    }
    if !unknown.is_empty() {
        return false;
    }
    let mut good = true;
    for entry in module.entries() {
        match module.program(entry, Tier::best()) {
            Ok(p) => println!(
                "{file}: {entry}: {} instructions, {} register rows, {} bytes of static shared memory",
                p.code.len(),
                p.rows,
                p.static_shared
            ),
            Err(error) => {
                println!("{file}: {entry}: {error}");
                good = false;
            }
        }
    }
    good
}

/// Instructions timed: a name and the text, where `%r1`..`%r4`, `%f1`.. are initialised and `%rs` is a shared address.
const TIMED: &[(&str, &str)] = &[
    ("add.s32", "add.s32 %r5, %r1, %r2;"),
    ("mul.lo.s32", "mul.lo.s32 %r5, %r1, %r2;"),
    ("xor.b32", "xor.b32 %r5, %r1, %r2;"),
    ("shl.b32", "shl.b32 %r5, %r1, 3;"),
    ("mad.lo.s32", "mad.lo.s32 %r5, %r1, %r2, %r3;"),
    ("add.s64", "add.s64 %rd5, %rd1, %rd2;"),
    ("mov.b32", "mov.b32 %r5, %r1;"),
    ("fma.rn.f32", "fma.rn.f32 %f5, %f1, %f2, %f3;"),
    ("mul.f32", "mul.f32 %f5, %f1, %f2;"),
    ("max.f32", "max.f32 %f5, %f1, %f2;"),
    ("ex2.approx.ftz.f32", "ex2.approx.ftz.f32 %f5, %f1;"),
    ("cvt.rn.bf16x2.f32", "cvt.rn.bf16x2.f32 %r5, %f1, %f2;"),
    ("setp.lt.s32", "setp.lt.s32 %p2, %r1, %r2;"),
    ("selp.b32", "selp.b32 %r5, %r1, %r2, %p1;"),
    ("shfl.sync.bfly", "shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;"),
    ("ld.shared.b32", "ld.shared.b32 %r5, [%r4];"),
    ("st.shared.b32", "st.shared.b32 [%r4], %r1;"),
    ("ld.shared.v4.b32", "ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r9];"),
    ("ldmatrix.x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r9];"),
    (
        "mma.m16n8k16.bf16",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, {%r1, %r2, %r3, %r1}, {%r1, %r2}, {%f1, %f2, %f3, %f1};",
    ),
    (
        "mma.m16n8k32.s8",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r1}, {%r1, %r2}, {%r1, %r2, %r3, %r1};",
    ),
    (
        "mma.m16n8k32.e4m3",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f4, %f5, %f6, %f7}, {%r1, %r2, %r3, %r1}, {%r1, %r2}, {%f1, %f2, %f3, %f1};",
    ),
    ("wgmma.m64n128k16", WGMMA),
    ("ld.global.b32", "ld.global.b32 %r5, [%rd3];"),
    ("st.global.b32", "st.global.b32 [%rd3], %r1;"),
    ("add.s32 half mask", "@%p1 add.s32 %r5, %r1, %r2;"),
];

/// One warp's quarter of a product, with what belongs to it; `ACC` stands for 64 accumulators.
const WGMMA: &str = "wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {ACC}, %rd6, %rd6, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;";

fn bench() -> ExitCode {
    println!(
        "{:20} {:>10} {:>17} {:>17} {:>17}   ns per warp instruction (GFLOP/s), one core",
        "", "strict/fast", "fast", "strict", "portable"
    );
    let strict = Options { threads: 1, ..Options::default() };
    let fast = Options { threads: 1, ..Options::fast() };
    let portable = Options { portable: true, ..fast.clone() };
    for (name, text) in TIMED {
        match [&fast, &strict, &portable].map(|options| time(text, options)) {
            [Ok(fast), Ok(strict), Ok(portable)] => {
                print!("{name:20} {:>11.2}", strict.0 / fast.0);
                for (ns, flops) in [fast, strict, portable] {
                    let rate = if flops > 0 { format!("({:4.1})", flops as f64 / ns) } else { String::new() };
                    print!(" {ns:10.1} {rate:6}");
                }
                println!();
            }
            times => println!("{name:20} {:?}", times.into_iter().find_map(Result::err)),
        }
    }
    ExitCode::SUCCESS
}

/// Nanoseconds and tensor-core operations of one instruction in an unrolled loop of one warp.
fn time(instruction: &str, options: &Options) -> Result<(f64, u64), String> {
    const UNROLL: usize = 64;
    // Fewer trips for the heavy ones, whose portable loops take microseconds.
    let trips = if instruction.contains("mma") { 60 } else { 1500 };
    let accumulators: Vec<String> = (0..64).map(|i| format!("%g{i}")).collect();
    let instruction = instruction.replace("ACC", &accumulators.join(", "));
    let body = vec![instruction; UNROLL].join("\n");
    let text = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.shared .align 1024 .b8 buffer[16384];
         .visible .entry bench(.param .u64 data, .param .u32 trips) {{
         .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>; .reg .f32 %f<10>, %g<64>;
         ld.param.u64 %rd1, [data]; ld.param.u32 %r10, [trips];
         mov.u32 %r1, %tid.x; add.s32 %r2, %r1, 77; mov.u32 %r3, 5; mov.u32 %r11, buffer;
         shl.b32 %r12, %r1, 2; add.s32 %r4, %r11, %r12; shl.b32 %r13, %r1, 4; add.s32 %r9, %r11, %r13;
         mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
         cvt.rn.f32.s32 %f1, %r1; mov.f32 %f2, 0f3F800001; mov.f32 %f3, 0f3F000000;
         st.shared.v4.b32 [%r9], {{%r1, %r2, %r3, %r4}};
         mov.u32 %r15, 512;
         FILL: add.s32 %r16, %r9, %r15; st.shared.v4.b32 [%r16], {{%r1, %r2, %r3, %r4}};
         add.s32 %r15, %r15, 512; setp.lt.u32 %p3, %r15, 16384; @%p3 bra FILL;
         shr.u32 %r16, %r11, 4; cvt.u64.u32 %rd6, %r16; or.b64 %rd6, %rd6, 0x4000004000010000; fence.proxy.async;
         bar.warp.sync -1; setp.lt.s32 %p1, %r1, 16; mov.u32 %r14, 0;
         LOOP:
         {body}
         add.s32 %r14, %r14, 1; setp.lt.u32 %p3, %r14, %r10; @%p3 bra LOOP;
         ret; }}"
    );
    let module = Module::parse(&text, "sm_90a").map_err(|e| e.to_string())?;
    let mut emulator = Emulator::new(options.clone());
    let data = emulator.memory.alloc_with("data", &[1; 4096]);
    let mut flops = 0;
    let mut run = |trips: u32| -> Result<f64, String> {
        let start = Instant::now();
        let report = emulator
            .launch(&module, "bench", Grid::new(1, 32), &[Param::U64(data), Param::U32(trips)])
            .map_err(|e| e.to_string())?;
        flops = report.counters.tensor_flops / (trips as u64 * UNROLL as u64);
        Ok(start.elapsed().as_secs_f64() * 1e9)
    };
    run(trips)?;
    // The median of several, less the loop's frame.
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(run(trips)?);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[2] / (trips as f64 * (UNROLL + 3) as f64), flops))
}
