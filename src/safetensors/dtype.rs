//! The element types of the format.

/// The type of a tensor's elements, as its header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    non_camel_case_types,
    clippy::upper_case_acronyms,
    reason = "the names are those that stand in the files"
)]
pub(crate) enum Dtype {
    BOOL,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    F8_E4M3,
    F8_E5M2,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    F6_E2M3,
    F6_E3M2,
    F4,
    /// A name that is not in the table. Its size is not known, so only the tensor's range is
    /// checked.
    Unknown,
}

/// Name, bits an element, and whether the library can do anything with the elements.
const TABLE: [(Dtype, &str, u64, bool); 22] = [
    (Dtype::BOOL, "BOOL", 8, true),
    (Dtype::U8, "U8", 8, true),
    (Dtype::I8, "I8", 8, true),
    (Dtype::U16, "U16", 16, true),
    (Dtype::I16, "I16", 16, true),
    (Dtype::U32, "U32", 32, true),
    (Dtype::I32, "I32", 32, true),
    (Dtype::U64, "U64", 64, true),
    (Dtype::I64, "I64", 64, true),
    (Dtype::F16, "F16", 16, true),
    (Dtype::BF16, "BF16", 16, true),
    (Dtype::F32, "F32", 32, true),
    (Dtype::F64, "F64", 64, true),
    (Dtype::F8_E4M3, "F8_E4M3", 8, true),
    (Dtype::F8_E5M2, "F8_E5M2", 8, true),
    (Dtype::C64, "C64", 64, false),
    (Dtype::F8_E8M0, "F8_E8M0", 8, false),
    (Dtype::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8, false),
    (Dtype::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8, false),
    (Dtype::F6_E2M3, "F6_E2M3", 6, false),
    (Dtype::F6_E3M2, "F6_E3M2", 6, false),
    (Dtype::F4, "F4", 4, false),
];

impl Dtype {
    /// The type that a header calls `name`.
    pub(crate) fn from_name(name: &str) -> Self {
        TABLE
            .iter()
            .find(|row| row.1 == name)
            .map_or(Self::Unknown, |row| row.0)
    }

    fn row(self) -> Option<&'static (Dtype, &'static str, u64, bool)> {
        TABLE.iter().find(|row| row.0 == self)
    }

    /// The name in the header, where it is one of the table.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.1)
    }

    /// Bits of one element, where known.
    pub(crate) fn bits(self) -> Option<u64> {
        self.row().map(|row| row.2)
    }

    /// Whether a tensor of this type can be read.
    pub(crate) fn is_readable(self) -> bool {
        self.row().is_some_and(|row| row.3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_agree_with_the_reference_crate() {
        for (dtype, name, bits, _) in TABLE {
            assert_eq!(Dtype::from_name(name), dtype);
            assert_eq!(dtype.name(), Some(name));
            let reference: safetensors::Dtype =
                serde_json::from_value(serde_json::json!(name)).unwrap();
            assert_eq!(reference.bitsize() as u64, bits, "{name}");
        }
        assert_eq!(Dtype::from_name("f32"), Dtype::Unknown);
        assert_eq!(Dtype::Unknown.bits(), None);
        assert!(!Dtype::Unknown.is_readable());
    }
}
