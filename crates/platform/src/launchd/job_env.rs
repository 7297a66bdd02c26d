//! What a launchd job says in its own `EnvironmentVariables`: it outranks the session.

use super::property_list::PropertyList;
use stablehand_engine::owner::{AgentKind, Owner};
use stablehand_engine::setting::Values;
use std::path::Path;

/// Which of our values the owner's own job sets differently; a sentence each.
pub fn outranked(owner: &Owner, values: &Values) -> Vec<String> {
    match owner {
        Owner::Brew { plist, .. } | Owner::Agent(AgentKind::LaunchAgent { plist, .. }) => in_plist(plist, values),
        Owner::App { .. }
        | Owner::Systemd { .. }
        | Owner::Agent(AgentKind::UserUnit { .. } | AgentKind::NewUnit { .. } | AgentKind::Process { .. })
        | Owner::Container { .. }
        | Owner::Manual { .. } => Vec::new(),
    }
}

fn in_plist(plist: &Path, values: &Values) -> Vec<String> {
    let Ok(Some(list)) = PropertyList::look(plist) else { return Vec::new() };
    let Some(variables) = list.top.get("EnvironmentVariables").and_then(plist::Value::as_dictionary) else {
        return Vec::new();
    };
    let differing = values.iter().filter_map(|(name, value)| {
        let set = variables.get(name.as_str())?.as_string()?;
        (set != value.as_str())
            .then(|| format!("{} sets {name}={set} for its own job, which outranks the session", plist.display()))
    });
    differing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_variables::server_values;

    #[test]
    fn a_jobs_own_variable_is_named_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let plist = folder.path().join("homebrew.mxcl.ollama.plist");
        let text = "<plist version=\"1.0\"><dict><key>EnvironmentVariables</key><dict><key>OLLAMA_KV_CACHE_TYPE</key>\
                    <string>q8_0</string><key>OLLAMA_MAX_QUEUE</key><string>10</string></dict></dict></plist>";
        std::fs::write(&plist, text).unwrap();
        let owner = Owner::Brew { label: "homebrew.mxcl.ollama".to_owned(), plist: plist.clone() };
        let values = server_values([("OLLAMA_KV_CACHE_TYPE", "f16"), ("OLLAMA_MAX_QUEUE", "10")]);
        let said = outranked(&owner, &values);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("sets OLLAMA_KV_CACHE_TYPE=q8_0 for its own job"), "{said:?}");
    }
}
