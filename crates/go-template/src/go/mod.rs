//! Go library semantics without template types.
