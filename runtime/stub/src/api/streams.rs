//! Streams and events.

use super::{EVENTS, STREAMS, current, functions};
use crate::{
    code::NOT_READY,
    event::Event,
    stream::{Stream, Work},
};
use std::{ffi::c_uint, sync::Arc};

/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: c_uint = 2;

functions! {
    fn cuStreamCreate(stream: *mut usize, _flags: c_uint) {
        stream.write(STREAMS.add(Arc::new(Stream::new(current()?.clone()))));
        Ok(())
    }

    fn cuStreamDestroy_v2(stream: usize) {
        STREAMS.remove(stream)?;
        Ok(())
    }

    fn cuStreamSynchronize(stream: usize) {
        STREAMS.get(stream)?.synchronize()
    }

    fn cuStreamQuery(stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.live()?;
        stream.device.check()?;
        if stream.is_idle() { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) {
        let (stream, event) = (STREAMS.get(stream)?, EVENTS.get(event)?);
        stream.live()?;
        let record = event.recorded();
        stream.put(Work::always(move || event.wait(record)));
        stream.device.check()
    }

    fn cuEventCreate(event: *mut usize, flags: c_uint) {
        current()?;
        event.write(EVENTS.add(Arc::new(Event::new(flags & UNTIMED == 0))));
        Ok(())
    }

    fn cuEventDestroy_v2(event: usize) {
        EVENTS.remove(event)?;
        Ok(())
    }

    fn cuEventRecord(event: usize, stream: usize) {
        let (stream, event) = (STREAMS.get(stream)?, EVENTS.get(event)?);
        stream.live()?;
        let record = event.record();
        stream.put(Work::always(move || event.reach(record)));
        stream.device.check()
    }

    fn cuEventSynchronize(event: usize) {
        let event = EVENTS.get(event)?;
        event.wait(event.recorded());
        current()?;
        Ok(())
    }

    fn cuEventQuery(event: usize) {
        current()?;
        if EVENTS.get(event)?.is_done() { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: usize, end: usize) {
        milliseconds.write(EVENTS.get(end)?.since(&*EVENTS.get(start)?)?);
        Ok(())
    }
}
