//! Parses a pattern in Go's syntax into the expression that `regex-automata` compiles.

use regex_syntax::hir::{Capture, Hir, Look, Repetition};

use super::class::{parse_class, parse_class_escape};
use super::error::{Error, ErrorCode};
use super::escape::{check_utf8, next_rune, parse_escape};
use super::rune_set::RuneSet;

/// Go's limit for the count of one repetition, and for the product of nested ones.
const MAX_REPEAT: u32 = 1000;
/// Go's limit for the height of the expression.
const MAX_HEIGHT: u32 = 1000;
/// Go's limit for the instructions of a program.
const MAX_SIZE: u64 = (128 << 20) / 40;
/// Limit for the number of ranges in all classes of a pattern. Go allows 16 times as many.
const MAX_RANGES: usize = 1 << 20;

/// The flags that `(?ims-U)` sets.
#[derive(Debug, Clone, Copy, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate flag of the pattern"
)]
pub(super) struct Flags {
    pub(super) fold: bool,
    multi_line: bool,
    dot_newline: bool,
    swap_greed: bool,
}

#[derive(Debug)]
pub(super) struct ParsedPattern {
    pub(super) hir: Hir,
    /// The names of the groups, starting with group 1.
    pub(super) names: Vec<Option<Vec<u8>>>,
    /// Approximate number of instructions in Go's program.
    pub(super) size: u64,
}

/// A part of the expression, with the data that the limits need.
#[derive(Debug)]
struct Item {
    hir: Hir,
    height: u32,
    size: u64,
    /// The largest product of nested repetition counts.
    repeats: u32,
}

impl Item {
    fn leaf(hir: Hir) -> Self {
        Self {
            hir,
            height: 1,
            size: 1,
            repeats: 1,
        }
    }

    fn of(items: Vec<Self>, join: fn(Vec<Hir>) -> Hir, height: u32, size: u64) -> Self {
        Self {
            height,
            size,
            repeats: items.iter().map(|item| item.repeats).max().unwrap_or(1),
            hir: join(items.into_iter().map(|item| item.hir).collect()),
        }
    }
}

fn highest(items: &[Item]) -> u32 {
    items.iter().map(|item| item.height).max().unwrap_or(0)
}

fn total_size(items: &[Item]) -> u64 {
    items.iter().map(|item| item.size).sum()
}

/// An open group, or the whole pattern.
#[derive(Debug)]
struct Frame {
    alternatives: Vec<Item>,
    current: Vec<Item>,
    /// The flags to restore after the group.
    outer: Flags,
    capture: Option<u32>,
}

impl Frame {
    fn new(outer: Flags, capture: Option<u32>) -> Self {
        Self {
            alternatives: Vec::new(),
            current: Vec::new(),
            outer,
            capture,
        }
    }
}

pub(super) fn parse(pattern: &[u8]) -> Result<ParsedPattern, Error> {
    let mut parser = Parser {
        pattern,
        flags: Flags::default(),
        names: Vec::new(),
        open: Vec::new(),
        frame: Frame::new(Flags::default(), None),
        ranges: 0,
        total: 0,
    };
    parser.run()?;
    if !parser.open.is_empty() {
        return Err(Error::new(ErrorCode::MissingParen, pattern));
    }
    let whole = parser.close()?;
    Ok(ParsedPattern {
        hir: whole.hir,
        names: parser.names,
        size: whole.size,
    })
}

/// The kind of group that an opening parenthesis begins.
enum Group {
    /// `(?:`, which does not capture.
    Plain,
    /// `(`, possibly with a name.
    Capturing(Option<Vec<u8>>),
}

struct Parser<'p> {
    pattern: &'p [u8],
    flags: Flags,
    names: Vec<Option<Vec<u8>>>,
    open: Vec<Frame>,
    frame: Frame,
    ranges: usize,
    /// Number of items so far, an upper bound of the nesting.
    total: u32,
}

impl<'p> Parser<'p> {
    fn run(&mut self) -> Result<(), Error> {
        let mut rest = self.pattern;
        let mut last_repeat: Option<&[u8]> = None;
        while let Some(&c) = rest.first() {
            let mut repeat = None;
            match c {
                b'*' | b'+' | b'?' => {
                    repeat = Some(rest);
                    let (min, max) = match c {
                        b'*' => (0, None),
                        b'+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    let after = rest.get(1..).unwrap_or_default();
                    rest = self.repeat(min, max, false, rest, after, last_repeat)?;
                }
                b'{' => match parse_counts(rest) {
                    None => rest = self.literal_at(rest)?,
                    Some(counts) => {
                        let Some((min, max)) = counts.bounds else {
                            let code = ErrorCode::InvalidRepeatSize;
                            return Err(Error::before(code, rest, counts.rest));
                        };
                        repeat = Some(rest);
                        rest = self.repeat(min, max, true, rest, counts.rest, last_repeat)?;
                    }
                },
                _ => rest = self.step(c, rest)?,
            }
            last_repeat = repeat;
        }
        Ok(())
    }

    /// Parses everything but repetitions.
    fn step(&mut self, c: u8, rest: &'p [u8]) -> Result<&'p [u8], Error> {
        let after = rest.get(1..).unwrap_or_default();
        match c {
            b'(' if after.first() == Some(&b'?') => return self.perl_group(rest),
            b'(' => self.open_group(Group::Capturing(None)),
            b')' => {
                if self.open.is_empty() {
                    return Err(Error::new(ErrorCode::UnexpectedParen, self.pattern));
                }
                let inner = self.close()?;
                self.push(inner)?;
            }
            b'|' => {
                let branch = self.concat()?;
                self.frame.alternatives.push(branch);
            }
            b'^' if self.flags.multi_line => self.push_look(Look::StartLF)?,
            b'^' => self.push_look(Look::Start)?,
            b'$' if self.flags.multi_line => self.push_look(Look::EndLF)?,
            b'$' => self.push_look(Look::End)?,
            b'.' => {
                let newline = RuneSet::from_ranges(&[(10, 10)]);
                let all = self.flags.dot_newline;
                self.push_set(&if all {
                    RuneSet::any()
                } else {
                    newline.negated()
                })?;
            }
            b'[' => {
                let (set, rest) = parse_class(rest, self.flags)?;
                self.push_set(&set)?;
                return Ok(rest);
            }
            b'\\' => return self.escape(rest),
            _ => return self.literal_at(rest),
        }
        Ok(after)
    }

    fn escape(&mut self, rest: &'p [u8]) -> Result<&'p [u8], Error> {
        if let [b'\\', letter, after @ ..] = rest {
            let look = match letter {
                b'A' => Some(Look::Start),
                b'z' => Some(Look::End),
                b'b' => Some(Look::WordAscii),
                b'B' => Some(Look::WordAsciiNegate),
                _ => None,
            };
            if let Some(look) = look {
                self.push_look(look)?;
                return Ok(after);
            }
            if *letter == b'C' {
                return Err(Error::before(ErrorCode::InvalidEscape, rest, after));
            }
            if *letter == b'Q' {
                let end = after.windows(2).position(|pair| pair == b"\\E");
                let (mut text, tail) = after.split_at(end.unwrap_or(after.len()));
                while !text.is_empty() {
                    text = self.literal_at(text)?;
                }
                return Ok(tail.get(2..).unwrap_or_default());
            }
        }
        if let Some((set, after)) = parse_class_escape(rest, self.flags)? {
            self.push_set(&set)?;
            return Ok(after);
        }
        let (rune, after) = parse_escape(rest)?;
        self.literal(rune)?;
        Ok(after)
    }

    fn literal_at<'r>(&mut self, rest: &'r [u8]) -> Result<&'r [u8], Error> {
        let (rune, after) = next_rune(rest)?;
        self.literal(rune as u32)?;
        Ok(after)
    }

    fn literal(&mut self, rune: u32) -> Result<(), Error> {
        let set = RuneSet::from_ranges(&[(rune, rune)]);
        let is_caseless =
            char::from_u32(rune).is_some_and(|rune| rune.is_ascii() && !rune.is_ascii_alphabetic());
        let may_fold = self.flags.fold && !is_caseless;
        match char::from_u32(rune) {
            Some(rune) if !may_fold => {
                let text = rune.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
                self.push(Item::leaf(Hir::literal(text)))
            }
            _ => self.push_set(&if may_fold { set.folded() } else { set }),
        }
    }

    fn push_look(&mut self, look: Look) -> Result<(), Error> {
        self.push(Item::leaf(Hir::look(look)))
    }

    fn push_set(&mut self, set: &RuneSet) -> Result<(), Error> {
        self.ranges += set.len();
        if self.ranges > MAX_RANGES {
            return Err(Error::new(ErrorCode::Large, self.pattern));
        }
        self.push(Item::leaf(set.to_hir()))
    }

    fn push(&mut self, item: Item) -> Result<(), Error> {
        let item = self.limited(item)?;
        self.frame.current.push(item);
        Ok(())
    }

    fn limited(&mut self, item: Item) -> Result<Item, Error> {
        self.total += 1;
        let code = if item.size > MAX_SIZE {
            ErrorCode::Large
        } else if item.height > MAX_HEIGHT {
            ErrorCode::NestingDepth
        } else {
            return Ok(item);
        };
        Err(Error::new(code, self.pattern))
    }

    /// Replaces the last item with a repetition of it. `whole` begins at the operator, `after`
    /// after it; `last` is the start of the preceding token, if that was a repetition too.
    fn repeat(
        &mut self,
        min: u32,
        max: Option<u32>,
        counted: bool,
        whole: &'p [u8],
        after: &'p [u8],
        last: Option<&[u8]>,
    ) -> Result<&'p [u8], Error> {
        let (lazy, after) = match after {
            [b'?', after @ ..] => (true, after),
            _ => (false, after),
        };
        if let Some(last) = last {
            return Err(Error::before(ErrorCode::InvalidRepeatOp, last, after));
        }
        let Some(item) = self.frame.current.pop() else {
            return Err(Error::before(
                ErrorCode::MissingRepeatArgument,
                whole,
                after,
            ));
        };
        let copies = max.unwrap_or(min);
        let size = match (counted, max) {
            (true, Some(max)) => u64::from(max) * item.size + u64::from(max - min),
            (true, None) if min > 0 => 1 + u64::from(min) * item.size,
            _ => 2 + item.size,
        };
        // A count of zero removes the part, whatever it contains.
        let repeats = match (counted, max) {
            (true, Some(0)) => 1,
            (true, _) => item.repeats.saturating_mul(copies.max(1)),
            (false, _) => item.repeats,
        };
        let greedy = lazy == self.flags.swap_greed;
        let hir = Hir::repetition(Repetition {
            min,
            max,
            greedy,
            sub: Box::new(item.hir),
        });
        let height = item.height + 1;
        let repeated = self.limited(Item {
            hir,
            height,
            size: size.max(1),
            repeats,
        })?;
        if counted && (min >= 2 || copies >= 2) && repeats > MAX_REPEAT {
            return Err(Error::before(ErrorCode::InvalidRepeatSize, whole, after));
        }
        self.frame.current.push(repeated);
        Ok(after)
    }

    fn open_group(&mut self, group: Group) {
        let index = match group {
            Group::Plain => None,
            Group::Capturing(name) => {
                self.names.push(name);
                Some(u32::try_from(self.names.len()).unwrap_or(u32::MAX))
            }
        };
        let inner = Frame::new(self.flags, index);
        self.open.push(std::mem::replace(&mut self.frame, inner));
    }

    /// Closes the innermost group, or the whole pattern if none is open.
    fn close(&mut self) -> Result<Item, Error> {
        let last = self.concat()?;
        let mut alternatives = std::mem::take(&mut self.frame.alternatives);
        let item = if alternatives.is_empty() {
            last
        } else {
            alternatives.push(last);
            let height = 1 + highest(&alternatives);
            let size = total_size(&alternatives) + alternatives.len() as u64 - 1;
            let item = Item::of(alternatives, Hir::alternation, height, size);
            self.limited(item)?
        };
        let Some(outer) = self.open.pop() else {
            return Ok(item);
        };
        let frame = std::mem::replace(&mut self.frame, outer);
        self.flags = frame.outer;
        Ok(match frame.capture {
            None => item,
            Some(index) => Item {
                hir: Hir::capture(Capture {
                    index,
                    name: None,
                    sub: Box::new(item.hir),
                }),
                height: item.height + 1,
                size: item.size + 2,
                repeats: item.repeats,
            },
        })
    }

    fn concat(&mut self) -> Result<Item, Error> {
        let mut items = std::mem::take(&mut self.frame.current);
        if items.len() == 1
            && let Some(item) = items.pop()
        {
            return Ok(item);
        }
        let literals = items.iter().all(|item| item.height == 1);
        let height = if literals { 1 } else { highest(&items) + 1 };
        let size = total_size(&items).max(1);
        self.limited(Item::of(items, Hir::concat, height, size))
    }

    /// Parses what begins with `(?`: a named group, flags, or flags with a group.
    fn perl_group(&mut self, s: &'p [u8]) -> Result<&'p [u8], Error> {
        let named = match s {
            [b'(', b'?', b'P', b'<', body @ ..] | [b'(', b'?', b'<', body @ ..]
                if !body.is_empty() =>
            {
                Some(body)
            }
            _ => None,
        };
        if let Some(body) = named {
            let Some(end) = body.iter().position(|&c| c == b'>') else {
                check_utf8(s)?;
                return Err(Error::new(ErrorCode::InvalidNamedCapture, s));
            };
            let (name, rest) = body.split_at(end);
            let rest = rest.get(1..).unwrap_or_default();
            check_utf8(name)?;
            if name.is_empty() || !name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_') {
                return Err(Error::before(ErrorCode::InvalidNamedCapture, s, rest));
            }
            self.open_group(Group::Capturing(Some(name.to_vec())));
            return Ok(rest);
        }
        self.flag_group(s)
    }

    fn flag_group(&mut self, s: &'p [u8]) -> Result<&'p [u8], Error> {
        let mut rest = s.get(2..).unwrap_or_default();
        let mut flags = self.flags;
        let (mut on, mut seen) = (true, false);
        while !rest.is_empty() {
            let (rune, after) = next_rune(rest)?;
            rest = after;
            match rune {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.swap_greed = on,
                '-' if on => {
                    (on, seen) = (false, false);
                    continue;
                }
                ':' | ')' if on || seen => {
                    if rune == ':' {
                        self.open_group(Group::Plain);
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            }
            seen = true;
        }
        Err(Error::before(ErrorCode::InvalidPerlOp, s, rest))
    }
}

/// The counts of `{min,max}`.
struct Counts<'p> {
    /// Minimum and optional maximum; `None` if they are out of order or range.
    bounds: Option<(u32, Option<u32>)>,
    rest: &'p [u8],
}

/// Parses `{min}`, `{min,}` or `{min,max}`. Returns `None` if `s` begins with anything else; the
/// brace is a literal then.
fn parse_counts(s: &[u8]) -> Option<Counts<'_>> {
    let allowed = |count: Option<u32>| count.filter(|&count| count <= MAX_REPEAT);
    let (min, rest) = parse_count(s.get(1..)?)?;
    let least = allowed(min);
    let (bounds, rest) = match rest {
        [b',', b'}', ..] => (least.map(|least| (least, None)), rest.get(1..)?),
        [b',', rest @ ..] => {
            let (max, rest) = parse_count(rest)?;
            let most = allowed(max);
            let bounds = least.zip(most).filter(|(least, most)| least <= most);
            (bounds.map(|(least, most)| (least, Some(most))), rest)
        }
        _ => (least.map(|least| (least, Some(least))), rest),
    };
    Some(Counts {
        bounds,
        rest: rest.strip_prefix(b"}")?,
    })
}

/// Parses a decimal number without leading zeros; the value is `None` if it is out of range.
fn parse_count(s: &[u8]) -> Option<(Option<u32>, &[u8])> {
    let length = s.iter().take_while(|c| c.is_ascii_digit()).count();
    let (digits, rest) = s.split_at_checked(length)?;
    if digits.is_empty() || digits.len() > 1 && digits.first() == Some(&b'0') {
        return None;
    }
    let value = digits.iter().try_fold(0_u32, |value, digit| {
        value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))
    });
    Some((value, rest))
}
