//! Capacities of slices that Go's `append` creates: `{{ slice (append $list 1) 0 6 }}` shows what is
//! behind the last element.
//!
//! Source: `nextslicecap` in `runtime/slice.go` and `roundupsize` in `runtime/msize.go` of Go 1.26.

use super::{Kind, Type};

/// Sizes of memory blocks, in bytes.
const BLOCKS: [usize; 67] = [
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352,
    384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048,
    2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728,
    10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672,
    32768,
];
/// Larger blocks are whole pages.
const LARGEST: usize = 32768;
const PAGE: usize = 8192;
/// Blocks with pointers have a header if they are larger than this.
const NO_HEADER: usize = 512;
const HEADER: usize = 8;
/// Slices up to this capacity are doubled.
const DOUBLED: usize = 256;

/// Returns the capacity of a slice of type `ty` with capacity `old` after an append that makes it
/// `len` long, which is more than `old`.
pub(super) fn grown(ty: Type, old: usize, len: usize) -> usize {
    let mut cap = old;
    if len > old.saturating_mul(2) {
        cap = len;
    } else if old < DOUBLED {
        cap = 2 * old;
    } else {
        while cap < len {
            cap = cap.saturating_add((cap.saturating_add(3 * DOUBLED)) >> 2);
        }
    }
    let (size, has_pointers) = match ty.elem().kind() {
        Kind::Int | Kind::Int64 | Kind::Float64 => (8, false),
        Kind::Uint8 => (1, false),
        Kind::Slice => (24, true),
        Kind::Map | Kind::Ptr => (8, true),
        _ => (16, true),
    };
    block(cap.saturating_mul(size), has_pointers) / size
}

/// Returns the capacity of a slice after `len` elements were appended one by one.
pub(super) fn appended(ty: Type, first: usize, len: usize) -> usize {
    let mut cap = first;
    while cap < len {
        cap = grown(ty, cap, cap + 1);
    }
    cap
}

/// Returns the usable size of the block for this many bytes.
fn block(bytes: usize, has_pointers: bool) -> usize {
    if bytes > LARGEST - HEADER {
        return bytes.next_multiple_of(PAGE);
    }
    let has_header = has_pointers && bytes > NO_HEADER;
    let header = if has_header { HEADER } else { 0 };
    let needed = bytes + header;
    let found = BLOCKS.iter().find(|size| **size >= needed);
    found.copied().unwrap_or(needed) - header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_those_of_go() {
        for (ty, len, expected) in [
            (Type::LIST, 0, 0),
            (Type::LIST, 1, 1),
            (Type::LIST, 3, 4),
            (Type::LIST, 5, 8),
            (Type::INTS, 5, 8),
            (Type::INTS, 513, 848),
            (Type::LIST, 513, 591),
            (Type::STRINGS, 3, 4),
        ] {
            assert_eq!(appended(ty, 0, len), expected, "{ty} {len}");
        }
        assert_eq!(appended(Type::STRINGS, 10, 11), 20);
        assert_eq!(grown(Type::LIST, 3, 4), 6);
        assert_eq!(grown(Type::LIST, 1, 3), 3);
        assert_eq!(grown(Type::LIST, 5, 6), 10);
    }
}
