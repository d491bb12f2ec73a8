//! The driver's C functions. Each checks what it is given, finds the objects, and leaves the rest to the other modules.
//! Handles are numbers in pointers' clothes; the context of a device is its number plus 1.

mod context;
mod graphs;
mod kernels;
mod memory;
mod streams;

use crate::{
    code::{Code, INVALID_CONTEXT, SUCCESS},
    counters::Counter,
    device::{Device, devices},
    event::Event,
    graph::{Executable, Graph},
    module::{Function, Module},
    stream::Stream,
    table::Table,
};
use std::{cell::Cell, sync::Arc};

static STREAMS: Table<Stream> = Table::new(Counter::Streams);
static EVENTS: Table<Event> = Table::new(Counter::Events);
static MODULES: Table<Module> = Table::new(Counter::Modules);
static FUNCTIONS: Table<Function> = Table::new(Counter::Functions);
static GRAPHS: Table<Graph> = Table::new(Counter::Graphs);
static EXECUTABLES: Table<Executable> = Table::new(Counter::Graphs);

thread_local! {
    /// The calling thread's context; 0 for none.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread's device, on which no kernel failed.
fn current() -> Result<&'static Arc<Device>, Code> {
    let device = devices().get(CURRENT.get().wrapping_sub(1)).ok_or(INVALID_CONTEXT)?;
    device.check()?;
    Ok(device)
}

/// What a C function returns.
fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(SUCCESS)
}

/// Defines C functions whose bodies are results.
macro_rules! functions { ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
    #[unsafe(no_mangle)]
    #[allow(non_snake_case, unused_unsafe, clippy::missing_safety_doc, clippy::redundant_closure_call)]
    pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::code::Code {
        // SAFETY: callers pass what the driver's documentation asks for.
        $crate::api::code((|| -> Result<(), $crate::code::Code> { unsafe { $body } })())
    }
)*} }
use functions;
