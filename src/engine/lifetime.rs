//! The end of the process.

use super::ENGINE;

/// Has the engine stop before the process tears down what it uses: MLX's own threads and
/// statics do not survive work in flight.
pub(super) fn stop_at_exit() {
    extern "C" fn stop() {
        // In a forked child the thread does not exist.
        if let Some(engine) = ENGINE.get()
            && engine.process == std::process::id()
        {
            engine.stop();
        }
    }
    // SAFETY: `stop` is a plain function of a library that is never unloaded. Handlers run in
    // reverse order, so this one runs before the destructors of MLX, which was loaded first.
    // When no slot is left the process merely exits as it would without us.
    unsafe { libc::atexit(stop) };
}
