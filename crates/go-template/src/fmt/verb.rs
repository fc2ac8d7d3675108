//! The format string: flags, widths, argument indexes, and errors in them.

use super::{Flags, Printer};
use crate::go::utf8::{decode_rune, push_rune};
use crate::value::{Number, Value};
use bounded::BudgetError;

/// Larger widths and precisions are rejected.
const MAX_WIDTH: i64 = 1_000_000;

/// Reading position in a format string.
struct Cursor<'f> {
    format: &'f [u8],
    at: usize,
    /// The next argument.
    arg: usize,
    count: usize,
    /// Whether the last token was an index such as `[3]`.
    after_index: bool,
    reordered: bool,
    index_is_good: bool,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let accepted = self.peek() == Some(byte);
        self.at += usize::from(accepted);
        accepted
    }

    /// Parses a decimal number, if one follows; a number that is too large ends the format.
    fn number(&mut self) -> Option<i64> {
        let (number, next) = parse_number(self.format, self.at, self.format.len());
        self.at = next;
        number
    }

    /// Parses an argument index in brackets, if one follows.
    fn index(&mut self) {
        self.after_index = false;
        if self.peek() != Some(b'[') {
            return;
        }
        self.reordered = true;
        let rest = self.format.get(self.at..).unwrap_or_default();
        let close = rest.iter().position(|byte| *byte == b']');
        let Some(close) = close.filter(|_| rest.len() >= 3) else {
            self.at += 1;
            self.index_is_good = false;
            return;
        };
        self.at += close + 1;
        let (number, next) = parse_number(rest, 1, close);
        match number {
            Some(number) if next == close => {
                self.after_index = true;
                match usize::try_from(number - 1) {
                    Ok(index) if index < self.count => self.arg = index,
                    _ => self.index_is_good = false,
                }
            }
            _ => self.index_is_good = false,
        }
    }

    /// Returns the next argument as a width or precision.
    fn integer_argument(&mut self, args: &[Value]) -> Option<i64> {
        let value = args.get(self.arg)?;
        self.arg += 1;
        let number = value.number().and_then(Number::to_i64)?;
        (-MAX_WIDTH..=MAX_WIDTH).contains(&number).then_some(number)
    }
}

/// Parses the number between `start` and `end`, and returns its end.
fn parse_number(text: &[u8], start: usize, end: usize) -> (Option<i64>, usize) {
    let mut number = None;
    let mut at = start;
    let text = text.get(..end).unwrap_or(text);
    while let Some(digit) = text.get(at).filter(|digit| digit.is_ascii_digit()) {
        let so_far = number.unwrap_or(0);
        if so_far > MAX_WIDTH {
            return (None, end);
        }
        number = Some(so_far * 10 + i64::from(digit - b'0'));
        at += 1;
    }
    (number, at)
}

impl Printer<'_> {
    pub(super) fn printf(&mut self, format: &[u8], args: &[Value]) -> Result<(), BudgetError> {
        let mut cursor = Cursor {
            format,
            at: 0,
            arg: 0,
            count: args.len(),
            after_index: false,
            reordered: false,
            index_is_good: true,
        };
        loop {
            let rest = format.get(cursor.at..).unwrap_or_default();
            let plain = memchr::memchr(b'%', rest).unwrap_or(rest.len());
            self.out
                .extend_from_slice(rest.get(..plain).unwrap_or_default());
            if plain == rest.len() {
                break;
            }
            cursor.at += plain + 1;
            cursor.index_is_good = true;
            cursor.after_index = false;
            self.flags = Flags::default();
            self.read_flags(&mut cursor);
            self.read_width_and_precision(&mut cursor, args);
            let (verb, size) = decode_rune(format.get(cursor.at..).unwrap_or_default());
            if size == 0 {
                self.out.extend_from_slice(b"%!(NOVERB)");
                break;
            }
            cursor.at += size;
            self.verb(verb, &mut cursor, args)?;
            self.check_length()?;
        }
        if !cursor.reordered && cursor.arg < args.len() {
            self.extra(args.get(cursor.arg..).unwrap_or_default())?;
        }
        Ok(())
    }

    fn read_flags(&mut self, cursor: &mut Cursor<'_>) {
        while let Some(byte) = cursor.peek() {
            match byte {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            cursor.at += 1;
        }
    }

    fn read_width_and_precision(&mut self, cursor: &mut Cursor<'_>, args: &[Value]) {
        let is_simple = cursor.peek().is_some_and(|byte| byte.is_ascii_lowercase());
        if is_simple && cursor.arg < args.len() {
            return;
        }
        cursor.index();
        if cursor.accept(b'*') {
            match cursor.integer_argument(args) {
                Some(width) => {
                    self.flags.width = usize::try_from(width.unsigned_abs()).ok();
                    if width < 0 {
                        self.flags.minus = true;
                        self.flags.zero = false;
                    }
                }
                None => self.out.extend_from_slice(b"%!(BADWIDTH)"),
            }
            cursor.after_index = false;
        } else {
            let width = cursor.number();
            self.flags.width = width.and_then(|width| usize::try_from(width).ok());
            if cursor.after_index && width.is_some() {
                // As in "%[3]2d".
                cursor.index_is_good = false;
            }
        }
        if cursor.at + 1 < cursor.format.len() && cursor.accept(b'.') {
            if cursor.after_index {
                // As in "%[3].2d".
                cursor.index_is_good = false;
            }
            cursor.index();
            if cursor.accept(b'*') {
                match cursor.integer_argument(args) {
                    Some(precision) if precision >= 0 => {
                        self.flags.precision = usize::try_from(precision).ok();
                    }
                    _ => self.out.extend_from_slice(b"%!(BADPREC)"),
                }
                cursor.after_index = false;
            } else {
                let precision = cursor.number().unwrap_or(0);
                self.flags.precision = usize::try_from(precision).ok();
            }
        }
        if !cursor.after_index {
            cursor.index();
        }
    }

    fn verb(
        &mut self,
        verb: char,
        cursor: &mut Cursor<'_>,
        args: &[Value],
    ) -> Result<(), BudgetError> {
        let problem: &[u8] = match args.get(cursor.arg) {
            _ if verb == '%' => {
                self.out.push(b'%');
                return Ok(());
            }
            _ if !cursor.index_is_good => b"(BADINDEX)",
            None => b"(MISSING)",
            Some(arg) => {
                if matches!(verb, 'v' | 'w') {
                    self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
                    self.flags.plus_v = std::mem::take(&mut self.flags.plus);
                }
                cursor.arg += 1;
                return self.print_arg(arg, verb);
            }
        };
        self.out.extend_from_slice(b"%!");
        push_rune(self.out, verb);
        self.out.extend_from_slice(problem);
        Ok(())
    }

    /// Reports arguments that the format did not use.
    fn extra(&mut self, args: &[Value]) -> Result<(), BudgetError> {
        self.flags = Flags::default();
        self.out.extend_from_slice(b"%!(EXTRA ");
        for (index, arg) in args.iter().enumerate() {
            if index > 0 {
                self.out.extend_from_slice(b", ");
            }
            if arg.go_type().is_none() {
                self.out.extend_from_slice(b"<nil>");
                continue;
            }
            self.out.extend_from_slice(arg.type_name().as_bytes());
            self.out.push(b'=');
            self.print_arg(arg, 'v')?;
        }
        self.out.push(b')');
        Ok(())
    }
}
