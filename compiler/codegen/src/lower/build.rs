//! Sugar over melior's builders: what a lowering says, in the words of the machine. No knowledge of tiles here.
//!
//! A [`Build`] has a stack of open blocks. An op goes to the innermost one, unless [`Build::at_level`] sends it further
//! out, which is how loop-invariant code gets before its loop. Every method takes `&self`, so that calls nest:
//! `b.fma(x, y, b.splat(z, 8))`.
//!
//! Values are [`V`]: handles that live as long as the MLIR context. A method works on scalars and vectors alike unless
//! its doc says otherwise; a type argument is always the *element* type or is called `ty`.
//!
//! Integers are signless (`i1 i8 i16 i32 i64`), loops count in i64, memory is `!llvm.ptr` with getelementptr, loads and
//! stores. Methods that build invalid IR are found by MLIR's verifier, which runs on every module.

mod arith;
mod control;
mod memory;
mod vector;

use melior::{
    Context,
    ir::{
        Attribute, Block, BlockLike, Identifier, Location, Module, Region, RegionLike, Type, TypeLike, Value,
        ValueLike,
        attribute::{DenseElementsAttribute, FloatAttribute, IntegerAttribute, StringAttribute, TypeAttribute},
        operation::OperationBuilder,
        r#type::{FunctionType, IntegerType},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};
use tegula_ir::Loc;

/// A value under construction: a handle into MLIR, valid while the context is.
pub type V<'c> = Value<'c, 'c>;

pub use arith::{Cmp, FCmp};

/// The builder.
pub struct Build<'c> {
    /// The MLIR context.
    pub context: &'c Context,
    module: Module<'c>,
    blocks: RefCell<Vec<Block<'c>>>,
    /// A number of its own for each open block.
    ids: RefCell<Vec<u32>>,
    next_id: Cell<u32>,
    /// Where ops go when not to the innermost block.
    level: Cell<Option<usize>>,
    loc: Cell<Location<'c>>,
    constants: RefCell<HashMap<(usize, u64, usize), V<'c>>>,
}

impl<'c> Build<'c> {
    /// A builder of a new module.
    pub fn new(context: &'c Context) -> Self {
        let unknown = Location::unknown(context);
        Build {
            context,
            module: Module::new(unknown),
            blocks: RefCell::default(),
            ids: RefCell::default(),
            next_id: Cell::new(0),
            level: Cell::new(None),
            loc: Cell::new(unknown),
            constants: RefCell::default(),
        }
    }

    /// The finished module.
    pub fn finish(self) -> Module<'c> {
        self.module
    }

    /// Following ops belong to this line of the user's source.
    pub fn set_loc(&self, loc: &Loc) {
        self.loc.set(if loc.is_unknown() {
            Location::unknown(self.context)
        } else {
            Location::new(self.context, &loc.file, loc.line as usize, loc.col as usize)
        });
    }

    /// The current location.
    pub fn loc(&self) -> Location<'c> {
        self.loc.get()
    }

    // ---- types ----

    /// The signless integer type of that width.
    pub fn int(&self, bits: u32) -> Type<'c> {
        IntegerType::new(self.context, bits).into()
    }
    /// `i1`.
    pub fn i1(&self) -> Type<'c> {
        self.int(1)
    }
    /// `i8`.
    pub fn i8(&self) -> Type<'c> {
        self.int(8)
    }
    /// `i16`.
    pub fn i16(&self) -> Type<'c> {
        self.int(16)
    }
    /// `i32`.
    pub fn i32(&self) -> Type<'c> {
        self.int(32)
    }
    /// `i64`.
    pub fn i64(&self) -> Type<'c> {
        self.int(64)
    }
    /// `f16`.
    pub fn f16(&self) -> Type<'c> {
        Type::float16(self.context)
    }
    /// `f32`.
    pub fn f32(&self) -> Type<'c> {
        Type::float32(self.context)
    }
    /// `f64`.
    pub fn f64(&self) -> Type<'c> {
        Type::float64(self.context)
    }
    /// `!llvm.ptr`.
    pub fn ptr(&self) -> Type<'c> {
        melior::dialect::llvm::r#type::pointer(self.context, 0)
    }
    /// `!llvm.ptr<space>`.
    pub fn ptr_in(&self, space: u32) -> Type<'c> {
        melior::dialect::llvm::r#type::pointer(self.context, space)
    }
    /// `elem` itself for 0 lanes (a scalar), `vector<lanes x elem>` otherwise.
    pub fn vec(&self, elem: Type<'c>, lanes: usize) -> Type<'c> {
        if lanes == 0 { elem } else { Type::vector(&[lanes as u64], elem) }
    }
    /// Lanes of a value: 0 for a scalar.
    pub fn lanes(&self, v: V<'c>) -> usize {
        lanes_of(v.r#type())
    }
    /// Element type of a value.
    pub fn elem(&self, v: V<'c>) -> Type<'c> {
        elem_of(v.r#type())
    }
    /// Bits of a value's element.
    pub fn bits(&self, v: V<'c>) -> u32 {
        bits_of(self.elem(v))
    }
    /// Whether a value's element is a float.
    pub fn is_float(&self, v: V<'c>) -> bool {
        is_float(self.elem(v))
    }

    // ---- ops ----

    /// Any op with one result.
    pub fn op(&self, name: &str, operands: &[V<'c>], result: Type<'c>, attributes: &[(&str, Attribute<'c>)]) -> V<'c> {
        self.op_n(name, operands, &[result], attributes, vec![])[0]
    }

    /// Any op without a result.
    pub fn op0(&self, name: &str, operands: &[V<'c>], attributes: &[(&str, Attribute<'c>)]) {
        self.op_n(name, operands, &[], attributes, vec![]);
    }

    /// Any op.
    pub fn op_n(
        &self,
        name: &str,
        operands: &[V<'c>],
        results: &[Type<'c>],
        attributes: &[(&str, Attribute<'c>)],
        regions: Vec<Region<'c>>,
    ) -> Vec<V<'c>> {
        let attributes: Vec<_> = attributes.iter().map(|(k, a)| (Identifier::new(self.context, k), *a)).collect();
        let op = OperationBuilder::new(name, self.loc.get())
            .add_operands(operands)
            .add_attributes(&attributes)
            .add_results(results)
            .add_regions_vec(regions)
            .build();
        // `build` fails only when result types are to be inferred and cannot be; they are given here.
        let op = op.unwrap_or_else(|e| panic!("building `{name}`: {e}"));
        let blocks = self.blocks.borrow();
        let level = self.level.get().unwrap_or(blocks.len() - 1);
        let op = blocks[level].append_operation(op);
        (0..results.len())
            .filter_map(|i| op.result(i).ok())
            // SAFETY: the op lives in a block of this builder, which ends up in its module, in the context.
            .map(|r| unsafe { V::from_raw(r.to_raw()) })
            .collect()
    }

    /// Level of the innermost open block.
    pub fn top(&self) -> usize {
        self.blocks.borrow().len() - 1
    }

    /// A number that no other block has, of the open block at `level`.
    pub fn block_id(&self, level: usize) -> u32 {
        self.ids.borrow()[level]
    }

    /// Level of the block where ops now go.
    pub fn here(&self) -> usize {
        self.level.get().unwrap_or_else(|| self.top())
    }

    /// Sends the ops that `f` builds to the end of the open block at `level`: before the loop that is being built in it.
    pub fn at_level<R>(&self, level: usize, f: impl FnOnce() -> R) -> R {
        let before = self.level.replace(Some(level));
        let result = f();
        self.level.set(before);
        result
    }

    /// Builds a block with arguments of these types; ops of `f` go to it.
    pub(super) fn block<R>(&self, args: &[Type<'c>], f: impl FnOnce(&[V<'c>]) -> R) -> (Region<'c>, R) {
        let args: Vec<_> = args.iter().map(|t| (*t, self.loc.get())).collect();
        let block = Block::new(&args);
        let values: Vec<V<'c>> = (0..args.len())
            .filter_map(|i| block.argument(i).ok())
            // SAFETY: as for results of ops.
            .map(|a| unsafe { V::from_raw(a.to_raw()) })
            .collect();
        let before = self.level.replace(None);
        self.blocks.borrow_mut().push(block);
        self.next_id.set(self.next_id.get() + 1);
        self.ids.borrow_mut().push(self.next_id.get());
        let result = f(&values);
        self.ids.borrow_mut().pop();
        let block = self.blocks.borrow_mut().pop();
        self.level.set(before);
        let region = Region::new();
        if let Some(block) = block {
            region.append_block(block);
        }
        (region, result)
    }

    /// Adds a function to the module. `f` gets its arguments and returns its results. A private one is no symbol of the
    /// shared object.
    pub fn function(
        &self,
        name: &str,
        args: &[Type<'c>],
        results: &[Type<'c>],
        private: bool,
        f: impl FnOnce(&[V<'c>]) -> Vec<V<'c>>,
    ) {
        let region = self.body(args, |args| {
            let results = f(args);
            self.op0("func.return", &results, &[]);
        });
        let visibility = StringAttribute::new(self.context, "private").into();
        let attributes = [(Identifier::new(self.context, "sym_visibility"), visibility)];
        self.module.body().append_operation(melior::dialect::func::func(
            self.context,
            StringAttribute::new(self.context, name),
            TypeAttribute::new(FunctionType::new(self.context, args, results).into()),
            region,
            if private { &attributes } else { &[] },
            self.loc.get(),
        ));
    }

    /// Adds a GPU kernel to the module, an `llvm.func` without results, with more attributes.
    pub fn kernel(
        &self,
        name: &str,
        args: &[Type<'c>],
        attributes: &[(&str, Attribute<'c>)],
        f: impl FnOnce(&[V<'c>]),
    ) {
        let region = self.body(args, |args| {
            f(args);
            self.op0("llvm.return", &[], &[]);
        });
        let void = melior::dialect::llvm::r#type::void(self.context);
        let ty = melior::dialect::llvm::r#type::function(void, args, false);
        let own = [
            ("sym_name", StringAttribute::new(self.context, name).into()),
            ("function_type", TypeAttribute::new(ty).into()),
        ];
        self.global_with("llvm.func", &own.into_iter().chain(attributes.iter().copied()).collect::<Vec<_>>(), region);
    }

    /// The region of a function.
    fn body(&self, args: &[Type<'c>], f: impl FnOnce(&[V<'c>])) -> Region<'c> {
        // A function is built on its own: nothing of another that is under construction is visible in it.
        let outer = (self.blocks.take(), self.ids.take());
        let constants = self.constants.take();
        let level = self.level.take();
        let (region, ()) = self.block(args, f);
        self.blocks.replace(outer.0);
        self.ids.replace(outer.1);
        self.constants.replace(constants);
        self.level.set(level);
        region
    }

    /// Declares a function that another library defines.
    pub fn declare(&self, name: &str, args: &[Type<'c>], results: &[Type<'c>]) {
        self.module.body().append_operation(melior::dialect::func::func(
            self.context,
            StringAttribute::new(self.context, name),
            TypeAttribute::new(FunctionType::new(self.context, args, results).into()),
            Region::new(),
            &[(Identifier::new(self.context, "sym_visibility"), StringAttribute::new(self.context, "private").into())],
            self.loc.get(),
        ));
    }

    /// Adds any op to the module itself: a global.
    pub fn global(&self, name: &str, attributes: &[(&str, Attribute<'c>)]) {
        self.global_with(name, attributes, Region::new());
    }
    fn global_with(&self, name: &str, attributes: &[(&str, Attribute<'c>)], region: Region<'c>) {
        let attributes: Vec<_> = attributes.iter().map(|(k, a)| (Identifier::new(self.context, k), *a)).collect();
        let op = OperationBuilder::new(name, self.loc.get()).add_attributes(&attributes).add_regions([region]);
        // `build` fails only when result types are to be inferred; there are none.
        let op = op.build().unwrap_or_else(|e| panic!("building `{name}`: {e}"));
        self.module.body().append_operation(op);
    }

    /// Calls a function of the module.
    pub fn call(&self, name: &str, args: &[V<'c>], results: &[Type<'c>]) -> Vec<V<'c>> {
        let callee = melior::ir::attribute::FlatSymbolRefAttribute::new(self.context, name);
        self.op_n("func.call", args, results, &[("callee", callee.into())], vec![])
    }

    // ---- constants ----

    /// The constant with this bit pattern, in every lane. Constants are made once, at the start of the function.
    pub fn constant_bits(&self, elem: Type<'c>, bits: u64, lanes: usize) -> V<'c> {
        let key = (elem.to_raw().ptr as usize, bits, lanes);
        if let Some(v) = self.constants.borrow().get(&key) {
            return *v;
        }
        let width = bits_of(elem);
        let shift = 64 - width;
        let signed = ((bits << shift) as i64) >> shift;
        let v = self.at_level(0, || {
            if is_float(elem) {
                let value = match width {
                    64 => f64::from_bits(bits),
                    32 => f32::from_bits(bits as u32) as f64,
                    _ => half::f16::from_bits(bits as u16).to_f64(),
                };
                if value.is_nan() {
                    let raw = self.constant_attr(
                        self.int(width),
                        IntegerAttribute::new(self.int(width), signed).into(),
                        lanes,
                    );
                    return self.op("arith.bitcast", &[raw], self.vec(elem, lanes), &[]);
                }
                return self.constant_attr(elem, FloatAttribute::new(self.context, elem, value).into(), lanes);
            }
            self.constant_attr(elem, IntegerAttribute::new(elem, signed).into(), lanes)
        });
        self.constants.borrow_mut().insert(key, v);
        v
    }

    fn constant_attr(&self, elem: Type<'c>, attr: Attribute<'c>, lanes: usize) -> V<'c> {
        let ty = self.vec(elem, lanes);
        let attr = if lanes == 0 { attr } else { DenseElementsAttribute::splat(ty, attr).into() };
        self.op("arith.constant", &[], ty, &[("value", attr)])
    }

    /// A scalar integer constant.
    pub fn c(&self, ty: Type<'c>, v: i64) -> V<'c> {
        self.constant_bits(ty, v as u64 & mask(bits_of(ty)), 0)
    }
    /// A scalar i64.
    pub fn c64(&self, v: i64) -> V<'c> {
        self.c(self.i64(), v)
    }
    /// A scalar i32.
    pub fn c32(&self, v: i32) -> V<'c> {
        self.c(self.i32(), v.into())
    }
    /// A scalar i1.
    pub fn cbool(&self, v: bool) -> V<'c> {
        self.constant_bits(self.i1(), v.into(), 0)
    }
    /// An integer constant of the type of `like`, splat if that is a vector.
    pub fn int_like(&self, like: V<'c>, v: i64) -> V<'c> {
        let elem = self.elem(like);
        self.constant_bits(elem, v as u64 & mask(bits_of(elem)), self.lanes(like))
    }
    /// A float constant of the type of `like` (f32 or f64; f32 takes the nearest value), splat if that is a vector.
    pub fn float_like(&self, like: V<'c>, v: f64) -> V<'c> {
        let elem = self.elem(like);
        let bits = if bits_of(elem) == 64 { v.to_bits() } else { (v as f32).to_bits() as u64 };
        self.constant_bits(elem, bits, self.lanes(like))
    }
    /// An f32 in every lane; a scalar for 0 lanes.
    pub fn cf32(&self, v: f32, lanes: usize) -> V<'c> {
        self.constant_bits(self.f32(), v.to_bits().into(), lanes)
    }
    /// The vector 0, 1, 2, … of an integer type.
    pub fn iota(&self, elem: Type<'c>, lanes: usize) -> V<'c> {
        self.int_vector(elem, &(0..lanes as i64).collect::<Vec<_>>())
    }
    /// A vector of given integers.
    pub fn int_vector(&self, elem: Type<'c>, values: &[i64]) -> V<'c> {
        let ty = self.vec(elem, values.len());
        let attrs: Vec<Attribute> = values.iter().map(|v| IntegerAttribute::new(elem, *v).into()).collect();
        let attr = DenseElementsAttribute::new(ty, &attrs);
        // The type is a static vector of as many elements.
        let attr = attr.unwrap_or_else(|e| panic!("a constant vector: {e}"));
        self.at_level(0, || self.op("arith.constant", &[], ty, &[("value", attr.into())]))
    }

    /// An integer attribute.
    pub fn int_attr(&self, bits: u32, v: i64) -> Attribute<'c> {
        IntegerAttribute::new(self.int(bits), v).into()
    }
}

fn mask(bits: u32) -> u64 {
    if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Lanes of a type: 0 for a scalar.
fn lanes_of(ty: Type) -> usize {
    // SAFETY: the type is alive; the shape is asked of vectors only.
    unsafe {
        if mlir_sys::mlirTypeIsAVector(ty.to_raw()) {
            mlir_sys::mlirShapedTypeGetDimSize(ty.to_raw(), 0) as usize
        } else {
            0
        }
    }
}

fn elem_of<'c>(ty: Type<'c>) -> Type<'c> {
    // SAFETY: as above.
    unsafe {
        if mlir_sys::mlirTypeIsAVector(ty.to_raw()) {
            Type::from_raw(mlir_sys::mlirShapedTypeGetElementType(ty.to_raw()))
        } else {
            ty
        }
    }
}

fn is_float(elem: Type) -> bool {
    // SAFETY: the type is alive.
    unsafe { mlir_sys::mlirTypeIsAFloat(elem.to_raw()) }
}

fn bits_of(elem: Type) -> u32 {
    // SAFETY: the type is alive, and asked what it is before its width.
    unsafe {
        if mlir_sys::mlirTypeIsAInteger(elem.to_raw()) {
            mlir_sys::mlirIntegerTypeGetWidth(elem.to_raw())
        } else if mlir_sys::mlirTypeIsAFloat(elem.to_raw()) {
            mlir_sys::mlirFloatTypeGetWidth(elem.to_raw())
        } else {
            64 // a pointer
        }
    }
}
