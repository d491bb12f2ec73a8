//! Server-sent events: the bytes of a stream, in whatever pieces they come, as the data of its events.

/// What was read of a stream and is no whole event yet.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Option<String>,
}

impl Events {
    /// The data of the events that `bytes` complete. Comments and fields other than `data` are passed over.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = vec![];
        for &byte in bytes {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).into_owned();
            self.line.clear();
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if line.is_empty() {
                events.extend(self.data.take());
            } else if let Some(value) = line.strip_prefix("data:") {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut self.data {
                    Some(data) => *data += &format!("\n{value}"),
                    None => self.data = Some(value.to_owned()),
                }
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let stream = ": ping\n\ndata: {\"a\": \"é\"}\n\nevent: x\r\ndata:1\r\ndata: 2\r\n\r\nid: 3\n\ndata: [DONE]\n\n";
        let expected = ["{\"a\": \"é\"}", "1\n2", "[DONE]"];
        for size in 1..=stream.len() {
            let mut events = Events::default();
            let all: Vec<String> = stream.as_bytes().chunks(size).flat_map(|piece| events.push(piece)).collect();
            assert_eq!(all, expected, "pieces of {size}");
        }
    }
}
