//! Runs the guest's `init` once and bakes the memory that it leaves into the component. The clocks stand still and
//! nothing is random meanwhile, so that the result depends on the component alone.

use std::time::Duration;

use anyhow::{Context as _, Result};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Instance, Lift, Linker, ResourceTable, WasmList};
use wasmtime::{Engine, Store};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxView, WasiView};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

use crate::readable;

/// The component with the state that `init` builds.
pub fn run(engine: &Engine, component: &[u8]) -> Result<Vec<u8>> {
    let mut wizer = Wizer::new();
    // The export stays; called again it traps.
    wizer.init_func("init").keep_init_func(true);
    let (context, instrumented) = wizer.instrument_component(component).map_err(readable)?;
    let instrumented = Component::new(engine, &instrumented).map_err(readable)?;

    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker).map_err(readable)?;
    refuse_bridge(&mut linker, engine, &instrumented)?;
    let mut store = Store::new(engine, Host::new());
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = linker.instantiate(&mut store, &instrumented).map_err(readable)?;
    instance
        .get_typed_func::<(), ()>(&mut store, "init")
        .and_then(|init| init.call(&mut store, ()))
        .map_err(readable)
        .context("the guest's init trapped")?;

    let mut state = Initialized { store, instance };
    tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(wizer.snapshot_component(&context, &mut state))
        .map_err(readable)
}

/// `init` runs no cell, so it has nothing to ask of the bridge.
fn refuse_bridge(linker: &mut Linker<Host>, engine: &Engine, component: &Component) -> Result<()> {
    for (interface, import) in component.component_type().imports(engine) {
        let ComponentItem::ComponentInstance(import) = import.ty else { continue };
        if !interface.starts_with("codemode:cell/") {
            continue;
        }
        let mut linker = linker.instance(interface).map_err(readable)?;
        for (function, item) in import.exports(engine) {
            if matches!(item.ty, ComponentItem::ComponentFunc(_)) {
                linker
                    .func_new(function, |_, _, _, _| wasmtime::bail!("init must not call the bridge"))
                    .map_err(readable)?;
            }
        }
    }
    Ok(())
}

struct Host {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl Host {
    fn new() -> Self {
        let wasi = WasiCtx::builder().wall_clock(StoppedClock).monotonic_clock(StoppedClock).build();
        Self { wasi, table: ResourceTable::new() }
    }
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

struct StoppedClock;

impl HostWallClock for StoppedClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for StoppedClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

/// Lets the preinitialiser read the instance's state. Its own wasmtime support would switch on features that the SDK's
/// engine doesn't have.
struct Initialized {
    store: Store<Host>,
    instance: Instance,
}

impl Initialized {
    #[expect(clippy::expect_used, reason = "the preinitialiser put these exports there itself")]
    fn call<R: Lift + 'static>(&mut self, instance: &str, function: &str) -> R {
        let (_, instance) = self.instance.get_export(&mut self.store, None, instance).expect("instrumented instance");
        let (_, function) =
            self.instance.get_export(&mut self.store, Some(&instance), function).expect("instrumented function");
        let function =
            self.instance.get_typed_func::<(), (R,)>(&mut self.store, function).expect("the type it asked for");
        function.call(&mut self.store, ()).expect("reading state doesn't trap").0
    }
}

impl ComponentInstanceState for Initialized {
    async fn call_func_ret_list_u8(&mut self, instance: &str, function: &str, contents: impl FnOnce(&[u8]) + Send) {
        let list: WasmList<u8> = self.call(instance, function);
        contents(list.as_le_slice(&self.store));
    }

    async fn call_func_ret_s32(&mut self, instance: &str, function: &str) -> i32 {
        self.call(instance, function)
    }

    async fn call_func_ret_s64(&mut self, instance: &str, function: &str) -> i64 {
        self.call(instance, function)
    }

    async fn call_func_ret_f32(&mut self, instance: &str, function: &str) -> u32 {
        self.call::<f32>(instance, function).to_bits()
    }

    async fn call_func_ret_f64(&mut self, instance: &str, function: &str) -> u64 {
        self.call::<f64>(instance, function).to_bits()
    }
}
