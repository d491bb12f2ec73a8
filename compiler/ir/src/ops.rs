//! The op table: one row an op. A row has the name, what it means, its type rule and whether it may be removed,
//! duplicated or moved. The oracle's function and the folding rule of elementwise ops are found by the same
//! [`OpKind`]; a lowering finds its code by it too. To add an op, add a row.

use crate::rules::{self, Check};

/// How an op may be treated by passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A function of its operands: may be removed, merged, moved.
    Pure,
    /// Reads memory: may be removed when unused, not moved over writes.
    Read,
    /// Writes memory, prints or checks: stays where it is.
    Write,
    /// Carries regions; its effect is theirs.
    Control,
}

/// What groups of ops share in passes and lowerings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Each result element is a function of the operands' elements at the same index.
    Elementwise,
    /// Only moves elements.
    Shape,
    /// Everything else.
    Other,
}

/// A row of the table.
#[derive(Debug)]
pub struct OpInfo {
    /// Name in text.
    pub name: &'static str,
    /// What it means, for the reference page.
    pub doc: &'static str,
    /// What passes may do.
    pub effect: Effect,
    /// Shared treatment.
    pub family: Family,
    /// Type rule: the verifier calls it.
    pub check: Check,
}

macro_rules! ops {
    ($($variant:ident $name:literal $effect:ident $family:ident $check:expr, $doc:literal;)*) => {
        /// Which op.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OpKind { $(#[doc = $doc] $variant,)* }
        impl OpKind {
            /// Every op, in table order.
            pub const ALL: &'static [OpKind] = &[$(OpKind::$variant,)*];
            /// The op of that name.
            pub fn from_name(name: &str) -> Option<OpKind> { match name { $($name => Some(OpKind::$variant),)* _ => None } }
        }
        static TABLE: &[OpInfo] = &[$(OpInfo { name: $name, doc: $doc, effect: Effect::$effect, family: Family::$family, check: $check },)*];
    };
}

impl OpKind {
    /// The op's row.
    pub fn info(self) -> &'static OpInfo {
        &TABLE[self as usize]
    }
    /// The op's name.
    pub fn name(self) -> &'static str {
        self.info().name
    }
    /// Whether kernels hold it only after the assignment of layouts: no author writes it.
    pub fn is_made_by_passes(self) -> bool {
        self == OpKind::ConvertLayout
    }
    /// Whether each result element depends on the operands' elements at the same index only.
    pub fn is_elementwise(self) -> bool {
        self.info().family == Family::Elementwise
    }
}

ops! {
    // Values out of nothing.
    Const "const" Pure Other rules::constant, "A constant, the same in every element.";
    Iota "iota" Pure Other rules::iota, "0, 1, 2, … along the only axis of an integer tile.";
    ProgramId "program_id" Pure Other rules::grid, "The index of this program along a grid axis (i32).";
    NumPrograms "num_programs" Pure Other rules::grid, "The number of programs along a grid axis (i32).";

    // Moving elements.
    Broadcast "broadcast" Pure Shape rules::broadcast, "Repeats along axes of extent 1; a scalar becomes any shape.";
    Reshape "reshape" Pure Shape rules::reshape, "The same elements in row-major order under another shape.";
    Permute "permute" Pure Shape rules::permute, "Axes in another order: result axis i is operand axis `perm[i]`.";
    Slice "slice" Pure Shape rules::slice, "`size` elements from `start` along an axis.";
    Cat "cat" Pure Shape rules::cat, "Tiles one after the other along an axis.";

    ConvertLayout "convert_layout" Pure Shape rules::convert_layout, "The same tile held by other threads; made by the assignment of layouts.";

    // Elementwise, one operand.
    Neg "neg" Pure Elementwise rules::unary_num, "−x; integers wrap.";
    Abs "abs" Pure Elementwise rules::unary_num, "|x|; the least signed integer stays itself.";
    Not "not" Pure Elementwise rules::unary_bits, "Bitwise complement; logical not of bool.";
    Exp "exp" Pure Elementwise rules::unary_float, "e to the x.";
    Exp2 "exp2" Pure Elementwise rules::unary_float, "2 to the x.";
    Log "log" Pure Elementwise rules::unary_float, "Natural logarithm.";
    Log2 "log2" Pure Elementwise rules::unary_float, "Logarithm to base 2.";
    Sin "sin" Pure Elementwise rules::unary_float, "Sine (radians).";
    Cos "cos" Pure Elementwise rules::unary_float, "Cosine (radians).";
    Tanh "tanh" Pure Elementwise rules::unary_float, "Hyperbolic tangent.";
    Erf "erf" Pure Elementwise rules::unary_float, "Error function.";
    Sqrt "sqrt" Pure Elementwise rules::unary_float, "Square root, correctly rounded.";
    Rsqrt "rsqrt" Pure Elementwise rules::unary_float, "1/sqrt(x).";
    Sigmoid "sigmoid" Pure Elementwise rules::unary_float, "1/(1+exp(−x)).";
    Floor "floor" Pure Elementwise rules::unary_float, "Largest integer not above.";
    Ceil "ceil" Pure Elementwise rules::unary_float, "Smallest integer not below.";
    Round "round" Pure Elementwise rules::unary_float, "Nearest integer, ties to even.";
    Cast "cast" Pure Elementwise rules::cast, "Value conversion: floats round once to nearest even, float to integer truncates and saturates (NaN gives 0), integers wrap, anything to bool is `!= 0`.";
    Bitcast "bitcast" Pure Elementwise rules::bitcast, "The same bits under another element type of the same width.";

    // Elementwise, two operands.
    Add "add" Pure Elementwise rules::binary_num, "x + y; integers wrap.";
    Sub "sub" Pure Elementwise rules::binary_num, "x − y; integers wrap.";
    Mul "mul" Pure Elementwise rules::binary_num, "x · y; integers wrap.";
    Div "div" Pure Elementwise rules::binary_num, "x / y; integers truncate, x/0 = 0, MIN/−1 wraps.";
    Rem "rem" Pure Elementwise rules::binary_num, "Remainder with the sign of x; integers: x%0 = x. Floats: exact, as C's fmod.";
    Min "min" Pure Elementwise rules::binary_num, "The smaller; a NaN is ignored.";
    Max "max" Pure Elementwise rules::binary_num, "The larger; a NaN is ignored.";
    MinNan "min_nan" Pure Elementwise rules::binary_float, "The smaller; a NaN is kept.";
    MaxNan "max_nan" Pure Elementwise rules::binary_float, "The larger; a NaN is kept.";
    Pow "pow" Pure Elementwise rules::binary_float, "x to the y.";
    And "and" Pure Elementwise rules::binary_bits, "Bitwise and.";
    Or "or" Pure Elementwise rules::binary_bits, "Bitwise or.";
    Xor "xor" Pure Elementwise rules::binary_bits, "Bitwise exclusive or.";
    Shl "shl" Pure Elementwise rules::binary_int, "Shift left; the amount is taken modulo the width.";
    Shr "shr" Pure Elementwise rules::binary_int, "Shift right, arithmetic for signed types; the amount is taken modulo the width.";
    Umulhi "umulhi" Pure Elementwise rules::binary_int, "Upper half of the product of the operands' bit patterns taken as unsigned.";
    Eq "eq" Pure Elementwise rules::compare, "x = y; NaN equals nothing.";
    Ne "ne" Pure Elementwise rules::compare, "x ≠ y; true for NaN.";
    Lt "lt" Pure Elementwise rules::compare, "x < y; false for NaN.";
    Le "le" Pure Elementwise rules::compare, "x ≤ y; false for NaN.";
    Gt "gt" Pure Elementwise rules::compare, "x > y; false for NaN.";
    Ge "ge" Pure Elementwise rules::compare, "x ≥ y; false for NaN.";

    // Elementwise, three operands.
    Select "select" Pure Elementwise rules::select, "y where the bool x is true, else z.";
    Fma "fma" Pure Elementwise rules::fma, "x·y + z, rounded once.";

    // Along an axis.
    Reduce "reduce" Pure Other rules::reduce, "Combines the elements along `axis`, which stays with extent 1. f16, bf16 and fp8 accumulate in f32 and round once; a sum over bool counts (i32); argmax and argmin give i32. The result's element type may name a wider accumulator.";
    ReduceWith "reduce_with" Pure Other rules::combine, "Reduction of one or more tiles at once by an associative combiner (region: left values, right values; gives as many).";
    Scan "scan" Pure Other rules::scan, "Inclusive prefix sums, products, maxima or minima along `axis`, in operand order; with `reverse` from the end.";
    ScanWith "scan_with" Pure Other rules::combine, "Inclusive scan by an associative combiner, left operand first; with `reverse` from the end.";
    Sort "sort" Pure Other rules::sort, "Sorts along the last axis; stable; NaN last; ascending unless `descending`.";
    TopK "topk" Pure Other rules::topk, "The `k` largest along the last axis, in descending order, and their indices (i32, lowest first among ties; NaN below everything).";
    Histogram "histogram" Pure Other rules::histogram, "Counts (i32) of the values 0..bins in an integer tile of rank 1; others are ignored. With `masked`, only lanes whose mask is true count.";
    Take "take" Pure Other rules::take, "Elements of the first operand along `axis`, at the indices that the second operand gives; an index outside gives 0.";

    // Memory.
    Dim "dim" Pure Other rules::dim, "Extent of a view along `axis` (i32; a launch refuses longer axes).";
    Narrow "narrow" Pure Other rules::narrow, "The part of a view from element `start` (i64 scalar, clamped to 0..=extent) with at most `len` (i64 scalar, negative counts as 0) elements along `axis`: loads past its end give the pad value, stores past it are dropped. Operands: view, start, len. This is how ragged rows are kept apart.";
    Load "load" Read Other rules::load, "The tile whose first element is the view's element at the given i64 position. Lanes outside the view give `pad` and touch no memory. The tile has the view's rank.";
    Store "store" Write Other rules::store, "Stores a tile at the given i64 position; lanes outside the view are dropped. Operands: view, position, tile.";
    Gather "gather" Read Other rules::gather, "Elements at the index tiles (i64, one per view axis, all of the result's shape). An index outside the view gives `pad`. With `masked`, the last operand says which lanes to read.";
    Scatter "scatter" Write Other rules::scatter, "Stores elements at the index tiles; lanes outside the view are dropped. Operands: view, indices, values, and a mask with `masked`. Lanes that name one element: the last in row-major order stays.";
    Atomic "atomic" Write Other rules::atomic, "Read-modify-write of the elements at the index tiles, lane by lane in any order; gives the old values (0 for lanes outside the view or masked off). Operands as scatter.";
    AtomicCas "atomic_cas" Write Other rules::atomic_cas, "Compare and swap: stores `new` where the element equals `expected`; gives the old values. Operands: view, indices, expected, new.";

    // Matrix products.
    Dot "dot" Pure Other rules::dot, "(M, K)·(K, N) + (M, N). f32: one fma chain per output in ascending k. f16, bf16, fp8 accumulate in f32; i8 in i32, exactly; f64 in f64.";
    DotGrouped "dot_grouped" Pure Other rules::dot_grouped, "Quantised product. Operands: codes i8 (M, K), scales f32 (M, K/32), code sums i32 (M, K/32), a quantised tile (K, N), accumulator f32 (M, N). Groups in ascending k; per group the integer dot is exact, then one fma(f32(i), sw·sx, acc); formats with a minimum m then add fma(f32(sum), m·sx, acc).";
    PackedLoad "packed_load" Read Other rules::packed_load, "The rectangle of a packed matrix at an i64 position (k, n), which must be multiples of the rectangle's extents. Outside the matrix it is 0.";
    PackedGather "packed_gather" Read Other rules::packed_gather, "Dequantised elements (f32) of a packed matrix at index tiles (k, n); outside it gives 0.";
    PackedDim "packed_dim" Pure Other rules::dim, "Extent of a packed matrix: axis 0 is K, axis 1 is N (i32).";
    Dequant "dequant" Pure Other rules::dequant, "The values of a quantised tile as f32 (K, N).";

    // Control flow.
    For "for" Control Other rules::for_loop, "Counts from lo while below hi by step (a positive step; signed or unsigned integers). Operands: lo, hi, step, initial values; region: index, carried values; gives the carried values.";
    While "while" Control Other rules::while_loop, "Regions: condition (carried values; gives one bool), body (carried values; gives the next).";
    If "if" Control Other rules::if_else, "Runs one of two regions without arguments; gives what that one gives.";

    // Facts, checks, output.
    Assume "assume" Write Other rules::assume, "The bool holds here. Passes may use it where it dominates; the oracle checks it.";
    MultipleOf "multiple_of" Pure Other rules::multiple_of, "The operand, known to be a multiple of `n`. The oracle checks it.";
    Assert "assert" Write Other rules::assert, "Checked launches (and the oracle) report `message` with its line when an element is false; otherwise nothing.";
    Print "print" Write Other rules::print, "Prints `message` and the operands.";
}
