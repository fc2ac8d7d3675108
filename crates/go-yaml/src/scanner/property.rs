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
            return self.fail("could not find expected directive name");
        }
        if !self.blank_or_end(0) {
            return self.fail("found unexpected non-alphabetical character");
        }
        self.skip_blanks();
        let kind = match name.as_slice() {
            b"YAML" => {
                let major = self.directive_number()?;
                if self.byte(0) != b'.' {
                    return self.fail("did not find expected digit or '.' character");
                }
                self.skip();
                TokenKind::VersionDirective {
                    major,
                    minor: self.directive_number()?,
                }
            }
            b"TAG" => {
                let handle = self.tag_handle(true)?;
                self.skip_blanks();
                let prefix = self.tag_uri("")?;
                TokenKind::TagDirective { handle, prefix }
            }
            _ => return self.fail("found unknown directive name"),
        };
        self.push(kind, start);
        self.skip_end_of_line()
    }

    fn directive_number(&mut self) -> Result<u32, Error> {
        let mut value = 0_u32;
        let mut digits = 0;
        while self.byte(0).is_ascii_digit() {
            digits += 1;
            if digits > 9 {
                return self.fail("found extremely long version number");
            }
            value = value * 10 + u32::from(self.byte(0) - b'0');
            self.skip();
        }
        if digits == 0 {
            return self.fail("did not find expected version number");
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
            return self.fail(message);
        }
        let kind = if alias {
            TokenKind::Alias
        } else {
            TokenKind::Anchor
        };
        self.push(kind(into_string(name)), start);
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
                return self.fail("did not find the expected '>'");
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
            return self.fail("did not find expected whitespace or line break");
        }
        self.push(TokenKind::Tag { handle, suffix }, start);
        Ok(())
    }

    fn tag_handle(&mut self, directive: bool) -> Result<String, Error> {
        if self.byte(0) != b'!' {
            return self.fail("did not find expected '!'");
        }
        let mut handle = Vec::new();
        self.read(&mut handle);
        while is_word(self.byte(0)) {
            self.read(&mut handle);
        }
        if self.byte(0) == b'!' {
            self.read(&mut handle);
        } else if directive && handle != b"!" {
            return self.fail("did not find expected '!'");
        }
        Ok(into_string(handle))
    }

    fn tag_uri(&mut self, head: &str) -> Result<String, Error> {
        let mut uri = head.get(1..).unwrap_or("").as_bytes().to_vec();
        let mut any = head.len() > 1;
        loop {
            let c = self.byte(0);
            let allowed = is_word(c) || b",[];/?:@&=+$.!~*'()%".contains(&c);
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
            return self.fail("did not find expected tag URI");
        }
        String::from_utf8(uri)
            .map_err(|_| Error::scanner("found an incorrect leading UTF-8 octet", self.mark))
    }
}
