//! Names of reasons, which programs and people compare.

/// Defines an enum of reasons, each with its meaning.
#[doc(hidden)]
#[macro_export]
macro_rules! reasons {
    ($(#[doc = $about:literal])+ $enum:ident { $($(#[doc = $meaning:literal])+ $name:ident,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl $enum {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// Returns what the reason means, in Markdown.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim(),)+
                }
            }
        }

        impl From<$enum> for &'static str {
            fn from(reason: $enum) -> Self {
                reason.as_str()
            }
        }

        impl PartialEq<$enum> for String {
            fn eq(&self, other: &$enum) -> bool {
                self == other.as_str()
            }
        }
    };
}
