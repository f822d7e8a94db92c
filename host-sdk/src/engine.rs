//! The engine: the compiled component, its base image, the pool of instances, worker threads, slots and parked cells.
//! One per process is enough; it is cheap to clone.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use codemode_core::budget;
use codemode_core::cell::Event;
use codemode_core::envelope::{DIGEST_BYTES, Digest};
use codemode_core::limits::{self, LimitError, Limits};
use codemode_core::slots::{Slots, SlotsFull};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc::UnboundedSender};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use crate::alarms::Alarms;
use crate::bridge::{self, Host};
use crate::catalog::Catalog;
use crate::drive::Drive;
use crate::instance::base_image;
use crate::session::SessionBuilder;
use crate::snapshot::BaseImage;
use crate::snapshot::store::ParkedStore;
use crate::starter::Starter;
use crate::ticker::Ticker;
use crate::workers::Workers;

/// Why an engine couldn't be made: the embedder's mistake, or the machine's.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refused the settings or the component.
    #[error("wasmtime refused {what}: {message}")]
    Wasmtime {
        /// What it was asked for.
        what: &'static str,
        /// What it said.
        message: String,
    },
    /// The system gave no thread.
    #[error("a thread couldn't be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A number of the configuration is out of range.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// How to make an engine.
///
/// ```
/// use codemode::EngineConfig;
/// let config = EngineConfig { workers: 2, ..EngineConfig::default() };
/// assert_eq!(config.slots.capacity(), 64);
/// ```
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Threads that run guest code. Default: one for each core.
    pub workers: usize,
    /// Where parked cells, and those that may be, take their slots from. Default: the pool of the process.
    pub slots: SlotPool,
    /// Instances that may be live at once, parked cells not counted. Default: 128. More cells than that take turns.
    pub instances: u32,
    /// Bytes that the snapshots of all parked cells may take together. Default: 1 GiB.
    pub parked_bytes: u64,
}

/// Slots for cells that are parked or may be: 64 for the process, unless an engine brings its own pool (contract 2.10).
/// Cloning it shares it.
///
/// ```
/// use codemode::{EngineConfig, SlotPool};
/// let pool = SlotPool::new(1_000)?;
/// let config = EngineConfig { slots: pool.clone(), ..EngineConfig::default() };
/// assert_eq!((pool.capacity(), pool.taken()), (1_000, 0));
/// assert!(SlotPool::new(0).is_err());
/// # Ok::<(), codemode::LimitError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SlotPool(Arc<Mutex<Slots>>);

impl SlotPool {
    /// A pool of this many slots.
    ///
    /// # Errors
    ///
    /// [`LimitError::OutOfRange`] unless it is from 1 to 100,000.
    pub fn new(slots: u64) -> Result<Self, LimitError> {
        limits::check(&limits::SLOTS, slots)?;
        Ok(Self(Arc::new(Mutex::new(Slots::new(slots)))))
    }

    /// The pool that all engines of this process share unless they are told otherwise.
    pub fn of_process() -> Self {
        static POOL: OnceLock<SlotPool> = OnceLock::new();
        let new = || Self(Arc::new(Mutex::new(Slots::new(limits::fixed(&limits::SLOTS)))));
        POOL.get_or_init(new).clone()
    }

    /// How many slots there are.
    pub fn capacity(&self) -> u64 {
        self.lock().capacity()
    }

    /// How many are taken.
    pub fn taken(&self) -> u64 {
        self.lock().taken()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            slots: SlotPool::of_process(),
            instances: u32::try_from(limits::fixed(&limits::INSTANCES)).unwrap_or(u32::MAX),
            parked_bytes: limits::fixed(&limits::PARKED_BYTES),
        }
    }
}

/// Runs cells. Cloning it shares it.
///
/// ```no_run
/// # fn main() -> Result<(), codemode::EngineError> {
/// let engine = codemode::Engine::new(codemode::EngineConfig::default())?;
/// let session = engine.session().build();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Shared>);

/// Looked up once: where the component's exports are.
pub(crate) struct Exports {
    pub install: ComponentExportIndex,
    pub start: ComponentExportIndex,
    pub settle: ComponentExportIndex,
    pub image: ComponentExportIndex,
    pub image_base: ComponentExportIndex,
    pub restore: ComponentExportIndex,
}

/// What all clones of an engine share.
pub(crate) struct Shared {
    pub wasmtime: wasmtime::Engine,
    pub pre: InstancePre<Host>,
    pub exports: Exports,
    pub base: BaseImage,
    pub workers: Workers,
    pub ticker: Ticker,
    pub alarms: Alarms,
    pub starter: Starter,
    /// Places for live instances.
    pub instances: Arc<Semaphore>,
    slots: SlotPool,
    parked_bytes: Arc<AtomicU64>,
    parked_bytes_max: u64,
    parked: Mutex<ParkedStore<Box<Drive>>>,
    /// Cells that hold an instance and wait, longest first.
    idle: Mutex<BTreeMap<u64, UnboundedSender<Event>>>,
    next_idle: AtomicU64,
    /// Cells that wait for an instance.
    queued: AtomicU64,
    started: Instant,
    instantiations: AtomicU64,
    sessions: AtomicU64,
    pool: Option<PoolReset>,
}

impl Engine {
    /// Makes an engine from the embedded guest.
    ///
    /// # Errors
    ///
    /// - [`EngineError::Limit`] when a number of `config` isn't allowed.
    /// - [`EngineError::Wasmtime`] when wasmtime refuses the component, for instance on a machine without the memory
    ///   features that it was compiled for.
    /// - [`EngineError::Thread`] when the system gives no thread.
    #[cfg(feature = "embedded-guest")]
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        static PRECOMPILED: &[u8] = include_bytes!(env!("CODEMODE_GUEST_CWASM"));
        static DIGEST: &str = include_str!(env!("CODEMODE_GUEST_DIGEST"));
        Self::assemble(config, parse_digest(DIGEST), |engine| {
            #[expect(unsafe_code, reason = "the precompiled form is a file of our own build, embedded at compile time")]
            // Safety: `PRECOMPILED` was written by the builder from our component, and wasmtime checks its version.
            unsafe {
                Component::deserialize(engine, PRECOMPILED)
            }
        })
    }

    /// Makes an engine from the bytes of a component, and compiles it, which takes about a second.
    ///
    /// # Errors
    ///
    /// As [`Engine::new`]; [`EngineError::Wasmtime`] also when the bytes are no component of this world.
    pub fn from_component(config: EngineConfig, component: &[u8]) -> Result<Self, EngineError> {
        Self::assemble(config, Sha256::digest(component).into(), |engine| Component::new(engine, component))
    }

    fn assemble(
        config: EngineConfig,
        digest: Digest,
        load: impl FnOnce(&wasmtime::Engine) -> wasmtime::Result<Component>,
    ) -> Result<Self, EngineError> {
        limits::check(&limits::WORKERS, config.workers as u64)?;
        limits::check(&limits::INSTANCES, config.instances.into())?;
        limits::check(&limits::PARKED_BYTES, config.parked_bytes)?;
        let (wasmtime, pool) = wasmtime_engine(&config)?;
        let component = load(&wasmtime).map_err(refused("the component"))?;
        let mut linker = Linker::new(&wasmtime);
        bridge::link(&mut linker).map_err(refused("the imports"))?;
        let pre = linker.instantiate_pre(&component).map_err(refused("the component's imports"))?;
        let exports = find_exports(&component)?;
        let base = measure_base(&wasmtime, &pre, &exports, digest).map_err(refused("the first instance"))?;
        Ok(Self(Arc::new(Shared {
            ticker: Ticker::start(wasmtime.clone())?,
            alarms: Alarms::start()?,
            starter: Starter::start()?,
            workers: Workers::start(config.workers)?,
            instances: Arc::new(Semaphore::new(config.instances as usize)),
            slots: config.slots,
            parked_bytes: Arc::default(),
            parked_bytes_max: config.parked_bytes,
            parked: Mutex::default(),
            idle: Mutex::default(),
            next_idle: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            started: Instant::now(),
            instantiations: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            wasmtime,
            pre,
            exports,
            base,
            pool,
        })))
    }

    /// Begins a session: whose cells, which tools, which limits.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder::new(self.0.clone())
    }

    /// What the engine has done and holds.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            instantiations: self.0.instantiations.load(Relaxed),
            slots_taken: self.0.slots.taken(),
            workers: self.0.workers.count() as u64,
            pool: self.0.pool,
            base_image_bytes: self.0.base.bytes.len() as u64,
            parked_bytes: self.0.parked_bytes.load(SeqCst),
        }
    }
}

/// How the memory of an instance is made fresh for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolReset {
    /// The kernel says which pages were written, and only those are reset. Linux from 6.7 on; the fastest.
    PageScan,
    /// Written memory is unmapped and faulted in again, which costs about three times as much.
    Unmap,
}

/// What an engine has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Instances made so far: one for each cell, and one for each time that a parked cell resumed.
    pub instantiations: u64,
    /// Slots that are taken.
    pub slots_taken: u64,
    /// Worker threads.
    pub workers: u64,
    /// How instances of the pool are reset. `None` without a pool, on machines that lack the address space for one: each
    /// instance is slower then.
    pub pool: Option<PoolReset>,
    /// Bytes of memory that every cell starts with and shares.
    pub base_image_bytes: u64,
    /// Bytes that the snapshots of parked cells take. Cells that have idled for a while are packed.
    pub parked_bytes: u64,
}

impl Shared {
    /// The time since the engine was made.
    pub fn now(&self) -> budget::Instant {
        self.started.elapsed()
    }

    /// The system's point in time for one of ours.
    pub fn instant(&self, at: budget::Instant) -> Instant {
        self.started + at
    }

    /// The number of the next session.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Relaxed)
    }

    pub fn count_instantiation(&self) {
        self.instantiations.fetch_add(1, Relaxed);
    }

    /// The parked cells. Whatever is taken out is dropped by the caller, outside of the lock.
    pub fn parked(&self) -> MutexGuard<'_, ParkedStore<Box<Drive>>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, after dropping what has expired.
    pub fn take_slot(self: &Arc<Self>) -> Result<Slot, SlotsFull> {
        let taken = self.slots.lock().take();
        if let Err(full) = taken {
            if !self.sweep() {
                return Err(full);
            }
            self.slots.lock().take()?;
        }
        Ok(Slot(self.slots.clone()))
    }

    /// Charges the bytes of a snapshot that is to be kept. `None` when all snapshots together would be too large.
    pub fn charge_parked(&self, bytes: u64) -> Option<ParkedBytes> {
        let charged = self
            .parked_bytes
            .fetch_update(SeqCst, SeqCst, |sum| sum.checked_add(bytes).filter(|sum| *sum <= self.parked_bytes_max));
        charged.ok().map(|_| ParkedBytes { sum: self.parked_bytes.clone(), bytes })
    }

    /// Drops parked cells that have expired. Whether there were any.
    pub fn sweep(&self) -> bool {
        let expired = self.parked().sweep(Instant::now());
        !expired.is_empty()
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<u64, UnboundedSender<Event>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a cell holds an instance and waits. When others wait for an instance, one is asked for at once.
    pub fn enter_idle(&self, cell: UnboundedSender<Event>) -> u64 {
        let ticket = self.next_idle.fetch_add(1, Relaxed);
        self.idle().insert(ticket, cell);
        if self.queued.load(SeqCst) > 0 {
            self.press_idle();
        }
        ticket
    }

    /// Notes that a cell waits for an instance, until the result is dropped.
    pub fn enter_queue(self: &Arc<Self>) -> Queued {
        self.queued.fetch_add(1, SeqCst);
        self.press_idle();
        Queued(self.clone())
    }

    /// Takes that note back.
    pub fn leave_idle(&self, ticket: u64) {
        self.idle().remove(&ticket);
    }

    /// Asks the cell that has been idle longest to give its instance back.
    fn press_idle(&self) {
        let longest = self.idle().pop_first();
        if let Some((_, cell)) = longest {
            // A cell that is gone has given it back already.
            let _ = cell.send(Event::Pressure);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.ticker.close();
        self.alarms.close();
    }
}

/// A cell that waits for an instance.
pub(crate) struct Queued(Arc<Shared>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, SeqCst);
    }
}

/// One slot, given back when dropped.
pub(crate) struct Slot(SlotPool);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.lock().give_back();
    }
}

/// Bytes of a snapshot that is kept, given back when dropped.
pub(crate) struct ParkedBytes {
    sum: Arc<AtomicU64>,
    bytes: u64,
}

impl ParkedBytes {
    /// The snapshot takes fewer bytes now.
    pub fn shrink(&mut self, bytes: u64) {
        let fewer = self.bytes.saturating_sub(bytes);
        self.bytes -= fewer;
        self.sum.fetch_sub(fewer, SeqCst);
    }
}

impl Drop for ParkedBytes {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, SeqCst);
    }
}

fn refused(what: &'static str) -> impl Fn(wasmtime::Error) -> EngineError {
    move |error| EngineError::Wasmtime { what, message: format!("{error:#}") }
}

/// A pooling engine, or one that allocates on demand where the address space is too small for a pool.
fn wasmtime_engine(config: &EngineConfig) -> Result<(wasmtime::Engine, Option<PoolReset>), EngineError> {
    let mut settings = Config::new();
    codemode_engine_config::apply(&mut settings);
    for (scan, reset) in [(Enabled::Yes, PoolReset::PageScan), (Enabled::No, PoolReset::Unmap)] {
        let mut pooled = settings.clone();
        pooled.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(config.instances, scan)));
        if let Ok(engine) = wasmtime::Engine::new(&pooled) {
            return Ok((engine, Some(reset)));
        }
    }
    wasmtime::Engine::new(&settings).map(|engine| (engine, None)).map_err(refused("the settings"))
}

fn pool(instances: u32, scan: Enabled) -> PoolingAllocationConfig {
    // One instance of the component is three core instances, one memory and two tables.
    const CORE_INSTANCES: u32 = 3;
    const TABLES: u32 = 2;
    /// The guest's function table is the largest.
    const TABLE_ELEMENTS: usize = 8_192;
    /// Memory of a freed instance up to this size is reset in place instead of unmapped.
    const KEPT_RESIDENT_BYTES: usize = 4 * 1024 * 1024;
    // One more for the instance that shows its base image.
    let instances = instances + 1;
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(instances)
        .total_core_instances(instances * CORE_INSTANCES)
        .total_memories(instances)
        .total_tables(instances * TABLES)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(usize::try_from(limits::MEMORY_LIMIT_BYTES.max).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(KEPT_RESIDENT_BYTES)
        .table_keep_resident(KEPT_RESIDENT_BYTES)
        .pagemap_scan(scan);
    pool
}

fn find_exports(component: &Component) -> Result<Exports, EngineError> {
    let find = |interface: &str, function: &str| {
        let (_, instance) = component.get_export(None, interface)?;
        component.get_export_index(Some(&instance), function)
    };
    let cell = |function| find("codemode:cell/cell@0.1.0", function);
    let snapshot = |function| find("codemode:cell/snapshot@0.1.0", function);
    let exports = || {
        Some(Exports {
            install: cell("install")?,
            start: cell("start")?,
            settle: cell("settle")?,
            image: snapshot("image")?,
            image_base: snapshot("image-base")?,
            restore: snapshot("restore")?,
        })
    };
    exports().ok_or_else(|| EngineError::Wasmtime {
        what: "the component",
        message: String::from("it isn't a component of the world codemode:cell/code-cell@0.1.0"),
    })
}

fn measure_base(
    engine: &wasmtime::Engine,
    pre: &InstancePre<Host>,
    exports: &Exports,
    component: Digest,
) -> wasmtime::Result<BaseImage> {
    let host = Host::new(&Limits::default(), Arc::default(), Catalog::default());
    let mut store = Store::new(engine, host);
    store.set_epoch_deadline(u64::MAX / 2);
    store.set_hostcall_fuel(usize::MAX);
    let instance = pre.instantiate(&mut store)?;
    let (address, bytes) = base_image(&mut store, &instance, exports)?;
    Ok(BaseImage { address, bytes: bytes.into(), component })
}

/// The digest from its hexadecimal form, which the builder wrote.
#[cfg(feature = "embedded-guest")]
fn parse_digest(text: &str) -> Digest {
    let mut digest = [0; DIGEST_BYTES];
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0);
    }
    digest
}
