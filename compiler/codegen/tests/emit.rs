//! The way down from MLIR: a loop of vector fma built with melior's builders becomes a shared object, is loaded and run;
//! every stage prints; every kind of failure is a value.

use melior::{
    Context,
    dialect::{arith, func, scf},
    ir::{
        Attribute, Block, BlockLike, Identifier, Location, Module, Region, RegionLike, Type, Value,
        attribute::{IntegerAttribute, StringAttribute, TypeAttribute},
        operation::OperationBuilder,
        r#type::FunctionType,
    },
};
use tegula_codegen::emit::{self, CpuTarget, Error, Machine, Mlir, Stage};

/// `fn axpy(a: *f32, b: *f32, c: *mut f32, n: i64)`: `c[i] = fma(a[i], b[i], c[i])`, eight at a time, for n a multiple of 8.
fn axpy(context: &Context) -> Module<'_> {
    let at = |line| Location::new(context, "axpy.rs", line, 5);
    let ty = |text| Type::parse(context, text).expect(text);
    let attribute = |text| Attribute::parse(context, text).expect(text);
    let id = |text| Identifier::new(context, text);
    let (ptr, i64, v8) = (ty("!llvm.ptr"), ty("i64"), ty("vector<8xf32>"));

    let body = Block::new(&[(ptr, at(1)), (ptr, at(1)), (ptr, at(1)), (i64, at(1))]);
    let constant = |value| {
        let op = body.append_operation(arith::constant(context, IntegerAttribute::new(i64, value).into(), at(2)));
        Value::from(op.result(0).unwrap())
    };
    let (zero, eight) = (constant(0), constant(8));

    let inner = Block::new(&[(i64, at(2))]);
    let index = Value::from(inner.argument(0).unwrap());
    let pointer = |parameter: usize| {
        let base = Value::from(body.argument(parameter).unwrap());
        let op = OperationBuilder::new("llvm.getelementptr", at(3))
            .add_operands(&[base, index])
            .add_attributes(&[
                (id("rawConstantIndices"), attribute("array<i32: -2147483648>")),
                (id("elem_type"), TypeAttribute::new(ty("f32")).into()),
            ])
            .add_results(&[ptr]);
        Value::from(inner.append_operation(op.build().unwrap()).result(0).unwrap())
    };
    let alignment = (id("alignment"), attribute("4 : i64"));
    let pointers = [pointer(0), pointer(1), pointer(2)];
    let [a, b, c] = pointers.map(|from| {
        let op = OperationBuilder::new("llvm.load", at(4))
            .add_operands(&[from])
            .add_attributes(&[alignment])
            .add_results(&[v8]);
        Value::from(inner.append_operation(op.build().unwrap()).result(0).unwrap())
    });
    let fma = OperationBuilder::new("math.fma", at(5)).add_operands(&[a, b, c]).add_results(&[v8]).build().unwrap();
    let sum = Value::from(inner.append_operation(fma).result(0).unwrap());
    let store =
        OperationBuilder::new("llvm.store", at(6)).add_operands(&[sum, pointers[2]]).add_attributes(&[alignment]);
    inner.append_operation(store.build().unwrap());
    inner.append_operation(scf::r#yield(&[], at(6)));

    let region = Region::new();
    region.append_block(inner);
    let n = Value::from(body.argument(3).unwrap());
    body.append_operation(scf::r#for(zero, n, eight, region, at(2)));
    body.append_operation(func::r#return(&[], at(7)));

    let region = Region::new();
    region.append_block(body);
    let module = Module::new(at(1));
    module.body().append_operation(func::func(
        context,
        StringAttribute::new(context, "axpy"),
        TypeAttribute::new(FunctionType::new(context, &[ptr, ptr, ptr, i64], &[]).into()),
        region,
        &[],
        at(1),
    ));
    module
}

fn v3() -> CpuTarget {
    CpuTarget::parse("x86-64-v3").unwrap()
}

#[test]
fn a_built_loop_runs() {
    let mlir = Mlir::new();
    let mut module = axpy(mlir.context());
    let (code, _) = emit::compile(&mlir, &mut module, &v3(), &[]).unwrap();

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("axpy.so");
    std::fs::write(&file, &code).unwrap();
    if !(std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")) {
        return; // made, but not for this machine
    }
    // SAFETY: the object's one function has this signature, and the slices below hold n elements.
    let library = unsafe { libloading::Library::new(&file) }.unwrap();
    let axpy: libloading::Symbol<unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64)> =
        unsafe { library.get(b"axpy") }.unwrap();

    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 20) as f32 - 7.9
    };
    for n in [0usize, 8, 296] {
        let mut column = || (0..n + 3).map(|_| random()).collect::<Vec<f32>>();
        let (a, b, before) = (column(), column(), column());
        let mut c = before.clone();
        unsafe { axpy(a.as_ptr(), b.as_ptr(), c.as_mut_ptr(), n as i64) };
        for i in 0..n {
            assert_eq!(c[i], a[i].mul_add(b[i], before[i]), "element {i} of {n}");
        }
        assert_eq!(c[n..], before[n..], "wrote past element {n}");
    }
}

#[test]
fn every_stage_prints() {
    let mlir = Mlir::new();
    let mut module = axpy(mlir.context());
    let stages = [Stage::Asm, Stage::Mlir, Stage::MlirLlvm, Stage::Llvm, Stage::LlvmOptimised];
    let (_, text) = emit::compile(&mlir, &mut module, &v3(), &stages).unwrap();
    for (stage, text) in stages.iter().zip(&text) {
        println!("===== {stage:?}\n{text}");
    }
    let [asm, mlir, lowered, llvm, optimised] = text.try_into().unwrap();
    assert!(mlir.contains("scf.for") && mlir.contains("math.fma"));
    assert!(lowered.contains("llvm.intr.fma") && !lowered.contains("scf."));
    assert!(llvm.contains("@llvm.fma.v8f32") && llvm.contains("x86_64-unknown-linux-gnu"));
    assert!(optimised.contains("@llvm.fma.v8f32"));
    assert!(asm.contains("vfmadd") && asm.contains("%ymm"), "AVX2 code has 256-bit fma");
    assert!(asm.contains("axpy.rs") && asm.contains(".loc"), "source lines reach the code");
}

#[test]
fn the_target_chooses_the_instructions() {
    let assembly = |target: &str| {
        let mlir = Mlir::new();
        let mut module = axpy(mlir.context());
        emit::compile(&mlir, &mut module, &CpuTarget::parse(target).unwrap(), &[Stage::Asm]).unwrap().1.remove(0)
    };
    assert!(!assembly("x86-64").contains("%ymm"));
    assert!(assembly("x86-64-v4").contains("vfmadd"));
}

#[test]
fn the_object_does_not_depend_on_what_is_printed() {
    let object = |stages: &[Stage]| {
        let mlir = Mlir::new();
        emit::compile(&mlir, &mut axpy(mlir.context()), &v3(), stages).unwrap().0
    };
    let plain = object(&[]);
    assert_eq!(plain, object(&[]));
    assert_eq!(plain, object(&[Stage::Mlir, Stage::Llvm, Stage::Asm]));
}

#[test]
fn mlir_errors_are_values_with_places() {
    let mlir = Mlir::new();
    let parse = mlir.parse("func.func @f() {\n  %x = arith.addi %y, %y : i32\n  return\n}").unwrap_err().to_string();
    assert!(parse.contains("parsing MLIR failed") && parse.contains("undeclared SSA value name"), "{parse}");
    assert!(parse.contains(":2:19"), "{parse}");

    let mut module = mlir.parse("func.func @f() { return }").unwrap();
    let pipeline = mlir.run(&mut module, "builtin.module(no-such-pass)").unwrap_err().to_string();
    assert!(pipeline.contains("no-such-pass"), "{pipeline}");

    // A vector operation is not LLVM's: translation without the pipeline must say so.
    let module = mlir.parse("func.func @f(%a: vector<4xf32>) -> vector<4xf32> { return %a : vector<4xf32> }").unwrap();
    let context = inkwell::context::Context::create();
    let translate = mlir.translate(&module, &context).unwrap_err().to_string();
    assert!(translate.contains("func.func"), "{translate}");
}

#[test]
fn an_earlier_error_is_not_reported_again() {
    let mlir = Mlir::new();
    mlir.parse("nonsense").unwrap_err();
    let again = mlir.parse("func.func @f() { return %q : i32 }").unwrap_err().to_string();
    assert!(!again.contains("nonsense"), "{again}");
    mlir.verify(&axpy(mlir.context())).unwrap();
}

#[test]
fn an_undefined_function_is_a_link_error() {
    let mlir = Mlir::new();
    let text = "func.func private @elsewhere()\nfunc.func @f() { call @elsewhere() : () -> ()\n return }";
    let error = emit::compile(&mlir, &mut mlir.parse(text).unwrap(), &v3(), &[]).unwrap_err();
    assert!(matches!(error, Error::Link(_)), "{error:?}");
    assert!(error.to_string().contains("elsewhere"), "{error}");

    // libm is there, though: `sin` has no instruction.
    let text = "func.func @f(%x: f64) -> f64 { %y = math.sin %x : f64\n return %y : f64 }";
    emit::compile(&mlir, &mut mlir.parse(text).unwrap(), &v3(), &[]).unwrap();
}

#[test]
fn bad_assembly_is_an_error_and_not_the_end() {
    let mlir = Mlir::new();
    let text = "llvm.func @f() { llvm.inline_asm has_side_effects \"nosuch\", \"\" : () -> ()\n llvm.return }";
    let error = emit::compile(&mlir, &mut mlir.parse(text).unwrap(), &v3(), &[]).unwrap_err();
    assert!(matches!(error, Error::Llvm { .. }), "{error:?}");
    assert!(error.to_string().contains("invalid instruction mnemonic 'nosuch'"), "{error}");
}

#[test]
fn targets_are_read_and_written() {
    let target = CpuTarget::parse("x86-64-v3, +avxvnni").unwrap();
    assert_eq!(target.to_string(), "x86-64-v3,+avxvnni");
    assert!(target.has("avxvnni") && !target.has("avx512vnni"));
    assert_eq!(CpuTarget::parse(&target.to_string()).unwrap(), target);
    for level in ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4,+avx512vnni,+avx512bf16,+amx-int8"] {
        Machine::new(&CpuTarget::parse(level).unwrap()).unwrap();
    }
    for (bad, says) in [("znver3", "x86-64-v3"), ("x86-64-v3,avxvnni", "`+` or `-`"), ("x86-64-v3,+vnni", "avx512vnni")]
    {
        let error = CpuTarget::parse(bad).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
