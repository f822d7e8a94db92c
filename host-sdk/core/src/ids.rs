//! Names of things: requests, runs, and who owns a run.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;

/// What a request asks for: the middle part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// A catalog search.
    Search,
    /// The full description of one tool.
    Describe,
    /// A call of a native or client tool.
    CallValue,
    /// Storing a result.
    ResultSave,
    /// Loading a stored result.
    ResultLoad,
    /// Deleting a stored result.
    ResultDelete,
    /// Any use of paired nodes.
    Nodes,
    /// An explicit yield.
    Yield,
    /// A call through a namespace such as MCP.
    Namespace,
    /// A timer.
    Sleep,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 10] = [
        Self::Search,
        Self::Describe,
        Self::CallValue,
        Self::ResultSave,
        Self::ResultLoad,
        Self::ResultDelete,
        Self::Nodes,
        Self::Yield,
        Self::Namespace,
        Self::Sleep,
    ];

    /// The name that results show.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Describe => "describe",
            Self::CallValue => "callValue",
            Self::ResultSave => "resultSave",
            Self::ResultLoad => "resultLoad",
            Self::ResultDelete => "resultDelete",
            Self::Nodes => "nodes",
            Self::Yield => "yield",
            Self::Namespace => "namespace",
            Self::Sleep => "sleep",
        }
    }

    /// Whether dispatching it counts as reaching outside: everything but yields and timers (contract 11.6).
    pub const fn reaches_outside(self) -> bool {
        !matches!(self, Self::Yield | Self::Sleep)
    }
}

/// `bridge:<method>:<number>`: a request of one cell. Numbers count per method over the cell's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// What it asks for.
    pub method: Method,
    /// From 1 upward within the method.
    pub number: u32,
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bridge:{}:{}", self.method.as_str(), self.number)
    }
}

/// `cm_` and a UUID: the id of a parked cell, which the model passes to `wait`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RunId(String);

impl RunId {
    /// The run id with this UUID in its usual lower-case form.
    pub fn new(uuid: impl fmt::Display) -> Self {
        Self(format!("cm_{uuid}"))
    }

    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `result_` and a UUID: the id of a saved result, which cells of the same run pass to `results.load`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResultId(String);

impl ResultId {
    /// The id with this UUID in its usual lower-case form.
    pub fn new(uuid: impl fmt::Display) -> Self {
        Self(format!("result_{uuid}"))
    }

    /// The text of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ResultId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Who makes a call. A parked cell goes on only for a caller that has every identity that its owner had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The agent run.
    pub run: Option<String>,
    /// The session.
    pub session: Option<String>,
    /// The agent.
    pub agent: Option<String>,
}

impl Owner {
    /// Whether `caller` may resume what this owner made (B 1.5.34).
    ///
    /// ```
    /// use codemode_core::ids::Owner;
    /// let owner = Owner { session: Some("s".into()), ..Owner::default() };
    /// assert!(owner.admits(&owner.clone()));
    /// assert!(!owner.admits(&Owner::default()));
    /// ```
    pub fn admits(&self, caller: &Self) -> bool {
        let matches = |mine: &Option<String>, theirs: &Option<String>| mine.is_none() || mine == theirs;
        matches(&self.run, &caller.run)
            && matches(&self.session, &caller.session)
            && matches(&self.agent, &caller.agent)
    }
}
