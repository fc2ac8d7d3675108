//! Reads `.tgz` archives of charts. The content is not trusted.

use std::cell::Cell;
use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::File;
use crate::release::Time;

/// Limits on the size of a chart. The defaults suit every chart that Helm itself loads.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Number of files and directories in an archive or directory.
    pub entries: usize,
    /// Total size of all unpacked files, in bytes.
    pub unpacked: u64,
    /// Depth to which charts may be nested in `charts/` directories.
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            unpacked: 100 << 20,
            nesting: 32,
        }
    }
}

/// Remainder of the limits while a chart with its nested archives is read.
#[derive(Debug)]
pub(crate) struct Room<'l> {
    pub(crate) limits: &'l Limits,
    entries: Cell<usize>,
    unpacked: Cell<u64>,
}

impl<'l> Room<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            entries: Cell::new(limits.entries),
            unpacked: Cell::new(limits.unpacked),
        }
    }

    /// Counts an entry.
    fn entry(&self) -> Result<(), ArchiveError> {
        let left = self.entries.get().checked_sub(1);
        let limit = self.limits.entries;
        self.entries
            .set(left.ok_or(ArchiveError::TooManyEntries { limit })?);
        Ok(())
    }

    /// Counts the size of a file.
    fn size(&self, size: u64) -> Result<(), ArchiveError> {
        let left = self.unpacked.get().checked_sub(size);
        let limit = self.limits.unpacked;
        self.unpacked
            .set(left.ok_or(ArchiveError::TooLarge { limit })?);
        Ok(())
    }
}

/// An error in an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive cannot be unpacked.
    #[error("the chart archive cannot be unpacked")]
    Unpack(#[source] io::Error),
    /// More entries than the limit.
    #[error("the chart archive has more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// More bytes than the limit.
    #[error("the chart archive unpacks to more than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// An absolute path.
    #[error("the chart archive contains the absolute path {0:?}")]
    Absolute(String),
    /// A path that leads outside the chart.
    #[error("the chart archive contains {0:?}, which leads outside the chart")]
    Escapes(String),
    /// A path that is not below the chart's directory.
    #[error("the chart archive contains {0:?}, which is outside the chart's directory")]
    OutsideBase(String),
    /// A path with a Windows drive.
    #[error("the chart archive contains {0:?}, which names a drive")]
    Drive(String),
    /// `Chart.yaml` at the top.
    #[error("Chart.yaml is not in the chart's directory")]
    ChartYamlAtTop,
    /// A link.
    #[error("the chart archive contains the link {0:?}")]
    Link(String),
    /// A device or another special file.
    #[error("the chart archive contains {0:?}, which is not a regular file")]
    Irregular(String),
    /// No files.
    #[error("no files in the chart archive")]
    Empty,
}

/// Returns the files of an archive, with the chart's directory removed from their paths.
///
/// # Errors
/// If the text is not an archive of a chart, has entries that are not files, or exceeds a limit.
pub fn read(archive: &[u8], limits: &Limits) -> Result<Vec<File>, ArchiveError> {
    read_into(archive, &Room::new(limits))
}

/// Like [`read`], within what is left of the limits.
pub(crate) fn read_into(archive: &[u8], room: &Room<'_>) -> Result<Vec<File>, ArchiveError> {
    // Headers and padding add to the size of the files.
    let overhead = 4096_u64
        .saturating_mul(room.entries.get() as u64)
        .min(room.unpacked.get());
    let bound = room
        .unpacked
        .get()
        .saturating_add(overhead)
        .saturating_add(1 << 20);
    #[cfg(feature = "libdeflate")]
    if let Some(unpacked) = unpack_whole(archive, bound) {
        return entries(&unpacked, room);
    }
    let mut unpacked = Vec::new();
    let end = MultiGzDecoder::new(archive)
        .take(bound)
        .read_to_end(&mut unpacked);
    match end {
        // Errors after the zero blocks that end a tar are ignored, as in Helm.
        Err(error) if !ends(&unpacked) => Err(ArchiveError::Unpack(error)),
        _ => entries(&unpacked, room),
    }
}

fn ends(tar: &[u8]) -> bool {
    let mut blocks = tar.chunks_exact(512);
    blocks
        .next_back()
        .is_some_and(|block| block.iter().all(|byte| *byte == 0))
}

/// The first bytes of a gzip member.
#[cfg(feature = "libdeflate")]
const MAGIC: &[u8] = b"\x1f\x8b\x08";
/// Largest number of bytes that one deflated byte can expand to.
#[cfg(feature = "libdeflate")]
const MAX_EXPANSION: u64 = 1032;

/// Unpacks an archive that is a single gzip member of the size in its trailer, as nearly all are.
/// This takes half the time of streaming. Returns `None` for all other archives.
#[cfg(feature = "libdeflate")]
fn unpack_whole(archive: &[u8], bound: u64) -> Option<Vec<u8>> {
    let size = u32::from_le_bytes(*archive.last_chunk()?);
    let members = memchr::memmem::find_iter(archive, MAGIC).take(2).count();
    let possible = bound.min(MAX_EXPANSION.saturating_mul(archive.len() as u64));
    if members != 1 || u64::from(size) > possible {
        return None;
    }
    let mut unpacked = vec![0; usize::try_from(size).ok()?];
    let written = libdeflater::Decompressor::new().gzip_decompress(archive, &mut unpacked);
    (written == Ok(unpacked.len())).then_some(unpacked)
}

/// Returns the files of an unpacked archive.
fn entries(unpacked: &[u8], room: &Room<'_>) -> Result<Vec<File>, ArchiveError> {
    let mut tar = tar::Archive::new(Cursor::new(unpacked));
    let mut files = Vec::new();
    let entries = tar.entries_with_seek().map_err(ArchiveError::Unpack)?;
    for entry in entries {
        room.entry()?;
        let entry = entry.map_err(ArchiveError::Unpack)?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        // Old archives mark a directory by the slash alone; in others, it is part of a file's name.
        let is_old = entry.header().as_bytes().get(TYPE_AT) == Some(&0);
        let is_directory = kind.is_dir() || is_old && path.ends_with('/');
        if is_directory || kind.is_pax_global_extensions() {
            continue;
        }
        if kind.is_symlink() || kind.is_hard_link() {
            return Err(ArchiveError::Link(path));
        }
        if !(kind.is_file() || kind.is_contiguous()) {
            return Err(ArchiveError::Irregular(path));
        }
        let name = chart_path(&path)?;
        let size = entry.size();
        room.size(size)?;
        let data = content(unpacked, entry.raw_file_position(), size)
            .ok_or_else(|| ArchiveError::Unpack(io::ErrorKind::UnexpectedEof.into()))?;
        let modified = modified(entry.header());
        files.push(File::new(name, without_bom(data)).modified_at(modified));
    }
    if files.is_empty() {
        Err(ArchiveError::Empty)
    } else {
        Ok(files)
    }
}

/// Position of a header's type, which is 0 in old archives.
const TYPE_AT: usize = 156;

fn content(unpacked: &[u8], start: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    unpacked.get(start..end)
}

fn modified(header: &tar::Header) -> Option<Time> {
    let seconds = i64::try_from(header.mtime().ok()?).ok()?;
    jiff::Timestamp::from_second(seconds).ok().map(Time::utc)
}

/// Returns the content without a leading byte-order mark.
pub(crate) fn without_bom(data: &[u8]) -> &[u8] {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data)
}

/// Converts an archive's `path` to a path within the chart: without the first component, with `/`
/// as the separator, and cleaned.
fn chart_path(path: &str) -> Result<String, ArchiveError> {
    let separator = if path.contains('\\') { '\\' } else { '/' };
    let (base, below) = path.split_once(separator).unwrap_or((path, ""));
    let below = below.replace(separator, "/");
    if below.starts_with('/') {
        return Err(ArchiveError::Absolute(path.to_owned()));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts
                    .pop()
                    .ok_or_else(|| ArchiveError::Escapes(path.to_owned()))?;
            }
            part => parts.push(part),
        }
    }
    let name = parts.join("/");
    if name.is_empty() {
        return Err(if base == "Chart.yaml" {
            ArchiveError::ChartYamlAtTop
        } else {
            ArchiveError::OutsideBase(path.to_owned())
        });
    }
    let mut bytes = name.bytes();
    if bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic()) && name.get(1..3) == Some(":/") {
        return Err(ArchiveError::Drive(path.to_owned()));
    }
    if name.starts_with("..") {
        return Err(ArchiveError::Escapes(path.to_owned()));
    }
    if base == "Chart.yaml" {
        return Err(ArchiveError::ChartYamlAtTop);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(tar: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(tar).unwrap();
        gzip.finish().unwrap()
    }

    /// Returns an archive whose paths are written unchecked.
    fn archive(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, kind, data) in entries {
            let mut header = tar::Header::new_ustar();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(data.len() as u64);
            header.set_mtime(1_700_000_000);
            header.set_cksum();
            tar.append(&header, *data).unwrap();
        }
        gzip(&tar.into_inner().unwrap())
    }

    fn error(entries: &[(&str, tar::EntryType, &[u8])], limits: &Limits) -> String {
        read(&archive(entries), limits).unwrap_err().to_string()
    }

    const FILE: tar::EntryType = tar::EntryType::Regular;

    #[test]
    fn archive_directory_and_byte_order_mark_are_removed() {
        let archive = archive(&[
            ("web/", tar::EntryType::Directory, b""),
            ("web/./templates//a.yaml", FILE, b"\xef\xbb\xbfa"),
            ("web\\b\\c.txt", FILE, b"b"),
        ]);
        let files = read(&archive, &Limits::default()).unwrap();
        let found: Vec<_> = files
            .iter()
            .map(|file| (file.name(), file.data()))
            .collect();
        assert_eq!(
            found,
            [("templates/a.yaml", b"a".as_slice()), ("b/c.txt", b"b")]
        );
        assert_eq!(
            files[0].modified().unwrap().to_string(),
            "2023-11-14T22:13:20Z"
        );
    }

    #[test]
    fn a_slash_at_the_end_of_a_files_name_is_dropped() {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, kind) in [("web/c/dd/", b'0'), ("web/d/", 0)] {
            let mut header = tar::Header::new_ustar();
            let bytes = header.as_mut_bytes();
            bytes[..path.len()].copy_from_slice(path.as_bytes());
            bytes[TYPE_AT] = kind;
            header.set_size(0);
            header.set_cksum();
            tar.append(&header, b"".as_slice()).unwrap();
        }
        let archive = gzip(&tar.into_inner().unwrap());
        let files = read(&archive, &Limits::default()).unwrap();
        let names: Vec<_> = files.iter().map(File::name).collect();
        assert_eq!(names, ["c/dd"]);
    }

    #[test]
    fn hostile_paths_and_links_are_rejected() {
        let limits = Limits::default();
        for (path, message) in [
            ("web/../../etc/passwd", "leads outside the chart"),
            ("web//etc/passwd", "absolute path"),
            ("web/c:/x", "names a drive"),
            ("Chart.yaml", "Chart.yaml is not in the chart's directory"),
            ("file", "outside the chart's directory"),
        ] {
            let text = error(&[(path, FILE, b"x")], &limits);
            assert!(text.contains(message), "{path}: {text}");
        }
        let link = error(&[("web/a", tar::EntryType::Symlink, b"")], &limits);
        assert!(link.contains("link"), "{link}");
        let device = error(&[("web/a", tar::EntryType::Char, b"")], &limits);
        assert!(device.contains("not a regular file"), "{device}");
    }

    #[test]
    fn limits_are_enforced() {
        let files: [(&str, tar::EntryType, &[u8]); 2] =
            [("web/a", FILE, b"12345"), ("web/b", FILE, b"67890")];
        let few = Limits {
            entries: 1,
            ..Limits::default()
        };
        assert!(error(&files, &few).contains("more than 1 entries"));
        let small = Limits {
            unpacked: 9,
            ..Limits::default()
        };
        assert!(error(&files, &small).contains("more than 9 bytes"));
    }

    #[test]
    fn further_gzip_members_are_unpacked_and_trailing_garbage_is_ignored() {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_path("web/a").unwrap();
        header.set_size(1);
        header.set_cksum();
        tar.append(&header, b"a".as_slice()).unwrap();
        let tar = tar.into_inner().unwrap();
        let (head, tail) = tar.split_at(700);
        let members = [gzip(head), gzip(tail)].concat();
        assert_eq!(read(&members, &Limits::default()).unwrap().len(), 1);
        // The checksum is wrong, and garbage follows.
        let mut broken = gzip(&tar);
        let checksum = broken.len() - 8;
        broken[checksum] ^= 1;
        broken.extend(b"rubbish");
        assert_eq!(read(&broken, &Limits::default()).unwrap().len(), 1);
    }

    #[test]
    fn truncated_and_non_gzip_input_is_an_error() {
        let good = archive(&[("web/a", FILE, &[7; 2000])]);
        for length in [0, 5, 20, good.len() / 2] {
            assert!(
                read(&good[..length], &Limits::default()).is_err(),
                "{length}"
            );
        }
        assert!(read(b"not gzip at all", &Limits::default()).is_err());
        assert!(read(&gzip(b""), &Limits::default()).is_err());
    }
}
