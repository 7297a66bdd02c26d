//! `stablehand gateway`: where it stands, and where it shall.

use crate::paint::Paint;
use stablehand_protocol::{Gateway, Known};

/// Where it stands, as a page.
pub fn page(gateway: &Gateway, paint: Paint) -> String {
    let mark = match gateway.state.as_str() {
        "in-place" | "beside" | "off" => paint.good(&gateway.state),
        "aside" => paint.bad(&gateway.state),
        other => paint.doubtful(other),
    };
    let mut page = format!("{mark}  {}\n", gateway.words);
    if matches!(gateway.state.as_str(), "aside" | "changing" | "leaving") {
        page.push_str(&format!("wished     {}\n", gateway.mode));
    }
    if let (Some(listen), Some(upstream)) = (&gateway.listen, &gateway.upstream) {
        page.push_str(&format!("listens    {listen}\nollama     {upstream}\n"));
        let healthy = match &gateway.healthy {
            Known::Is(true) => paint.good("requests come through"),
            Known::Is(false) => paint.bad("requests do not come through"),
            Known::Unknown { unknown } => paint.doubtful(&format!("unknown: {unknown}")),
        };
        page.push_str(&format!("health     {healthy}\n"));
    }
    if let Some(pid) = gateway.pid {
        page.push_str(&format!("pid        {pid}\n"));
    }
    if let Some(failure) = &gateway.aside {
        page.push_str(&format!("           → {}\n", failure.hint));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_protocol::Failure;

    #[test]
    fn a_gateway_that_stands_aside_says_why_and_what_to_do() {
        let gateway = Gateway {
            mode: "takeover".to_owned(),
            state: "aside".to_owned(),
            words: "the gateway does not stand in Ollama's place: Ollama is not running".to_owned(),
            listen: None,
            upstream: None,
            healthy: Known::unknown("the gateway does not run"),
            pid: None,
            aside: Some(Failure::new("ollama-down", "Ollama is not running", "it is taken over again when it runs")),
        };
        let page = page(&gateway, Paint::Plain);
        assert!(page.starts_with("aside  the gateway does not stand"), "{page}");
        assert!(page.contains("wished     takeover\n") && page.ends_with("→ it is taken over again when it runs\n"));
    }
}
