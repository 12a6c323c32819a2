//! Chat templates beside the reference: Python's Jinja2, set up by transformers.

mod reference;
mod rendering;
mod tokens;
