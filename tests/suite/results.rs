//! What cells keep for later cells of their run, as the embedder sees it. What cells see is in `tests/cases`.

use std::sync::Arc;
use std::time::Duration;

use codemode::{Catalog, CatalogChange, Definition, ExecInput};
use serde_json::{Value, json};

use super::lifecycle::{Seen, builder, javascript, limited, poll_once, slow};
use super::{engine, exec, parsed, runtime};

#[test]
fn a_small_context_cuts_what_the_model_reads_and_keeps_the_value() {
    let (engine, runtime) = (engine(), runtime());
    let session = builder(&engine, &runtime).context_tokens(16_384).build().unwrap();
    let source = "return Array.from({ length: 2000 }, (_, n) => ({ n }))";
    let outcome = runtime.block_on(session.exec(ExecInput::javascript(source)));
    let reference = &parsed(&outcome)["value"]["reference"];
    assert_eq!(reference["count"], 2_000);
    assert!(outcome.text().len() <= 16_000);
    let kept = session.saved_result(reference["id"].as_str().unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(kept.value.get()).unwrap()[1_999]["n"], 1_999);
    assert!(!kept.is_untrusted);
    assert!(session.saved_result("result_x").is_none());
    let whole = exec(&runtime, &builder(&engine, &runtime).build().unwrap(), source);
    assert_eq!(whole["value"].as_array().map(Vec::len), Some(2_000));
    session.close();
    assert!(session.saved_result(reference["id"].as_str().unwrap()).is_none());
    let refused = builder(&engine, &runtime).context_tokens(100).build().err().unwrap().to_string();
    assert!(refused.contains("contextTokens"), "{refused}");
}

#[test]
fn a_value_that_nobody_learns_of_is_not_kept() {
    let (engine, runtime) = (engine(), runtime());
    let session = builder(&engine, &runtime).limits(limited("maxOutputBytes", "1024")).build().unwrap();
    let source =
        "const until = Date.now() + 20; while (Date.now() < until); return Array.from({ length: 900 }, (_, n) => n)";
    runtime.block_on(async {
        for delay in (0..12).cycle().take(64) {
            let mut dropped = javascript(&session, source);
            poll_once(&mut dropped).await;
            // Some are dropped before they are done, some after.
            tokio::time::sleep(Duration::from_millis(15 + delay)).await;
            drop(dropped);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let outcome = parsed(
            &session
                .exec(ExecInput::javascript(
                    "for (let n = 0; n < 64; n++) await results.save(n); return 'room for all'",
                ))
                .await,
        );
        assert_eq!(outcome["value"], "room for all", "{outcome}");
    });
}

#[test]
fn results_end_with_the_tools_that_they_were_made_with() {
    let (engine, runtime) = (engine(), runtime());
    let tool = |name: &str| Arc::new(slow(&Seen::default(), Definition::new(name, ""))) as Arc<dyn codemode::Tool>;
    let session = builder(&engine, &runtime).tools([tool("a")]).build().unwrap();
    let saved = exec(&runtime, &session, "return (await results.save([1])).id");
    let load = format!("return await results.load({})", saved["value"]);
    assert_eq!(session.set_catalog(Catalog::new([tool("a"), tool("b")])), CatalogChange::Added);
    assert_eq!(exec(&runtime, &session, &load)["value"], json!([1]));
    assert_eq!(session.set_catalog(Catalog::new([tool("b")])), CatalogChange::Replaced);
    assert_eq!(exec(&runtime, &session, &load)["kind"], "uncaught_exception");
}
