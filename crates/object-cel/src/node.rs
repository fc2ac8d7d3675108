//! A checked expression, ready to be evaluated.

use std::fmt;
use std::sync::Arc;

use regex_automata::meta::Regex;

use crate::value::Value;

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Literal(Value),
    Variable(String),
    Select {
        of: Box<Node>,
        field: String,
        optional: bool,
    },
    Has {
        of: Box<Node>,
        field: String,
    },
    Index {
        of: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    /// Condition, value if it is true, and value if it is false.
    Conditional(Box<[Node; 3]>),
    Call {
        function: &'static str,
        arguments: Vec<Node>,
    },
    Search {
        function: &'static str,
        pattern: Pattern,
        arguments: Vec<Node>,
    },
    Loop(Box<Loop>),
}

/// A compiled regular expression, and the length of its text.
#[derive(Clone)]
pub(crate) struct Pattern(pub(crate) Arc<Regex>, pub(crate) usize);

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({} bytes)", self.1)
    }
}

/// A macro that binds a variable to each element of a list, or to each key of a map.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) range: Node,
    pub(crate) variable: String,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// `map` and `filter`.
    Map,
}

impl Loop {
    /// Returns the name of the macro.
    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            LoopKind::All => "all",
            LoopKind::Exists => "exists",
            LoopKind::ExistsOne => "exists_one",
            LoopKind::Map if self.filter.is_some() => "filter",
            LoopKind::Map => "map",
        }
    }
}
