//! The names for `\p{…}`: Unicode's general categories and the scripts that Go finds.

use regex_syntax::hir::{Class, HirKind};

use super::rune_set::RuneSet;

/// Long names of categories as Go normalizes them: one capital, then small letters, without
/// separators.
const CATEGORY_NAMES: &[(&str, &str)] = &[
    ("Casedletter", "LC"),
    ("Closepunctuation", "Pe"),
    ("Cntrl", "Cc"),
    ("Combiningmark", "M"),
    ("Connectorpunctuation", "Pc"),
    ("Control", "Cc"),
    ("Currencysymbol", "Sc"),
    ("Dashpunctuation", "Pd"),
    ("Decimalnumber", "Nd"),
    ("Digit", "Nd"),
    ("Enclosingmark", "Me"),
    ("Finalpunctuation", "Pf"),
    ("Format", "Cf"),
    ("Initialpunctuation", "Pi"),
    ("Letter", "L"),
    ("Letternumber", "Nl"),
    ("Lineseparator", "Zl"),
    ("Lowercaseletter", "Ll"),
    ("Mark", "M"),
    ("Mathsymbol", "Sm"),
    ("Modifierletter", "Lm"),
    ("Modifiersymbol", "Sk"),
    ("Nonspacingmark", "Mn"),
    ("Number", "N"),
    ("Openpunctuation", "Ps"),
    ("Other", "C"),
    ("Otherletter", "Lo"),
    ("Othernumber", "No"),
    ("Otherpunctuation", "Po"),
    ("Othersymbol", "So"),
    ("Paragraphseparator", "Zp"),
    ("Privateuse", "Co"),
    ("Punct", "P"),
    ("Punctuation", "P"),
    ("Separator", "Z"),
    ("Spaceseparator", "Zs"),
    ("Spacingmark", "Mc"),
    ("Surrogate", "Cs"),
    ("Symbol", "S"),
    ("Titlecaseletter", "Lt"),
    ("Unassigned", "Cn"),
    ("Uppercaseletter", "Lu"),
];

/// The categories that the Unicode tables contain directly.
const CATEGORIES: &[&str] = &[
    "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl",
    "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl",
    "Zp", "Zs",
];

/// The scripts of Unicode 15.0 with a one-word name. Go cannot find the others: it drops the
/// underscore from the requested name, but not from its own names.
const SCRIPTS: &str = "\
    Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi \
    Braille Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot \
    Cyrillic Deseret Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic \
    Grantha Greek Gujarati Gurmukhi Han Hangul Hanunoo Hatran Hebrew Hiragana Inherited Javanese \
    Kaithi Kannada Katakana Kawi Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Lisu \
    Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Medefaidrin Miao Modi \
    Mongolian Mro Multani Myanmar Nabataean Nandinagari Newa Nko Nushu Ogham Oriya Osage Osmanya \
    Palmyrene Phoenician Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham Sinhala Sogdian \
    Soyombo Sundanese Syriac Tagalog Tagbanwa Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan \
    Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Yezidi Yi";

/// Returns the set for a name, or `None` if Go does not know it.
pub(super) fn lookup(name: &[u8]) -> Option<RuneSet> {
    let name = canonical(name);
    let long = CATEGORY_NAMES.iter().find(|(long, _)| *long == name);
    match long.map_or(name.as_str(), |(_, short)| short) {
        "Any" => Some(RuneSet::any()),
        "Ascii" => Some(RuneSet::from_ranges(&[(0, 0x7F)])),
        "Lc" | "LC" => table(r"\p{Lu}\p{Ll}\p{Lt}"),
        "Cs" => Some(RuneSet::from_ranges(&[(0xD800, 0xDFFF)])),
        "Assigned" => assigned(),
        "Cn" => assigned().map(RuneSet::negated),
        "C" => {
            let mut set = table(r"\p{Cc}\p{Cf}\p{Co}")?;
            set.extend(&assigned()?.negated());
            set.push(0xD800, 0xDFFF);
            Some(set)
        }
        short if CATEGORIES.contains(&short) => table(&format!(r"\p{{{short}}}")),
        script if SCRIPTS.split(' ').any(|known| known == script) => {
            table(&format!(r"\p{{sc={script}}}"))
        }
        _ => None,
    }
}

fn assigned() -> Option<RuneSet> {
    let mut set = table(r"\P{Cn}")?;
    set.push(0xD800, 0xDFFF);
    Some(set)
}

/// Returns a class of regex-syntax, restricted to the Unicode version of Go's tables.
fn table(class: &str) -> Option<RuneSet> {
    let hir = regex_syntax::parse(&format!(r"[[{class}]&&\p{{Age:15.0}}]")).ok()?;
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(RuneSet::from_class(class)),
        // A category with a single rune.
        HirKind::Literal(text) => {
            let (rune, _) = crate::go::utf8::decode_rune(&text.0);
            Some(RuneSet::from_ranges(&[(rune as u32, rune as u32)]))
        }
        _ => None,
    }
}

/// Normalizes a name: leading capital, lower case, without underscores, hyphens and spaces.
fn canonical(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '_' | '-' | ' ' => {}
            _ if out.is_empty() => out.push(c.to_ascii_uppercase()),
            _ => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}
