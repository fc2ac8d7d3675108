//! `Selection`: the part of a document that is read.

/// The part of a value that is read.
#[derive(Clone, Copy, Debug)]
pub enum Selection {
    /// All of it.
    Whole,
    /// Fields of a map with these names, whose case does not matter; of a list, only that it is one.
    Fields(&'static [(&'static str, Selection)]),
    /// This part of each item of a list, and of each value of a map.
    Each(&'static Selection),
    /// A scalar; of a map and a list, only that it is one.
    Scalar,
}

impl Selection {
    /// Returns the part of the value of a key that is read, if it is.
    pub fn below(self, key: &str) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Fields(fields) => {
                let mut fields = fields.iter();
                let field = fields.find(|(name, _)| is_alike(name, key))?;
                Some(field.1)
            }
            Self::Each(part) => Some(*part),
            Self::Scalar => None,
        }
    }

    /// Returns the part of an item of a list that is read, if it is.
    pub fn of_items(self) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Each(part) => Some(*part),
            Self::Fields(_) | Self::Scalar => None,
        }
    }
}

/// Returns whether Go's decoders take `key` for the field `name`: letters that fold to ASCII letters count
/// as these.
pub fn is_alike(name: &str, key: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(key.chars().map(fold))
}
