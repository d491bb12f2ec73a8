//! Recording streams, and launching what was recorded.

use super::{EXECUTABLES, GRAPHS, STREAMS, current, functions};
use crate::graph::{Executable, Graph};
use std::{
    ffi::{c_uint, c_ulonglong},
    sync::Arc,
};

functions! {
    fn cuStreamBeginCapture_v2(stream: usize, _mode: c_uint) {
        STREAMS.get(stream)?.begin_recording()
    }

    fn cuStreamEndCapture(stream: usize, graph: *mut usize) {
        let work = STREAMS.get(stream)?.end_recording()?;
        graph.write(GRAPHS.add(Arc::new(Graph { work })));
        Ok(())
    }

    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, _flags: c_ulonglong) {
        current()?;
        let work = GRAPHS.get(graph)?.work.clone();
        executable.write(EXECUTABLES.add(Arc::new(Executable { work })));
        Ok(())
    }

    fn cuGraphDestroy(graph: usize) {
        GRAPHS.remove(graph)?;
        Ok(())
    }

    fn cuGraphExecDestroy(executable: usize) {
        EXECUTABLES.remove(executable)?;
        Ok(())
    }

    fn cuGraphLaunch(executable: usize, stream: usize) {
        let stream = STREAMS.get(stream)?;
        stream.device.check()?;
        EXECUTABLES.get(executable)?.launch(&stream);
        Ok(())
    }
}
