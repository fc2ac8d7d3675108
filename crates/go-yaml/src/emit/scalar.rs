//! The style of a string: plain, quoted or block.

use std::fmt::Write;

use crate::resolve::{Scalar, is_base60, is_timestamp, resolve_plain};

/// The Go package whose output is reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// yaml.v2, as used by `sigs.k8s.io/yaml`: folds at 80 columns, does not indent lists in maps.
    V2,
    /// yaml.v3 with an indentation of 2: never folds, indents lists in maps.
    V3,
}

impl Version {
    /// Returns the column after which lines are folded.
    pub(super) fn width(self) -> usize {
        match self {
            Self::V2 => 80,
            Self::V3 => usize::MAX,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Plain, without any need for analysis.
    SimplePlain,
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Returns the style that a string needs, given what it would mean if written plainly.
pub(super) fn style_of(text: &str, version: Version) -> Style {
    if is_simple(text) {
        return Style::SimplePlain;
    }
    if text.contains('\n') {
        return Style::Literal;
    }
    let old_bool = version == Version::V3
        && [
            "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off",
            "Off", "OFF",
        ]
        .contains(&text);
    let plain = matches!(resolve_plain(text), Scalar::Str(_))
        // Timestamps are strings here, but Go has a type for them and quotes such strings.
        && !is_timestamp(text)
        && !is_base60(text)
        && !old_bool;
    if plain {
        Style::Plain
    } else {
        Style::DoubleQuoted
    }
}

/// Returns whether a text starts with a letter that starts no keyword and contains no special
/// characters.
fn is_simple(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((first, rest)) = bytes.split_first() else {
        return false;
    };
    let keyword = matches!(
        first,
        b'n' | b'N' | b'y' | b'Y' | b't' | b'T' | b'f' | b'F' | b'o' | b'O'
    );
    (first.is_ascii_alphabetic() && (!keyword || bytes.len() > 5) || *first == b'/')
        && rest
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/'))
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && c != '\u{feff}'
}

/// Returns the escape of a character in double quotes.
pub(super) fn escape(c: char) -> String {
    let short = match c {
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ => "",
    };
    if !short.is_empty() {
        return short.to_owned();
    }
    let code = u32::from(c);
    let mut out = String::new();
    let _ = match code {
        0..=0xFF => write!(out, "\\x{code:02X}"),
        0x100..=0xFFFF => write!(out, "\\u{code:04X}"),
        _ => write!(out, "\\U{code:08X}"),
    };
    out
}

/// The result of libyaml's analysis of a scalar, as far as block context needs it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate style")]
pub(super) struct Analysis {
    multiline: bool,
    plain: bool,
    single_quoted: bool,
    block: bool,
    empty: bool,
}

impl Analysis {
    pub(super) fn of(text: &str, version: Version) -> Self {
        if text.is_empty() {
            return Self {
                multiline: false,
                plain: true,
                single_quoted: true,
                block: false,
                empty: true,
            };
        }
        let mut indicators = text.starts_with("---") || text.starts_with("...");
        let (mut line_breaks, mut special, mut tabs) = (false, false, false);
        let (mut leading, mut trailing_break, mut trailing_space) = (false, false, false);
        let (mut break_space, mut space_break) = (false, false);
        let mut after_blank = true;
        let (mut previous_space, mut previous_break) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let next = chars.peek().map(|(_, next)| *next);
            let before_blank = next.is_none_or(|next| matches!(next, ' ' | '\t'));
            indicators |= match c {
                '#' if i == 0 => true,
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
                | '@' | '`' => i == 0,
                '?' | '-' => i == 0 && before_blank,
                ':' => before_blank,
                '#' => after_blank,
                _ => false,
            };
            // yaml.v3 allows tabs in block scalars.
            if c == '\t' && version == Version::V3 {
                tabs = true;
            } else {
                special |= !is_printable(c);
            }
            if c == ' ' {
                leading |= i == 0;
                trailing_space |= next.is_none();
                break_space |= previous_break;
                (previous_space, previous_break) = (true, false);
            } else if is_break(c) {
                line_breaks = true;
                leading |= i == 0;
                trailing_break |= next.is_none();
                space_break |= previous_space;
                (previous_space, previous_break) = (false, true);
            } else {
                (previous_space, previous_break) = (false, false);
            }
            after_blank = matches!(c, ' ' | '\t' | '\0') || is_break(c);
        }
        let edges = leading || trailing_space || trailing_break;
        Self {
            multiline: line_breaks,
            plain: !(edges
                || break_space
                || space_break
                || special
                || tabs
                || line_breaks
                || indicators),
            single_quoted: !(break_space || space_break || special || tabs),
            block: !(trailing_space || space_break || special),
            empty: false,
        }
    }

    /// Returns the wanted style, or the next one that can represent the text.
    pub(super) fn choose(self, wanted: Style, simple_key: bool) -> Style {
        let mut style = wanted;
        if simple_key && self.multiline {
            style = Style::DoubleQuoted;
        }
        if style == Style::Plain && (!self.plain || (self.empty && simple_key)) {
            style = Style::SingleQuoted;
        }
        if style == Style::SingleQuoted && !self.single_quoted {
            style = Style::DoubleQuoted;
        }
        if style == Style::Literal && (!self.block || simple_key) {
            style = Style::DoubleQuoted;
        }
        style
    }
}
