//! Where a request stands in a distributed trace: the W3C's `traceparent`.

use std::fmt;

/// A caller's span, as its `traceparent` header names it: `00-TRACE-SPAN-FLAGS`, in hexadecimal digits.
///
/// ```
/// use tegula_engine::trace::TraceContext;
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(header).unwrap();
/// assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert!(context.sampled());
/// assert_eq!(context.to_string(), header);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    flags: u8,
}

/// A trace, as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl TraceContext {
    /// None if it is malformed: as the standard has it, a trace then begins anew.
    pub fn parse(header: &str) -> Option<TraceContext> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hex(version, 2)?;
        // A later version may have more parts, and this one has not; 255 is no version.
        if version == 0xff || version == 0 && parts.next().is_some() {
            return None;
        }
        let (trace, span, flags) = (hex(trace, 32)?, hex(span, 16)?, hex(flags, 2)?);
        // As many digits as each has bits for.
        (trace != 0 && span != 0).then_some(TraceContext { trace, span: span as u64, flags: flags as u8 })
    }

    pub fn trace_id(&self) -> TraceId {
        TraceId(self.trace)
    }

    /// The caller's span.
    pub fn span_id(&self) -> u64 {
        self.span
    }

    /// Whether the caller records the trace.
    pub fn sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

/// Exactly so many lowercase hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(lower)).then(|| u128::from_str_radix(text, 16).ok())?
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{:016x}-{:02x}", self.trace_id(), self.span, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_the_standard_says() {
        let right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(right).unwrap();
        assert_eq!(context.trace_id().0, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled());
        assert_eq!(context.to_string(), right);
        assert!(!TraceContext::parse(&right.replace("-01", "-00")).unwrap().sampled());
        // A later version may say more.
        assert_eq!(TraceContext::parse(&format!("cc{}-what-else", &right[2..])), Some(context));
        assert_eq!(TraceContext::parse(&format!(" {right} ")), Some(context));
    }

    #[test]
    fn a_malformed_header_is_no_parent() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let upper = "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01";
        let short = "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01";
        let long = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        let version = "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let sign = "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let wide = "00-ÄÄf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for wrong in ["", "-", "---", "garbage", zero_trace, zero_span, upper, short, long, version, sign, wide] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
