//! The layout of every struct that C sees, computed by C's rules and asserted by both compilers.
//!
//! It is committed with the header, so that a change of the ABI shows as such in a review.

use std::{collections::BTreeMap, fmt::Write};

use syn::{Expr, Fields, GenericArgument, Item, Lit, PathArguments, Type};

use crate::{
    Result,
    source::{BOOL, Source, is_repr_c},
};

/// A struct or enum of the header.
pub(crate) struct Layout {
    name: String,
    size: usize,
    /// Each field with its offset; none for an enum.
    fields: Vec<(String, usize)>,
}

#[derive(Clone, Copy)]
struct Size {
    bytes: usize,
    alignment: usize,
}

const fn scalar(bytes: usize) -> Size {
    Size {
        bytes,
        alignment: bytes,
    }
}

/// A pointer; every platform of the library has 64 bits.
const POINTER: Size = scalar(8);

/// The layouts of all `repr(C)` types.
pub(crate) fn of(sources: &[Source]) -> Result<Vec<Layout>> {
    let items: BTreeMap<String, &Item> = sources
        .iter()
        .flat_map(|source| &source.items)
        .filter_map(|item| match item {
            Item::Struct(item_struct) => Some((item_struct.ident.to_string(), item)),
            Item::Enum(item_enum) => Some((item_enum.ident.to_string(), item)),
            Item::Type(item_type) => Some((item_type.ident.to_string(), item)),
            _ => None,
        })
        .collect();
    let mut layouts = Vec::new();
    for (name, item) in &items {
        match item {
            Item::Enum(item) if is_repr_c(&item.attrs) => layouts.push(Layout {
                name: name.clone(),
                size: scalar(4).bytes,
                fields: Vec::new(),
            }),
            Item::Struct(item) if is_repr_c(&item.attrs) => {
                let (size, fields) =
                    structure(&items, &item.fields).map_err(|error| format!("{name}: {error}"))?;
                layouts.push(Layout {
                    name: name.clone(),
                    size: size.bytes,
                    fields,
                });
            }
            _ => {}
        }
    }
    Ok(layouts)
}

fn structure(
    items: &BTreeMap<String, &Item>,
    fields: &Fields,
) -> Result<(Size, Vec<(String, usize)>)> {
    let mut offsets = Vec::new();
    let mut whole = Size {
        bytes: 0,
        alignment: 1,
    };
    for field in fields {
        let name = field.ident.as_ref().ok_or("a field without a name")?;
        let size = size(items, &field.ty)?;
        let offset = whole.bytes.next_multiple_of(size.alignment);
        offsets.push((name.to_string(), offset));
        whole.bytes = offset + size.bytes;
        whole.alignment = whole.alignment.max(size.alignment);
    }
    whole.bytes = whole.bytes.next_multiple_of(whole.alignment);
    Ok((whole, offsets))
}

fn size(items: &BTreeMap<String, &Item>, of: &Type) -> Result<Size> {
    match of {
        Type::Ptr(_) | Type::BareFn(_) => Ok(POINTER),
        Type::Array(array) => {
            let Expr::Lit(length) = &array.len else {
                return Err("an array whose length is not a number".into());
            };
            let Lit::Int(length) = &length.lit else {
                return Err("an array whose length is not a number".into());
            };
            let element = size(items, &array.elem)?;
            Ok(Size {
                bytes: element.bytes * length.base10_parse::<usize>()?,
                ..element
            })
        }
        Type::Path(path) => {
            let last = path.path.segments.last().ok_or("a type without a name")?;
            match (last.ident.to_string().as_str(), &last.arguments) {
                (BOOL | "bool" | "u8" | "i8" | "c_char", _) => Ok(scalar(1)),
                ("u16" | "i16", _) => Ok(scalar(2)),
                ("u32" | "i32" | "f32" | "c_int" | "c_uint", _) => Ok(scalar(4)),
                ("u64" | "i64" | "f64" | "usize" | "isize", _) => Ok(scalar(8)),
                // NULL is None: only pointers have that.
                ("Option", PathArguments::AngleBracketed(inner)) => match inner.args.first() {
                    Some(GenericArgument::Type(Type::BareFn(_))) => Ok(POINTER),
                    _ => Err("an Option that is not of a function".into()),
                },
                (name, _) => match items.get(name) {
                    Some(Item::Struct(item)) if is_repr_c(&item.attrs) => {
                        structure(items, &item.fields).map(|(size, _)| size)
                    }
                    Some(Item::Enum(item)) if is_repr_c(&item.attrs) => Ok(scalar(4)),
                    Some(Item::Type(item)) => size(items, &item.ty),
                    _ => Err(format!("a type of unknown layout: {name}").into()),
                },
            }
        }
        _ => Err("a type of unknown layout".into()),
    }
}

/// Assertions for Rust's compiler.
pub(crate) fn rust(layouts: &[Layout]) -> String {
    let mut text = "\
//! The layout of every struct that C sees. Generated by `cargo xtask header`: do not edit.

use super::*;

const _: () = {
"
    .to_owned();
    for layout in layouts {
        let Layout { name, size, fields } = layout;
        let _ = writeln!(text, "    assert!(size_of::<{name}>() == {size});");
        for (field, offset) in fields {
            let _ = writeln!(
                text,
                "    assert!(std::mem::offset_of!({name}, {field}) == {offset});"
            );
        }
    }
    text + "};\n"
}

/// Assertions for C's compiler, from C99 and C++11 on.
pub(crate) fn c(layouts: &[Layout]) -> String {
    let mut text = "\
/* The layout of every struct of mlxb.h. Generated by `cargo xtask header`: do not edit. */

#define MLXB_LAYOUT(name, condition) typedef char mlxb_layout_##name[(condition) ? 1 : -1]

"
    .to_owned();
    for layout in layouts {
        let Layout { name, size, fields } = layout;
        let _ = writeln!(
            text,
            "MLXB_LAYOUT(size_of_{name}, sizeof({name}) == {size});"
        );
        for (field, offset) in fields {
            let _ = writeln!(
                text,
                "MLXB_LAYOUT({name}_at_{field}, offsetof({name}, {field}) == {offset});"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    macro_rules! with_source {
        ($($code:tt)*) => {
            $($code)*
            const SOURCE: &str = stringify!($($code)*);
        };
    }

    with_source! {
        #[repr(C)]
        pub struct Inner {
            pub flag: u8,
            pub ratio: f64,
        }
        #[repr(C)]
        pub struct Outer {
            pub kind: i32,
            pub inner: Inner,
            pub letters: [u8; 5],
            pub call: Option<unsafe extern "C" fn(i32) -> i32>,
            pub last: u16,
        }
    }

    #[test]
    fn computed_as_the_compiler_does() {
        let source = Source {
            path: "source.rs".into(),
            room: "source".to_owned(),
            items: syn::parse_file(SOURCE).unwrap().items,
        };
        let layouts = of(&[source]).unwrap();
        let outer = &layouts[1];
        assert_eq!(outer.size, size_of::<Outer>());
        let offsets: Vec<_> = outer.fields.iter().map(|(_, offset)| *offset).collect();
        let wanted = [
            offset_of!(Outer, kind),
            offset_of!(Outer, inner),
            offset_of!(Outer, letters),
            offset_of!(Outer, call),
            offset_of!(Outer, last),
        ];
        assert_eq!(offsets, wanted);
    }
}
