//! Go's text/template with fmt and Sprig, byte for byte.
