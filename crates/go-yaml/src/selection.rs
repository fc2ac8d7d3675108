//! `Selection`: the part of a document that is read.

/// The part of a value that is read.
#[derive(Clone, Copy, Debug)]
pub enum Selection {
    /// All of it.
    Whole,
    /// Fields of a map with these names, whose case does not matter; of a list, only that it is one.
    Fields(&'static [(&'static str, Selection)]),
}

impl Selection {
    /// Returns the part of the value of a key that is read, if it is.
    pub fn below(self, key: &str) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Fields(fields) => {
                let mut fields = fields.iter();
                let field = fields.find(|(name, _)| key.eq_ignore_ascii_case(name))?;
                Some(field.1)
            }
        }
    }

    /// Returns the part of an item of a list that is read, if it is.
    pub(crate) fn of_items(self) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Fields(_) => None,
        }
    }
}
