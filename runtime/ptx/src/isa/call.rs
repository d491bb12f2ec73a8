//! Calls of device functions, and the functions that the system provides: vprintf, __assertfail.

use crate::{
    counters::Kind,
    decode::{
        build::{Build, Callee},
        form::{Built, Form, form},
        names::Meaning,
    },
    exec::{
        fault::{Fault, FaultKind},
        op::{Cx, Flow, Op, Outcome},
        regs::Slot,
        warp::Wait,
    },
    mem::{
        Space,
        access::{Request, locate_at},
        watch::Touch,
    },
    text::ast::Operand,
    types::Ty,
};
use std::collections::HashMap;

/// This family's rows.
pub const FORMS: &[Form] = &[form("call", "uni", Kind::Control, call)];

/// Where an argument comes from or a result goes.
#[derive(Clone, Copy)]
enum Place {
    /// A `.param` variable: local address.
    Local(u64),
    /// A register and its bits.
    Register(Slot, u32),
}

/// Copies the arguments, runs the function, copies the results.
struct Call {
    target: u32,
    /// Argument, parameter's local address, bytes.
    arguments: Vec<(Place, u64, usize)>,
    /// Result's local address, where it goes, bytes.
    results: Vec<(u64, Place, usize)>,
}

/// Moves a result from the function's variable at `from` to its place.
fn fetch(cx: &mut Cx<'_>, lane: usize, from: u64, to: Place, bytes: usize) {
    match to {
        Place::Local(to) => cx.warp.local.copy(lane, from, to, bytes),
        Place::Register(slot, bits) => {
            let mut v = [0u8; 16];
            cx.warp.local.read(lane, from, &mut v[..bytes.min(16)]);
            let v = u128::from_le_bytes(v);
            match bits {
                64 => cx.warp.regs.set_lane(slot, lane, v as u64),
                _ => cx.warp.regs.set_lane(slot, lane, v as u32),
            }
        }
    }
}

/// Moves an argument to the function's variable at `to`.
fn pass(cx: &mut Cx<'_>, lane: usize, from: Place, to: u64, bytes: usize) {
    match from {
        Place::Local(from) => cx.warp.local.copy(lane, from, to, bytes),
        Place::Register(slot, bits) => {
            let v = match bits {
                64 => cx.warp.regs.lane::<u64>(slot, lane),
                _ => cx.warp.regs.lane::<u32>(slot, lane) as u64,
            };
            cx.warp.local.write(lane, to, &v.to_le_bytes()[..bytes.min(8)]);
        }
    }
}

impl Op for Call {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let lanes = || (0..32).filter(|l| mask >> l & 1 == 1);
        if let Some(Wait::Callee) = cx.warp.take_woken() {
            for (from, to, bytes) in &self.results {
                lanes().for_each(|lane| fetch(cx, lane, *from, *to, *bytes));
            }
            return Ok(Flow::Next);
        }
        for (from, to, bytes) in &self.arguments {
            lanes().for_each(|lane| pass(cx, lane, *from, *to, *bytes));
        }
        let mut stack = cx.warp.current.stack.clone();
        stack.push(cx.warp.current.pc);
        cx.warp.send(mask, self.target, Some(stack));
        Ok(Flow::Jumped)
    }
}

/// A call of the function whose number a register holds.
struct CallThrough {
    function: Slot,
    /// Every function that the program holds, by number.
    functions: HashMap<u64, Callee>,
    /// Where arguments come from, and their bytes.
    arguments: Vec<(Place, usize)>,
    /// Where results go, and their bytes.
    results: Vec<(Place, usize)>,
}

impl CallThrough {
    /// The function of a lane, which must fit the prototype.
    fn callee(&self, cx: &Cx<'_>, lane: usize) -> Result<&Callee, Box<Fault>> {
        let number = cx.warp.regs.lane::<u64>(self.function, lane);
        let wrong = |message: String| Err(Fault::new(FaultKind::Operand, message).at_lane(lane));
        let Some(callee) = self.functions.get(&number) else {
            return wrong(format!("a call through a register that holds {number:#x}, which is no function's address"));
        };
        let sizes = |list: &[(u64, usize)]| list.iter().map(|p| p.1).collect::<Vec<_>>();
        let (params, returns) = (sizes(&callee.params), sizes(&callee.returns));
        let given = |list: &[(Place, usize)]| list.iter().map(|p| p.1).collect::<Vec<_>>();
        let (arguments, results) = (given(&self.arguments), given(&self.results));
        if params != arguments || returns != results {
            return wrong(format!(
                "the call's prototype has parameters of {arguments:?} bytes and results of {results:?}, `{}` has \
                 {params:?} and {returns:?}",
                callee.name
            ));
        }
        // A function's registers exist once: it must not be under way already.
        let inside = |pc: u32| callee.start.is_some_and(|start| (start..callee.end).contains(&pc));
        if inside(cx.warp.current.pc) || cx.warp.current.stack.iter().any(|pc| inside(*pc)) {
            return wrong(format!(
                "recursive call of `{}`: functions of one kernel must not call themselves",
                callee.name
            ));
        }
        Ok(callee)
    }
}

impl Op for CallThrough {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        if let Some(Wait::Callee) = cx.warp.take_woken() {
            for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
                let number = cx.warp.regs.lane::<u64>(self.function, lane);
                let Some(callee) = self.functions.get(&number) else { continue };
                for ((to, bytes), (from, _)) in self.results.iter().zip(&callee.returns) {
                    fetch(cx, lane, *from, *to, *bytes);
                }
            }
            return Ok(Flow::Next);
        }
        let (mut left, pc) = (mask, cx.warp.current.pc);
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let callee = self.callee(cx, first)?;
            let Some(target) = callee.start else {
                let message = format!("`{}` is declared but not defined", callee.name);
                return Err(Fault::new(FaultKind::Operand, message).at_lane(first));
            };
            let number = cx.warp.regs.lane::<u64>(self.function, first);
            let same = |l: &usize| left >> l & 1 == 1 && cx.warp.regs.lane::<u64>(self.function, *l) == number;
            let group = (0..32usize).filter(same).fold(0, |m, l| m | 1u32 << l);
            left &= !group;
            for lane in (0..32).filter(|l| group >> l & 1 == 1) {
                for ((from, bytes), (to, _)) in self.arguments.iter().zip(&callee.params) {
                    pass(cx, lane, *from, *to, *bytes);
                }
            }
            let mut stack = cx.warp.current.stack.clone();
            stack.push(pc);
            cx.warp.send(group, target, Some(stack));
            if left != 0 {
                // `send` moved the rest past this instruction; it has lanes that call yet.
                cx.warp.current.pc = pc;
            }
        }
        Ok(Flow::Jumped)
    }
}

/// A call through a register; the last operand is a prototype, or a list of functions that all have one.
fn call_through(b: &mut Build<'_, '_>, parts: Parts<'_>) -> Built {
    let (results, _, arguments) = parts;
    let last = b.operand(b.inst.operands.len() - 1)?;
    let register = b.inst.operands.iter().find(|o| !matches!(o, Operand::List(_)));
    let (Operand::Name(last), Some(register)) = (last, register) else {
        return b.error("a call through a register needs a .callprototype or .calltargets label");
    };
    let functions = |b: &Build<'_, '_>| b.callees().iter().map(|(i, c)| (*i as u64 + 1, c.clone())).collect();
    let all: HashMap<u64, Callee> = functions(b);
    let (returns, params) = match b.meaning(last)? {
        Meaning::Prototype(returns, params) => (returns, params),
        Meaning::Callees(names) => {
            let Some(first) = all.values().find(|c| names.contains(&c.name)) else {
                return b.error(format!("no function of `{last}` is in this module"));
            };
            let sizes = |list: &[(u64, usize)]| list.iter().map(|p| p.1).collect::<Vec<_>>();
            (sizes(&first.returns), sizes(&first.params))
        }
        _ => return b.error(format!("`{last}` is no .callprototype or .calltargets label")),
    };
    if results.len() != returns.len() || arguments.len() != params.len() {
        return b.error(format!(
            "`{last}` takes {} parameters and gives {} results, found {} and {}",
            params.len(),
            returns.len(),
            arguments.len(),
            results.len()
        ));
    }
    let function = b.src_of(register, 64)?;
    let mut from = Vec::new();
    for (operand, bytes) in arguments.into_iter().zip(params) {
        from.push((place(b, operand, bytes, false)?, bytes));
    }
    let mut to = Vec::new();
    for (operand, bytes) in results.into_iter().zip(returns) {
        to.push((place(b, operand, bytes, true)?, bytes));
    }
    b.op(CallThrough { function, functions: all, arguments: from, results: to })
}

/// The parts of a call: results, function, arguments.
type Parts<'a> = (Vec<&'a Operand>, &'a str, Vec<&'a Operand>);

fn parts<'a>(b: &Build<'a, '_>) -> Result<Parts<'a>, crate::error::Error> {
    let mut operands = b.inst.operands.as_slice();
    let list = |o: &'a Operand| match o {
        Operand::List(l) => l.iter().collect(),
        _ => Vec::new(),
    };
    let mut results = Vec::new();
    if let Some(o @ Operand::List(_)) = operands.first() {
        results = list(o);
        operands = &operands[1..];
    }
    let Some(Operand::Name(name)) = operands.first() else { return b.error("`call` needs a function") };
    let arguments = operands.get(1).map_or(Vec::new(), list);
    Ok((results, name, arguments))
}

fn place(b: &mut Build<'_, '_>, operand: &Operand, bytes: usize, writes: bool) -> Result<Place, crate::error::Error> {
    if let Operand::Name(name) = operand
        && let Meaning::Local(address) = b.meaning(name)?
    {
        return Ok(Place::Local(address));
    }
    let bits = if bytes > 4 { 64 } else { 32 };
    Ok(if writes {
        let (slot, ty) = b.any_dst(operand, bits)?;
        Place::Register(slot, ty.bits())
    } else {
        let (slot, ty) = b.any_src(operand, bits)?;
        Place::Register(slot, ty.map_or(bits, Ty::bits))
    })
}

fn call(b: &mut Build<'_, '_>) -> Built {
    let (results, name, arguments) = parts(b)?;
    let index = match b.meaning(name)? {
        Meaning::Function(index) => index,
        Meaning::Reg(..) => return call_through(b, (results, name, arguments)),
        _ => return b.error(format!("`{name}` is no function and no register that holds the address of one")),
    };
    let Some(callee) = b.callee(index) else { return b.error(format!("`{name}` is not in this module")) };
    if results.len() != callee.returns.len() || arguments.len() != callee.params.len() {
        return b.error(format!(
            "`{name}` takes {} parameters and gives {} results, found {} and {}",
            callee.params.len(),
            callee.returns.len(),
            arguments.len(),
            results.len()
        ));
    }
    let mut from = Vec::new();
    for (operand, (address, bytes)) in arguments.iter().zip(&callee.params) {
        from.push((place(b, operand, *bytes, false)?, *address, *bytes));
    }
    let mut to = Vec::new();
    for (operand, (address, bytes)) in results.iter().zip(&callee.returns) {
        to.push((*address, place(b, operand, *bytes, true)?, *bytes));
    }
    match callee.start {
        Some(target) => b.op(Call { target, arguments: from, results: to }),
        None if name == "vprintf" => {
            let [format, values] = from[..] else { return b.error("`vprintf` takes two parameters") };
            b.op(Print { format: format.0, values: values.0, result: to.first().map(|r| r.1) })
        }
        None if name == "__assertfail" => {
            let [message, file, line, function, ..] = from[..] else {
                return b.error("`__assertfail` takes five parameters");
            };
            b.op(Assert { message: message.0, file: file.0, line: line.0, function: function.0 })
        }
        None => b.error(format!("`{name}` is declared but not defined")),
    }
}

/// An argument's value in one lane.
fn value(cx: &mut Cx<'_>, place: Place, lane: usize) -> u64 {
    match place {
        Place::Register(slot, 64) => cx.warp.regs.lane(slot, lane),
        Place::Register(slot, _) => cx.warp.regs.lane::<u32>(slot, lane) as u64,
        Place::Local(address) => {
            let mut v = [0u8; 8];
            cx.warp.local.read(lane, address, &mut v);
            u64::from_le_bytes(v)
        }
    }
}

/// Reads `N` bytes at a generic address for one lane.
fn peek<const N: usize>(cx: &mut Cx<'_>, lane: usize, address: u64, align: usize) -> Result<[u8; N], Box<Fault>> {
    let request = Request { space: Space::Generic, bytes: N, align, touch: Touch::Read };
    let at = locate_at(cx, 1 << lane, [address; 32], request)?;
    // SAFETY: `locate_at` checked N bytes for this lane.
    Ok(unsafe { at.ptr(lane).cast::<[u8; N]>().read_unaligned() })
}

/// A string that ends with 0, at most 4 KiB.
fn string(cx: &mut Cx<'_>, lane: usize, address: u64) -> Result<String, Box<Fault>> {
    let mut bytes = Vec::new();
    for i in 0..4096 {
        let [byte] = peek::<1>(cx, lane, address.wrapping_add(i), 1)?;
        if byte == 0 {
            break;
        }
        bytes.push(byte);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `vprintf(format, values)`.
struct Print {
    format: Place,
    values: Place,
    result: Option<Place>,
}
impl Op for Print {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let (format, values) = (value(cx, self.format, lane), value(cx, self.values, lane));
            let format = string(cx, lane, format)?;
            let text = print(cx, lane, &format, values)?;
            if let Ok(mut output) = cx.launch.output.lock() {
                output.push_str(&text);
            }
            let n = text.len() as u32;
            match self.result {
                Some(Place::Local(to)) => cx.warp.local.write(lane, to, &n.to_le_bytes()),
                Some(Place::Register(slot, _)) => cx.warp.regs.set_lane(slot, lane, n),
                None => {}
            }
        }
        Ok(Flow::Next)
    }
}

/// Formats as C's printf does; arguments lie at `at`, each at a multiple of its size.
fn print(cx: &mut Cx<'_>, lane: usize, format: &str, mut at: u64) -> Result<String, Box<Fault>> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic() && !"hlLqjzt".contains(c) || c == '%') else {
            break;
        };
        let (spec, conversion) = (&rest[..end], rest.as_bytes()[end] as char);
        rest = &rest[end + 1..];
        if conversion == '%' {
            out.push('%');
            continue;
        }
        let wide = spec.contains('l') || spec.contains('j') || spec.contains('z') || "pseEfFgGaA".contains(conversion);
        let size = if wide { 8 } else { 4 };
        at = at.next_multiple_of(size);
        let bits = if wide {
            u64::from_le_bytes(peek(cx, lane, at, 8)?)
        } else {
            u32::from_le_bytes(peek(cx, lane, at, 4)?) as u64
        };
        at += size;
        let body = match conversion {
            'd' | 'i' if wide => (bits as i64).to_string(),
            'd' | 'i' => (bits as i32).to_string(),
            'u' => bits.to_string(),
            'x' => format!("{bits:x}"),
            'X' => format!("{bits:X}"),
            'o' => format!("{bits:o}"),
            'p' => format!("{bits:#x}"),
            'c' => (bits as u8 as char).to_string(),
            's' => string(cx, lane, bits)?,
            _ => float(f64::from_bits(bits), precision(spec), conversion),
        };
        out.push_str(&pad(spec, body));
    }
    out.push_str(rest);
    Ok(out)
}

/// What follows the point in a conversion's specification.
fn precision(spec: &str) -> Option<usize> {
    spec.split_once('.').map(|(_, p)| p.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0))
}

fn float(x: f64, precision: Option<usize>, conversion: char) -> String {
    if !x.is_finite() {
        let word = if x.is_nan() { "nan" } else { "inf" };
        return format!("{}{word}", if x.is_sign_negative() && !x.is_nan() { "-" } else { "" });
    }
    let p = precision.unwrap_or(6).min(64);
    let scientific = |p: usize| {
        let text = format!("{x:.p$e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |d| ('-', d));
        format!("{mantissa}e{sign}{digits:0>2}")
    };
    match conversion.to_ascii_lowercase() {
        'e' => scientific(p),
        'g' => {
            // %g: scientific outside of 1e-4..10^p, without trailing zeros.
            let p = p.max(1);
            let exponent: i32 =
                format!("{x:.*e}", p - 1).split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
            let text = if x != 0.0 && (exponent < -4 || exponent >= p as i32) {
                scientific(p - 1)
            } else {
                format!("{x:.*}", (p as i32 - 1 - exponent).max(0) as usize)
            };
            let (mantissa, tail) = match text.find('e') {
                Some(i) => text.split_at(i),
                None => (text.as_str(), ""),
            };
            let mantissa =
                if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
            format!("{mantissa}{tail}")
        }
        _ => format!("{x:.p$}"),
    }
}

/// Width and the flags `-`, `0`, `+`.
fn pad(spec: &str, mut body: String) -> String {
    let flags: String = spec.chars().take_while(|c| "-+ 0#".contains(*c)).collect();
    let width: usize =
        spec[flags.len()..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    if flags.contains('+') && !body.starts_with('-') {
        body.insert(0, '+');
    }
    let missing = width.min(256).saturating_sub(body.len());
    if flags.contains('-') {
        body + &" ".repeat(missing)
    } else if flags.contains('0') {
        let at = body.starts_with(['-', '+']) as usize;
        body.insert_str(at, &"0".repeat(missing));
        body
    } else {
        " ".repeat(missing) + &body
    }
}

/// `__assertfail(message, file, line, function, char size)`.
struct Assert {
    message: Place,
    file: Place,
    line: Place,
    function: Place,
}
impl Op for Assert {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        let lane = mask.trailing_zeros() as usize & 31;
        let mut text = |place| {
            let address = value(cx, place, lane);
            string(cx, lane, address)
        };
        let (message, file, function) = (text(self.message)?, text(self.file)?, text(self.function)?);
        let line = value(cx, self.line, lane) as u32;
        let message = format!("assertion `{message}` failed at {file}:{line} in {function}");
        Err(Fault::new(FaultKind::Trap, message).at_lane(lane))
    }
}
