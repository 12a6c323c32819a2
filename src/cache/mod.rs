//! The prompt cache: KV state that is found again.

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "the memory tier that uses it is not there yet"
    )
)]
mod disk;
mod namespace;
