//! Directives and node properties: anchors, aliases and tags.

use super::{Scanner, TokenKind, into_string, is_word};
use crate::mark::Error;

impl Scanner<'_> {
    pub(super) fn fetch_directive(&mut self) -> Result<(), Error> {
        self.unroll_indent(-1);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip();
        let mut name = Vec::new();
        while is_word(self.byte(0)) {
            self.read(&mut name);
        }
        if name.is_empty() {
            return Err(Error::scanner(
                "could not find expected directive name",
                self.mark,
            ));
        }
        if !self.blank_or_end(0) {
            return Err(Error::scanner(
                "found unexpected non-alphabetical character",
                self.mark,
            ));
        }
        while self.blank(0) {
            self.skip();
        }
        let kind = match name.as_slice() {
            b"YAML" => {
                let major = self.directive_number()?;
                if self.byte(0) != b'.' {
                    return Err(Error::scanner(
                        "did not find expected digit or '.' character",
                        self.mark,
                    ));
                }
                self.skip();
                TokenKind::VersionDirective {
                    major,
                    minor: self.directive_number()?,
                }
            }
            b"TAG" => {
                let handle = self.tag_handle(true)?;
                while self.blank(0) {
                    self.skip();
                }
                let prefix = self.tag_uri("")?;
                TokenKind::TagDirective { handle, prefix }
            }
            _ => return Err(Error::scanner("found unknown directive name", self.mark)),
        };
        self.push(kind, start);
        while self.blank(0) {
            self.skip();
        }
        self.skip_comment();
        if !self.end_or_break(0) {
            return Err(Error::scanner(
                "did not find expected comment or line break",
                self.mark,
            ));
        }
        self.skip_break();
        Ok(())
    }

    fn directive_number(&mut self) -> Result<u32, Error> {
        let mut value = 0_u32;
        let mut digits = 0;
        while self.byte(0).is_ascii_digit() {
            digits += 1;
            if digits > 9 {
                return Err(Error::scanner(
                    "found extremely long version number",
                    self.mark,
                ));
            }
            value = value * 10 + u32::from(self.byte(0) - b'0');
            self.skip();
        }
        if digits == 0 {
            return Err(Error::scanner(
                "did not find expected version number",
                self.mark,
            ));
        }
        Ok(value)
    }

    pub(super) fn fetch_anchor(&mut self, alias: bool) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        self.skip();
        let mut name = Vec::new();
        while is_word(self.byte(0)) {
            self.read(&mut name);
        }
        let c = self.byte(0);
        let ends = self.blank_or_end(0)
            || matches!(c, b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.is_empty() || !ends {
            let message = "did not find expected alphabetic or numeric character";
            return Err(Error::scanner(message, self.mark));
        }
        let name = into_string(name);
        self.push(
            if alias {
                TokenKind::Alias(name)
            } else {
                TokenKind::Anchor(name)
            },
            start,
        );
        Ok(())
    }

    pub(super) fn fetch_tag(&mut self) -> Result<(), Error> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.mark;
        let (handle, suffix);
        if self.byte(1) == b'<' {
            self.skip_bytes(2);
            handle = String::new();
            suffix = self.tag_uri("")?;
            if self.byte(0) != b'>' {
                return Err(Error::scanner("did not find the expected '>'", self.mark));
            }
            self.skip();
        } else {
            let found = self.tag_handle(false)?;
            if found.len() >= 2 && found.ends_with('!') {
                handle = found;
                suffix = self.tag_uri("")?;
            } else {
                let rest = self.tag_uri(&found)?;
                // A lone `!` is the non-specific tag.
                (handle, suffix) = if rest.is_empty() {
                    (String::new(), "!".to_owned())
                } else {
                    ("!".to_owned(), rest)
                };
            }
        }
        if !self.blank_or_end(0) {
            return Err(Error::scanner(
                "did not find expected whitespace or line break",
                self.mark,
            ));
        }
        self.push(TokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    fn tag_handle(&mut self, directive: bool) -> Result<String, Error> {
        if self.byte(0) != b'!' {
            return Err(Error::scanner("did not find expected '!'", self.mark));
        }
        let mut handle = Vec::new();
        self.read(&mut handle);
        while is_word(self.byte(0)) {
            self.read(&mut handle);
        }
        if self.byte(0) == b'!' {
            self.read(&mut handle);
        } else if directive && handle != b"!" {
            return Err(Error::scanner("did not find expected '!'", self.mark));
        }
        Ok(into_string(handle))
    }

    fn tag_uri(&mut self, head: &str) -> Result<String, Error> {
        let mut uri = head.get(1..).unwrap_or("").as_bytes().to_vec();
        let had_head = head.len() > 1;
        let mut any = had_head;
        loop {
            let c = self.byte(0);
            let allowed = is_word(c)
                || matches!(
                    c,
                    b',' | b'['
                        | b']'
                        | b';'
                        | b'/'
                        | b'?'
                        | b':'
                        | b'@'
                        | b'&'
                        | b'='
                        | b'+'
                        | b'$'
                        | b'.'
                        | b'!'
                        | b'~'
                        | b'*'
                        | b'\''
                        | b'('
                        | b')'
                        | b'%'
                );
            if !allowed {
                break;
            }
            any = true;
            if c == b'%' {
                let digits = [self.byte(1), self.byte(2)];
                let code = std::str::from_utf8(&digits)
                    .ok()
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .ok_or_else(|| Error::scanner("did not find URI escaped octet", self.mark))?;
                uri.push(code);
                self.skip_bytes(3);
            } else {
                self.read(&mut uri);
            }
        }
        if !any && head.is_empty() {
            return Err(Error::scanner("did not find expected tag URI", self.mark));
        }
        String::from_utf8(uri)
            .map_err(|_| Error::scanner("found an incorrect leading UTF-8 octet", self.mark))
    }
}
