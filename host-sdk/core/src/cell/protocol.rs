//! What goes into the state machine and what comes out of it: closed lists.

use serde_json::value::RawValue;

use crate::budget::Budget;
use crate::ids::RequestId;
use crate::outcome::{Kind, PendingCall, WaitReason};
use crate::output::FinalValue;
use crate::slots::SlotsFull;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A turn ran to its end.
    TurnEnded(TurnReport),
    /// A turn, or taking the state out, didn't end by itself: it was stopped, it trapped, or the guest lied. The instance
    /// is gone, and nothing that it asked for may be dispatched.
    TurnLost(Lost),
    /// The slot that was asked for is taken.
    SlotTaken,
    /// No slot is free.
    SlotRefused(SlotsFull),
    /// A request that was dispatched has its reply. Requests that are unknown by now are ignored: they were cancelled.
    Settled(RequestId, Reply),
    /// The instance is gone, and its state is kept.
    Parked,
    /// The state is too large to be kept. The instance is gone.
    ParkRefused {
        /// The limit.
        bytes_max: u64,
    },
    /// A `wait` call was admitted, with its own budget.
    Waited(Budget),
    /// The budget of the current call may be spent.
    BudgetSpent,
    /// The turn that was asked for can't run in this call: no instance is there for it, or what is left of the budget
    /// doesn't suffice.
    TurnMissed {
        /// Whether the cell has an instance.
        has_instance: bool,
    },
    /// Somebody else needs the instance.
    Pressure,
    /// A tool began to wait for somebody's approval.
    ApprovalAsked,
    /// That approval was answered, or nobody waits for it any more.
    ApprovalAnswered,
    /// The cell has to end.
    Cancelled(CancelReason),
}

/// Why a cell has to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The call was cancelled, or nobody waits for it any more.
    Caller,
    /// The session of the cell was closed.
    SessionClosed,
    /// The session got other tools or permissions (B 1.6.44).
    ToolsReplaced,
}

impl CancelReason {
    /// How the cell ends.
    pub fn lost(self) -> Lost {
        let error = match self {
            Self::Caller => "the execution was cancelled",
            Self::SessionClosed => "the session is closed",
            Self::ToolsReplaced => {
                "the tools or permissions of this run have changed, so the program was stopped; go on with those that \
                 there are now, and don't repeat calls that were made already"
            }
        };
        Lost { kind: Kind::Aborted, error: error.to_owned() }
    }
}

/// Why a turn has no report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What happened.
    pub kind: Kind,
    /// The text for the model.
    pub error: String,
}

/// What a turn did.
#[derive(Debug)]
pub struct TurnReport {
    /// How it ended.
    pub turn: Turn,
    /// What it asked for, in order.
    pub requests: Vec<Request>,
    /// Timers that it cancelled, by number.
    pub cleared: Vec<u32>,
}

/// How a turn ended, as the guest says.
#[derive(Debug)]
pub enum Turn {
    /// The cell's promise is pending.
    Awaiting,
    /// The cell's promise is settled, and requests are not.
    Draining,
    /// The cell is done.
    Finished(FinalValue),
    /// The cell failed.
    Failed(Lost),
}

/// A request of the guest.
#[derive(Debug)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What it asks for.
    pub payload: Payload,
    /// Whether it may be repeated without effect.
    pub replay_safe: bool,
}

/// What a request asks for.
#[derive(Debug)]
pub enum Payload {
    /// A call of the tool with this index.
    Tool {
        /// The index in the catalog that the cell started with.
        index: u32,
        /// Its arguments.
        arguments: Box<RawValue>,
    },
    /// A catalog search.
    Search {
        /// What for.
        query: String,
        /// The most hits wanted.
        limit: Option<u64>,
    },
    /// The full description of the tool with this index.
    Describe {
        /// The index in the catalog that the cell started with.
        index: u32,
    },
    /// The declaration file of the tool with this index. Counts as a description.
    Declare {
        /// The index in the catalog that the cell started with.
        index: u32,
    },
    /// Keeping a value for later cells.
    Save {
        /// The value.
        value: Box<RawValue>,
    },
    /// A copy of a value that was kept.
    Load {
        /// Its id.
        id: String,
    },
    /// Forgetting a value that was kept.
    Delete {
        /// Its id.
        id: String,
    },
    /// A call whose arguments don't fit beside those that are pending; they weren't kept.
    Oversized,
    /// A call that breaks its tool's contract: it is rejected, and nothing is dispatched.
    Refused {
        /// For the guest.
        message: String,
        /// The stable code.
        code: &'static str,
    },
    /// A timer.
    Timer {
        /// Milliseconds until it fires.
        delay_ms: u64,
    },
    /// A yield.
    Yield {
        /// For the model.
        reason: Option<String>,
    },
}

impl Payload {
    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        let length = match self {
            Self::Tool { arguments, .. } => arguments.get().len(),
            Self::Save { value } => value.get().len(),
            Self::Search { query: text, .. } | Self::Load { id: text } | Self::Delete { id: text } => text.len(),
            Self::Yield { reason } => reason.as_ref().map_or(0, String::len),
            Self::Timer { .. }
            | Self::Describe { .. }
            | Self::Declare { .. }
            | Self::Oversized
            | Self::Refused { .. } => 0,
        };
        length as u64
    }
}

/// The reply to a request.
#[derive(Debug)]
pub enum Reply {
    /// A value.
    Value(Box<RawValue>),
    /// `undefined`: timers and yields.
    Done,
    /// An error.
    Failed {
        /// Its text.
        message: String,
        /// Its stable code, if it has one.
        code: Option<&'static str>,
    },
}

impl Reply {
    /// An error without a code.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), code: None }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> u64 {
        let length = match self {
            Self::Value(value) => value.get().len(),
            Self::Done => 0,
            Self::Failed { message, .. } => message.len(),
        };
        length as u64
    }
}

/// Something to do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Run the first turn; answer with `TurnEnded` or `TurnLost`.
    Start,
    /// Run a turn that delivers what [`super::Cell::take_replies`] gives at that moment, in an instance restored first if
    /// there is none; answer likewise.
    Settle,
    /// Take a slot; answer with `SlotTaken` or `SlotRefused`.
    TakeSlot,
    /// Carry out a request; answer with `Settled` some time.
    Dispatch(Request),
    /// Stop carrying out a request; its answer is not wanted any more.
    Cancel(RequestId),
    /// Give the instance back; the guest never runs again.
    Release,
    /// Put the state away and give the instance back; answer with `Parked` or `ParkRefused`.
    Park,
    /// The budget doesn't count any more: the cell rests, and somebody's approval is awaited. The owner's own budget may
    /// be paused as well.
    PauseBudget,
    /// The budget counts again. Follows each `PauseBudget`, before the guest runs or the call returns.
    ResumeBudget,
    /// The call returns a waiting result; the cell stays parked.
    Suspend(Suspension),
    /// The call returns a terminal result; the cell is closed.
    Finish(Ending),
}

/// What a waiting result says.
#[derive(Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Why it waits.
    pub reason: WaitReason,
    /// Every unsettled request.
    pub pending: Vec<PendingCall>,
    /// The text of the earliest pending yield, when all are yields.
    pub yield_reason: Option<String>,
}

/// How a cell ended.
#[derive(Debug)]
pub enum Ending {
    /// With a value.
    Completed(FinalValue),
    /// With a failure.
    Failed(Lost),
}
