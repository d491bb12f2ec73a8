//! Calls of device functions, and the functions that the system provides: vprintf, __assertfail.

use crate::{
    counters::Kind,
    decode::{
        build::Build,
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

impl Op for Call {
    fn run(&self, cx: &mut Cx<'_>, mask: u32) -> Outcome {
        if let Some(Wait::Callee) = cx.warp.take_woken() {
            for (from, to, bytes) in &self.results {
                for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
                    match to {
                        Place::Local(to) => cx.warp.local.copy(lane, *from, *to, *bytes),
                        Place::Register(slot, bits) => {
                            let mut v = [0u8; 16];
                            cx.warp.local.read(lane, *from, &mut v[..(*bytes).min(16)]);
                            let v = u128::from_le_bytes(v);
                            match bits {
                                64 => cx.warp.regs.set_lane(*slot, lane, v as u64),
                                _ => cx.warp.regs.set_lane(*slot, lane, v as u32),
                            }
                        }
                    }
                }
            }
            return Ok(Flow::Next);
        }
        for (from, to, bytes) in &self.arguments {
            for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
                match from {
                    Place::Local(from) => cx.warp.local.copy(lane, *from, *to, *bytes),
                    Place::Register(slot, bits) => {
                        let v = match bits {
                            64 => cx.warp.regs.lane::<u64>(*slot, lane),
                            _ => cx.warp.regs.lane::<u32>(*slot, lane) as u64,
                        };
                        cx.warp.local.write(lane, *to, &v.to_le_bytes()[..(*bytes).min(8)]);
                    }
                }
            }
        }
        let mut stack = cx.warp.current.stack.clone();
        stack.push(cx.warp.current.pc);
        cx.warp.send(mask, self.target, Some(stack));
        Ok(Flow::Jumped)
    }
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
    let Meaning::Function(index) = b.meaning(name)? else {
        return b.error(format!("`{name}` is no function; calls through registers are not supported"));
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
