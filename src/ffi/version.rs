//! The version of the library that is running.

use std::ffi::c_char;

use crate::engine::mlx::VERSIONS;

/// The version of the library that is running: 1000000 * major + 1000 * minor + patch.
///
/// Thread: any. Since 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn mlxb_version_number() -> u32 {
    const fn number(text: &str) -> u32 {
        let bytes = text.as_bytes();
        let (mut value, mut index) = (0, 0);
        while index < bytes.len() {
            value = value * 10 + (bytes[index] - b'0') as u32;
            index += 1;
        }
        value
    }
    const {
        1_000_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
            + 1_000 * number(env!("CARGO_PKG_VERSION_MINOR"))
            + number(env!("CARGO_PKG_VERSION_PATCH"))
    }
}

/// The version of the library and of MLX, such as "mlxb/0.1.0 mlx/0.32.2 (cpu)".
///
/// Ownership: a constant of the library, never freed. Thread: any. Since 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn mlxb_version_string() -> *const c_char {
    VERSIONS.as_ptr()
}
